//! Requests that are computed together.

use std::time::Duration;

use slipstream_keys::Handle;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use crate::client::{Client, TestEngine, padded};

const SIZE: Size = Size::Rsa2048;

/// Longer than a machine ever stalls, so that only a full batch or as many requests as were announced
/// end it in time.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn batches_mix_clients() {
    let engine = TestEngine::with(|options| options.linger = Some(LONG));
    let (mut one, mut other) = (engine.client(), engine.client());
    one.announce(4);
    other.announce(4);
    for _ in 0..4 {
        exchange(&mut one);
        exchange(&mut other);
    }
    read(&mut one, 4);
    read(&mut other, 4);
    let status = engine.status();
    assert_eq!((status.fill[7], status.batches), (1, 1), "{status:?}");
    assert_eq!(status.mean_fill, 8.0);
}

#[test]
fn a_batch_does_not_wait_for_more_than_can_come() {
    let engine = TestEngine::with(|options| options.linger = Some(LONG));
    let (mut one, mut other) = (engine.client(), engine.client());
    one.announce(3);
    other.announce(2);
    for _ in 0..3 {
        exchange(&mut one);
    }
    exchange(&mut other);
    assert!(one.poll().is_none());
    exchange(&mut other);
    read(&mut one, 3);
    read(&mut other, 2);
    assert_eq!(engine.status().fill[4], 1);
}

#[test]
fn a_request_that_no_other_can_join_does_not_wait() {
    let engine = TestEngine::with(|options| options.linger = Some(LONG));
    let mut client = engine.client();
    let key = client.register(SIZE);
    client.submit_rsa(SIZE, key, 1);
    read(&mut client, 1);
    assert_eq!(engine.status().fill[0], 1);
}

/// No other request comes, and the announced number need not be true.
#[test]
fn lingering_is_bounded() {
    let engine = TestEngine::with(|options| options.linger = Some(Duration::from_millis(20)));
    let mut client = engine.client();
    let key = client.register(SIZE);
    for concurrency in [2, 1000, u64::MAX] {
        client.announce(concurrency);
        let start = std::time::Instant::now();
        client.submit_rsa(SIZE, key, 1);
        read(&mut client, 1);
        assert!(
            start.elapsed() >= Duration::from_millis(20),
            "it did not linger"
        );
    }
}

#[test]
fn who_lingers_is_gone_with_its_requests() {
    let engine = TestEngine::with(|options| options.linger = Some(LONG));
    let mut client = engine.client();
    let key = client.register(SIZE);
    client.announce(8);
    client.submit_rsa(SIZE, key, 1);
    engine.wait_until(|status| status.requests.0[Kind::Rsa(SIZE).index()] == 1);
    drop(client);
    engine.wait_until(|status| (status.instances, status.keys) == (0, 0));
    let mut other = engine.client();
    let key = other.register(SIZE);
    other.submit_rsa(SIZE, key, 1);
    read(&mut other, 1);
    assert_eq!(engine.status().fill[0], 1);
}

#[test]
fn kinds_are_not_mixed() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let key = client.register(SIZE);
    for _ in 0..20 {
        client.push(Kind::Rsa(SIZE), key, &padded(SIZE, 1), &[]);
        client.push(Kind::X25519, Handle(0), &[1; 32], &[9; 32]);
    }
    client.ring();
    read(&mut client, 40);
    assert_eq!(engine.status().faults, 0);
}

fn exchange(client: &mut Client) {
    client.submit(Kind::X25519, Handle(0), &[1; 32], &[9; 32]);
}

fn read(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.computed();
    }
}
