//! `slipstream engine` as a user and as systemd runs it.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Whom Debian has for those who shall own nothing.
const NOBODY: u32 = 65534;

#[test]
fn it_says_when_it_is_ready_and_stops_when_it_is_told() {
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("engine.sock");
        let (mut engine, line) = start(&mut command(&socket));
        assert!(line.starts_with("engine ready on "), "{line}");
        assert!(line.contains("1 thread on core "), "{line}");
        assert!(line.ends_with("portable lanes"), "{line}");

        let status = status(&socket, &["--json"]);
        let figures: Value = serde_json::from_slice(&status.stdout).unwrap();
        assert_eq!(figures["connections"], 1);
        assert_eq!(figures["requests"]["RSA-2048"], 0);
        let status = crate::status(&socket, &[]);
        assert!(text(&status.stdout).contains("0 keys"), "{status:?}");

        let second = command(&socket).output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        let said = text(&second.stderr);
        assert!(said.contains("listens there already"), "{said}");

        kill_process(pid(&engine), signal).unwrap();
        assert_eq!(engine.wait().unwrap().code(), Some(0));
        assert!(!socket.exists(), "the socket is left");
        let gone = crate::status(&socket, &[]);
        assert_eq!(gone.status.code(), Some(1));
        let said = text(&gone.stderr);
        assert!(said.contains("no engine answers at"), "{said}");
    }
}

#[test]
fn systemd_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("engine.sock");
    let path = scratch.path().join("notify");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let (mut engine, _) = start(command(&socket).env("NOTIFY_SOCKET", &path));
    let mut message = [0; 100];
    let length = notify.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    kill_process(pid(&engine), Signal::TERM).unwrap();
    engine.wait().unwrap();
}

#[test]
fn keys_are_kept_from_core_dumps() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root sees the difference");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // Where another user can run it.
    let program = scratch.path().join("slipstream");
    fs::copy(env!("CARGO_BIN_EXE_slipstream"), &program).unwrap();
    let socket = scratch.path().join("engine.sock");
    let mut command = Command::new(program);
    command.args(["engine", "--lanes", "portable", "--socket"]);
    let (mut engine, _) = start(command.arg(&socket).uid(NOBODY).gid(NOBODY));
    // What belongs to a process that may be dumped belongs to its user, otherwise to root.
    let environment = fs::metadata(format!("/proc/{}/environ", engine.id())).unwrap();
    assert_eq!(environment.uid(), 0);
    kill_process(pid(&engine), Signal::TERM).unwrap();
    assert_eq!(engine.wait().unwrap().code(), Some(0));
}

#[test]
fn nonsense_is_refused_with_a_cure() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("engine.sock");
    for (arguments, code, cure) in [
        (
            &["--cores", "9999"][..],
            1,
            "none of those that this process may use",
        ),
        (&["--allow", "no-such-user"], 1, "there is no such user"),
        (&["--linger", "5"], 2, "us or ms"),
        (&["--pace-engines", "3"], 2, "--pace"),
    ] {
        let output = command(&socket).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(cure), "{output:?}");
    }
    let output = command(Path::new("/nonexistent/engine.sock"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("install -d"), "{output:?}");
}

fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipstream"));
    command.args(["engine", "--socket"]).arg(socket);
    command
        .args(["--lanes", "portable"])
        .env("SLIPSTREAM_RUN", socket.with_file_name("run"))
        .env_remove("NOTIFY_SOCKET");
    command
}

/// Starts an engine and waits for its first line.
fn start(command: &mut Command) -> (Child, String) {
    let mut engine = loop {
        match command.stdout(Stdio::piped()).spawn() {
            // A process that another test has just started still has the copy of the program open
            // for writing.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
            engine => break engine.unwrap(),
        }
    };
    let mut line = String::new();
    let output = engine.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    (engine, line.trim_end().to_owned())
}

fn status(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipstream"))
        .args(["engine", "status", "--socket"])
        .arg(socket)
        .args(arguments)
        .output()
        .unwrap()
}

fn pid(process: &Child) -> Pid {
    Pid::from_child(process)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
