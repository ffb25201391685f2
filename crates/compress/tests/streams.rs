//! Streams in software.

mod common;

use common::{Material, Random, decoded, gunzip, inflate_beginning, methods};
use slipstream_compress::{Flush, GZIP, Method, Progress, Stream, ZSTD};

const LENGTHS: [usize; 10] = [0, 1, 2, 8, 300, 32_767, 65_536, 65_537, 131_072, 300_000];

/// Compresses `content` in one piece, into blocks of `block_bytes`.
fn compress(stream: &mut Stream, content: &[u8], flush: Flush, block_bytes: usize) -> Vec<u8> {
    let (mut left, mut output) = (content, Vec::new());
    loop {
        let mut block = Vec::with_capacity(block_bytes);
        let progress = stream.compress(&mut left, flush, &mut block);
        assert!(block.capacity() == block_bytes, "a block does not grow");
        output.extend_from_slice(&block);
        match progress {
            Progress::Done => {
                assert!(left.is_empty());
                return output;
            }
            Progress::Full => assert!(!block.is_empty(), "no progress"),
        }
    }
}

#[test]
fn a_stream_is_the_content() {
    for method in methods() {
        let mut stream = Stream::new(method);
        // High levels are slow, and their streams differ in little.
        let is_slow = method.level() > 3;
        for length in LENGTHS
            .into_iter()
            .filter(|length| !is_slow || *length < 70_000)
        {
            for material in Material::ALL {
                let content = material.content(length);
                let blocks: &[usize] = if is_slow {
                    &[97]
                } else {
                    &[64, 97, 4096, 1 << 20]
                };
                for &block_bytes in blocks {
                    let output = compress(&mut stream, &content, Flush::Finish, block_bytes);
                    let back = decoded(method.codec(), &output);
                    assert!(
                        back == content,
                        "{method:?} {length} {material:?} {block_bytes}"
                    );
                    stream.reset(method);
                }
            }
        }
    }
}

#[test]
fn a_stream_takes_any_pieces() {
    let mut random = Random(11);
    for method in [1, 2, 3, 6]
        .map(|level| Method::new(GZIP, level).expect("a level"))
        .into_iter()
        .chain([1, 3].map(|level| Method::new(ZSTD, level).expect("a level")))
    {
        for material in Material::ALL {
            for most in [3, 500, 40_000] {
                let content = material.content(if most == 3 { 3000 } else { 200_000 });
                let mut stream = Stream::new(method);
                let (mut left, mut output) = (content.as_slice(), Vec::new());
                while !left.is_empty() {
                    let (piece, rest) = left.split_at(random.below(most).min(left.len()));
                    let flush = match random.below(4) {
                        0 => Flush::Sync,
                        _ => Flush::None,
                    };
                    let block_bytes = 64 + random.below(5000);
                    output.extend(compress(&mut stream, piece, flush, block_bytes));
                    left = rest;
                    if flush == Flush::Sync
                        && most > 3
                        && method.codec() == GZIP
                        && output.len() > 10
                    {
                        let so_far = inflate_beginning(&output[10..]);
                        assert!(so_far == content[..content.len() - left.len()], "flushed");
                    }
                }
                output.extend(compress(
                    &mut stream,
                    &[],
                    Flush::Finish,
                    64 + random.below(200),
                ));
                assert!(
                    decoded(method.codec(), &output) == content,
                    "{method:?} {material:?} {most}"
                );
            }
        }
    }
}

#[test]
fn a_flushed_frame_can_be_read_so_far() {
    let method = Method::new(ZSTD, 1).expect("a level");
    let content = Material::Html.content(50_000);
    let mut stream = Stream::new(method);
    let output = compress(&mut stream, &content, Flush::Sync, 4096);
    // The other decoder returns no content that later blocks may refer to.
    let mut back = Vec::with_capacity(content.len() + 1);
    let mut decoder = zstd_safe::DCtx::create();
    let mut to = zstd_safe::OutBuffer::around(&mut back);
    let mut from = zstd_safe::InBuffer::around(&output);
    decoder
        .decompress_stream(&mut to, &mut from)
        .expect("a frame");
    assert!(back == content);
}

#[test]
fn a_stream_can_be_used_for_another_response_at_any_time() {
    let content = Material::Html.content(100_000);
    let mut stream = Stream::new(Method::DEFAULT);
    for method in methods().chain(methods()) {
        // Left in the middle.
        compress(&mut stream, &content, Flush::None, 4096);
        stream.reset(method);
        let output = compress(&mut stream, &content, Flush::Finish, 4096);
        assert!(decoded(method.codec(), &output) == content, "{method:?}");
        stream.reset(method);
    }
}

#[test]
fn a_stream_refers_back_across_a_flush() {
    for method in methods() {
        let content = Material::Random.content(10_000);
        let mut stream = Stream::new(method);
        let mut output = compress(&mut stream, &content, Flush::Sync, 4096);
        output.extend(compress(&mut stream, &content, Flush::Finish, 4096));
        assert!(output.len() < 13_000, "{method:?}: {}", output.len());
    }
}

#[test]
fn a_stream_takes_little_memory() {
    for method in methods() {
        let mut stream = Stream::new(method);
        compress(
            &mut stream,
            &Material::Html.content(300_000),
            Flush::None,
            1 << 20,
        );
        let memory = stream.memory();
        println!("{method:?}: {memory}");
        if method.level() <= 3 {
            assert!(memory < 450 << 10, "{method:?}: {memory}");
        }
    }
}

#[test]
fn igzip_writes_the_header_that_pipelines_write() {
    let output = compress(
        &mut Stream::new(Method::DEFAULT),
        b"content",
        Flush::Finish,
        4096,
    );
    assert_eq!(output[..4], [0x1f, 0x8b, 8, 0]);
    assert_eq!(gunzip(&output), b"content");
}
