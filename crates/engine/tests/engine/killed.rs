//! Clients that die in the middle of things.

use std::time::Duration;

use slipstream_keys::rsa::Size;

use crate::client::{Client, TestEngine, client_options, connect, padded, verifies};
use crate::processes::{self, Child};

const SIZE: Size = Size::Rsa2048;

#[test]
fn clients_that_are_killed_take_nothing_from_others() {
    let engine = TestEngine::start();
    let mut survivor = engine.client();
    let key = survivor.register(SIZE);
    for round in 0..12 {
        let mut victim = Child::start("killed::keeps_submitting", &engine.socket, None);
        assert_eq!(victim.line(), "submitting");
        let mut sent = 0;
        for seed in 0..16 {
            survivor.submit_rsa(SIZE, key, seed);
            sent += 1;
        }
        // At another point each time.
        std::thread::sleep(Duration::from_micros(700 * round));
        victim.kill();
        for _ in 0..sent {
            let (id, signature) = survivor.computed();
            let seed = ((id - 1) % 16) as u8;
            assert!(verifies(SIZE, &padded(SIZE, seed), &signature));
        }
    }
    // Keys of the dead are gone, with the last that was computed for them.
    engine.wait_until(|status| {
        let left = [status.connections, status.instances];
        left == [1, 1] && (status.sessions, status.keys) == (1, 1)
    });
    let status = engine.status();
    assert_eq!(status.malformed_rings, 0, "to die is no crime");
}

/// Runs in a process of its own, until it is killed.
#[test]
#[ignore = "a part of another test"]
fn keeps_submitting() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let connection = connect(&socket).expect("an engine that listens");
    let mut client = Client::new(connection, &client_options());
    let key = client.register(SIZE);
    processes::say("submitting");
    let mut in_flight = 0;
    loop {
        while in_flight < 30 {
            client.submit_rsa(SIZE, key, 1);
            in_flight += 1;
        }
        client.computed();
        in_flight -= 1;
    }
}

#[test]
fn requests_of_a_client_that_has_gone_are_dropped() {
    let engine = TestEngine::start();
    for _ in 0..20 {
        let mut client = engine.client();
        let key = client.register(Size::Rsa4096);
        for seed in 0..20 {
            client.submit_rsa(Size::Rsa4096, key, seed);
        }
    }
    engine.wait_until(|status| {
        let left = [status.connections, status.instances];
        left == [0, 0] && (status.sessions, status.keys) == (0, 0)
    });
}
