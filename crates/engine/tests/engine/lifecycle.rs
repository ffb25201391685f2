//! Starting, stopping, idling.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use slipstream_accelerators::engine::protocol::wire::Outcome;
use slipstream_engine::Engine;
use slipstream_keys::rsa::Size;

use crate::client::{self, PATIENCE, TestEngine, connect, padded, verifies};
use crate::processes::{self, Child};

#[test]
fn another_engine_takes_the_place_of_one_that_has_stopped() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("engine.sock");
    for _ in 0..3 {
        let engine = Engine::start(client::options(&socket)).expect("an engine");
        let mode = socket.metadata().expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let connection = connect(&socket).expect("an engine that listens");
        client::register(&connection, Size::Rsa2048);
        engine.stop();
        let gone = connection.grant(PATIENCE).expect_err("a stopped engine");
        assert_ne!(gone.kind(), io::ErrorKind::TimedOut, "{gone}");
        assert!(!socket.exists());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("engine.sock");
    // Its file stays.
    drop(UnixListener::bind(&socket).expect("a socket"));
    let _engine = Engine::start(client::options(&socket)).expect("an engine");
    let refused = Engine::start(client::options(&socket)).expect_err("a second one");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    assert!(
        refused.to_string().contains("listens there already"),
        "{refused}"
    );
    connect(&socket).expect("the first one still listens");
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").expect("a file");
    let refused = Engine::start(client::options(&file)).expect_err("a file");
    assert!(refused.to_string().contains("is not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "mine");
}

#[test]
fn the_socket_of_a_successor_is_left_alone() {
    let engine = TestEngine::start();
    std::fs::remove_file(&engine.socket).expect("the socket");
    let successor = Engine::start(client::options(&engine.socket)).expect("an engine");
    engine.engine.stop();
    connect(&engine.socket).expect("the successor's socket is still there");
    successor.stop();
    assert!(!engine.socket.exists());
}

#[test]
fn what_is_missing_is_said() {
    let missing = std::path::Path::new("/nonexistent/engine.sock");
    let refused = Engine::start(client::options(missing)).expect_err("no directory");
    assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    assert!(refused.to_string().contains("install -d"), "{refused}");
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = client::options(&directory.path().join("engine.sock"));
    options.cores = vec![100_000];
    let refused = Engine::start(options.clone()).expect_err("no core");
    assert!(refused.to_string().contains("core 100000"), "{refused}");
    options.cores.clear();
    let refused = Engine::start(options).expect_err("no core");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn clients_see_that_the_engine_stops_while_it_computes() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let key = client.register(Size::Rsa4096);
    for seed in 0..40 {
        client.submit_rsa(Size::Rsa4096, key, seed);
    }
    let TestEngine { engine, .. } = engine;
    engine.stop();
    let gone = client
        .connection
        .grant(PATIENCE)
        .expect_err("a stopped engine");
    assert_ne!(gone.kind(), io::ErrorKind::TimedOut, "{gone}");
    // What was delivered before is right.
    while let Some(response) = client.poll() {
        let Outcome::Computed(signature) = response.outcome else {
            panic!("{response:?}");
        };
        let message = padded(Size::Rsa4096, (response.id - 1) as u8);
        assert!(verifies(Size::Rsa4096, &message, signature.as_slice()));
    }
}

#[test]
fn an_idle_engine_takes_no_time() {
    let engine = TestEngine::start();
    let mut child = Child::start("lifecycle::is_idle", &engine.socket, None);
    assert_eq!(child.line(), "idle");
    child.wait();
}

/// Runs in a process of its own, where no other test has an engine.
#[test]
#[ignore = "a part of another test"]
fn is_idle() {
    if processes::socket().is_none() {
        return;
    }
    // Threads that have been busy go to sleep, too, and so do two of them.
    let engine = TestEngine::with(|options| options.cores.push(options.cores[0]));
    let mut client = engine.client();
    let key = client.register(Size::Rsa2048);
    client.announce(8);
    for seed in 0..20 {
        client.submit_rsa(Size::Rsa2048, key, seed);
        client.computed();
    }
    client::wait_until(|| {
        let before = scheduled();
        std::thread::sleep(Duration::from_millis(500));
        before.len() >= 3 && scheduled() == before
    });
    processes::say("idle");
}

/// The engine's threads, with the number of times that each has been given a processor.
fn scheduled() -> Vec<(PathBuf, u64)> {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads");
    let counts = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let account = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let count = account.split_whitespace().nth(2)?.parse().ok()?;
        // The name of this program begins so, too; its own thread waits for that of the test.
        name.starts_with("engine-").then_some((path, count))
    });
    counts.collect()
}
