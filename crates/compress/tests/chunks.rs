//! Single chunks.

mod common;

use common::{Material, decoded, inflate, inflate_beginning, methods, unzstd};
use slipstream_compress::{Compressor, GZIP, Method, ZSTD};

const LENGTHS: [usize; 15] = [
    0, 1, 2, 7, 8, 9, 100, 4095, 4096, 65_534, 65_535, 65_536, 65_537, 131_072, 300_000,
];

/// Returns false for long content at high levels of zstd, which are slow and differ in little.
fn is_tested(method: Method, length: usize) -> bool {
    method.codec() == GZIP || method.level() < 6 || length < 70_000
}

#[test]
fn a_chunk_is_the_content_and_within_its_bound() {
    let mut compressor = Compressor::new();
    for method in methods() {
        for length in LENGTHS
            .into_iter()
            .filter(|length| is_tested(method, *length))
        {
            for material in Material::ALL {
                let content = material.content(length);
                let mut output = b"before".to_vec();
                compressor.compress(method, &content, true, &mut output);
                let chunk = output
                    .strip_prefix(b"before")
                    .expect("nothing is overwritten");
                assert!(!chunk.is_empty());
                assert!(
                    chunk.len() <= method.bound(length),
                    "{method:?} {length} {material:?}: {}",
                    chunk.len()
                );
                let back = match method.codec() == GZIP {
                    true => inflate(chunk),
                    false => unzstd(chunk),
                };
                assert!(back == content, "{method:?} {length} {material:?}");
            }
        }
    }
}

#[test]
fn chunks_that_are_joined_are_one_stream() {
    let mut compressor = Compressor::new();
    for method in methods().filter(|method| method.codec() == GZIP) {
        let (mut content, mut output) = (Vec::new(), Vec::new());
        for (material, length) in Material::ALL.into_iter().cycle().zip(LENGTHS) {
            let chunk = material.content(length);
            let start = output.len();
            compressor.compress(method, &chunk, false, &mut output);
            let own = &output[start..];
            assert!(
                own.len() <= method.bound(length),
                "{method:?} {length} {material:?}"
            );
            // The chunk refers to no other, and can be read without those that follow.
            assert!(
                inflate_beginning(own) == chunk,
                "{method:?} {length} {material:?}"
            );
            content.extend(chunk);
        }
        compressor.compress(method, b"end", true, &mut output);
        content.extend(b"end");
        assert!(inflate(&output) == content, "{method:?}");
    }
}

#[test]
fn frames_that_are_joined_are_one_response() {
    let mut compressor = Compressor::new();
    let method = Method::new(ZSTD, 3).expect("a level");
    let (mut content, mut output) = (Vec::new(), Vec::new());
    for length in LENGTHS {
        let chunk = Material::Html.content(length);
        compressor.compress(method, &chunk, false, &mut output);
        content.extend(chunk);
    }
    assert!(decoded(ZSTD, &output) == content);
}

#[test]
fn repetitive_content_becomes_short() {
    let mut compressor = Compressor::new();
    let content = Material::Html.content(65_536);
    for method in methods() {
        let mut output = Vec::new();
        compressor.compress(method, &content, true, &mut output);
        assert!(
            output.len() < content.len() / 2,
            "{method:?}: {}",
            output.len()
        );
    }
}

#[test]
fn no_frame_needs_more_memory_than_http_allows() {
    // RFC 9659: a window of 8 MB.
    let content = Material::Runs.content(9 << 20);
    for level in [1, 3, 19] {
        let method = Method::new(ZSTD, level).expect("a level");
        let mut output = Vec::new();
        Compressor::new().compress(method, &content, true, &mut output);
        assert!(window(&output) <= 8 << 20, "level {level}");
    }
}

/// The window of a frame (RFC 8878, section 3.1.1.1), in bytes: a decoder has to hold that much.
fn window(frame: &[u8]) -> u64 {
    let descriptor = frame[4];
    let is_single_segment = descriptor & 0x20 != 0;
    match (is_single_segment, descriptor >> 6) {
        (false, _) => {
            let (exponent, mantissa) = (frame[5] >> 3, u64::from(frame[5] & 7));
            let base = 1 << (10 + exponent);
            base + base / 8 * mantissa
        }
        (true, 2) => u32::from_le_bytes(frame[5..9].try_into().expect("four bytes")).into(),
        (true, other) => panic!("field of {other} for the length of the content"),
    }
}

#[test]
fn compressors_can_go_to_other_threads() {
    fn is_send(_: &impl Send) {}
    is_send(&Compressor::new());
}
