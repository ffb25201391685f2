//! HTTP/3 beside the module: handshakes of QUIC are not on fibers, and take precomputed keys.

use std::fs;
use std::net::SocketAddr;

use slipstream_integration::programs::{is_installed, run};
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, concurrently, each_build,
    unused_address,
};
use slipstream_testbed::scratch::ScratchDirectory;

each_build!(http3_and_http1_on_one_port);

const CONNECTIONS: usize = 12;

/// The client of ngtcp2, from Debian's package ngtcp2-client.
const CLIENT: &str = "gtlsclient";

fn http3_and_http1_on_one_port(build: Build) {
    // Debian has HTTP/3 since 13.
    if !build.has("--with-http_v3_module") {
        return eprintln!("skipped: this nginx has no HTTP/3");
    }
    if !is_installed(CLIENT) {
        return;
    }
    let authority = Authority::new();
    for key in [KeyType::Rsa(2048), KeyType::EcdsaP256] {
        let address = unused_address();
        let configuration = Configuration::new().server(
            format!("{address} ssl; listen {address} quic"),
            &[&authority.issue(key, &["localhost"])],
            "location / { return 200 $server_protocol; }",
        );
        let nginx = Nginx::start(build, &configuration);
        let offer = Offer::tls13()
            .name("localhost")
            .roots(authority.certificate());
        let tls = Client::new(address, &offer);
        concurrently(2 * CONNECTIONS, |number| match number % 2 {
            0 => assert_eq!(fetch(address), "HTTP/3.0"),
            _ => assert_eq!(tls.get("/").unwrap().text(), "HTTP/1.1"),
        });
        let metrics = nginx.settled();
        assert_eq!(metrics.handshakes(), CONNECTIONS as u64, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        // Without IFMA there are lanes for RSA only.
        let has_curves = std::arch::is_x86_feature_detected!("avx512ifma")
            || !std::arch::is_x86_feature_detected!("avx512f");
        if has_curves {
            // A key pair each, and none for nonces in RSA's case.
            assert!(
                metrics.ahead_used() >= 2 * CONNECTIONS as u64,
                "{metrics:#?}"
            );
        }
    }
}

/// Returns the body of a page that is fetched with HTTP/3.
fn fetch(address: SocketAddr) -> String {
    let folder = ScratchDirectory::new().unwrap();
    let download = format!("--download={}", folder.path().display());
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    run(
        CLIENT,
        [
            "--quiet",
            "--exit-on-all-streams-close",
            &download,
            &host,
            &port,
            "https://localhost/page",
        ],
    )
    .expect_success();
    fs::read_to_string(folder.file("page")).unwrap()
}
