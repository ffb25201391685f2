//! Servers and other programs.

use std::path::Path;
use std::process::Command;

use crate::workshop::{Ours, Server, Workshop, fetch, text};

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
    assert!(output.contains(" 2048 bits "), "{output}");
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
