//! A client of TLS servers: the openssl command.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Returns a command that makes a key and a certificate, PATH.key and PATH.pem. `openssl` runs
/// that program, as far as it has words.
pub(super) fn make_certificate(mut openssl: Command, path: &Path) -> Command {
    openssl
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .arg("-keyout")
        .arg(path.with_extension("key"))
        .arg("-out")
        .arg(path.with_extension("pem"))
        .stderr(Stdio::null());
    openssl
}

/// Gets a page with TLS from a port of 127.0.0.1, and checks the server's certificate. `openssl`
/// runs that program, as far as it has words.
pub(super) fn get(
    mut openssl: Command,
    port: u16,
    page: &str,
    certificate: &Path,
) -> Result<String> {
    openssl
        .args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-servername",
            "localhost",
        ])
        .args(["-verify_hostname", "localhost", "-CAfile"])
        .arg(certificate)
        .arg("-connect")
        .arg(format!("127.0.0.1:{port}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = openssl.spawn().context("the openssl command")?;
    // The end of its input would end the connection before the answer.
    let mut input = client.stdin.take().context("its input is a pipe")?;
    write!(
        input,
        "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let output = client.wait_with_output()?;
    drop(input);
    ensure!(
        output.status.success(),
        "no answer from port {port}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the children of a process.
pub(super) fn children(process: &str) -> Result<Vec<String>> {
    let file = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(&file).with_context(|| format!("{process} has ended"))?;
    Ok(children.split_whitespace().map(str::to_owned).collect())
}
