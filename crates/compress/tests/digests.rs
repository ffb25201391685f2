//! The bytes of the output do not change with the code around the libraries.
//!
//! An update of a library may change them: record the digests anew then. The test prints them in
//! the form of the table.

mod common;

use common::device::{Behaviour, Installed, Job, poll};
use common::{Material, Random};
use slipstream_compress::{
    Codec, Compressor, Context, Flush, GZIP, Method, Mode, Offload, Progress, Session, Settings,
    Stream, ZSTD,
};

const CHUNK: usize = 20_000;

/// Codec, level, library, and digests of [`streamed`], [`chunked`] and [`in_sessions`], recorded on
/// x86-64 with AVX-512.
const RECORDED: [(&dyn Codec, u8, &str, [u64; 3]); 9] = [
    (
        GZIP,
        1,
        "igzip",
        [0x4ee5ce31631e4dd6, 0xd77141ea17aecb0d, 0x7f967ed7c72bbd1e],
    ),
    (
        GZIP,
        3,
        "igzip",
        [0x834d6bf699b258dc, 0x1772201d0d3cdad4, 0x89f149cb7c9805d2],
    ),
    (
        GZIP,
        1,
        "zlib-rs",
        [0xfeb1b5680c36be26, 0x1777ae9fa4b6c8ae, 0x7a3f74f15c6d9b9d],
    ),
    (
        GZIP,
        3,
        "zlib-rs",
        [0x4c8e7a06b79c8fb8, 0x631a375ec54bcd16, 0x856ee0750c2ed2ef],
    ),
    (
        GZIP,
        6,
        "zlib-rs",
        [0x1012e99b0fc7af7e, 0x58176ae9a7972b76, 0x843d6ba9ca241769],
    ),
    (
        GZIP,
        9,
        "zlib-rs",
        [0x884d87f7b2b827a4, 0x29bb16ab8c308ed4, 0xf3ff8c5ed525aa06],
    ),
    (
        ZSTD,
        1,
        "zstd",
        [0x92413d4fd989472d, 0xb7f7514fe9905e3b, 0x70a8bf2cb572d588],
    ),
    (
        ZSTD,
        3,
        "zstd",
        [0x5de9cadd2ca2c45a, 0xaaa8bc698f59a76f, 0x65502250109453a8],
    ),
    (
        ZSTD,
        19,
        "zstd",
        [0x5e9c341e4ce1c3de, 0x57e2e69c10a23bd1, 0xd03345e91c3238bd],
    ),
];

#[test]
fn the_output_is_the_recorded_one() {
    for (codec, level, library, recorded) in RECORDED {
        let method = Method::new(codec, level).expect("a level");
        if method.implementation() != library || !is_comparable(library) {
            continue;
        }
        let digests = [streamed(method), chunked(method), in_sessions(method)];
        println!("{codec:?} {level} {library:?} {digests:#018x?}");
        assert_eq!(digests, recorded, "{method:?} by {library}");
    }
}

/// Returns true if `library` finds the same matches here as on the CPU of the record: igzip has
/// other code for AVX-512, and zlib-rs hashes with the instructions of the CPU.
fn is_comparable(library: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    let (has_sse, has_avx512) = (
        std::is_x86_feature_detected!("sse4.2"),
        std::is_x86_feature_detected!("avx512bw"),
    );
    #[cfg(not(target_arch = "x86_64"))]
    let (has_sse, has_avx512) = (false, false);
    match library {
        "igzip" => has_avx512,
        "zlib-rs" => has_sse,
        _ => true,
    }
}

/// Streams written in pieces, some of them flushed, into blocks of different lengths.
fn streamed(method: Method) -> u64 {
    let mut digest = Digest::default();
    let mut random = Random(23);
    let mut stream = Stream::new(method);
    for material in Material::ALL {
        let content = material.content(150_000);
        let mut left = content.as_slice();
        while !left.is_empty() {
            let (mut piece, rest) = left.split_at(random.below(30_000).min(left.len()));
            let flush = match random.below(4) {
                0 => Flush::Sync,
                _ => Flush::None,
            };
            left = rest;
            write(
                &mut stream,
                &mut piece,
                flush,
                64 + random.below(9000),
                &mut digest,
            );
        }
        write(&mut stream, &mut &[][..], Flush::Finish, 4096, &mut digest);
        stream.reset(method);
    }
    digest.0
}

fn write(
    stream: &mut Stream,
    content: &mut &[u8],
    flush: Flush,
    block_bytes: usize,
    digest: &mut Digest,
) {
    loop {
        let mut block = Vec::with_capacity(block_bytes);
        let progress = stream.compress(content, flush, &mut block);
        digest.update(&block);
        if progress == Progress::Done {
            return;
        }
    }
}

/// Chunks of different lengths, empty ones and last ones among them.
fn chunked(method: Method) -> u64 {
    let mut digest = Digest::default();
    let mut compressor = Compressor::new();
    for material in Material::ALL {
        for length in [0, 1, 100, 4096, 65_536, 100_000] {
            for is_last in [false, true] {
                let mut output = Vec::new();
                compressor.compress(method, &material.content(length), is_last, &mut output);
                digest.update(&output);
            }
        }
    }
    digest.0
}

/// Responses as one stream and as chunks that a device compresses.
fn in_sessions(method: Method) -> u64 {
    let mut digest = Digest::default();
    let _device = Installed::new(Behaviour::default());
    let mut context = Context::new(16, 64 << 10);
    context.set_device(true);
    let job = Job(1);
    for offload in [Offload::Software, Offload::Device] {
        for length in [0, 1, 5000, CHUNK, 2 * CHUNK, 150_000] {
            let settings = Settings {
                method,
                chunk_bytes: CHUNK,
                stream_bytes: 4 * CHUNK,
                threshold: 4096,
                block_bytes: 8 << 10,
                offload,
                mode: Mode::Asynchronous,
            };
            let content = Material::Mixed.content(length);
            let mut session = Session::new(settings, None, &mut context);
            let mut left = content.as_slice();
            loop {
                let taken = session.write(&mut context, &job, left);
                left = &left[taken..];
                if left.is_empty() {
                    session.finish(&mut context, &job);
                }
                poll();
                session.resume(&mut context);
                while let Some(block) = session.next_block() {
                    digest.update(&block);
                }
                if session.is_complete() {
                    break;
                }
            }
        }
    }
    digest.0
}

/// FNV-1a of 64 bits.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
