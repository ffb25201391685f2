//! Sessions with any settings, pieces, flushes and devices.

mod common;

use common::device::{Answering, Behaviour, Installed, Job, poll};
use common::{Material, Random, decoded};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use slipstream_compress::{CODECS, Context, GZIP, Method, Mode, Offload, Session, Settings, ZSTD};

/// The most output of a stream when it is flushed, in bytes: content that it has kept so far.
const STREAM_KEEPS: usize = 300 << 10;

fn methods() -> impl Strategy<Value = Method> {
    let methods = [
        (GZIP, 1),
        (GZIP, 2),
        (GZIP, 3),
        (GZIP, 6),
        (ZSTD, 1),
        (ZSTD, 3),
    ];
    select(
        methods
            .map(|(codec, level)| Method::new(codec, level).expect("a level"))
            .to_vec(),
    )
}

prop_compose! {
    fn settings()(
        method in methods(),
        chunk_bytes in select(vec![1, 700, 4096, 10_000, 65_536]),
        chunks in 1..6_usize,
        rest in 0..1000_usize,
        threshold in select(vec![0, 5000, 20_000]),
        block_bytes in select(vec![0, 1000, 32_768]),
        offload in select(vec![Offload::Software, Offload::Failover, Offload::Device]),
        mode in select(vec![Mode::Asynchronous, Mode::Pipelined]),
    ) -> Settings {
        let stream_bytes = chunk_bytes * chunks + rest;
        Settings { method, chunk_bytes, stream_bytes, threshold, block_bytes, offload, mode }
    }
}

prop_compose! {
    fn behaviours()(
        answers in vec(select(Answering::ALL.to_vec()), 1..4),
        polls in 1..9_usize,
        room in 1..9_usize,
        is_there in prop::bool::weighted(0.9),
        seed in any::<u64>(),
    ) -> Behaviour {
        Behaviour { answers, polls, room, is_there, seed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_response_is_whole_and_holds_little(
        settings in settings(),
        behaviour in behaviours(),
        material in select(Material::ALL.to_vec()),
        length in select(vec![0, 1, 4095, 4096, 10_000, 65_535, 65_536, 65_537, 131_072, 200_000]),
        is_known in any::<bool>(),
        has_device in prop::bool::weighted(0.8),
        requests in 0..17_usize,
        seed in any::<u64>(),
    ) {
        // Chunks of one byte are enough of a test with little content.
        let length = if settings.chunk_bytes == 1 { length.min(3000) } else { length };
        let content = material.content(length);
        let _device = Installed::new(behaviour);
        let mut context = Context::new(requests, 1 << 20);
        context.set_device(has_device);
        let mut random = Random(seed | 1);
        let job = Job(1);
        let mut session = Session::new(settings, is_known.then_some(length as u64), &mut context);
        let (mut left, mut output) = (content.as_slice(), Vec::new());
        let mut is_finished = false;
        while !session.is_complete() {
            let most = if settings.chunk_bytes == 1 { 50 } else { 40_000 };
            let piece = &left[..random.below(most).min(left.len())];
            if !is_finished {
                let taken = session.write(&mut context, &job, piece);
                left = &left[taken..];
            }
            if !is_finished && random.below(8) == 0 {
                session.flush(&mut context, &job);
            }
            if left.is_empty() && !is_finished {
                session.finish(&mut context, &job);
                is_finished = true;
            }
            let totals = session.totals();
            let expansion = 40 * (1 + settings.stream_bytes / settings.chunk_bytes);
            let keeps = match totals.device_chunks + totals.own_chunks {
                0 => STREAM_KEEPS,
                _ => 0,
            };
            let limit = settings.stream_bytes + settings.chunk_bytes + 1024 + expansion + keeps;
            prop_assert!(session.held() <= limit, "{} of {limit}", session.held());
            if random.below(3) == 0 {
                context.begin_turn();
                poll();
                session.resume(&mut context);
            }
            for _ in 0..random.below(4) {
                output.extend(session.next_block().unwrap_or_default());
            }
        }
        prop_assert_eq!(session.totals().output, output.len() as u64);
        prop_assert_eq!(session.totals().content, length as u64);
        prop_assert!(decoded(settings.method.codec(), &output) == content);
    }

    #[test]
    fn no_header_makes_negotiation_panic(bytes in vec(any::<u8>(), 0..80)) {
        slipstream_compress::negotiation::choose(&bytes, CODECS);
        slipstream_compress::negotiation::forbids_transformation(&bytes);
    }
}
