//! An OCSP responder.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::{Authority, Credentials, programs};

/// An OCSP responder for an authority (RFC 6960 appendix A). `openssl ocsp` makes the answers; its
/// own server would listen on all addresses.
pub struct Responder {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts one that knows `certificates`, as [`Authority::index`] takes them.
    ///
    /// # Panics
    /// If there is no port to listen on.
    pub fn start(authority: &Authority, certificates: &[(&Credentials, char)]) -> Self {
        let mut command = Command::new("openssl");
        command
            .args(["ocsp", "-ndays", "1", "-index"])
            .arg(authority.index(certificates));
        command.arg("-CA").arg(authority.certificate_file());
        command.arg("-rsigner").arg(authority.certificate_file());
        command.arg("-rkey").arg(authority.key_file());
        let request = authority.write("request.der", b"");
        let response = authority.write("response.der", b"");
        command
            .arg("-reqin")
            .arg(&request)
            .arg("-respout")
            .arg(&response);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let ends_too = ends.clone();
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ends_too.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.unwrap();
                fs::write(&request, read_query(&mut stream)).unwrap();
                programs::finish(&mut command, b"").expect_success();
                let answer = fs::read(&response).unwrap();
                let head = format!(
                    "HTTP/1.0 200 OK\r\nContent-Type: application/ocsp-response\r\n\
                     Content-Length: {}\r\n\r\n",
                    answer.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&answer).unwrap();
            }
        });
        Self {
            address,
            ends,
            thread: Some(thread),
        }
    }

    /// The address at which it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Authority {
    /// Writes the index of OpenSSL's `ca` command, with the status of `certificates`: V for valid,
    /// R for revoked.
    ///
    /// # Panics
    /// If the file system cannot.
    pub fn index(&self, certificates: &[(&Credentials, char)]) -> PathBuf {
        let mut index = String::new();
        for (credentials, status) in certificates {
            let revoked = if *status == 'R' { "250101000000Z" } else { "" };
            let serial = credentials.certificate.serial_number().to_bn();
            let serial = serial.and_then(|serial| serial.to_hex_str());
            let serial = serial.expect("certificates have serial numbers");
            writeln!(
                index,
                "{status}\t491231235959Z\t{revoked}\t{serial}\tunknown\t/CN=client"
            )
            .expect("writing to a string does not fail");
        }
        self.write("index.txt", index.as_bytes())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread; if it has failed, the test has too.
        drop(TcpStream::connect(self.address));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The query that nginx sends as a path: base64, its special characters as `%XX`.
fn read_query(stream: &mut TcpStream) -> Vec<u8> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line).unwrap();
    let mut header = line.clone();
    while header != "\r\n" {
        header.clear();
        reader.read_line(&mut header).unwrap();
    }
    let path = line.split(' ').nth(1).unwrap().trim_start_matches('/');
    let mut pieces = path.split('%');
    let mut base64 = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_at(2);
        base64.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        base64.push_str(rest);
    }
    openssl::base64::decode_block(&base64).unwrap()
}
