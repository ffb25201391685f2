//! Functions that affect the whole process: dropped privileges and sockets of systemd. Each test
//! runs in a child process.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};

use slipstream_terminator::operations::{privileges, systemd};

/// Makes standard input the first descriptor that systemd passes, for the process that replaces the
/// shell.
const PASS_INPUT: &str = "export LISTEN_PID=$$ LISTEN_FDS=1; exec 3<&0 </dev/null;";

#[test]
fn sockets_of_systemd_are_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_passed(&run(
        "child_takes_sockets",
        PASS_INPUT,
        OwnedFd::from(listener).into(),
    ));
}

#[test]
#[ignore = "runs in a child"]
fn child_takes_sockets() {
    let listeners = systemd::listeners().unwrap();
    assert_eq!(listeners.len(), 1);
    listeners[0].accept().unwrap();
    // There was one client only, so a blocking call would never return.
    let error = listeners[0].accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(systemd::listeners().unwrap().is_empty());
}

#[test]
fn a_descriptor_that_is_no_listener_is_refused() {
    let (socket, _other) = UnixDatagram::pair().unwrap();
    assert_passed(&run(
        "child_refuses_sockets",
        PASS_INPUT,
        OwnedFd::from(socket).into(),
    ));
}

#[test]
#[ignore = "runs in a child"]
fn child_refuses_sockets() {
    let error = systemd::listeners().unwrap_err().to_string();
    assert!(
        error.contains("descriptor 3 from systemd is not a listening TCP socket"),
        "{error}"
    );
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let setup = "export LISTEN_PID=1 LISTEN_FDS=1;";
    assert_passed(&run("child_finds_no_sockets", setup, Stdio::null()));
}

#[test]
#[ignore = "runs in a child"]
fn child_finds_no_sockets() {
    assert!(systemd::listeners().unwrap().is_empty());
}

#[test]
fn systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let setup = format!("export NOTIFY_SOCKET={};", path.display());
    assert_passed(&run("child_notifies", &setup, Stdio::null()));
    socket.set_nonblocking(true).unwrap();
    let receive = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(receive(), "READY=1\n");
    let reloading = receive();
    let time = reloading
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
        .unwrap();
    assert!(time.trim_end().parse::<u64>().is_ok(), "{reloading}");
    assert_eq!(receive(), "STOPPING=1\n");
}

#[test]
#[ignore = "runs in a child"]
fn child_notifies() {
    systemd::notify_ready();
    systemd::notify_reloading();
    systemd::notify_stopping();
}

#[test]
fn rights_are_dropped() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has rights to drop");
        return;
    }
    assert_passed(&run("child_drops_rights", "", Stdio::null()));
}

#[test]
#[ignore = "runs in a child"]
fn child_drops_rights() {
    privileges::protect_memory().unwrap();
    privileges::drop_to("nobody").unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let field = |name: &str| -> Vec<&str> {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_ascii_whitespace().skip(1).collect()
    };
    assert_eq!(field("CapEff:"), ["0000000000000000"]);
    assert_eq!(field("CapPrm:"), ["0000000000000000"]);
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert!(!field("Uid:").contains(&"0"));
    assert!(!field("Groups:").contains(&"0"));
    assert_eq!(
        rustix::process::dumpable_behavior().unwrap(),
        rustix::process::DumpableBehavior::NotDumpable
    );
    let error = privileges::drop_to("root").unwrap_err().to_string();
    assert!(error.contains("cannot become user \"root\""), "{error}");
    // A process of that user has nothing to change.
    privileges::drop_to("nobody").unwrap();
}

/// Runs an otherwise ignored test of this file, in a process for which the shell has executed
/// `setup`.
fn run(test: &str, setup: &str, input: Stdio) -> Output {
    let script = format!("{setup} exec \"$0\" --ignored --exact {test} --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .stdin(input)
        .output()
        .unwrap()
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}
