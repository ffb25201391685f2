//! The order of requests when there are more than can be computed.

use std::time::Instant;

use slipstream_accelerators::engine::Options;
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::wire::Content;
use slipstream_keys::Handle;
use slipstream_keys::rsa::Size;
use slipstream_offload::{Coding, Kind};

use crate::client::{Client, PATIENCE, TestEngine, client_options, connect, padded};
use crate::content::text;
use crate::processes::{self, Child};
use crate::users::NOBODY;

const SIZE: Size = Size::Rsa2048;
const KIND: Kind = Kind::Rsa(SIZE);

#[test]
fn a_client_that_floods_does_not_starve_another() {
    let engine = TestEngine::start();
    let layout = Layout::new(1024).expect("a power of two");
    let mut flood = Client::new(
        engine.connect(),
        &Options {
            layout,
            ..client_options()
        },
    );
    let key = flood.register(SIZE);
    let mut modest = engine.client();
    let modest_key = modest.register(SIZE);
    once("all of the flood goes first", || {
        for _ in 0..1024 {
            flood.push(KIND, key, &padded(SIZE, 1), &[]);
        }
        flood.ring();
        for _ in 0..10 {
            modest.submit_rsa(SIZE, modest_key, 1);
            modest.computed();
        }
        // When the modest one had all that it wanted, the flood was still on its way.
        answered(&mut flood, 1024) < 1024
    });
}

/// Chunks that each take longer than a signature, from a client that claims the longest turns.
#[test]
fn content_does_not_starve_signatures() {
    let engine = TestEngine::start();
    let layout = Layout::new(1024).and_then(|layout| layout.with_buffers(1, 64 << 10));
    let options = Options {
        layout: layout.expect("in range"),
        weight: 16,
        ..client_options()
    };
    let mut flood = Client::new(engine.connect(), &options);
    flood.put(0, &text(1, 64 << 10));
    let mut modest = engine.client();
    let key = modest.register(SIZE);
    let content = Content {
        level: 9,
        is_last: true,
        buffer: 0,
        length: 64 << 10,
    };
    once("all of the flood goes first", || {
        for _ in 0..1024 {
            flood.push_content(Coding::Zstd, &content);
        }
        flood.ring();
        for _ in 0..10 {
            modest.submit_rsa(SIZE, key, 1);
            modest.computed();
        }
        let mut early = 0;
        while flood.poll().is_some() {
            early += 1;
        }
        early < 1024
    });
}

/// A kind that keeps filling batches does not keep out one that does not.
#[test]
fn a_rare_kind_is_not_starved() {
    let engine = TestEngine::start();
    let layout = Layout::new(1024).expect("a power of two");
    let mut flood = Client::new(
        engine.connect(),
        &Options {
            layout,
            ..client_options()
        },
    );
    let key = flood.register(SIZE);
    let mut rare = engine.client();
    once("all of the flood goes first", || {
        for _ in 0..1024 {
            flood.push(KIND, key, &padded(SIZE, 1), &[]);
        }
        flood.ring();
        for _ in 0..5 {
            rare.submit(Kind::X25519, Handle(0), &[1; 32], &[9; 32]);
            rare.computed();
        }
        answered(&mut flood, 1024) < 1024
    });
}

#[test]
fn turns_are_as_long_as_weights_say() {
    let engine = TestEngine::start();
    let weighty = |weight| Options {
        weight,
        layout: Layout::new(256).expect("a power of two"),
        ..client_options()
    };
    let mut light = Client::new(engine.connect(), &weighty(1));
    let mut heavy = Client::new(engine.connect(), &weighty(3));
    let keys = (light.register(SIZE), heavy.register(SIZE));
    // Something that takes a while, so that both have filled their rings when the first turn
    // begins.
    let mut first = engine.client();
    let slow = first.register(Size::Rsa4096);
    once("turns are not as long as weights say", || {
        for _ in 0..8 {
            first.push(
                Kind::Rsa(Size::Rsa4096),
                slow,
                &padded(Size::Rsa4096, 1),
                &[],
            );
        }
        first.ring();
        for _ in 0..240 {
            light.push(KIND, keys.0, &padded(SIZE, 1), &[]);
            heavy.push(KIND, keys.1, &padded(SIZE, 1), &[]);
        }
        light.ring();
        heavy.ring();
        for _ in 0..240 {
            heavy.computed();
        }
        let served = answered(&mut light, 240);
        for _ in 0..8 {
            first.computed();
        }
        // A third, but for what was computed between the last look and this one.
        (60..180).contains(&served)
    });
}

#[test]
fn a_client_that_does_not_read_its_responses_stops_only_itself() {
    let engine = TestEngine::start();
    let layout = Layout::new(8).expect("a power of two");
    let mut silent = Client::new(
        engine.connect(),
        &Options {
            layout,
            ..client_options()
        },
    );
    let key = silent.register(SIZE);
    let mut other = engine.client();
    let other_key = other.register(SIZE);
    for seed in 0..8 {
        silent.submit_rsa(SIZE, key, seed);
    }
    engine.wait_until(|status| status.responses == 8);
    // Its response ring is full now; eight more requests stay where they are.
    for seed in 8..16 {
        silent.submit_rsa(SIZE, key, seed);
    }
    for seed in 0..30 {
        other.submit_rsa(SIZE, other_key, seed);
        other.computed();
    }
    // Counted when they have been delivered.
    engine.wait_until(|status| status.responses == 38);
    assert_eq!(engine.status().requests.0[KIND.index()], 38);
    for expected in 1..=16 {
        assert_eq!(silent.computed().0, expected);
        silent.ring();
    }
    assert_eq!(engine.status().malformed_rings, 0);
}

/// A user that floods, over as many connections as it may have, and with long turns. Between the
/// request and the answer of another user there is little else, whatever waits.
#[test]
fn a_user_that_floods_does_not_delay_another() {
    const REQUESTS: u64 = 10;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let engine = TestEngine::with(|options| options.allow = vec![NOBODY]);
    processes::make_reachable(&engine.socket);
    let mut flood = Child::start("fairness::floods", &engine.socket, Some(NOBODY));
    assert_eq!(flood.line(), "flooding");
    let mut quiet = engine.client();
    let key = quiet.register(SIZE);
    once("many batches of the flood go first", || {
        let before = engine.status().batches;
        for _ in 0..REQUESTS {
            quiet.submit_rsa(SIZE, key, 1);
            quiet.computed();
        }
        // The batch that was being computed, one that was chosen, and its own; and one that has
        // begun before this process looks.
        engine.status().batches - before <= 4 * REQUESTS
    });
    flood.kill();
}

/// Runs in a process of its own, until it is killed.
#[test]
#[ignore = "a part of another test"]
fn floods() {
    const CONNECTIONS: usize = 40;
    const SLOTS: usize = 256;
    let Some(socket) = processes::socket() else {
        return;
    };
    let options = Options {
        weight: 16,
        layout: Layout::new(SLOTS).expect("a power of two"),
        ..client_options()
    };
    let clients = (0..CONNECTIONS).map(|_| {
        let client = Client::new(connect(&socket).expect("an engine"), &options);
        let key = client.register(SIZE);
        (client, key)
    });
    let mut clients: Vec<_> = clients.collect();
    let message = padded(SIZE, 1);
    for (client, key) in &mut clients {
        for _ in 0..SLOTS {
            client.push(KIND, *key, &message, &[]);
        }
        client.ring();
    }
    processes::say("flooding");
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        for (client, key) in &mut clients {
            while client.poll().is_some() {
                client.push(KIND, *key, &message, &[]);
            }
            client.ring();
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// The number of responses, of `count`, that are there already. Waits for the others.
fn answered(client: &mut Client, count: usize) -> usize {
    let early = (0..count).take_while(|_| client.poll().is_some()).count();
    (early..count).for_each(|_| drop(client.computed()));
    early
}

/// Looks for something that holds at a moment which passes while the engine goes on. A test that is
/// given no processor just then comes too late to see it; what is wrong is never seen.
fn once(wrong: &str, mut is_seen: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_seen() {
        assert!(start.elapsed() < PATIENCE, "{wrong}");
    }
}
