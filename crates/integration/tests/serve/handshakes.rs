//! Certificates by name, stapled responses, resumption, certificates of clients, groups, and keys
//! that an engine holds.

use std::fs;
use std::process::Command;

use openssl::ssl::SslVersion;
use slipstream_integration::process::memory;
use slipstream_integration::programs;
use slipstream_integration::{
    Authority, Begun, Client, Engine, KeyType, Offer, Stopped, Terminator, TerminatorConfiguration,
    concurrently, eventually, unused_address,
};

use crate::site::{Backend, Site, configuration};

#[test]
fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let authority = Authority::new();
    let address = unused_address();
    let all = [
        authority.issue(KeyType::Rsa(2048), &["default.test"]),
        authority.issue(KeyType::Rsa(2048), &["exact.test", "also.test"]),
        authority.issue(KeyType::Rsa(2048), &["*.wild.test"]),
    ];
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let _terminator = Terminator::start(&configuration(address, &all, "", &listener));
    let certificate = |offer: Offer| {
        let client = Client::new(address, &offer);
        client.connect().unwrap().certificate()
    };
    for (name, expected) in [
        ("default.test", 0),
        ("exact.test", 1),
        ("ALSO.test", 1),
        ("any.wild.test", 2),
        ("two.levels.wild.test", 0),
        ("unknown.test", 0),
    ] {
        for offer in [Offer::tls12(), Offer::tls13()] {
            let found = certificate(offer.name(name));
            assert!(found == all[expected].certificate, "{name}");
        }
    }
    assert!(certificate(Offer::tls13()) == all[0].certificate, "no name");
}

#[test]
fn rsa_and_ecdsa_stand_side_by_side() {
    let site = Site::http(&[KeyType::Rsa(2048), KeyType::EcdsaP256], "");
    let key = |offer: Offer| {
        let mut connection = site.client(&offer).connect().unwrap();
        assert_eq!(connection.get("/").unwrap().text(), "served");
        connection.certificate().public_key().unwrap().bits()
    };
    assert_eq!(key(Offer::tls13()), 256, "the cheaper one is preferred");
    assert_eq!(
        key(Offer::tls13().signature_algorithms("RSA-PSS+SHA256")),
        2048
    );
    assert_eq!(
        key(Offer::tls12().ciphers("ECDHE-RSA-AES128-GCM-SHA256")),
        2048
    );
    assert_eq!(
        key(Offer::tls12().ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")),
        256
    );
}

#[test]
fn a_response_of_ocsp_is_stapled() {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    // An OCSPResponse that says tryLater (RFC 6960 section 4.2.1).
    let response = authority.write("response.der", &[0x30, 0x03, 0x0a, 0x01, 0x03]);
    let text = format!(
        "workers = 1\n[[listener]]\nlisten = \"{address}\"\nroot = {:?}\n\
         certificates = [{{ certificate = {:?}, key = {:?}, ocsp = {response:?} }}]\n",
        authority.directory(),
        credentials.certificate_file,
        credentials.key_file
    );
    let _terminator = Terminator::start(&TerminatorConfiguration::default().main(&text));
    let mut command = Command::new("openssl");
    command.args(["s_client", "-status", "-connect", &address.to_string()]);
    let output = programs::finish(&mut command, b"").output;
    assert!(
        output.contains("OCSP Response Status: trylater"),
        "{output}"
    );
}

#[test]
fn sessions_are_resumed_and_survive_a_reload() {
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
    for offer in [Offer::tls12(), Offer::tls13()] {
        let client = site.client(&offer);
        client.get("/").unwrap();
        let session = client.session();
        site.terminator.reload(&configuration(
            site.address,
            &site.credentials,
            "",
            &listener,
        ));
        let mut connection = session.connect().unwrap();
        assert!(connection.is_resumed(), "{offer:?}");
        assert_eq!(connection.get("/").unwrap().text(), "served");
    }
    assert_eq!(
        site.terminator
            .metric("slipstream_serve_resumptions_total", ""),
        2
    );
}

#[test]
fn without_tickets_nothing_is_resumed() {
    for (tickets, is_resumed) in [("tickets = 0", false), ("tickets = 1", true)] {
        let site = Site::http(&[KeyType::EcdsaP256], tickets);
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-tls1_2", "-reconnect", "-connect"])
            .arg(site.address.to_string());
        let output = programs::finish(&mut command, b"").output;
        assert!(output.contains("New, "), "{output}");
        assert_eq!(output.contains("Reused, "), is_resumed, "{output}");
    }
}

#[test]
fn clients_show_certificates() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let own = authority.issue(KeyType::EcdsaP256, &["client"]);
    let foreign = stranger.issue(KeyType::EcdsaP256, &["client"]);
    for is_required in [true, false] {
        let listener = format!(
            "root = {:?}\nclient_certificates = {{ authorities = {:?}, required = {is_required} }}",
            authority.directory(),
            authority.certificate_file()
        );
        let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
        for offer in [Offer::tls12(), Offer::tls13()] {
            let get = |offer: &Offer| site.client(offer).get("/authority.crt").map(|r| r.status);
            assert_eq!(get(&offer.clone().credentials(&own)).ok(), Some(200));
            assert_eq!(get(&offer).ok(), (!is_required).then_some(200));
            assert!(get(&offer.clone().credentials(&foreign)).is_err());
        }
    }
}

/// A client that got a ticket where no certificate is asked for cannot use it where one is.
#[test]
fn a_ticket_opens_no_other_door() {
    let authority = Authority::new();
    let (open, closed) = (unused_address(), unused_address());
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    let root = format!("root = {:?}", authority.directory());
    let asking = format!(
        "{root}\nclient_certificates = {{ authorities = {:?}, required = true }}",
        authority.certificate_file()
    );
    let configuration = TerminatorConfiguration::new()
        .listener(open, &[&credentials], &root)
        .listener(closed, &[&credentials], &asking);
    let terminator = Terminator::start(&configuration);
    let sessions = authority.directory().join("sessions");
    for version in ["-tls1_2", "-tls1_3"] {
        let s_client = |address: std::net::SocketAddr, session: &str| {
            let request =
                b"GET /authority.crt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let mut command = Command::new("openssl");
            command
                .args(["s_client", "-ign_eof", version, session])
                .arg(&sessions)
                .args(["-servername", "localhost", "-connect", &address.to_string()]);
            programs::finish(&mut command, request).output
        };
        let served = s_client(open, "-sess_out");
        assert!(served.contains("200 OK"), "{served}");
        let again = s_client(open, "-sess_in");
        assert!(
            again.contains("Reused, ") && again.contains("200 OK"),
            "{again}"
        );
        let refused = s_client(closed, "-sess_in");
        assert!(!refused.contains("200 OK"), "{refused}");
        assert!(!refused.contains("Reused, "), "{refused}");
    }
    // A connection is closed before it is counted.
    eventually("they are counted", || {
        let failed = "slipstream_serve_failed_handshakes_total";
        terminator.metric(failed, "reason=\"failed") > 0
    });
}

#[test]
fn versions_and_groups_are_those_of_the_configuration() {
    let authority = Authority::new();
    let root = authority.directory();
    let listener = format!("root = {root:?}\nversions = [\"1.3\"]\ngroups = [\"P-384\"]");
    let site = Site::new(&[KeyType::EcdsaP384], "", &listener);
    assert!(site.client(&Offer::tls12()).connect().is_err());
    assert!(
        site.client(&Offer::tls13().groups("X25519"))
            .connect()
            .is_err()
    );
    // A share of X25519 comes first, and a HelloRetryRequest asks for the other one.
    let offer = Offer::tls13().groups("X25519:P-384");
    let connection = site.client(&offer).connect().unwrap();
    assert_eq!(connection.version(), SslVersion::TLS1_3);
    assert_eq!(connection.temporary_key().unwrap().bits(), 384);
}

#[test]
fn an_engine_computes() {
    let engine = Engine::start(&[]);
    let main = format!("[engine]\nsocket = {:?}", engine.socket());
    let site = Site::http(&[KeyType::Rsa(2048)], &main);
    serve_many(&site);
    // What an engine is worth is what lanes are worth here.
    if std::arch::is_x86_feature_detected!("avx512ifma") {
        // An engine that is busy when the terminator starts is let in later.
        eventually("the engine is used", || {
            serve_together(&site);
            let metric = "slipstream_serve_device_operations_total";
            site.terminator.metric(metric, "") > 0
        });
    }
}

/// As on a CPU without AVX-512.
#[test]
fn an_engine_computes_without_lanes() {
    let engine = Engine::start(&[]);
    for isolate_keys in [false, true] {
        for key in [KeyType::Rsa(2048), KeyType::EcdsaP256] {
            let main = format!(
                "lanes = \"off\"\n\
                 engine = {{ socket = {:?}, isolate_keys = {isolate_keys} }}",
                engine.socket()
            );
            let site = Site::http(&[key], &main);
            let kind = match key {
                KeyType::Rsa(_) => "RSA-2048",
                _ => "ECDSA-P-256",
            };
            let signatures = || {
                let metric = "slipstream_serve_device_operations_total";
                site.terminator.metric(metric, kind)
            };
            eventually("the engine is used", || {
                serve_together(&site);
                signatures() > 0
            });
            let before = signatures();
            serve_together(&site);
            let computed = signatures() - before;
            // One of the handshakes may be alone while it signs.
            let least = TOGETHER as u64 - u64::from(!isolate_keys);
            let context = format!("{key:?}, isolate_keys = {isolate_keys}: {computed}");
            assert!(computed >= least, "{context}");
            let in_lanes = "slipstream_serve_lane_operations_total";
            assert_eq!(site.terminator.metric(in_lanes, ""), 0, "{context}");
        }
    }
}

#[test]
fn keys_are_isolated_in_an_engine() {
    let mut engine = Engine::start(&[]);
    let main = format!(
        "[engine]\nsocket = {:?}\nisolate_keys = true",
        engine.socket()
    );
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let site = Site::new(&[KeyType::Rsa(2048), KeyType::EcdsaP256], &main, &listener);
    serve_many(&site);
    for credentials in &site.credentials {
        assert!(!is_in_memory(&site, &credentials.key_file));
    }
    site.terminator.reload(&configuration(
        site.address,
        &site.credentials,
        &main,
        &listener,
    ));
    serve_many(&site);
    for credentials in &site.credentials {
        assert!(!is_in_memory(&site, &credentials.key_file));
    }
    // What is in the file from now on waits for a restart, and so does not matter.
    let used = configuration(site.address, &site.credentials, &main, &listener);
    site.terminator.try_reload(&used.main("user = \"nobody\""));
    eventually("the file is refused", || {
        let errors = site.terminator.errors();
        errors.contains("the old configuration stays in use")
    });
    // Nobody else has the keys.
    engine.kill();
    assert!(site.client(&Offer::tls13()).get("/").is_err());
    eventually("it is said that the keys are gone", || {
        site.terminator
            .errors()
            .contains("the private keys with it")
    });
    // Another one is given them anew, and so is the one after it.
    engine.restart();
    for is_last in [false, true] {
        eventually("the keys are used", || {
            site.client(&Offer::tls13()).get("/").is_ok()
        });
        serve_many(&site);
        if !is_last {
            engine.kill();
            engine.restart();
        }
    }
    for credentials in &site.credentials {
        assert!(!is_in_memory(&site, &credentials.key_file));
    }
}

/// The test above would find a key.
#[test]
fn keys_that_are_not_isolated_are_in_memory() {
    let site = Site::http(&[KeyType::Rsa(2048), KeyType::EcdsaP256], "");
    serve_many(&site);
    for credentials in &site.credentials {
        assert!(is_in_memory(&site, &credentials.key_file));
    }
}

fn serve_many(site: &Site) {
    let offers = [
        Offer::tls12(),
        Offer::tls13(),
        Offer::tls13().signature_algorithms("RSA-PSS+SHA256"),
    ];
    concurrently(32, |number| {
        let client = site.client(&offers[number % offers.len()]);
        assert_eq!(client.get("/").unwrap().text(), "served");
    });
}

/// Handshakes of [`serve_together`].
const TOGETHER: usize = 32;

/// Handshakes that all are there when the first one is looked at: one that is alone is left to
/// aws-lc.
pub fn serve_together(site: &Site) {
    let client = site.client(&Offer::tls13());
    let stopped = Stopped::new(vec![site.terminator.process()]);
    let begun: Vec<Begun> = (0..TOGETHER)
        .map(|_| Begun::new(&client).unwrap())
        .collect();
    drop(stopped);
    Begun::expect_service(begun);
}

/// Returns true if a number of the private key is in the memory of the terminator: as it is, in
/// reverse, or as text.
fn is_in_memory(site: &Site, key_file: &std::path::Path) -> bool {
    let pem = fs::read(key_file).unwrap();
    let key = openssl::pkey::PKey::private_key_from_pem(&pem).unwrap();
    let secrets: Vec<Vec<u8>> = match key.rsa() {
        Ok(rsa) => vec![
            rsa.p().unwrap().to_vec(),
            rsa.q().unwrap().to_vec(),
            rsa.d().to_vec(),
        ],
        Err(_) => vec![key.ec_key().unwrap().private_key().to_vec()],
    };
    let line = pem.split(|&byte| byte == b'\n').nth(1).unwrap().to_vec();
    let memory = memory(site.terminator.process());
    secrets.iter().any(|secret| {
        let part = &secret[8..24];
        let reversed: Vec<u8> = part.iter().rev().copied().collect();
        contains(&memory, part) || contains(&memory, &reversed)
    }) || contains(&memory, &line[8..40])
}

fn contains(memory: &[u8], wanted: &[u8]) -> bool {
    memory.windows(wanted.len()).any(|window| window == wanted)
}
