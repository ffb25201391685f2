//! The users that may connect.

use std::io;

use slipstream_accelerators::engine::Connection;
use slipstream_accelerators::engine::protocol::message::ToClient;
use slipstream_keys::rsa::Size;

use crate::client::{PATIENCE, TestEngine, register};
use crate::processes::{self, Child};

/// The user of Debian that owns nothing.
const NOBODY: u32 = 65534;

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
    let outcome = match Connection::new(&socket) {
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
