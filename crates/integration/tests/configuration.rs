//! Directives, what is said where something is wrong or missing, and the status page.

use std::net::SocketAddr;

use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, KeyType, Lanes, Metrics, Nginx, Offer,
    concurrently, each_build, unused_address,
};

each_build!(
    errors_name_file_and_line,
    a_block_in_the_wrong_place,
    every_directive_is_accepted,
    a_test_of_the_configuration_says_what_it_does,
    slipstream_without_a_block,
    a_block_without_slipstream,
    lanes_off,
    event_methods_other_than_epoll,
    out_of_fibers,
    the_status_page,
    the_status_of_two_workers,
    nothing_but_the_module_loaded,
);

fn errors_name_file_and_line(build: Build) {
    for (directives, message) in [
        (
            "fibers 0;",
            "invalid value \"0\" in \"fibers\" directive: give a number from 1 to",
        ),
        (
            "fibers many;",
            "invalid value \"many\" in \"fibers\" directive",
        ),
        (
            "fibers 30001;",
            "invalid value \"30001\" in \"fibers\" directive",
        ),
        (
            "fiber_stack 32k;",
            "invalid value \"32k\" in \"fiber_stack\" directive: give a size",
        ),
        (
            "fiber_stack 65m;",
            "invalid value \"65m\" in \"fiber_stack\" directive",
        ),
        (
            "fiber_stack -1;",
            "invalid value \"-1\" in \"fiber_stack\" directive",
        ),
        (
            "fiber_stack 99999999999999999999k;",
            "\"fiber_stack\" directive",
        ),
        (
            "flush 9;",
            "invalid value \"9\" in \"flush\" directive: give auto, or the number",
        ),
        ("flush 0;", "invalid value \"0\" in \"flush\" directive"),
        (
            "flush often;",
            "invalid value \"often\" in \"flush\" directive",
        ),
        (
            "lanes fast;",
            "invalid value \"fast\" in \"lanes\" directive: give auto, off,",
        ),
        (
            "ahead 7;",
            "invalid value \"7\" in \"ahead\" directive: give off, or the number",
        ),
        (
            "ahead 4097;",
            "invalid value \"4097\" in \"ahead\" directive",
        ),
        ("ahead on;", "invalid value \"on\" in \"ahead\" directive"),
        (
            "lanes auto off;",
            "invalid number of arguments in \"lanes\" directive",
        ),
        (
            "fibers;",
            "invalid number of arguments in \"fibers\" directive",
        ),
        (
            "offload card;",
            "invalid value \"card\" in \"offload\" directive: give async, sync or software",
        ),
        (
            "poll timer;",
            "invalid value \"timer\" in \"poll\" directive: give idle, hybrid,",
        ),
        (
            "poll timer 10;",
            "invalid value \"timer 10\" in \"poll\" directive: give timer a time",
        ),
        (
            "poll timer 2s;",
            "invalid value \"timer 2s\" in \"poll\" directive: give timer a time",
        ),
        (
            "poll timer 1ms 2ms;",
            "invalid number of arguments in \"poll\" directive",
        ),
        (
            "poll_thresholds 48;",
            "invalid value \"48\" in \"poll_thresholds\" directive: give two numbers",
        ),
        (
            "poll_thresholds 0 24;",
            "invalid value \"0 24\" in \"poll_thresholds\" directive",
        ),
        (
            "notify pipe;",
            "invalid value \"pipe\" in \"notify\" directive: give queue or fd",
        ),
        (
            "device /run/engine.sock;",
            "invalid value \"/run/engine.sock\" in \"device\" directive: give off, or unix:",
        ),
        (
            "device unix:engine.sock;",
            "invalid value \"unix:engine.sock\" in \"device\" directive",
        ),
        (
            "ring 100;",
            "invalid value \"100\" in \"ring\" directive: give a power of two",
        ),
        (
            "interrupts 65;",
            "invalid value \"65\" in \"interrupts\" directive: give adaptive, or",
        ),
        ("weight 17;", "invalid value \"17\" in \"weight\" directive"),
        (
            "keys secret;",
            "invalid value \"secret\" in \"keys\" directive: give shared or isolated",
        ),
        (
            "keys isolated; }",
            "\"keys isolated\" needs a \"device\" that holds the keys",
        ),
        ("ring 64; }", "\"ring\" means nothing without a \"device\""),
        (
            "threads 4;",
            "unknown directive \"threads\" in slipstream block: fibers, fiber_stack,",
        ),
    ] {
        // The block begins in line 2, behind load_module.
        let block = Lanes::Block(format!("\n{directives}\n"));
        let (accepted, messages) = Nginx::test(build, &Configuration::new().lanes(block));
        assert!(!accepted, "{directives}");
        let line = messages
            .lines()
            .find(|line| line.contains(message))
            .unwrap_or_else(|| panic!("{directives}: {messages}"));
        assert!(line.contains("[emerg]"), "{line}");
        assert!(line.ends_with("/nginx.conf:3"), "{line}");
    }
}

fn a_block_in_the_wrong_place(build: Build) {
    for (configuration, message) in [
        (
            Configuration::new().main("slipstream { fibers 5; }"),
            "\"slipstream\" directive is duplicate",
        ),
        (
            Configuration::new()
                .slipstream(None)
                .http("slipstream perhaps;"),
            "invalid value \"perhaps\" in \"slipstream\"",
        ),
        (
            Configuration::new().http("slipstream on;"),
            "\"slipstream\" directive is duplicate",
        ),
        (
            Configuration::new()
                .slipstream(None)
                .http("slipstream { fibers 5; }"),
            "directive \"slipstream\" is not terminated",
        ),
        (
            Configuration::new().http("slipstream_status;"),
            "\"slipstream_status\" directive is not allowed",
        ),
        (
            Configuration::new().main("slipstream on;"),
            "directive \"slipstream\" has no opening",
        ),
        (
            Configuration::new().events("slipstream on;"),
            "\"slipstream\" directive is not allowed",
        ),
        (
            Configuration::stock().http("slipstream on;"),
            "unknown directive \"slipstream\"",
        ),
    ] {
        let (accepted, messages) = Nginx::test(build, &configuration);
        assert!(!accepted, "{message}");
        assert!(messages.contains(message), "{messages}");
        assert!(messages.contains("/nginx.conf:"), "{messages}");
    }
}

fn every_directive_is_accepted(build: Build) {
    for directives in [
        "",
        "fibers 1; fiber_stack 64k; flush 1; lanes auto;",
        "fibers 30000; fiber_stack 64m; flush 8; lanes portable; ahead 4096; nonces_ahead 8; offload async; poll timer 10us; poll_thresholds 48 24; notify fd; \
         device unix:/nowhere/engine.sock; device_user 65534; ring 64; interrupts 4; weight 2; keys shared;",
        "fiber_stack 65536; flush auto; lanes off; ahead off; nonces_ahead off;",
    ] {
        let configuration = Configuration::new().lanes(Lanes::Block(directives.to_owned()));
        let (accepted, messages) = Nginx::test(build, &configuration);
        assert!(accepted, "{directives}: {messages}");
    }
}

fn a_test_of_the_configuration_says_what_it_does(build: Build) {
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let configuration = |directives: &str| {
        Configuration::new()
            .lanes(Lanes::Block(directives.to_owned()))
            .server(format!("{} ssl", unused_address()), &[&credentials], "")
    };
    for (configuration, message) in [
        (
            configuration("lanes portable;"),
            "nginx: {pid}: slipstream: handshakes are accelerated by portable lanes",
        ),
        (
            configuration("device unix:/nowhere/engine.sock;"),
            "nginx: {pid}: slipstream: handshakes are accelerated by the device /nowhere/engine.sock",
        ),
        (
            configuration("lanes off;"),
            "[warn] {pid}: slipstream: \"lanes off\", handshakes are served as without the module",
        ),
        (
            Configuration::new().lanes(Lanes::Block("lanes portable;".to_owned())),
            "[warn] {pid}: slipstream: no server has TLS",
        ),
    ] {
        let (accepted, messages) = Nginx::test(build, &configuration);
        assert!(accepted, "{messages}");
        let (level, text) = message.split_once(" {pid}: ").expect("a level and a text");
        let line = messages.lines().find(|line| line.contains(text));
        assert!(
            line.is_some_and(|line| line.contains(level)),
            "{text}: {messages}"
        );
    }
    let off = configuration("").slipstream(Some(false));
    let (_, messages) = Nginx::test(build, &off);
    assert!(!messages.contains("slipstream:"), "{messages}");
}

fn slipstream_without_a_block(build: Build) {
    let server = Server::start(build, Configuration::new().lanes(Lanes::Defaults));
    server.serve_all();
    let metrics = server.nginx.settled();
    if !is_x86_feature_detected!("avx512f") {
        // There are no lanes then, and the module takes no part.
        return assert_eq!(metrics.handshakes(), 0);
    }
    metrics.expect_all_done(2 * CONNECTIONS as u64);
}

fn a_block_without_slipstream(build: Build) {
    for slipstream in [None, Some(false)] {
        let server = Server::start(build, Configuration::new().slipstream(slipstream));
        server.serve_all();
        server.expect_stock();
        assert_eq!(server.nginx.log_lines_with("slipstream"), 0);
    }
}

fn nothing_but_the_module_loaded(build: Build) {
    let configuration = Configuration::new().slipstream(None).lanes(Lanes::Defaults);
    let server = Server::start(build, configuration);
    server.serve_all();
    server.expect_stock();
    assert_eq!(server.nginx.log_lines_with("slipstream"), 0);
}

fn lanes_off(build: Build) {
    let server = Server::start(
        build,
        Configuration::new().lanes(Lanes::Block("lanes off;".into())),
    );
    server
        .nginx
        .expect_log("\"lanes off\", handshakes are served as without the module");
    server.serve_all();
    server.expect_stock();
    assert_eq!(server.nginx.log_lines_with("slipstream:"), 1);
}

fn event_methods_other_than_epoll(build: Build) {
    for method in ["select", "poll"] {
        let events = format!("use {method};");
        if !Nginx::test(build, &Configuration::stock().events(&events)).0 {
            eprintln!("skipped: this build of nginx has no {method}");
            continue;
        }
        let server = Server::start(build, Configuration::new().events(&events));
        let warning = "no edge-triggered epoll, handshakes are served as without the module";
        server.nginx.expect_log(warning);
        server.serve_all();
        server.expect_stock();
        assert_eq!(server.nginx.log_lines_with(warning), 1);
    }
}

fn out_of_fibers(build: Build) {
    let lanes = Lanes::ForcedWith("fibers 1;".to_owned());
    let configuration = Configuration::new().events("multi_accept on;");
    let server = Server::start(build, configuration.lanes(lanes));
    let warning = "out of fibers, handshakes are served one at a time: raise \"fibers\"";
    server.nginx.expect_log(warning);
    // The worker finds all of them at once, whenever they are sent.
    let client = server.client(&Offer::tls13());
    Begun::expect_service(Begun::many(&server.nginx, &client, CONNECTIONS));
    server.serve_all();
    let metrics = server.nginx.settled();
    assert!(metrics.fallbacks("out_of_fibers") > 0, "{metrics:#?}");
    assert!(metrics.lane_operations() > 0, "{metrics:#?}");
    assert_eq!(metrics.fiber_stacks(), 1, "{metrics:#?}");
    assert_eq!(server.nginx.log_lines_with(warning), 1);
}

fn the_status_page(build: Build) {
    let server = Server::start(build, Configuration::new());
    let fresh = server.nginx.metrics();
    assert_eq!(fresh.workers(), 1);
    assert_eq!((fresh.operations(), fresh.handshakes()), (0, 0));

    server.serve_all();
    let metrics = server.nginx.settled();
    assert_eq!(metrics.handshakes(), 2 * CONNECTIONS as u64);
    assert_eq!(metrics.operations(), metrics.lane_operations());
    let batches = |lanes| metrics.batches_with(lanes);
    assert_eq!((1..=8).map(batches).sum::<u64>(), metrics.batches());
    let operations = (1..=8)
        .map(|lanes| lanes as u64 * batches(lanes))
        .sum::<u64>();
    let computed = metrics.lane_operations() + metrics.lane_exchanges();
    assert_eq!(operations, computed);

    let page = server.nginx.status_page("GET").unwrap();
    assert_eq!(
        page.header("Content-Type"),
        Some("text/plain; version=0.0.4")
    );
    assert_eq!(
        page.header("Content-Length"),
        Some(page.body.len().to_string().as_str())
    );
    let head = server.nginx.status_page("HEAD").unwrap();
    assert_eq!(
        (head.status, head.header("Content-Length")),
        (200, page.header("Content-Length"))
    );
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(
            server.nginx.status_page(method).unwrap().status,
            405,
            "{method}"
        );
    }
    // Over TLS too.
    let client = server.client(&Offer::tls13());
    assert!(
        Metrics::parse(client.get("/status").unwrap().text())
            .unwrap()
            .handshakes()
            > 0
    );
}

fn the_status_of_two_workers(build: Build) {
    let mut server = Server::start(build, Configuration::new().workers(2));
    server.serve_all();
    let metrics = server.nginx.settled_after(2 * CONNECTIONS as u64);
    assert_eq!(metrics.workers(), 2);
    assert_eq!(metrics.lane_operations(), 2 * CONNECTIONS as u64);
    assert_eq!(metrics.handshakes(), 2 * CONNECTIONS as u64);

    // What workers that are gone have done still counts.
    let configuration = server.configuration.clone();
    let old = server.nginx.reload(&configuration);
    slipstream_integration::eventually("old workers are gone", || {
        !old.iter()
            .any(|&worker| slipstream_integration::process::is_running(worker))
    });
    server.serve_all();
    let metrics = server.nginx.settled_after(4 * CONNECTIONS as u64);
    assert_eq!(metrics.workers(), 2);
    assert_eq!(metrics.lane_operations(), 4 * CONNECTIONS as u64);
}

/// As many as handshake at once.
const CONNECTIONS: usize = 50;

struct Server {
    authority: Authority,
    nginx: Nginx,
    configuration: Configuration,
    address: SocketAddr,
}

impl Server {
    fn start(build: Build, configuration: Configuration) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let configuration = configuration.server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            "location / { return 200 served; }
             location = /status { slipstream_status; }",
        );
        Self {
            nginx: Nginx::start(build, &configuration),
            authority,
            configuration,
            address,
        }
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    fn serve_all(&self) {
        for offer in [Offer::tls13(), Offer::rsa_key_exchange()] {
            let client = self.client(&offer);
            concurrently(CONNECTIONS, |_| {
                assert_eq!(client.get("/").unwrap().text(), "served")
            });
        }
    }

    /// Nothing of the module has had a part in anything, not even a worker of its own.
    fn expect_stock(&self) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.workers(), 0);
        assert_eq!(metrics.operations() + metrics.handshakes(), 0);
        assert_eq!(
            metrics.all_software_operations() + metrics.fiber_stacks(),
            0
        );
    }
}
