//! The module in the `openssl` command, loaded through a configuration file: every result is
//! checked by the same command without it, and the other way round.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A directory with the module, a configuration and the files of one test.
struct Workshop {
    directory: TempDir,
}

/// Whose RSA a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Ours,
    Stock,
}

use Provider::{Ours, Stock};

const BOTH: [Provider; 2] = [Ours, Stock];

impl Workshop {
    /// `lines` go into the section of the provider.
    fn new(lines: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let module = std::env::current_exe()
            .expect("a path")
            .with_file_name("libslipstream.so");
        std::os::unix::fs::symlink(module, directory.path().join("slipstream.so")).expect("a link");
        let configuration = |providers: &str| {
            format!(
                "openssl_conf = init\n[init]\nproviders = providers\nalg_section = algorithms\n\
                 [providers]\ndefault = activated\n{providers}\n[activated]\nactivate = 1\n\
                 [ours]\nactivate = 1\n{lines}\n\
                 [algorithms]\ndefault_properties = ?provider=slipstream\n\
                 [req]\ndistinguished_name = name\n[name]\n"
            )
        };
        let workshop = Self { directory };
        workshop.write("ours.cnf", configuration("slipstream = ours").as_bytes());
        workshop.write("stock.cnf", configuration("").as_bytes());
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    fn command(&self, program: impl AsRef<OsStr>, provider: Provider) -> Command {
        let mut command = Command::new(program);
        let configuration = if provider == Ours {
            "ours.cnf"
        } else {
            "stock.cnf"
        };
        command
            .current_dir(self.directory.path())
            .env("OPENSSL_CONF", self.path(configuration))
            .env("OPENSSL_MODULES", self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `openssl` with words separated by blanks.
    fn try_openssl(&self, provider: Provider, words: &str) -> Output {
        let mut command = self.command("openssl", provider);
        command
            .args(words.split_whitespace())
            .output()
            .expect("the openssl command")
    }

    /// The same, which must succeed; answers its output.
    fn openssl(&self, provider: Provider, words: &str) -> Vec<u8> {
        let output = self.try_openssl(provider, words);
        assert!(
            output.status.success(),
            "{provider:?} {words}: {}",
            text(&output.stderr)
        );
        output.stdout
    }

    /// A throw-away key with its certificate.
    fn certificate(&self, provider: Provider, bits: usize) {
        self.openssl(
            provider,
            &format!(
                "req -x509 -newkey rsa:{bits} -nodes -keyout key.pem -out certificate.pem \
                 -subj /CN=localhost -days 1 -sha256"
            ),
        );
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_lists_the_provider_and_what_it_offers() {
    let workshop = Workshop::new("");
    let listed = text(&workshop.openssl(Ours, "list -providers -verbose"));
    assert!(listed.contains("name: Slipstream"), "{listed}");
    assert!(listed.contains("build info: RSA in "), "{listed}");
    assert!(
        listed.contains("lane-operations: unsigned integer"),
        "{listed}"
    );
    for operation in [
        "-key-managers",
        "-signature-algorithms",
        "-asymcipher-algorithms",
    ] {
        let listed = text(&workshop.openssl(Ours, &format!("list {operation}")));
        assert!(listed.contains("@ slipstream"), "{operation}: {listed}");
    }
}

#[test]
fn a_wrong_configuration_is_reported_and_leaves_everything_to_openssl() {
    let workshop = Workshop::new("flush = sometimes");
    let listed = text(&workshop.openssl(Ours, "list -providers -verbose"));
    assert!(
        listed.contains("unknown value of flush: sometimes"),
        "{listed}"
    );
    workshop.certificate(Ours, 2048);
}

#[test]
fn the_module_exports_its_entry_point_and_needs_no_libcrypto() {
    let module = std::env::current_exe()
        .expect("a path")
        .with_file_name("libslipstream.so");
    let readelf = |option| {
        let output = Command::new("readelf")
            .args(["--wide", option])
            .arg(&module)
            .output();
        text(&output.expect("readelf").stdout)
    };
    let dynamic = readelf("--dynamic");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(
        !dynamic.contains("libcrypto") && !dynamic.contains("libssl"),
        "{dynamic}"
    );
    let symbols = readelf("--dyn-syms");
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains("GLOBAL") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(exported, ["OSSL_provider_init"]);
}

#[test]
fn keys_are_made_read_and_written() {
    let workshop = Workshop::new("");
    for bits in [2048, 3072, 4096] {
        let made = format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{bits} -out key.pem");
        workshop.openssl(Ours, &made);
        for words in [
            "pkey -in key.pem -noout -check",
            "pkey -in key.pem -text",
            "pkey -in key.pem -pubout",
            "pkey -in key.pem -traditional",
            "rsa -in key.pem -noout -check",
        ] {
            let [ours, stock] = BOTH.map(|provider| workshop.openssl(provider, words));
            assert_eq!(text(&ours), text(&stock), "{words}");
        }
        let encrypted = "pkey -in key.pem -aes256 -passout pass:secret -out encrypted.pem";
        workshop.openssl(Ours, encrypted);
        workshop.openssl(
            Stock,
            "pkey -in encrypted.pem -passin pass:secret -out decrypted.pem",
        );
        assert_eq!(workshop.read("decrypted.pem"), workshop.read("key.pem"));
    }
}

#[test]
fn digests_are_signed_and_verified() {
    let workshop = Workshop::new("");
    workshop.certificate(Stock, 2048);
    workshop.openssl(Stock, "pkey -in key.pem -pubout -out public.pem");
    workshop.write("message", b"a message");
    for digest in [
        "sha1", "sha224", "sha256", "sha384", "sha512", "sha3-256", "md5",
    ] {
        let [ours, stock] = BOTH.map(|provider| {
            workshop.openssl(provider, &format!("dgst -{digest} -sign key.pem message"))
        });
        assert_eq!(ours, stock, "{digest}");
    }
    let pss = "-sigopt rsa_padding_mode:pss";
    let options = [
        ("sha256", format!("{pss} -sigopt rsa_pss_saltlen:digest")),
        ("sha256", format!("{pss} -sigopt rsa_pss_saltlen:max")),
        ("sha384", format!("{pss} -sigopt rsa_pss_saltlen:auto")),
        ("sha512", format!("{pss} -sigopt rsa_pss_saltlen:0")),
        ("sha1", format!("{pss} -sigopt rsa_pss_saltlen:20")),
        (
            "sha256",
            format!("{pss} -sigopt rsa_pss_saltlen:20 -sigopt rsa_mgf1_md:sha512"),
        ),
        ("sha3-384", format!("{pss} -sigopt rsa_mgf1_md:sha256")),
        ("sha256", "-sigopt rsa_padding_mode:x931".into()),
    ];
    for (digest, options) in &options {
        for (signer, verifier) in [(Ours, Stock), (Stock, Ours)] {
            let sign = format!("dgst -{digest} {options} -sign key.pem -out signature message");
            workshop.openssl(signer, &sign);
            let verify =
                format!("dgst -{digest} {options} -verify public.pem -signature signature message");
            assert_eq!(text(&workshop.openssl(verifier, &verify)), "Verified OK\n");
            let mut damaged = workshop.read("signature");
            damaged[100] ^= 4;
            workshop.write("signature", &damaged);
            assert!(!workshop.try_openssl(verifier, &verify).status.success());
        }
    }
}

#[test]
fn pkeyutl_signs_recovers_encrypts_and_decrypts() {
    let workshop = Workshop::new("");
    workshop.certificate(Stock, 2048);
    workshop.openssl(Stock, "dgst -sha256 -binary -out hash certificate.pem");
    let bare = "pkeyutl -sign -inkey key.pem -in hash";
    let [ours, stock] = BOTH.map(|provider| workshop.openssl(provider, bare));
    assert_eq!(ours, stock);
    workshop.write("bare", &ours);
    for provider in BOTH {
        let recover = "pkeyutl -verifyrecover -inkey key.pem -in bare";
        assert_eq!(workshop.openssl(provider, recover), workshop.read("hash"));
        let verify = "pkeyutl -verify -inkey key.pem -in hash -sigfile bare";
        workshop.openssl(provider, verify);
    }
    let options = [
        "-pkeyopt digest:sha256",
        "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:digest",
    ];
    for options in options {
        for (signer, verifier) in [(Ours, Stock), (Stock, Ours)] {
            let sign = format!("pkeyutl -sign {options} -inkey key.pem -in hash -out signature");
            workshop.openssl(signer, &sign);
            let verify =
                format!("pkeyutl -verify {options} -inkey key.pem -in hash -sigfile signature");
            workshop.openssl(verifier, &verify);
        }
    }
    workshop.write("block", &[&[0; 1][..], &[0x5a; 255]].concat());
    let paddings = [
        ("pkcs1", "hash"),
        ("oaep", "hash"),
        (
            "oaep -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha1",
            "hash",
        ),
        ("none", "block"),
    ];
    for (padding, input) in paddings {
        for (sender, receiver) in [(Ours, Stock), (Stock, Ours)] {
            let options = format!("-pkeyopt rsa_padding_mode:{padding} -inkey key.pem");
            let encrypt = format!("pkeyutl -encrypt {options} -in {input} -out encrypted");
            workshop.openssl(sender, &encrypt);
            let decrypt = format!("pkeyutl -decrypt {options} -in encrypted");
            assert_eq!(workshop.openssl(receiver, &decrypt), workshop.read(input));
        }
    }
    for provider in BOTH {
        let output = workshop.try_openssl(provider, "pkeyutl -decrypt -inkey key.pem -in hash");
        assert!(!output.status.success());
    }
}

#[test]
fn certificates_and_messages_are_signed() {
    let workshop = Workshop::new("");
    workshop.certificate(Ours, 3072);
    workshop.openssl(Stock, "verify -CAfile certificate.pem certificate.pem");
    workshop.openssl(
        Stock,
        "req -new -key key.pem -subj /CN=leaf -out request.pem",
    );
    workshop.openssl(Ours, "req -in request.pem -noout -verify");
    let issue = "x509 -req -in request.pem -CA certificate.pem -CAkey key.pem -days 1 \
                 -CAcreateserial -out leaf.pem -sigopt rsa_padding_mode:pss";
    workshop.openssl(Ours, issue);
    workshop.openssl(Stock, "verify -CAfile certificate.pem leaf.pem");
    workshop.write("message", b"a message\n");
    for (sender, receiver) in [(Ours, Stock), (Stock, Ours)] {
        for options in ["", "-keyopt rsa_padding_mode:pss"] {
            let sign = format!(
                "cms -sign -in message -signer certificate.pem -inkey key.pem {options} -out signed"
            );
            workshop.openssl(sender, &sign);
            workshop.openssl(
                receiver,
                "cms -verify -in signed -CAfile certificate.pem -out out",
            );
        }
        for options in ["", "-keyopt rsa_padding_mode:oaep"] {
            let encrypt = format!(
                "cms -encrypt -aes256 -in message -recip certificate.pem {options} -out encrypted"
            );
            workshop.openssl(sender, &encrypt);
            let decrypt = "cms -decrypt -in encrypted -inkey key.pem -recip certificate.pem";
            let decrypted = workshop.openssl(receiver, decrypt);
            assert_eq!(text(&decrypted).replace('\r', ""), "a message\n");
        }
        let sign = "smime -sign -in message -signer certificate.pem -inkey key.pem -out signed";
        workshop.openssl(sender, sign);
        workshop.openssl(
            receiver,
            "smime -verify -in signed -CAfile certificate.pem -out out",
        );
    }
}

#[test]
fn keys_restricted_to_pss_stay_with_openssl() {
    let workshop = Workshop::new("");
    let make = "genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048 \
                -pkeyopt rsa_pss_keygen_md:sha256 -pkeyopt rsa_pss_keygen_mgf1_md:sha256 \
                -pkeyopt rsa_pss_keygen_saltlen:32 -out key.pem";
    workshop.openssl(Ours, make);
    workshop.openssl(Ours, "pkey -in key.pem -pubout -out public.pem");
    workshop.openssl(Ours, "dgst -sha256 -sign key.pem -out signature ours.cnf");
    let verify = "dgst -sha256 -verify public.pem -signature signature ours.cnf";
    workshop.openssl(Stock, verify);
    let refused = "dgst -sha512 -sign key.pem -out signature ours.cnf";
    assert!(!workshop.try_openssl(Ours, refused).status.success());
}

/// `openssl s_server`, ended when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(workshop: &Workshop, options: &str) -> Self {
        let mut process = workshop
            .command("openssl", Ours)
            .args("s_server -accept 127.0.0.1:0 -key key.pem -cert certificate.pem -www".split(' '))
            .args(options.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
            .expect("an address");
        Self { process, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .expect("the server");
    }
}

/// Fetches the page of the server, with the certificate verified.
fn fetch(workshop: &Workshop, address: &str, options: &str) -> String {
    let mut client = workshop
        .command("openssl", Stock)
        .args("s_client -quiet -no_ign_eof -verify_return_error -CAfile certificate.pem".split(' '))
        .args(["-ign_eof", "-connect", address])
        .args(options.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut input = client.stdin.take().expect("its input");
    input
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("a request");
    let output = client.wait_with_output().expect("an answer");
    assert!(
        output.status.success(),
        "{options}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn s_server_serves_tls_in_lanes_and_in_software() {
    for (lines, mode) in [
        ("", ""),
        ("", "-async"),
        ("lanes = portable\nflush = always", ""),
        ("lanes = portable\nflush = always", "-async"),
    ] {
        let workshop = Workshop::new(lines);
        workshop.certificate(Ours, 2048);
        let server = Server::start(&workshop, mode);
        for (options, cipher) in [
            ("-tls1_3", "TLS_AES_256_GCM_SHA384"),
            (
                "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256",
            ),
            ("-tls1_2 -cipher AES128-GCM-SHA256", "AES128-GCM-SHA256"),
            ("-tls1_3 -sigalgs RSA-PSS+SHA512", "TLS_AES_256_GCM_SHA384"),
            ("-tls1_2 -sigalgs RSA+SHA512", "ECDHE-RSA"),
        ] {
            for _ in 0..3 {
                let page = fetch(&workshop, &server.address, options);
                assert!(
                    page.contains("HTTP/1.0 200 ok"),
                    "{lines} {mode} {options}: {page}"
                );
                assert!(page.contains(cipher), "{lines} {mode} {options}: {page}");
            }
        }
    }
}

#[test]
fn speed_runs_asynchronous_jobs() {
    let workshop = Workshop::new("lanes = portable\nflush = always");
    let words = "speed -seconds 1 -async_jobs 8 rsa2048";
    let output = text(&workshop.openssl(Ours, words));
    assert!(output.contains("rsa 2048 bits"), "{output}");
}

#[test]
#[ignore = "needs an openssl command of version 4, named by the variable OPENSSL_4"]
fn openssl_4_loads_the_module() {
    let command = std::env::var("OPENSSL_4").expect("the variable OPENSSL_4");
    let workshop = Workshop::new("lanes = portable\nflush = always");
    let run = |words: &str| {
        let mut command = workshop.command(&command, Ours);
        let output = command
            .args(words.split_whitespace())
            .output()
            .expect("openssl 4");
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(run("version").starts_with("OpenSSL 4"));
    let listed = run("list -providers -verbose");
    // A static command that does not export its symbols has no libcrypto for us.
    let offers = listed.contains("RSA in lanes (portable)");
    assert!(
        offers || listed.contains("libcrypto is linked statically"),
        "{listed}"
    );
    assert_eq!(
        run("list -signature-algorithms").contains("@ slipstream"),
        offers
    );
    run("genpkey -quiet -algorithm RSA -out key.pem");
    run("pkey -in key.pem -pubout -out public.pem");
    for options in [
        "",
        "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:auto",
    ] {
        run(&format!(
            "dgst -sha256 {options} -sign key.pem -out signature ours.cnf"
        ));
        let verify =
            format!("dgst -sha256 {options} -verify public.pem -signature signature ours.cnf");
        run(&verify);
        workshop.openssl(Stock, &verify);
    }
    run("speed -seconds 1 -async_jobs 8 rsa2048");
}

#[test]
fn python_hashes_and_speaks_tls() {
    let workshop = Workshop::new("");
    workshop.certificate(Ours, 2048);
    let script = "
import hashlib, socket, ssl, threading
half = hashlib.sha256(b'mess')
whole = half.copy()
whole.update(b'age')
assert whole.digest() == hashlib.sha256(b'message').digest()
assert half.digest() == hashlib.sha256(b'mess').digest()
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain('certificate.pem', 'key.pem')
client = ssl.create_default_context(cafile='certificate.pem')
client.check_hostname = False
for _ in range(5):
    here, there = socket.socketpair()
    def serve():
        with server.wrap_socket(there, server_side=True) as connection:
            connection.send(connection.recv(16).upper())
    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(here, server_hostname='localhost') as connection:
        connection.send(b'request')
        assert connection.recv(16) == b'REQUEST'
    thread.join()
";
    let linked = Command::new("python3")
        .args(["-c", "import _ssl; print(_ssl.__file__)"])
        .output()
        .ok()
        .map(|output| text(&output.stdout).trim().to_owned())
        .filter(|path| uses_system_libcrypto(Path::new(path)));
    if linked.is_none() {
        println!("skipped: python3 is missing or has an OpenSSL of its own");
        return;
    }
    let output = workshop
        .command("python3", Ours)
        .args(["-c", script])
        .output()
        .expect("python3");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn uses_system_libcrypto(module: &Path) -> bool {
    let output = Command::new("ldd").arg(module).output().expect("ldd");
    text(&output.stdout).contains("libcrypto.so.3 => /lib/")
}
