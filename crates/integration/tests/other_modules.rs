//! Modules that share a worker with this one and change what is taken for granted about nginx; and
//! an engine that holds the keys of stream's servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slipstream_integration::programs::finish;
use slipstream_integration::{
    Authority, Build, Client, Configuration, Engine, KeyType, Lanes, Nginx, Offer, concurrently,
    each_build, eventually, server_block, unused_address,
};
use slipstream_testbed::scratch::ScratchDirectory;

each_build!(the_keys_of_stream_are_isolated);

/// A worker that finds a second handler in the TLS phase leaves stream to nginx, and says why. The
/// headers for such a module are only at hand for the distribution's nginx.
#[test]
fn a_strange_tls_phase_is_left_to_nginx() {
    const BUILD: Build = Build::Distribution;
    let folder = ScratchDirectory::new().unwrap();
    let module = compile(BUILD, "phase", &folder);

    let authority = Authority::new();
    let [stream, http] = [unused_address(), unused_address()];
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let configuration = Configuration::new()
        .main(format!("load_module {};", module.display()))
        .server(
            format!("{http} ssl"),
            &[&credentials],
            "location / { return 200 served; }",
        )
        .stream("slipstream on;")
        .stream(server_block(
            format!("{stream} ssl"),
            &[&credentials],
            "return served;",
        ));
    let nginx = Nginx::start(BUILD, &configuration);
    nginx.expect_log("the TLS phase has not one handler");
    eventually("it is said", || {
        nginx.log_lines_with("handshakes of stream are served as without the module") == 1
    });
    let client = |address| {
        let offer = Offer::tls13()
            .name("localhost")
            .roots(authority.certificate());
        Client::new(address, &offer)
    };
    concurrently(8, |_| {
        assert_eq!(client(stream).connect().unwrap().rest(), "served")
    });
    let metrics = nginx.settled();
    assert_eq!((metrics.handshakes(), metrics.lane_operations()), (0, 0));
    assert_eq!(client(http).get("/").unwrap().text(), "served");
    assert_eq!(nginx.settled().lane_operations(), 1);
}

/// A worker that finds another handler at the listening sockets of http leaves them to nginx, and
/// says why.
#[test]
fn a_strange_handler_of_listening_sockets_is_left_to_nginx() {
    const BUILD: Build = Build::Distribution;
    let folder = ScratchDirectory::new().unwrap();
    let module = compile(BUILD, "listen", &folder);
    let authority = Authority::new();
    let address = unused_address();
    let configuration = Configuration::new()
        .main(format!("load_module {};", module.display()))
        .server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            "location / { return 200 served; }",
        );
    let nginx = Nginx::start(BUILD, &configuration);
    nginx.expect_log("the handler of http's listening sockets is not as this module assumes it");
    eventually("it is said", || {
        nginx.log_lines_with("handshakes of http are served as without the module") == 1
    });
    let offer = Offer::tls13()
        .name("localhost")
        .roots(authority.certificate());
    let client = Client::new(address, &offer);
    concurrently(8, |_| assert_eq!(client.get("/").unwrap().text(), "served"));
    let metrics = nginx.settled();
    assert_eq!((metrics.handshakes(), metrics.lane_operations()), (0, 0));
}

/// A master that does not know the configuration of http's TLS leaves http to nginx, and says why.
#[test]
fn a_strange_tls_configuration_is_left_to_nginx() {
    const BUILD: Build = Build::Distribution;
    let folder = ScratchDirectory::new().unwrap();
    let module = compile(BUILD, "http_layout", &folder);
    let authority = Authority::new();
    let address = unused_address();
    let configuration = Configuration::new()
        .main(format!("load_module {};", module.display()))
        .server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            "location / { return 200 served; }",
        );
    let nginx = Nginx::start(BUILD, &configuration);
    nginx.expect_log(
        "the layout of ngx_http_ssl_srv_conf_t is not as this module assumes it of nginx",
    );
    assert_eq!(
        nginx.log_lines_with("handshakes are served as without the module"),
        1
    );
    let offer = Offer::tls13()
        .name("localhost")
        .roots(authority.certificate());
    let client = Client::new(address, &offer);
    concurrently(8, |_| assert_eq!(client.get("/").unwrap().text(), "served"));
}

/// As above, of stream, while http goes on.
#[test]
fn a_strange_tls_configuration_of_stream_is_left_to_nginx() {
    const BUILD: Build = Build::Distribution;
    let folder = ScratchDirectory::new().unwrap();
    let module = compile(BUILD, "stream_layout", &folder);
    let authority = Authority::new();
    let [stream, http] = [unused_address(), unused_address()];
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let configuration = Configuration::new()
        .main(format!("load_module {};", module.display()))
        .server(
            format!("{http} ssl"),
            &[&credentials],
            "location / { return 200 served; }",
        )
        .stream("slipstream on;")
        .stream(server_block(
            format!("{stream} ssl"),
            &[&credentials],
            "return served;",
        ));
    let nginx = Nginx::start(BUILD, &configuration);
    nginx.expect_log("the layout of stream's TLS servers is not as this module assumes it");
    assert_eq!(
        nginx.log_lines_with("handshakes of stream are served as without the module"),
        1,
        "{}",
        nginx.log()
    );
    let client = |address| {
        let offer = Offer::tls13()
            .name("localhost")
            .roots(authority.certificate());
        Client::new(address, &offer)
    };
    concurrently(8, |_| {
        assert_eq!(client(stream).connect().unwrap().rest(), "served")
    });
    assert_eq!(nginx.settled().handshakes(), 0);
    assert_eq!(client(http).get("/").unwrap().text(), "served");
    assert_eq!(nginx.settled().lane_operations(), 1);
}

/// The master has the engine hold the keys of stream's servers, too, and of those whose handshakes
/// do not take part.
fn the_keys_of_stream_are_isolated(build: Build) {
    let engine = Engine::start(&[]);
    let authority = Authority::new();
    let [on, off] = [unused_address(), unused_address()];
    let server = |address, directives| {
        let key = KeyType::Rsa(2048).generate();
        server_block(
            format!("{address} ssl"),
            &[&authority.issue_for(&key, &["localhost"])],
            format!("{directives} return served;"),
        )
    };
    let configuration = Configuration::new()
        .lanes(Lanes::ForcedWith(format!(
            "{} keys isolated;",
            engine.directive()
        )))
        .stream(server(on, "slipstream on;"))
        .stream(server(off, "slipstream off;"));
    let nginx = Nginx::start(build, &configuration);
    assert_eq!(engine.figure("/keys"), 2);
    for offer in [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()] {
        let offer = offer.name("localhost").roots(authority.certificate());
        for address in [on, off] {
            let client = Client::new(address, &offer);
            concurrently(8, |_| {
                assert_eq!(client.connect().unwrap().rest(), "served")
            });
        }
    }
    let metrics = nginx.settled();
    assert_eq!(metrics.handshakes(), 48, "{metrics:#?}");
    assert!(metrics.device_operations() >= 24, "{metrics:#?}");
}

/// Compiles a module in C for `build`'s nginx.
fn compile(build: Build, name: &str, folder: &ScratchDirectory) -> PathBuf {
    let module = folder.file(&format!("{name}.so"));
    let tree = build.tree();
    let mut compiler = Command::new("gcc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&module);
    // QUIC is part of nginx since 1.25.
    for include in [
        "core",
        "event",
        "event/modules",
        "event/quic",
        "os/unix",
        "http",
        "http/modules",
        "http/v2",
        "http/v3",
        "stream",
    ] {
        compiler.arg("-I").arg(tree.join("src").join(include));
    }
    compiler.arg("-I").arg(tree.join("objs"));
    let header = fs::read_to_string(tree.join("src/stream/ngx_stream_ssl_module.h")).unwrap();
    let conf = match header.contains("ngx_stream_ssl_srv_conf_t") {
        true => "ngx_stream_ssl_srv_conf_t",
        false => "ngx_stream_ssl_conf_t",
    };
    compiler.arg(format!("-DSTREAM_SSL_CONF={conf}"));
    let source = format!("tests/other_modules/{name}.c");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    finish(compiler.arg(source), b"").expect_success();
    module
}
