//! Servers of others behind the terminator, as Debian packages them: they learn who the client is by the PROXY protocol.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, kill_process};
use slipstream_bench::scratch::ScratchDirectory;
use slipstream_integration::programs;
use slipstream_integration::{KeyType, Offer, eventually, unused_address};

use crate::site::{Backend, Site};

/// Squid caches for a site: what a client asks the terminator for comes from the site once, and from the cache from then on.
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
    let scratch = ScratchDirectory::new().unwrap();
    let address = unused_address();
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
         sub vcl_deliver {{ set resp.http.X-Client = client.ip; set resp.http.X-Hits = obj.hits; }}\n",
        origin.port()
    );
    fs::write(scratch.file("default.vcl"), vcl).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("varnishd");
    command
        .args(["-F", "-j", "none", "-a", &format!("{address},PROXY"), "-f"])
        .arg(scratch.file("default.vcl"))
        .arg("-n")
        .arg(scratch.file("state"))
        .args(["-s", "malloc,16m"]);
    let _varnish = Server::start(&mut command, address, scratch.path());
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
    let scratch = ScratchDirectory::new().unwrap();
    let address = unused_address();
    let configuration = format!(
        "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 10s\n\
         frontend f\n bind {address} accept-proxy\n http-response set-header X-Client %[src]\n\
         http-response set-header X-Tls %[fc_pp_authority]\n default_backend b\n\
         backend b\n server s {origin}\n"
    );
    fs::write(scratch.file("haproxy.cfg"), configuration).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(scratch.file("haproxy.cfg"));
    let _haproxy = Server::start(&mut command, address, scratch.path());
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
    scratch: ScratchDirectory,
    address: SocketAddr,
    _server: Server,
}

impl Squid {
    fn start(ports: impl FnOnce(SocketAddr) -> String) -> Self {
        let scratch = ScratchDirectory::new().unwrap();
        // Squid gives up root's rights before it opens its log.
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let address = unused_address();
        let folder = scratch.path().display();
        let configuration = format!(
            "{}pid_filename none\naccess_log stdio:{folder}/access.log\ncache_log {folder}/cache.log\n\
             coredump_dir {folder}\nshutdown_lifetime 0 seconds\nvisible_hostname localhost\n\
             proxy_protocol_access allow all\nhttp_access allow all\ncache_mem 16 MB\n",
            ports(address)
        );
        fs::write(scratch.file("squid.conf"), configuration).unwrap();
        let mut command = Command::new("squid");
        command.args(["-N", "-f"]).arg(scratch.file("squid.conf"));
        let server = Server::start(&mut command, address, scratch.path());
        Self {
            scratch,
            address,
            _server: server,
        }
    }

    fn expect_log(&self, text: &str) {
        let log = || fs::read_to_string(self.scratch.file("access.log")).unwrap_or_default();
        eventually("Squid has logged it", || log().contains(text));
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Server {
    fn start(command: &mut Command, address: SocketAddr, folder: &Path) -> Self {
        let output = fs::File::create(folder.join("output")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let mut server = Self(command.spawn().unwrap_or_else(|error| {
            panic!("{command:?}: {error}: run `make test`");
        }));
        eventually("the server listens", || {
            let ended = server.0.try_wait().unwrap();
            let said = || fs::read_to_string(folder.join("output")).unwrap_or_default();
            assert!(ended.is_none(), "{command:?} has ended: {}", said());
            TcpStream::connect(address).is_ok()
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.0);
        let _ = kill_process(process, Signal::TERM);
        let _ = self.0.wait();
    }
}
