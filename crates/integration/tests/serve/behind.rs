//! Servers of others behind the terminator, as Debian packages them: they learn who the client is
//! by the PROXY protocol.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use slipstream_integration::programs;
use slipstream_integration::server::{is_listening, supervised};
use slipstream_integration::{KeyType, Offer, Server, eventually, unused_address};

use crate::site::{Backend, Site};

/// Squid caches for a site: what a client asks the terminator for comes from the site once, and
/// from the cache from then on.
#[test]
fn squid_as_an_accelerator() {
    let origin = Backend::start("served").address;
    let squid = Squid::start(|address| {
        format!(
            "http_port {address} accel defaultsite=localhost no-vhost require-proxy-header\n\
             cache_peer 127.0.0.1 parent {} 0 no-query originserver\n\
             refresh_pattern . 10 100% 10 override-expire\n",
            origin.port()
        )
    });
    let listener = format!(
        "backends = [\"{}\"]\nproxy_protocol = \"v1\"",
        squid.address
    );
    let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
    for offer in [Offer::tls12(), Offer::tls13()] {
        let response = site.client(&offer).get("/page").unwrap();
        assert_eq!((response.status, response.text()), (200, "served"));
    }
    // The client, as the header has it, not the terminator.
    squid.expect_log("127.0.0.1 TCP_");
    squid.expect_log("GET http://localhost/page");
}

/// A forward proxy to which clients speak TLS: RFC 9110 section 9.3.6, CONNECT, included.
#[test]
fn squid_as_a_forward_proxy() {
    for version in ["v1", "v2"] {
        let origin = Backend::start("served").address;
        let squid = Squid::start(|address| {
            format!("http_port {address} require-proxy-header\nacl tunnels method CONNECT\n")
        });
        let listener = format!(
            "backends = [\"{}\"]\nproxy_protocol = \"{version}\"",
            squid.address
        );
        let site = Site::new(&[KeyType::EcdsaP256], "", &listener);
        for tunnel in [&[][..], &["--proxytunnel"]] {
            let mut command = Command::new("curl");
            command
                .args(["-sS", "--fail", "--noproxy", "", "--proxy"])
                .arg(format!("https://localhost:{}", site.address.port()))
                .arg("--proxy-cacert")
                .arg(site.authority.certificate_file())
                .args(tunnel)
                .arg(format!("http://{origin}/"));
            let output = programs::finish(&mut command, b"").expect_success();
            assert_eq!(output, "served");
        }
    }
}

#[test]
fn varnish() {
    let origin = Backend::start("served").address;
    let mut server = Server::new("Varnish").mode(0o755).ends_by(Signal::TERM);
    let address = unused_address();
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
         sub vcl_deliver {{ set resp.http.X-Client = client.ip; set resp.http.X-Hits = obj.hits; }}\n",
        origin.port()
    );
    server.write("default.vcl", vcl);
    let mut command = supervised("TERM");
    command
        .args([
            "varnishd",
            "-F",
            "-j",
            "none",
            "-a",
            &format!("{address},PROXY"),
            "-f",
        ])
        .arg(server.file("default.vcl"))
        .arg("-n")
        .arg(server.file("state"))
        .args(["-s", "malloc,16m"]);
    server.start(command, |_| is_listening(address));
    let listener = format!("backends = [\"{address}\"]\nproxy_protocol = \"v2\"");
    let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
    let client = site.client(&Offer::tls13());
    for hits in ["0", "1"] {
        let response = client.get("/").unwrap();
        assert_eq!((response.status, response.text()), (200, "served"));
        assert_eq!(response.header("X-Client"), Some("127.0.0.1"));
        assert_eq!(response.header("X-Hits"), Some(hits));
    }
}

#[test]
fn haproxy() {
    let origin = Backend::start("served").address;
    let mut server = Server::new("HAProxy");
    let address = unused_address();
    let configuration = format!(
        "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 10s\n\
         frontend f\n bind {address} accept-proxy\n http-response set-header X-Client %[src]\n\
         http-response set-header X-Tls %[fc_pp_authority]\n default_backend b\n\
         backend b\n server s {origin}\n"
    );
    server.write("haproxy.cfg", configuration);
    let mut command = supervised("KILL");
    command
        .args(["haproxy", "-db", "-f"])
        .arg(server.file("haproxy.cfg"));
    server.start(command, |_| is_listening(address));
    let listener = format!("backends = [\"{address}\"]\nproxy_protocol = \"v2\"");
    let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
    let response = site.client(&Offer::tls13()).get("/").unwrap();
    assert_eq!((response.status, response.text()), (200, "served"));
    assert_eq!(response.header("X-Client"), Some("127.0.0.1"));
    assert_eq!(
        response.header("X-Tls"),
        Some("localhost"),
        "SNI travels along"
    );
}

/// A Squid of this test.
struct Squid {
    address: SocketAddr,
    server: Server,
}

impl Squid {
    fn start(ports: impl FnOnce(SocketAddr) -> String) -> Self {
        // Squid gives up root's rights before it opens its log.
        let mut server = Server::new("Squid")
            .mode(0o777)
            .log("cache.log")
            .ends_by(Signal::TERM);
        let address = unused_address();
        let folder = server.folder().display();
        let configuration = format!(
            "{}pid_filename none\naccess_log stdio:{folder}/access.log\ncache_log {folder}/cache.log\n\
             coredump_dir {folder}\nshutdown_lifetime 0 seconds\nvisible_hostname localhost\n\
             proxy_protocol_access allow all\nhttp_access allow all\ncache_mem 16 MB\n",
            ports(address)
        );
        server.write("squid.conf", configuration);
        let mut command = supervised("KILL");
        // Its shared memory has the name of the service.
        let service = format!("test{}", address.port());
        command
            .args(["squid", "-n", &service, "-N", "-f"])
            .arg(server.file("squid.conf"));
        server.start(command, |_| is_listening(address));
        Self { address, server }
    }

    fn expect_log(&self, text: &str) {
        let log = || fs::read_to_string(self.server.file("access.log")).unwrap_or_default();
        eventually("Squid has logged it", || log().contains(text));
    }
}
