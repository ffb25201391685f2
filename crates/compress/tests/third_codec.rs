//! A third codec goes through negotiation, chunks, streams and sessions without a change of them.

mod common;

use std::ops::RangeInclusive;

use common::device::{Answering, Behaviour, Installed, Job, poll};
use common::{Material, Random};
use slipstream_compress::codec::{ChunkEncoder, Framing, StreamEncoder, Trailer};
use slipstream_compress::{
    Codec, Compressor, Context, Flush, GZIP, Method, Mode, Offload, Progress, Session, Settings,
    Totals, ZSTD, negotiation,
};
use slipstream_offload::Coding;

/// Inverts all bits, between a header and a trailer. It has all that gzip has and zstd has not: an
/// alias, framing around chunks, and a terminator for a response whose last chunk is not marked.
struct Mirror {
    wire_coding: Option<Coding>,
}

/// A codec that devices know. They cannot compute it here: the mock borrows another one's coding,
/// and its device loses every chunk.
static MIRROR: Mirror = Mirror {
    wire_coding: Some(Coding::Zstd),
};

/// The same for a codec that devices do not know.
static UNKNOWN_MIRROR: Mirror = Mirror { wire_coding: None };

/// The table with a line more.
static CODECS: [&dyn Codec; 3] = [GZIP, ZSTD, &MIRROR];

const HEADER: &[u8] = b"<";
const CHUNK_MARK: u8 = b'c';
const LAST_CHUNK_MARK: u8 = b'l';
const TERMINATOR: &[u8] = b"t";
const CHUNK: usize = 16 << 10;

impl Codec for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["x-mirror"]
    }

    fn wire_coding(&self) -> Option<Coding> {
        self.wire_coding
    }

    fn levels(&self) -> RangeInclusive<u8> {
        1..=2
    }

    fn default_level(&self) -> u8 {
        2
    }

    fn implementation(&self, _level: u8) -> &'static str {
        "mirror"
    }

    fn bound(&self, length: usize) -> usize {
        length + 5
    }

    fn framing(&self) -> Framing {
        Framing {
            header: HEADER,
            terminator: TERMINATOR,
            trailer_bytes: 8,
        }
    }

    fn trailer(&self) -> Option<Box<dyn Trailer>> {
        Some(Box::new(Length(0)))
    }

    fn chunk_encoder(&self) -> Box<dyn ChunkEncoder> {
        Box::new(Chunks)
    }

    fn stream_encoder(&self, _level: u8) -> Box<dyn StreamEncoder> {
        Box::<MirrorStream>::default()
    }
}

struct Length(u64);

impl Trailer for Length {
    fn update(&mut self, content: &[u8]) {
        self.0 += content.len() as u64;
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }
}

struct Chunks;

impl ChunkEncoder for Chunks {
    fn encode(&mut self, _level: u8, content: &[u8], is_last: bool, output: &mut Vec<u8>) {
        output.push(if is_last { LAST_CHUNK_MARK } else { CHUNK_MARK });
        output.extend((content.len() as u32).to_le_bytes());
        output.extend(content.iter().map(|byte| !byte));
    }
}

/// Writes each piece that fits as a chunk.
#[derive(Default)]
struct MirrorStream {
    has_begun: bool,
    length: u64,
}

impl StreamEncoder for MirrorStream {
    fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress {
        const OVERHEAD: usize = 16;
        if !std::mem::replace(&mut self.has_begun, true) {
            output.extend_from_slice(HEADER);
        }
        while !content.is_empty() {
            let room = (output.capacity() - output.len()).saturating_sub(OVERHEAD);
            if room == 0 {
                return Progress::Full;
            }
            let (piece, rest) = content.split_at(content.len().min(room));
            Chunks.encode(1, piece, false, output);
            self.length += piece.len() as u64;
            *content = rest;
        }
        if flush == Flush::Finish {
            if output.capacity() - output.len() < OVERHEAD {
                return Progress::Full;
            }
            output.extend_from_slice(TERMINATOR);
            output.extend(self.length.to_le_bytes());
        }
        Progress::Done
    }

    fn reset(&mut self, _level: u8) {
        *self = Self::default();
    }

    fn can_reuse(&self, _level: u8) -> bool {
        true
    }

    fn memory(&self) -> usize {
        0
    }
}

fn decoded(response: &[u8]) -> Vec<u8> {
    let body = response.strip_prefix(HEADER).expect("a header");
    let (mut body, trailer) = body.split_at(body.len() - 8);
    let mut content = Vec::new();
    loop {
        match body {
            [b't'] => break,
            [mark @ (b'c' | b'l'), rest @ ..] => {
                let (length, rest) = rest.split_at(4);
                let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
                let (chunk, rest) = rest.split_at(length as usize);
                content.extend(chunk.iter().map(|byte| !byte));
                body = rest;
                if *mark == LAST_CHUNK_MARK {
                    assert!(body.is_empty(), "bytes behind the last chunk");
                    break;
                }
            }
            _ => panic!("no chunk and no terminator"),
        }
    }
    assert_eq!(trailer, (content.len() as u64).to_le_bytes());
    content
}

/// Compresses a response in random pieces, with flushes.
fn respond(
    codec: &'static dyn Codec,
    offload: Offload,
    mode: Mode,
    content: &[u8],
    is_known: bool,
) -> (Vec<u8>, Totals) {
    let settings = Settings {
        method: Method::new(codec, codec.default_level()).expect("a level"),
        chunk_bytes: CHUNK,
        stream_bytes: 4 * CHUNK,
        threshold: CHUNK,
        block_bytes: 4 << 10,
        offload,
        mode,
    };
    let mut context = Context::new(16, 64 << 10);
    context.set_device(true);
    let mut random = Random(9);
    let job = Job(1);
    let length = is_known.then_some(content.len() as u64);
    let mut session = Session::new(settings, length, &mut context);
    let (mut left, mut output, mut is_finished) = (content, Vec::new(), false);
    while !session.is_complete() {
        let piece = &left[..random.below(40_000).min(left.len())];
        let taken = session.write(&mut context, &job, piece);
        left = &left[taken..];
        if !is_finished && random.below(8) == 0 {
            session.flush(&mut context, &job);
        }
        if left.is_empty() && !is_finished {
            session.finish(&mut context, &job);
            is_finished = true;
        }
        poll();
        session.resume(&mut context);
        while let Some(block) = session.next_block() {
            output.extend(block);
        }
    }
    (output, session.totals())
}

#[test]
fn it_is_negotiated() {
    for (accept_encoding, chosen) in [
        (&b"mirror"[..], Some("mirror")),
        (b"X-Mirror;q=0.5, gzip;q=0.4", Some("mirror")),
        (b"gzip, mirror", Some("gzip")),
        (b"*, gzip;q=0, zstd;q=0.9", Some("mirror")),
        (b"mirror;q=0", None),
    ] {
        let codec = negotiation::choose(accept_encoding, &CODECS);
        assert_eq!(codec.map(|codec| codec.name()), chosen);
    }
    assert_eq!(
        negotiation::choose(b"mirror", slipstream_compress::CODECS),
        None
    );
}

#[test]
fn its_chunks_are_compressed_beside_others() {
    let mut compressor = Compressor::new();
    let content = Material::Html.content(1000);
    for codec in CODECS.iter().cycle().take(9) {
        let method = Method::new(*codec, 2).expect("a level");
        let mut output = Vec::new();
        compressor.compress(method, &content, true, &mut output);
        assert!(output.len() <= method.bound(content.len()));
        assert_eq!(output[0] == LAST_CHUNK_MARK, codec.name() == "mirror");
    }
}

#[test]
fn its_sessions_are_streams_and_chunks() {
    let _device = Installed::new(Behaviour {
        answers: vec![Answering::Lost],
        polls: 3,
        ..Behaviour::default()
    });
    for mode in [Mode::Asynchronous, Mode::Pipelined] {
        for length in [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK, 200_000] {
            for is_known in [true, false] {
                let content = Material::Mixed.content(length);
                let (response, totals) =
                    respond(&MIRROR, Offload::Software, mode, &content, is_known);
                assert!(decoded(&response) == content);
                assert_eq!(totals.own_chunks, 0);
                for offload in [Offload::Failover, Offload::Device] {
                    let (response, totals) = respond(&MIRROR, offload, mode, &content, is_known);
                    assert!(
                        decoded(&response) == content,
                        "{offload:?} {mode:?} {length}"
                    );
                    let has_chunks = is_known && length >= CHUNK;
                    assert!(totals.own_chunks > 0 || !has_chunks, "{totals:?}");
                }
            }
        }
    }
}

#[test]
fn a_codec_that_devices_do_not_know_is_compressed_as_one_stream() {
    let device = Installed::new(Behaviour::default());
    let content = Material::Html.content(200_000);
    for offload in [Offload::Failover, Offload::Device] {
        for mode in [Mode::Asynchronous, Mode::Pipelined] {
            let (response, totals) = respond(&UNKNOWN_MIRROR, offload, mode, &content, true);
            assert!(decoded(&response) == content);
            assert_eq!((totals.device_chunks, totals.own_chunks), (0, 0));
        }
    }
    assert_eq!(device.seen().chunks, 0);
}
