//! TLS connections that nginx makes to servers behind it: outside of fibers, so that none of their
//! operations pauses, but with keys that lanes have precomputed.

use std::net::SocketAddr;

use slipstream_integration::{
    Authority, Build, Client, Configuration, Credentials, KeyType, Nginx, Offer, Request,
    concurrently, each_build, server_block, unused_address,
};

each_build!(
    http_servers_behind_http,
    grpc_servers_behind_http,
    any_servers_behind_stream,
    a_handshake_on_either_side,
);

const CONNECTIONS: u64 = 24;

fn http_servers_behind_http(build: Build) {
    // A lone exchange on P-256 is not cheaper in lanes.
    for (group, exchanges) in [("X25519", CONNECTIONS), ("prime256v1", 0)] {
        let behind = Behind::start(build, group);
        let front = Front::start(build, "", |front| {
            let location = format!("proxy_pass https://{};", behind.address);
            front.http(&behind.trusted("proxy", &location))
        });
        front.expect_served();
        front.expect_precomputed(0, exchanges);
    }
}

fn grpc_servers_behind_http(build: Build) {
    let behind = Behind::start(build, "X25519");
    let front = Front::start(build, "", |front| {
        let location = format!("grpc_pass grpcs://{};", behind.grpc);
        front.http(&behind.trusted("grpc", &location))
    });
    front.expect_served();
    front.expect_precomputed(0, CONNECTIONS);
}

fn any_servers_behind_stream(build: Build) {
    let behind = Behind::start(build, "X25519");
    let front = Front::start(build, "", |front| {
        let directives = behind.trusted("proxy", &format!("proxy_pass {};", behind.address));
        front.stream(&format!("proxy_ssl on; {directives}"))
    });
    front.expect_served();
    front.expect_precomputed(0, CONNECTIONS);
}

/// The client's handshake is on a fiber. What comes after it is not.
fn a_handshake_on_either_side(build: Build) {
    let behind = Behind::start(build, "X25519");
    for is_stream in [false, true] {
        let front = Front::start(build, " ssl", |front| {
            let directives = match is_stream {
                false => format!("proxy_pass https://{};", behind.address),
                true => format!("proxy_ssl on; proxy_pass {};", behind.address),
            };
            let directives = behind.trusted("proxy", &directives);
            match is_stream {
                false => front.http(&directives),
                true => front.stream(&format!("slipstream on; {directives}")),
            }
        });
        front.expect_served();
        front.expect_precomputed(CONNECTIONS, CONNECTIONS);
    }
}

/// A stock nginx with TLS.
struct Behind {
    authority: Authority,
    address: SocketAddr,
    grpc: SocketAddr,
    _nginx: Nginx,
}

impl Behind {
    fn start(build: Build, group: &str) -> Self {
        let authority = Authority::new();
        let [address, grpc] = [unused_address(), unused_address()];
        let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
        let (parameter, directive) = build.http2();
        let page = "location / { return 200 served; }";
        let configuration = Configuration::stock()
            .http(format!("ssl_ecdh_curve {group};"))
            .server(format!("{address} ssl"), &[&credentials], page)
            .server(
                format!("{grpc} ssl{parameter}"),
                &[&credentials],
                format!("{directive} {page}"),
            );
        Self {
            _nginx: Nginx::start(build, &configuration),
            authority,
            address,
            grpc,
        }
    }

    /// Directives with which nginx verifies this server, behind others.
    fn trusted(&self, module: &str, directives: &str) -> String {
        format!(
            "{directives}
             {module}_ssl_session_reuse off;
             {module}_ssl_verify on;
             {module}_ssl_name localhost;
             {module}_ssl_trusted_certificate {};
             {module}_ssl_protocols TLSv1.2 TLSv1.3;",
            self.authority.certificate_file().display()
        )
    }
}

/// An nginx with the module, in front of another.
struct Front {
    nginx: Nginx,
    address: SocketAddr,
    takes_tls: bool,
}

/// The one listener of a [`Front`].
struct Listener {
    listen: String,
    credentials: Credentials,
    configuration: Configuration,
}

impl Listener {
    fn http(self, directives: &str) -> Configuration {
        let location = format!("location / {{ {directives} }}");
        self.configuration
            .server(self.listen, &[&self.credentials], location)
    }

    fn stream(self, directives: &str) -> Configuration {
        let server = server_block(self.listen, &[&self.credentials], directives);
        self.configuration.stream(server)
    }
}

impl Front {
    /// `parameters` are those of its `listen`.
    fn start(
        build: Build,
        parameters: &str,
        configure: impl FnOnce(Listener) -> Configuration,
    ) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        // Something has to take part for the provider to be loaded.
        let configuration =
            Configuration::new().server(format!("{} ssl", unused_address()), &[&credentials], "");
        let configuration = configure(Listener {
            listen: format!("{address}{parameters}"),
            credentials,
            configuration,
        });
        Self {
            nginx: Nginx::start(build, &configuration),
            address,
            takes_tls: !parameters.is_empty(),
        }
    }

    fn expect_served(&self) {
        const AT_A_TIME: usize = 8;
        for _ in 0..CONNECTIONS / AT_A_TIME as u64 {
            concurrently(AT_A_TIME, |_| {
                let response = match self.takes_tls {
                    true => Client::new(self.address, &Offer::tls13()).get("/").unwrap(),
                    false => Request::get(self.address, "/").fetch().unwrap(),
                };
                assert_eq!((response.status, response.text()), (200, "served"));
            });
        }
    }

    /// Each connection to the server behind has taken a precomputed key, and so many `exchanges`
    /// were computed at once; `clients` handshakes with clients were on fibers.
    fn expect_precomputed(&self, clients: u64, exchanges: u64) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.handshakes(), clients, "{metrics:#?}");
        assert_eq!(metrics.lane_operations(), clients, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        // Without IFMA there are lanes for RSA only.
        let has_curves = std::arch::is_x86_feature_detected!("avx512ifma")
            || !std::arch::is_x86_feature_detected!("avx512f");
        if has_curves {
            let keys = metrics.ahead_used();
            assert!(keys >= CONNECTIONS + clients, "{metrics:#?}");
            assert!(metrics.lone_exchanges() >= exchanges, "{metrics:#?}");
        }
    }
}
