//! Sessions, in software and over a device.

mod common;

use std::collections::VecDeque;

use common::device::{Answering, Behaviour, Installed, Job, in_flight, poll};
use common::{Material, Random, decoded, inflate_beginning};
use slipstream_compress::{Context, GZIP, Method, Mode, Offload, Session, Settings, Totals, ZSTD};
use slipstream_offload::instance;

const CHUNK: usize = 16 << 10;

const SETTINGS: Settings = Settings {
    method: Method::DEFAULT,
    chunk_bytes: CHUNK,
    stream_bytes: 4 * CHUNK,
    threshold: CHUNK,
    block_bytes: 8 << 10,
    offload: Offload::Device,
    mode: Mode::Asynchronous,
};

fn context() -> Context {
    let mut context = Context::new(16, 64 << 10);
    context.set_device(true);
    context
}

fn zstd() -> Method {
    Method::new(ZSTD, 1).expect("a level")
}

/// One response as an event loop sees it.
struct Response<'a> {
    session: Session,
    job: Job,
    left: &'a [u8],
    output: Vec<u8>,
    is_finished: bool,
}

impl<'a> Response<'a> {
    fn new(
        settings: Settings,
        content: &'a [u8],
        is_known: bool,
        job: usize,
        context: &mut Context,
    ) -> Self {
        let length = is_known.then_some(content.len() as u64);
        Self {
            session: Session::new(settings, length, context),
            job: Job(job),
            left: content,
            output: Vec::new(),
            is_finished: false,
        }
    }

    /// Writes up to `most` bytes, takes the output, and finishes if no content is left.
    fn advance(&mut self, most: usize, context: &mut Context) {
        let piece = &self.left[..self.left.len().min(most)];
        let taken = self.session.write(context, &self.job, piece);
        self.left = &self.left[taken..];
        if self.left.is_empty() && !self.is_finished {
            self.session.finish(context, &self.job);
            self.is_finished = true;
        }
        self.take();
    }

    fn take(&mut self) {
        while let Some(block) = self.session.next_block() {
            assert!(!block.is_empty());
            self.output.extend(block);
        }
    }

    fn resume(&mut self, context: &mut Context) {
        self.session.resume(context);
        self.take();
    }

    fn complete(mut self, context: &mut Context) -> (Vec<u8>, Totals) {
        while !self.session.is_complete() {
            if !self.is_finished {
                self.advance(10_000, context);
            }
            poll();
            self.resume(context);
        }
        let totals = self.session.totals();
        assert_eq!(totals.output, self.output.len() as u64);
        assert!(!self.session.is_waiting() && self.session.held() == 0);
        (self.output, totals)
    }
}

fn whole(settings: Settings, content: &[u8], is_known: bool, context: &mut Context) -> Totals {
    context.begin_turn();
    let response = Response::new(settings, content, is_known, 1, context);
    let (output, totals) = response.complete(context);
    let back = decoded(settings.method.codec(), &output);
    assert!(back == content, "{settings:?} {}", content.len());
    assert_eq!(totals.content, content.len() as u64);
    totals
}

#[test]
fn responses_of_every_length_are_whole() {
    let _device = Installed::new(Behaviour::default());
    let mut context = context();
    let stream = SETTINGS.stream_bytes;
    let lengths = [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        CHUNK + 4096,
        2 * CHUNK,
        stream - 1,
        stream,
        stream + 1,
        300_000,
    ];
    for method in [Method::DEFAULT, zstd()] {
        for offload in [Offload::Software, Offload::Failover, Offload::Device] {
            for mode in [Mode::Asynchronous, Mode::Pipelined] {
                for length in lengths {
                    for material in Material::ALL {
                        let content = material.content(length);
                        let settings = Settings {
                            method,
                            offload,
                            mode,
                            ..SETTINGS
                        };
                        whole(settings, &content, true, &mut context);
                        whole(settings, &content, false, &mut context);
                    }
                }
            }
        }
    }
}

#[test]
fn short_responses_and_those_without_a_device_are_one_stream() {
    let device = Installed::new(Behaviour::default());
    let mut context = context();
    let content = Material::Html.content(100_000);
    for (settings, length, is_known) in [
        (SETTINGS, CHUNK - 1, true),
        (SETTINGS, CHUNK - 1, false),
        (
            Settings {
                offload: Offload::Software,
                ..SETTINGS
            },
            100_000,
            true,
        ),
        (
            Settings {
                offload: Offload::Software,
                ..SETTINGS
            },
            100_000,
            false,
        ),
    ] {
        let totals = whole(settings, &content[..length], is_known, &mut context);
        assert_eq!((totals.device_chunks, totals.own_chunks), (0, 0));
    }
    context.set_device(false);
    for offload in [Offload::Failover, Offload::Device] {
        for mode in [Mode::Asynchronous, Mode::Pipelined] {
            let settings = Settings {
                offload,
                mode,
                ..SETTINGS
            };
            let totals = whole(settings, &content, true, &mut context);
            assert_eq!((totals.device_chunks, totals.own_chunks), (0, 0));
        }
    }
    assert_eq!(device.seen().chunks, 0);
}

#[test]
fn the_device_compresses_all_chunks() {
    let device = Installed::new(Behaviour::default());
    let mut context = context();
    let content = Material::Html.content(10 * CHUNK);
    for is_known in [true, false] {
        let before = device.seen().chunks;
        let totals = whole(SETTINGS, &content, is_known, &mut context);
        assert_eq!(totals.device_chunks, 10);
        assert_eq!((totals.own_chunks, totals.lost_chunks), (0, 0));
        assert_eq!(device.seen().chunks - before, 10);
    }
}

#[test]
fn a_lone_response_is_shared_with_the_device() {
    let _device = Installed::new(Behaviour::default());
    let mut context = context();
    let settings = Settings {
        offload: Offload::Failover,
        ..SETTINGS
    };
    let content = Material::Html.content(5 * CHUNK + 5000);
    let totals = whole(settings, &content, true, &mut context);
    assert_eq!((totals.device_chunks, totals.own_chunks), (3, 3));
}

#[test]
fn responses_of_one_turn_keep_the_device_busy() {
    let device = Installed::new(Behaviour {
        polls: 3,
        ..Behaviour::default()
    });
    let mut context = context();
    let settings = Settings {
        offload: Offload::Failover,
        ..SETTINGS
    };
    let contents: Vec<_> = (1..40).map(|n| Material::Html.content(n * 7000)).collect();
    let mut responses: VecDeque<_> = contents
        .iter()
        .enumerate()
        .map(|(job, content)| Response::new(settings, content, job % 2 == 0, job, &mut context))
        .collect();
    let mut device_chunks = 0;
    while !responses.is_empty() {
        context.begin_turn();
        for response in &mut responses {
            response.advance(9000, &mut context);
        }
        for job in poll() {
            let mut waiting = responses.iter_mut();
            if let Some(response) = waiting.find(|response| response.job.0 == job) {
                response.resume(&mut context);
            }
        }
        responses.retain(|response| {
            if !response.session.is_complete() {
                return true;
            }
            let content = &contents[response.job.0];
            assert!(decoded(GZIP, &response.output) == *content);
            device_chunks += response.session.totals().device_chunks;
            false
        });
    }
    assert_eq!(device.seen().most_at_once, 4);
    assert_eq!(device.seen().chunks, device_chunks);
    assert!(device_chunks > 20, "{device_chunks}");
    assert_eq!(in_flight(), 0);
}

#[test]
fn chunks_that_the_device_fails_to_compress_are_compressed_on_this_core() {
    for answer in Answering::ALL {
        for (mode, method) in [
            (Mode::Asynchronous, Method::DEFAULT),
            (Mode::Pipelined, Method::DEFAULT),
            (Mode::Asynchronous, zstd()),
            (Mode::Pipelined, zstd()),
        ] {
            let _device = Installed::new(Behaviour {
                answers: vec![answer],
                polls: 5,
                ..Behaviour::default()
            });
            let content = Material::Mixed.content(6 * CHUNK);
            let settings = Settings {
                mode,
                method,
                ..SETTINGS
            };
            let totals = whole(settings, &content, false, &mut context());
            let lost = if answer == Answering::Right { 0 } else { 6 };
            assert_eq!(totals.device_chunks, 6 - lost, "{answer:?} {mode:?}");
            assert_eq!((totals.own_chunks, totals.lost_chunks), (lost, lost));
        }
    }
}

#[test]
fn a_device_that_refuses_the_first_chunk_is_not_used() {
    let content = Material::Html.content(200_000);
    for is_installed in [true, false] {
        let _device = is_installed.then(|| {
            Installed::new(Behaviour {
                is_there: false,
                ..Behaviour::default()
            })
        });
        for is_known in [true, false] {
            let totals = whole(SETTINGS, &content, is_known, &mut context());
            assert_eq!(
                (totals.device_chunks, totals.own_chunks),
                (0, 0),
                "one stream"
            );
            let settings = Settings {
                mode: Mode::Pipelined,
                ..SETTINGS
            };
            let totals = whole(settings, &content, is_known, &mut context());
            assert_eq!((totals.device_chunks, totals.lost_chunks), (0, 0));
            // One chunk, which is then flushed or ended.
            let content = &content[..CHUNK];
            let totals = whole(SETTINGS, content, is_known, &mut context());
            assert_eq!((totals.device_chunks, totals.own_chunks), (0, 0));
        }
    }
}

#[test]
fn a_full_device_does_not_delay_a_response() {
    let device = Installed::new(Behaviour {
        room: 1,
        polls: 4,
        ..Behaviour::default()
    });
    let content = Material::Html.content(20 * CHUNK);
    let mut context = Context::new(2, CHUNK);
    context.set_device(true);
    let totals = whole(SETTINGS, &content, true, &mut context);
    assert!(
        totals.device_chunks > 0 && totals.own_chunks > 0,
        "{totals:?}"
    );
    assert_eq!(totals.device_chunks + totals.own_chunks, 20);
    assert_eq!(device.seen().most_at_once, 1);
}

#[test]
fn chunks_are_no_longer_than_the_devices_buffers() {
    let device = Installed::new(Behaviour::default());
    let mut context = Context::new(16, 5000);
    context.set_device(true);
    whole(
        SETTINGS,
        &Material::Html.content(100_000),
        true,
        &mut context,
    );
    assert_eq!(device.seen().longest, 5000);
}

#[test]
fn pipelining_waits_for_all_chunks_of_a_stream_at_once() {
    for (stream_bytes, most_at_once) in [(CHUNK, 1), (4 * CHUNK, 4)] {
        let device = Installed::new(Behaviour {
            polls: 6,
            ..Behaviour::default()
        });
        let settings = Settings {
            mode: Mode::Pipelined,
            stream_bytes,
            ..SETTINGS
        };
        let mut context = context();
        let content = Material::Html.content(12 * CHUNK);
        let mut response = Response::new(settings, &content, true, 1, &mut context);
        while !response.session.is_complete() {
            response.advance(3000, &mut context);
            assert!(!response.session.is_waiting());
            assert_eq!(in_flight(), 0);
        }
        let totals = response.session.totals();
        assert_eq!(totals.device_chunks, 12);
        assert_eq!(device.seen().most_at_once, most_at_once);
        assert!(response.session.waited() > std::time::Duration::ZERO);
        assert!(decoded(GZIP, &response.output) == content);
    }
}

#[test]
fn no_more_is_held_than_allowed() {
    let _device = Installed::new(Behaviour::default());
    let content = Material::Random.content(1 << 20);
    for offload in [Offload::Software, Offload::Failover, Offload::Device] {
        for mode in [Mode::Asynchronous, Mode::Pipelined] {
            let settings = Settings {
                offload,
                mode,
                ..SETTINGS
            };
            let mut context = context();
            let mut response = Response::new(settings, &content, true, 1, &mut context);
            let most = settings.stream_bytes + settings.chunk_bytes + 1024;
            while !response.left.is_empty() {
                // Blocks are taken only when no more content is.
                let session = &mut response.session;
                let taken = session.write(&mut context, &response.job, response.left);
                assert!(session.held() <= most, "{settings:?}: {}", session.held());
                response.left = &response.left[taken..];
                poll();
                session.resume(&mut context);
                assert!(session.held() <= most, "{settings:?}: {}", session.held());
                if taken == 0 {
                    let before = response.output.len();
                    response.take();
                    assert!(response.output.len() > before, "stuck");
                }
            }
            let (output, _) = response.complete(&mut context);
            assert!(decoded(GZIP, &output) == content);
        }
    }
}

#[test]
fn flushed_content_can_be_read() {
    let _device = Installed::new(Behaviour {
        polls: 3,
        ..Behaviour::default()
    });
    let content = Material::Html.content(200_000);
    for offload in [Offload::Software, Offload::Failover, Offload::Device] {
        for mode in [Mode::Asynchronous, Mode::Pipelined] {
            for is_known in [true, false] {
                let settings = Settings {
                    offload,
                    mode,
                    ..SETTINGS
                };
                let mut context = context();
                let mut response = Response::new(settings, &content, is_known, 1, &mut context);
                // Without content, a flush has no output.
                response.session.flush(&mut context, &response.job);
                response.take();
                assert!(response.output.is_empty());
                for most in [1, 100, 4000, 5000, 20_000, 30_000] {
                    let piece = &response.left[..most];
                    let mut taken = 0;
                    while taken < most {
                        let session = &mut response.session;
                        taken += session.write(&mut context, &response.job, &piece[taken..]);
                        poll();
                        response.resume(&mut context);
                    }
                    response.left = &response.left[most..];
                    for _ in 0..2 {
                        response.session.flush(&mut context, &response.job);
                        while response.session.is_waiting() {
                            poll();
                            response.resume(&mut context);
                        }
                        response.take();
                    }
                    let read = inflate_beginning(&response.output[10..]);
                    let so_far = content.len() - response.left.len();
                    assert!(
                        read == content[..so_far],
                        "{settings:?} {is_known} {so_far}"
                    );
                }
                let (output, _) = response.complete(&mut context);
                assert!(decoded(GZIP, &output) == content);
            }
        }
    }
}

#[test]
fn a_session_can_be_dropped_at_any_time() {
    let _device = Installed::new(Behaviour {
        polls: 4,
        answers: Answering::ALL.to_vec(),
        ..Behaviour::default()
    });
    let mut context = context();
    let mut random = Random(3);
    let content = Material::Html.content(20 * CHUNK);
    for round in 0..200 {
        let offload = [Offload::Software, Offload::Failover, Offload::Device][round % 3];
        let settings = Settings {
            offload,
            ..SETTINGS
        };
        let is_known = random.below(2) == 0;
        let mut response = Response::new(settings, &content, is_known, round, &mut context);
        for _ in 0..random.below(30) {
            response.advance(random.below(20_000), &mut context);
            if random.below(3) == 0 {
                poll();
                response.resume(&mut context);
            }
        }
        drop(response);
        if random.below(10) == 0 {
            context = crate::context();
        }
    }
    for _ in 0..4 {
        poll();
    }
    assert_eq!(in_flight(), 0, "dropped chunks have been answered");
    whole(SETTINGS, &content, true, &mut context);
}

#[test]
fn a_session_may_outlive_its_context_and_its_instance() {
    let device = Installed::new(Behaviour {
        polls: 100,
        ..Behaviour::default()
    });
    let content = Material::Html.content(3 * CHUNK);
    let mut first = context();
    let in_software = Settings {
        offload: Offload::Software,
        ..SETTINGS
    };
    let mut responses = [SETTINGS, in_software]
        .map(|settings| Response::new(settings, &content, true, 1, &mut first));
    for response in &mut responses {
        response.advance(2 * CHUNK, &mut first);
    }
    assert!(responses[0].session.is_waiting());
    drop((first, device));
    assert!(instance::with(|_| ()).is_none());
    for response in responses {
        let (output, totals) = response.complete(&mut context());
        assert!(decoded(GZIP, &output) == content);
        assert_eq!(totals.device_chunks, 0);
    }
}
