//! Full handshakes in memory: aws-lc's client, which verifies, and a server with the provider.

use std::sync::Arc;

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion, version,
};
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use super::super::{Computation, provider};
use super::{TestKey, counters, install_lanes, on_fiber, together};
use crate::configuration::{Configuration, Crypto, Engine, EngineUser, Group, Lanes};

pub(super) const NAME: &str = "server.test";

/// What the server is asked for: a group, a version, and a key.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) group: Group,
    pub(super) version: &'static SupportedProtocolVersion,
    pub(super) key: TestKey,
}

impl Case {
    /// Every combination.
    pub(super) fn all() -> Vec<Self> {
        let keys = TestKey::all();
        let mut cases = Vec::new();
        for version in [&version::TLS12, &version::TLS13] {
            for group in Group::ALL {
                // ML-KEM is not for TLS 1.2.
                if group != Group::X25519MlKem768 || version == &version::TLS13 {
                    let case = |key: &TestKey| Self {
                        group,
                        version,
                        key: key.clone(),
                    };
                    cases.extend(keys.iter().map(case));
                }
            }
        }
        cases
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{:?}, {:?}, {}",
            self.version.version, self.group, self.key.name
        )
    }

    /// Completes a handshake with `signing_key` in place of the key, or panics.
    pub(super) fn shake_hands(&self, crypto: Crypto, signing_key: Arc<dyn SigningKey>) {
        let certificate = certificate(&self.key);
        let certified = CertifiedKey::new(vec![certificate.clone()], signing_key);
        certified.keys_match().expect("the certificate's key");
        let computation = match crypto {
            Crypto::AwsLc => Computation::AwsLc,
            Crypto::Slipstream => Computation::Lanes,
        };
        let server = Arc::new(provider(computation, &[self.group]));
        let server = ServerConfig::builder_with_provider(server)
            .with_protocol_versions(&[self.version])
            .expect("suites for the version")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let client = provider(Computation::AwsLc, &Group::ALL);
        let client = ClientConfig::builder_with_provider(Arc::new(client))
            .with_protocol_versions(&[self.version])
            .expect("suites for the version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = NAME.try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).expect("memory");
            server.read_tls(&mut bytes.as_slice()).expect("memory");
            server
                .process_new_packets()
                .unwrap_or_else(|error| panic!("{}: {error}", self.name()));
            bytes.clear();
            server.write_tls(&mut bytes).expect("memory");
            client.read_tls(&mut bytes.as_slice()).expect("memory");
            client
                .process_new_packets()
                .unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        }
        let group = server
            .negotiated_key_exchange_group()
            .expect("a group")
            .name();
        assert_eq!(group, named(self.group), "{}", self.name());
        assert_eq!(server.protocol_version(), Some(self.version.version));
    }
}

fn named(group: Group) -> NamedGroup {
    match group {
        Group::X25519MlKem768 => NamedGroup::X25519MLKEM768,
        Group::X25519 => NamedGroup::X25519,
        Group::P256 => NamedGroup::secp256r1,
        Group::P384 => NamedGroup::secp384r1,
    }
}

/// Self-signed.
pub(super) fn certificate(key: &TestKey) -> CertificateDer<'static> {
    let mut name = X509NameBuilder::new().expect("memory");
    name.append_entry_by_text("CN", NAME).expect("a name");
    let name = name.build();
    let mut certificate = X509::builder().expect("memory");
    let serial = BigNum::from_u32(1).and_then(|serial| serial.to_asn1_integer());
    let alternative = SubjectAlternativeName::new()
        .dns(NAME)
        .build(&certificate.x509v3_context(None, None))
        .expect("an extension");
    let from = Asn1Time::days_from_now(0).expect("a time");
    let to = Asn1Time::days_from_now(1).expect("a time");
    certificate
        .set_version(2)
        .and_then(|()| certificate.set_serial_number(&serial.expect("a number")))
        .and_then(|()| certificate.set_subject_name(&name))
        .and_then(|()| certificate.set_issuer_name(&name))
        .and_then(|()| certificate.set_pubkey(&key.openssl))
        .and_then(|()| certificate.set_not_before(&from))
        .and_then(|()| certificate.set_not_after(&to))
        .and_then(|()| certificate.append_extension(alternative))
        .and_then(|()| certificate.sign(&key.openssl, MessageDigest::sha256()))
        .expect("a certificate");
    CertificateDer::from(certificate.build().to_der().expect("an encoding"))
}

fn job(case: Case) -> Box<dyn FnOnce()> {
    Box::new(move || case.shake_hands(Crypto::Slipstream, case.key.load()))
}

#[test]
fn without_fibers() {
    for case in Case::all() {
        case.shake_hands(Crypto::Slipstream, case.key.load());
    }
}

#[test]
fn with_aws_lc_alone() {
    let case = |group| Case {
        group,
        version: &version::TLS13,
        key: TestKey::p256(),
    };
    for case in Group::ALL.map(case) {
        case.shake_hands(Crypto::AwsLc, case.key.load());
    }
}

#[test]
fn on_fibers_without_an_instance() {
    for case in Case::all() {
        on_fiber(job(case));
    }
}

#[test]
fn together_in_lanes() {
    install_lanes();
    let mut cases = Case::all();
    let count = cases.len();
    while !cases.is_empty() {
        let batch = cases.drain(..cases.len().min(8));
        together(batch.map(job).collect());
    }
    let counters = counters();
    for size in Size::ALL {
        // Each key with each of three groups in TLS 1.2, and of four in TLS 1.3.
        assert_eq!(counters.lane_operations[Kind::Rsa(size).index()], 7);
    }
    for curve in Curve::ALL {
        assert_eq!(counters.lane_operations[Kind::Ecdh(curve).index()], 10);
    }
    assert_eq!(counters.lane_operations[Kind::X25519.index()], 15);
    for curve in Curve::ALL {
        assert_eq!(counters.lane_operations[Kind::Ecdsa(curve).index()], 7);
    }
    assert_eq!(counters.precomputed() as usize, count, "key pairs");
    assert_eq!(counters.software.iter().sum::<u64>(), 0);
    assert!(
        counters.fill[1..].iter().sum::<u64>() > 0,
        "never together: {counters:?}"
    );
}

#[test]
fn the_key_provider_loads_what_signs() {
    for key in TestKey::all() {
        let case = Case {
            group: Group::X25519,
            version: &version::TLS13,
            key: key.clone(),
        };
        for computation in [Computation::Lanes, Computation::Engine, Computation::AwsLc] {
            let keys = provider(computation, &Group::ALL).key_provider;
            let loaded = keys.load_private_key(key.der()).expect("a good key");
            case.shake_hands(Crypto::Slipstream, loaded);
        }
    }
}

#[test]
fn keys_are_not_copied_where_nothing_is_offloaded() {
    let mut configuration = Configuration::new(Vec::new());
    configuration.lanes = Lanes::Off;
    assert_eq!(Computation::new(&configuration), Computation::AwsLc);
    let provider = provider(Computation::new(&configuration), &Group::ALL);
    let (ours, theirs) = (provider.key_provider, default_provider().key_provider);
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));

    configuration.engine = Some(Engine {
        socket: Engine::SOCKET.into(),
        isolate_keys: false,
        user: EngineUser::default(),
    });
    assert_eq!(Computation::new(&configuration), Computation::Engine);
    configuration.crypto = Crypto::AwsLc;
    assert_eq!(Computation::new(&configuration), Computation::AwsLc);
}
