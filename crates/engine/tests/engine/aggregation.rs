//! The number of times that a client is woken.

use slipstream_accelerators::engine::Options;
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_keys::rsa::Size;

use crate::client::{Client, TestEngine, client_options};

const SIZE: Size = Size::Rsa2048;

#[test]
fn fewer_events_than_responses() {
    for aggregation in [
        Aggregation::Fixed(1),
        Aggregation::Fixed(4),
        Aggregation::Adaptive,
    ] {
        let engine = TestEngine::start();
        let mut client = Client::new(
            engine.connect(),
            &Options {
                aggregation,
                ..client_options()
            },
        );
        let key = client.register(SIZE);
        for _ in 0..10 {
            // As one that sleeps before the first answer comes.
            client.instance.own_bell.arm();
            for seed in 0..16 {
                client.submit_rsa(SIZE, key, seed);
            }
            for _ in 0..16 {
                client.computed();
            }
        }
        // Counted when they have been delivered.
        engine.wait_until(|status| status.responses == 160 && status.events > 0);
        let status = engine.status();
        assert!(
            status.events < 160,
            "{aggregation:?}: {} events",
            status.events
        );
    }
}

#[test]
fn a_client_that_does_not_sleep_is_not_woken() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let key = client.register(SIZE);
    for seed in 0..20 {
        client.submit_rsa(SIZE, key, seed);
    }
    let mut answered = 0;
    while answered < 20 {
        answered += usize::from(client.poll().is_some());
        std::thread::yield_now();
    }
    assert_eq!(engine.status().events, 0);
}

/// Fewer than are waited for: those that are left are announced when no other can come, or when
/// time is up.
#[test]
fn nobody_sleeps_for_ever() {
    for aggregation in [
        Aggregation::Fixed(1000),
        Aggregation::Fixed(0),
        Aggregation::Adaptive,
    ] {
        let engine = TestEngine::start();
        let mut client = Client::new(
            engine.connect(),
            &Options {
                aggregation,
                ..client_options()
            },
        );
        let key = client.register(SIZE);
        for seed in 0..11 {
            client.submit_rsa(SIZE, key, seed);
        }
        for _ in 0..11 {
            client.computed();
        }
        // One whose client says that there are more requests than there are.
        client.submit_rsa(SIZE, key, 1);
        client.computed();
    }
}
