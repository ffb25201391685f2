//! The server, certificate and key that a handshake gets, and the handshakes that lanes take part
//! in.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use openssl::pkey::Id;
use slipstream_integration::{
    Authority, Begun, Build, Client, ClientError, Configuration, KeyType, Lanes, Nginx, Offer,
    concurrently, each_build, unused_address,
};

each_build!(
    rsa_and_ecdsa_side_by_side,
    every_name_gets_its_own_key,
    slipstream_off_for_one_name,
    slipstream_on_for_one_name,
    a_rejected_handshake,
    variable_certificates,
    an_encrypted_key,
    a_key_for_pss_only,
    protocols_of_one_name,
    a_name_matched_by_an_expression,
);

fn rsa_and_ecdsa_side_by_side(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let nginx = Nginx::start(
        build,
        &Configuration::new().server(
            format!("{address} ssl"),
            &[
                &authority.issue(KeyType::Rsa(2048), &["localhost"]),
                &authority.issue(KeyType::EcdsaP256, &["localhost"]),
            ],
            PAGE,
        ),
    );
    for offer in [Offer::tls12(), Offer::tls13()] {
        let offer = offer.name("localhost").roots(authority.certificate());
        for (algorithms, key, operations) in [
            ("RSA-PSS+SHA256:RSA+SHA256", Id::RSA, 1),
            ("ECDSA+SHA256", Id::EC, 0),
        ] {
            let before = nginx.settled().lane_operations();
            let client = Client::new(address, &offer.clone().signature_algorithms(algorithms));
            let mut connection = client.connect().unwrap();
            assert_eq!(connection.certificate().public_key().unwrap().id(), key);
            assert_eq!(connection.get("/").unwrap().text(), "localhost");
            assert_eq!(nginx.settled().lane_operations() - before, operations);
        }
    }
    assert_eq!(nginx.settled().all_software_operations(), 0);
}

fn every_name_gets_its_own_key(build: Build) {
    const NAMES: [&str; 3] = ["one.test", "two.test", "three.test"];
    let authority = Authority::new();
    let address = unused_address();
    let configuration = NAMES.iter().fold(
        Configuration::new().events("multi_accept on;"),
        |configuration, name| {
            let credentials = authority.issue_for(&KeyType::Rsa(2048).generate(), &[name]);
            configuration.server(
                format!("{address} ssl"),
                &[&credentials],
                format!("server_name {name}; {PAGE}"),
            )
        },
    );
    let nginx = Nginx::start(build, &configuration);
    // The certificate is verified for the name; a signature with another key would not verify.
    let client = |offer: &Offer, name| {
        let offer = offer.clone().name(name).roots(authority.certificate());
        Client::new(address, &offer)
    };
    let offers = [Offer::tls13(), Offer::rsa_key_exchange()];
    concurrently(60, |number| {
        let name = NAMES[number % NAMES.len()];
        let client = client(&offers[number % offers.len()], name);
        assert_eq!(client.get("/").unwrap().text(), name);
    });
    let before = nginx.settled();
    assert_eq!(before.lane_operations(), 60);

    // Lanes do not compute this group, so that there are no batches of key exchanges.
    let offer = Offer::tls13().groups("P-521");
    let clients = NAMES.map(|name| client(&offer, name));
    for (begun, name) in Begun::one_of_each(&nginx, &clients).into_iter().zip(NAMES) {
        let mut connection = begun.complete().unwrap();
        assert_eq!(connection.get("/").unwrap().text(), name);
    }
    let after = nginx.settled();
    assert_eq!(after.lane_operations() - before.lane_operations(), 3);
    assert_eq!(after.batches() - before.batches(), 1, "keys share batches");
}

fn slipstream_off_for_one_name(build: Build) {
    let servers = TwoServers::start(build, "", "slipstream off;");
    servers.expect("first.test", 1, 0);
    servers.expect("second.test", 0, 1);
    servers.expect("neither.test", 1, 0);
}

fn slipstream_on_for_one_name(build: Build) {
    let servers = TwoServers::start(build, "slipstream off;", "slipstream on;");
    servers.expect("first.test", 0, 1);
    servers.expect("second.test", 1, 0);
    servers.expect("neither.test", 0, 1);
}

fn a_rejected_handshake(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::Rsa(2048), &["known.test"]);
    let nginx = Nginx::start(
        build,
        &Configuration::new()
            .server(format!("{address} ssl"), &[], "ssl_reject_handshake on;")
            .server(
                format!("{address} ssl"),
                &[&credentials],
                format!("server_name known.test; {PAGE}"),
            ),
    );
    for offer in [Offer::tls12(), Offer::tls13()] {
        let client = |name| Client::new(address, &offer.clone().name(name));
        assert_eq!(client("known.test").get("/").unwrap().text(), "known.test");
        let error = client("unknown.test").connect().err().unwrap();
        assert!(error.to_string().contains("unrecognized name"), "{error}");
    }
    assert_eq!(nginx.settled().lane_operations(), 2);
}

fn variable_certificates(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    for name in ["one.test", "two.test"] {
        let credentials = authority.issue_for(&KeyType::Rsa(2048).generate(), &[name]);
        publish(
            &credentials.certificate_file,
            &authority.directory().join(format!("{name}.crt")),
        );
        publish(
            &credentials.key_file,
            &authority.directory().join(format!("{name}.key")),
        );
    }
    // Workers read these files, and they run as another user if nginx runs as root.
    set_mode(authority.directory(), 0o711);
    let directory = authority.directory().display();
    let nginx = Nginx::start(
        build,
        &Configuration::new().server(
            format!("{address} ssl"),
            &[],
            format!(
                "ssl_certificate {directory}/$ssl_server_name.crt;
                 ssl_certificate_key {directory}/$ssl_server_name.key;
                 {PAGE}"
            ),
        ),
    );
    for offer in [Offer::tls12(), Offer::tls13(), Offer::rsa_key_exchange()] {
        concurrently(8, |number| {
            let name = ["one.test", "two.test"][number % 2];
            let offer = offer.clone().name(name).roots(authority.certificate());
            assert_eq!(Client::new(address, &offer).get("/").unwrap().text(), name);
        });
    }
    let metrics = nginx.settled();
    assert_eq!(metrics.lane_operations(), 24, "{metrics:#?}");
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");

    nginx.expect_log("cannot load certificate");
    let missing = Client::new(address, &Offer::tls13().name("missing.test"));
    assert!(matches!(missing.connect(), Err(ClientError::Handshake(_))));
}

fn an_encrypted_key(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let passphrases = authority.write("passphrases", b"wrong\nright\n");
    let nginx = Nginx::start(
        build,
        &Configuration::new().server(
            format!("{address} ssl"),
            &[&authority.issue_encrypted(KeyType::Rsa(2048), "right", &["localhost"])],
            format!("ssl_password_file {}; {PAGE}", passphrases.display()),
        ),
    );
    for offer in [Offer::tls13(), Offer::rsa_key_exchange()] {
        let offer = offer.name("localhost").roots(authority.certificate());
        assert_eq!(
            Client::new(address, &offer).get("/").unwrap().text(),
            "localhost"
        );
    }
    assert_eq!(nginx.settled().lane_operations(), 2);
}

fn a_key_for_pss_only(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let nginx = Nginx::start(
        build,
        &Configuration::new().server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::RsaPss2048, &["localhost"])],
            PAGE,
        ),
    );
    for offer in [Offer::tls12(), Offer::tls13()] {
        let client = Client::new(
            address,
            &offer.name("localhost").roots(authority.certificate()),
        );
        let mut connection = client.connect().unwrap();
        assert_eq!(
            connection.certificate().public_key().unwrap().id(),
            Id::RSA_PSS
        );
        assert_eq!(connection.get("/").unwrap().text(), "localhost");
    }
    let error = Client::new(address, &Offer::rsa_key_exchange()).connect();
    assert!(
        matches!(error, Err(ClientError::Handshake(_))),
        "it cannot decrypt"
    );
    assert_eq!(nginx.settled().handshakes(), 2);
}

/// nginx has its own ways with `ssl_protocols` of servers that share an address. They stay as they
/// are.
fn protocols_of_one_name(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let server = |configuration: Configuration, name: &str, protocols: &str| {
        configuration.server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &[name])],
            format!("server_name {name}; ssl_protocols {protocols}; {PAGE}"),
        )
    };
    let outcomes = |configuration: Configuration| -> Vec<String> {
        let configuration = server(configuration, "old.test", "TLSv1.2");
        let configuration = server(configuration, "both.test", "TLSv1.2 TLSv1.3");
        let configuration = server(configuration, "new.test", "TLSv1.3");
        let _nginx = Nginx::start(build, &configuration);
        let mut outcomes = Vec::new();
        for offer in [Offer::default(), Offer::tls12(), Offer::tls13()] {
            for name in ["both.test", "old.test", "new.test"] {
                let client = Client::new(address, &offer.clone().name(name));
                let outcome = client.connect().map(|mut connection| {
                    let version = connection.version();
                    (version, connection.get("/").unwrap().text().to_owned())
                });
                outcomes.push(format!("{name}: {:?}", outcome.map_err(|e| e.to_string())));
            }
        }
        outcomes
    };
    let stock = outcomes(Configuration::stock());
    assert!(
        stock.iter().any(|outcome| outcome.contains("Err")),
        "{stock:?}"
    );
    assert_eq!(outcomes(Configuration::new()), stock);
}

/// Regular expressions of server names run on the fiber; with pcre_jit they take 32 KiB of stack.
fn a_name_matched_by_an_expression(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::Rsa(4096), &["localhost"]);
    let nginx = Nginx::start(
        build,
        &Configuration::new()
            .lanes(Lanes::ForcedWith("fiber_stack 64k;".to_owned()))
            .main("pcre_jit on;")
            .server(format!("{address} ssl"), &[&credentials], PAGE)
            .server(
                format!("{address} ssl"),
                &[&credentials],
                r#"server_name "~^((?:a|(?<last>b)|\.)+)\.(?<end>x|y)$";
                   location / { return 200 "$last, $end"; }"#,
            ),
    );
    // As long as a name may be: labels of 63 characters, 253 in all.
    let labels = ["ab".repeat(31), "ba".repeat(31), "ab".repeat(31)].join(".");
    for (name, page) in [(format!("{labels}.y"), "b, y"), ("c.z".to_owned(), "c.z")] {
        concurrently(16, |_| {
            let client = Client::new(address, &Offer::tls13().name(&name));
            assert_eq!(client.get("/").unwrap().text(), page);
        });
    }
    assert_eq!(nginx.settled().lane_operations(), 32);
}

/// Tells the server name.
const PAGE: &str = "location / { return 200 $ssl_server_name; }";

/// Two servers on one address, `first.test` being the default.
struct TwoServers {
    authority: Authority,
    nginx: Nginx,
    address: SocketAddr,
}

impl TwoServers {
    fn start(build: Build, first: &str, second: &str) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let server = |configuration: Configuration, name: &str, directives: &str| {
            configuration.server(
                format!("{address} ssl"),
                &[&authority.issue(KeyType::Rsa(2048), &[name, "neither.test"])],
                format!("server_name {name}; {directives} {PAGE}"),
            )
        };
        let configuration = server(Configuration::new(), "first.test", first);
        let configuration = server(configuration, "second.test", second);
        Self {
            nginx: Nginx::start(build, &configuration),
            authority,
            address,
        }
    }

    /// Every handshake with this name takes this many operations in lanes and in software.
    fn expect(&self, name: &str, in_lanes: u64, not_admitted: u64) {
        for offer in [Offer::tls12(), Offer::tls13(), Offer::rsa_key_exchange()] {
            let before = self.nginx.settled();
            let offer = offer.name(name).roots(self.authority.certificate());
            assert_eq!(
                Client::new(self.address, &offer).get("/").unwrap().text(),
                name
            );
            let after = self.nginx.settled();
            assert_eq!(after.lane_operations() - before.lane_operations(), in_lanes);
            assert_eq!(
                after.software_operations("not_admitted")
                    - before.software_operations("not_admitted"),
                not_admitted
            );
            assert_eq!(
                after.all_software_operations() - before.all_software_operations(),
                not_admitted
            );
        }
    }
}

/// Copies a file to where every user can read it.
fn publish(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    set_mode(to, 0o644);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
