//! A simulated card: results are real, but not early.

use std::time::{Duration, Instant};

use slipstream_engine::Pace;
use slipstream_keys::Handle;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use crate::client::{TestEngine, padded, verifies};

#[test]
fn nothing_is_earlier_than_the_card_would_be() {
    let pace = Pace::dh8970(2);
    let engine = TestEngine::with(|options| options.pace = Some(pace.clone()));
    let mut client = engine.client();
    let size = Size::Rsa2048;
    let key = client.register(size);
    let latency = |kind: Kind| pace.latencies[kind.index()];
    for kind in [Kind::Rsa(size), Kind::X25519] {
        let start = Instant::now();
        for seed in 0..7 {
            match kind {
                Kind::Rsa(_) => client.submit_rsa(size, key, seed),
                _ => client.submit(kind, Handle(0), &[seed; 32], &[9; 32]),
            };
        }
        let mut answered = Vec::new();
        while answered.len() < 7 {
            let (id, output) = client.computed();
            // Two at a time.
            let rounds = answered.len() as u32 / 2 + 1;
            assert!(
                start.elapsed() >= rounds * latency(kind),
                "number {}",
                answered.len()
            );
            if kind == Kind::Rsa(size) {
                assert!(verifies(size, &padded(size, (id - 1) as u8), &output));
            }
            answered.push(id);
        }
        assert_eq!(client.poll().map(|response| response.id), None);
    }
}

#[test]
fn responses_that_are_held_go_with_their_client() {
    let mut pace = Pace::dh8970(1);
    pace.latencies = [Duration::from_secs(600); Kind::COUNT];
    let engine = TestEngine::with(|options| options.pace = Some(pace));
    let mut client = engine.client();
    let key = client.register(Size::Rsa2048);
    client.submit_rsa(Size::Rsa2048, key, 1);
    engine.wait_until(|status| status.batches == 1);
    drop(client);
    engine.wait_until(|status| (status.connections, status.instances) == (0, 0));
}
