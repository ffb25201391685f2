//! The users that may connect, and those that may be connected to.

use std::io;
use std::time::Duration;

use slipstream_accelerators::engine::protocol::message::{ToClient, ToEngine};
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::{Connection, Device, EngineUser, Options};
use slipstream_engine::{Engine, Quotas};
use slipstream_keys::KeyParts;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::accelerator::{Accelerator, Health};

use crate::client::{PATIENCE, TestEngine, client_options, connect, options, register};
use crate::processes::{self, Child};

/// The user of Debian that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn only_those_who_are_allowed_may_connect() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let strict = TestEngine::start();
    assert_eq!(try_as_nobody(&strict), "connect");
    // The other mode of the socket makes no difference: the engine looks at the user that connects.
    let other = TestEngine::with(|options| options.allow = vec![1]);
    assert_eq!(try_as_nobody(&other), "refused");
    assert_eq!(other.status().foreign_users, 1);
    let open = TestEngine::with(|options| options.allow = vec![1, NOBODY]);
    assert_eq!(try_as_nobody(&open), "registered");
    assert_eq!(open.status().foreign_users, 0);
    register(&open.connect(), Size::Rsa2048);
}

/// Quotas are those of a user, however many connections it makes; root gets its own all the same.
#[test]
fn a_user_gets_no_more_than_its_quota() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let layout = client_options().layout;
    for (memory, instances) in [(usize::MAX, 3), (2 * 8 * layout.words() + 1, 2)] {
        let engine = TestEngine::with(|options| {
            options.allow = vec![NOBODY];
            options.quotas = Quotas {
                connections: 5,
                instances: 3,
                keys: 4,
                memory,
            };
        });
        processes::make_reachable(&engine.socket);
        let mut child = Child::start("users::wants_much", &engine.socket, Some(NOBODY));
        let got = format!("5 connections, {instances} instances, 4 keys");
        assert_eq!(child.line(), got);
        let roots: Vec<_> = (0..10).map(|_| engine.client()).collect();
        for root in &roots {
            root.register(Size::Rsa2048);
        }
        child.kill();
        // What it had is there for others.
        engine.wait_until(|status| status.connections == 10);
        let mut child = Child::start("users::wants_much", &engine.socket, Some(NOBODY));
        assert_eq!(child.line(), got);
        child.kill();
    }
}

/// Runs in a process of its own, until it is killed.
#[test]
#[ignore = "a part of another test"]
fn wants_much() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let text = |error: io::Error| error.to_string();
    let mut connections = Vec::new();
    let refused = loop {
        let connection = connect(&socket).expect("an engine that listens");
        match connection.ask(&ToEngine::Status, PATIENCE) {
            Ok(_) => connections.push(connection),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break text(error),
            // The engine may have closed the connection before it was written to.
            Err(_) => match connection.receive() {
                Ok((ToClient::Refused(reason), _)) => break reason,
                other => panic!("{:?}", other.err()),
            },
        }
    };
    assert!(refused.contains("may have 5"), "{refused}");
    let instances = connections.iter().map(|connection| {
        let opened = connection.open(&client_options(), PATIENCE);
        opened.map_err(text)
    });
    let instances: Vec<_> = instances.collect();
    let refused = instances.iter().find_map(|opened| opened.as_ref().err());
    assert!(refused.is_some_and(|text| text.contains("and may have")));
    let keys = (1..=10).map(|number| {
        let parts = KeyParts::Ec {
            curve: Curve::P256,
            private: &[number; 32],
        };
        let connection = &connections[usize::from(number) % connections.len()];
        connection
            .register(parts, Policy::SIGNATURES, PATIENCE)
            .is_ok()
    });
    let keys = keys.filter(|is_taken| *is_taken).count();
    let instances = instances.iter().filter(|opened| opened.is_ok()).count();
    processes::say(&format!(
        "{} connections, {instances} instances, {keys} keys",
        connections.len()
    ));
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn try_as_nobody(engine: &TestEngine) -> String {
    processes::make_reachable(&engine.socket);
    let mut child = Child::start("users::as_nobody", &engine.socket, Some(NOBODY));
    let outcome = child.line();
    child.wait();
    outcome
}

/// Runs in a process of its own.
#[test]
#[ignore = "a part of another test"]
fn as_nobody() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let outcome = match connect(&socket) {
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            "connect"
        }
        Ok(connection) => match connection.grant(PATIENCE) {
            Ok(_) => {
                register(&connection, Size::Rsa2048);
                "registered"
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                assert!(error.to_string().contains("--allow"), "{error}");
                "refused"
            }
            // The engine may have closed the connection before it was written to.
            Err(_) => match connection.receive() {
                Ok((ToClient::Refused(_), _)) => "refused",
                other => panic!("{:?}", other.err()),
            },
        },
    };
    processes::say(outcome);
}

/// An engine is not known by its path alone: whoever can write to the directory can listen there.
#[test]
fn a_client_hands_no_key_to_an_engine_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("engine.sock");
    processes::make_writable(directory.path());
    let mut impostor = Child::start("users::engine_of_nobody", &socket, Some(NOBODY));
    assert_eq!(impostor.line(), "listening");

    for stranger in ["root", "1", "slipstream-engine", "nobody-has-this-name"] {
        let user = EngineUser::new(stranger);
        let refused = Connection::new(&socket, &user).expect_err("another user's engine");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let text = refused.to_string();
        let path = socket.display().to_string();
        for part in [&path, "user 65534", stranger] {
            assert!(text.contains(part), "{text}");
        }
        let options = Options {
            user,
            ..client_options()
        };
        let device = Device::new(socket.clone(), options, PATIENCE).expect("descriptors");
        assert_eq!(device.health(), Health::Failed);
        let reason = device.distrust().expect("a reason").to_string();
        assert_eq!(reason, text);
    }
    for name in ["65534", "nobody"] {
        let user = EngineUser::new(name);
        let trusted = Connection::new(&socket, &user).expect("the engine's user");
        register(&trusted, Size::Rsa2048);
        let options = Options {
            user,
            ..client_options()
        };
        let device = Device::new(socket.clone(), options, PATIENCE).expect("descriptors");
        assert_eq!(device.health(), Health::Ready);
        assert!(device.distrust().is_none());
    }
    impostor.kill();
}

/// Runs in a process of its own, until it is killed.
#[test]
#[ignore = "a part of another test"]
fn engine_of_nobody() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let _engine = Engine::start(options(&socket)).expect("an engine");
    let parent = rustix::process::getppid();
    processes::say("listening");
    // A parent that fails does not end its child.
    while rustix::process::getppid() == parent {
        std::thread::sleep(Duration::from_millis(10));
    }
}
