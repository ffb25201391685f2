//! Checks of a configuration: each problem is caused and then named.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use openssl::x509::{X509, X509Name};
use slipstream_terminator::Configuration;
use slipstream_terminator::configuration::check::{findings, problems};
use slipstream_terminator::configuration::{
    AccessLog, Address, Backend, CertificateFiles, ClientCertificates, Engine, EngineUser, Group,
    LogFormat, LogTarget, Service, Upstream, file,
};

const NOTHING: [&str; 0] = [];

#[test]
fn a_good_configuration_has_no_problem() {
    assert_eq!(problems(&Site::new().configuration), NOTHING);
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let site = Site::new();
    fs::remove_file(site.path("a.pem")).unwrap();
    assert!(site.problem().contains("a.pem: cannot be read"));
    fs::write(site.path("a.pem"), "nonsense").unwrap();
    assert!(
        site.problem()
            .contains("a.pem: contains no certificate in PEM")
    );
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    fs::write(site.path("a.pem"), broken).unwrap();
    assert!(site.problem().contains("a.pem: is malformed PEM"));
    fs::write(site.path("a.pem"), certificate(&new_key(), -1, 30)).unwrap();
    assert!(
        site.problem()
            .contains("a.pem: its first certificate does not belong to the key")
    );
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let site = Site::new();
    write_private(&site.path("a.key"), b"nonsense");
    assert!(
        site.problem()
            .contains("a.key: contains no private key in PEM")
    );
    let encrypted = new_key().private_key_to_pem_pkcs8_passphrase(Cipher::aes_128_cbc(), b"secret");
    write_private(&site.path("a.key"), &encrypted.unwrap());
    assert!(
        site.problem()
            .contains("a.key: the private key has a passphrase: remove it with")
    );
    let small = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    write_private(
        &site.path("a.key"),
        &small.private_key_to_pem_pkcs8().unwrap(),
    );
    fs::write(site.path("a.pem"), certificate(&small, -1, 30)).unwrap();
    assert!(
        site.problem()
            .contains("a.key: the private key cannot be used")
    );
}

#[test]
fn time_and_rights_are_warnings() {
    let site = Site::new();
    let key = PKey::private_key_from_pem(&fs::read(site.path("a.key")).unwrap()).unwrap();
    fs::write(site.path("a.pem"), certificate(&key, -20, -10)).unwrap();
    assert!(
        site.problem()
            .contains("a.pem: the certificate has expired on 20")
    );
    fs::write(site.path("a.pem"), certificate(&key, 10, 20)).unwrap();
    assert!(
        site.problem()
            .contains("a.pem: the certificate is not valid before 20")
    );
    let chain = [certificate(&key, -1, 10), certificate(&key, -20, -10)].concat();
    fs::write(site.path("a.pem"), chain).unwrap();
    assert!(
        site.problem()
            .contains("a.pem: certificate 2 of the chain has expired")
    );
    assert_eq!(findings(&site.configuration, None).errors, NOTHING);

    let site = Site::new();
    let path = site.path("a.key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(
        site.problem()
            .contains(&format!("`chmod o-rw {}`", path.display()))
    );
    assert_eq!(findings(&site.configuration, None).warnings.len(), 1);
}

#[test]
fn a_key_that_the_user_cannot_read_again_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change the user");
        return;
    }
    let mut site = Site::new();
    site.configuration.user = Some("nobody".to_owned());
    assert!(
        site.problem()
            .contains("a.key: the configured user cannot read this private key")
    );
    // The warning is gone once the user has been changed.
    let serving = site.configuration.clone();
    assert_eq!(
        findings(&site.configuration, Some(&serving)).warnings,
        NOTHING
    );
}

#[test]
fn ocsp_responses_are_looked_at() {
    let mut site = Site::new();
    let path = site.path("a.der");
    site.certificate().ocsp = Some(path.clone());
    assert!(site.problem().contains("a.der: cannot be read"));
    for bad in [
        &b""[..],
        b"-----BEGIN",
        b"\x30",
        b"\x30\x03\x0a\x01",
        b"\x30\x80",
        b"\x30\x81\x02\x00",
    ] {
        fs::write(&path, bad).unwrap();
        assert!(
            site.problem()
                .contains("a.der: is not an OCSP response in DER"),
            "{bad:?}"
        );
    }
    for good in [&b"\x30\x03\x0a\x01\x06"[..], b"\x30\x81\x03\x0a\x01\x06"] {
        fs::write(&path, good).unwrap();
        assert_eq!(problems(&site.configuration), NOTHING);
    }
}

#[test]
fn users_and_engines_that_are_not_there_are_named() {
    let mut site = Site::new();
    site.configuration.user = Some("no-such-user-here".to_owned());
    assert!(
        site.problem()
            .contains("there is no user \"no-such-user-here\"")
    );
    site.configuration.user = None;

    let mut engine = Engine {
        socket: site.path("engine.sock"),
        isolate_keys: true,
        user: EngineUser::default(),
    };
    site.configuration.engine = Some(engine.clone());
    assert!(
        site.problem()
            .contains("engine.sock: there is no engine: start one")
    );
    assert_eq!(findings(&site.configuration, None).errors.len(), 1);
    engine.isolate_keys = false;
    site.configuration.engine = Some(engine);
    assert_eq!(findings(&site.configuration, None).errors, NOTHING);
    assert_eq!(findings(&site.configuration, None).warnings.len(), 1);
}

#[test]
fn places_that_are_not_there_are_named() {
    let mut site = Site::new();
    site.configuration.access_log = Some(AccessLog {
        target: LogTarget::File(site.path("absent/access.log")),
        format: LogFormat::Combined,
    });
    assert!(
        site.problem()
            .contains("absent: the access log cannot be written there")
    );
    site.configuration.access_log = None;

    let authorities = site.path("ca.pem");
    site.configuration.listeners[0].client_certificates = Some(ClientCertificates {
        authorities,
        required: true,
    });
    assert!(site.problem().contains("ca.pem: cannot be read"));
    site.configuration.listeners[0].client_certificates = None;

    site.configuration.listeners[0].service = Service::Files(site.path("absent"));
    assert!(site.problem().contains("absent: is not a folder"));
    let backend = Backend {
        address: Address::Unix(site.path("app.sock")),
        tls: None,
    };
    site.configuration.listeners[0].service = Service::Tcp(Upstream::new(vec![backend]));
    assert!(site.problem().contains("app.sock: there is no socket"));
}

#[test]
fn settings_that_exclude_each_other_are_named() {
    let mut site = Site::new();
    site.configuration.listeners[0].tls13 = false;
    site.configuration.listeners[0].groups = vec![Group::X25519MlKem768];
    assert!(site.problem().contains("X25519MLKEM768 needs TLS 1.3"));

    let mut site = Site::new();
    site.configuration.metrics = Some(site.configuration.listeners[0].addresses[0]);
    assert!(site.problem().contains("has two listeners"));
}

/// Folder with a configuration that has no problem.
struct Site {
    folder: tempfile::TempDir,
    configuration: Configuration,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = new_key();
        let below = |name: &str| folder.path().join(name);
        write_private(&below("a.key"), &key.private_key_to_pem_pkcs8().unwrap());
        fs::write(below("a.pem"), certificate(&key, -1, 30)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "[[listener]]\nlisten = \"{}\"\n\
             certificates = {{ certificate = \"a.pem\", key = \"a.key\" }}\nroot = \".\"\n",
            listener.local_addr().unwrap()
        );
        fs::write(below("serve.toml"), text).unwrap();
        let configuration = file::read(&below("serve.toml")).unwrap();
        Self {
            folder,
            configuration,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn certificate(&mut self) -> &mut CertificateFiles {
        &mut self.configuration.listeners[0].certificates[0]
    }

    /// Returns the problem; there must be exactly one.
    fn problem(&self) -> String {
        let problems = problems(&self.configuration);
        let [problem] = &problems[..] else {
            panic!("one problem was expected: {problems:?}");
        };
        assert!(!problem.contains('\n'), "{problem}");
        problem.clone()
    }
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

/// Returns a self-signed certificate with a validity period in days from now.
fn certificate(key: &PKey<Private>, from: i64, to: i64) -> Vec<u8> {
    let day = |days: i64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Asn1Time::from_unix(now.as_secs() as i64 + days * 86_400).unwrap()
    };
    let mut name = X509Name::builder().unwrap();
    name.append_entry_by_text("CN", "localhost").unwrap();
    let name = name.build();
    let serial = BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap();
    let mut certificate = X509::builder().unwrap();
    certificate.set_version(2).unwrap();
    certificate.set_serial_number(&serial).unwrap();
    certificate.set_subject_name(&name).unwrap();
    certificate.set_issuer_name(&name).unwrap();
    certificate.set_pubkey(key).unwrap();
    certificate.set_not_before(&day(from)).unwrap();
    certificate.set_not_after(&day(to)).unwrap();
    certificate.sign(key, MessageDigest::sha256()).unwrap();
    certificate.build().to_pem().unwrap()
}

fn write_private(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
