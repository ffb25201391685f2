//! Content, and decoders that share no code with the compressors.

// Not every test needs everything.
#![allow(dead_code)]

pub mod device;

use std::io::Read;

use miniz_oxide::inflate::stream::{InflateState, inflate as inflate_stream};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use slipstream_compress::{CODECS, Codec, Method};

/// Every method.
pub fn methods() -> impl Iterator<Item = Method> {
    CODECS.iter().copied().flat_map(|codec| {
        codec
            .levels()
            .map(move |level| Method::new(codec, level).expect("a level"))
    })
}

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material {
    Html,
    Random,
    Zeros,
    Ones,
    Runs,
    Alternating,
    /// Random content before and behind HTML.
    Mixed,
}

impl Material {
    pub const ALL: [Material; 7] = [
        Material::Html,
        Material::Random,
        Material::Zeros,
        Material::Ones,
        Material::Runs,
        Material::Alternating,
        Material::Mixed,
    ];

    pub fn content(self, length: usize) -> Vec<u8> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        match self {
            Material::Html => html(length),
            Material::Random => (0..length).map(|_| random.next() as u8).collect(),
            Material::Zeros => vec![0; length],
            Material::Ones => vec![0xff; length],
            Material::Runs => {
                let mut content = Vec::with_capacity(length + 2000);
                while content.len() < length {
                    let (byte, run) = (random.next() as u8, random.below(2000));
                    content.resize(content.len() + run, byte);
                }
                content.truncate(length);
                content
            }
            Material::Alternating => (0..length).map(|place| b"ab"[place % 2]).collect(),
            Material::Mixed => {
                let mut content = Material::Random.content(length / 3);
                content.extend(html(length - 2 * (length / 3)));
                content.extend(Material::Random.content(length / 3));
                content
            }
        }
    }
}

fn html(length: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "offload",
        "<p>",
        "</p>\n",
        "the",
        "pipeline",
        "<a href=\"/chapter/",
        "\">",
        "</a>",
        "of",
        "content",
        "a",
        "responses",
    ];
    let mut random = Random(7);
    let mut content = Vec::with_capacity(length + 32);
    while content.len() < length {
        content.extend_from_slice(WORDS[random.below(WORDS.len())].as_bytes());
        content.extend_from_slice(format!(" {}", random.below(300)).as_bytes());
    }
    content.truncate(length);
    content
}

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// Decodes a whole response, as a client does.
pub fn decoded(codec: &dyn Codec, compressed: &[u8]) -> Vec<u8> {
    match codec.name() {
        "gzip" => gunzip(compressed),
        "zstd" => unzstd(compressed),
        other => panic!("no decoder for {other}"),
    }
}

/// The content of one gzip member without options, of which header and trailer are checked.
pub fn gunzip(compressed: &[u8]) -> Vec<u8> {
    let (header, rest) = compressed.split_at(10);
    assert_eq!(header[..4], [0x1f, 0x8b, 8, 0], "magic, DEFLATE, no flags");
    assert_eq!(header[4..8], [0; 4], "no time");
    let (body, trailer) = rest.split_at(rest.len() - 8);
    let content = inflate(body);
    assert_eq!(trailer[..4], crc32(&content).to_le_bytes());
    assert_eq!(trailer[4..], (content.len() as u32).to_le_bytes());
    content
}

/// The content of a stream of DEFLATE, which has to end where `compressed` does.
pub fn inflate(compressed: &[u8]) -> Vec<u8> {
    let (content, has_ended, left) = inflate_some(compressed);
    assert!(has_ended, "no end");
    assert_eq!(left, 0, "bytes behind the end");
    content
}

/// The content of a stream of DEFLATE that has not ended, as far as a client can read it.
pub fn inflate_beginning(compressed: &[u8]) -> Vec<u8> {
    let (content, has_ended, left) = inflate_some(compressed);
    assert!(!has_ended && left == 0, "the stream has ended");
    content
}

/// Returns the content, true if the stream has ended, and the number of bytes behind its end.
fn inflate_some(mut compressed: &[u8]) -> (Vec<u8>, bool, usize) {
    let mut state = InflateState::new_boxed(DataFormat::Raw);
    let mut piece = vec![0; 1 << 16];
    let mut content = Vec::new();
    loop {
        let result = inflate_stream(&mut state, compressed, &mut piece, MZFlush::None);
        compressed = &compressed[result.bytes_consumed..];
        content.extend_from_slice(&piece[..result.bytes_written]);
        match result.status {
            Ok(MZStatus::StreamEnd) => return (content, true, compressed.len()),
            Ok(_) if result.bytes_written == piece.len() || !compressed.is_empty() => {}
            Ok(_) | Err(MZError::Buf) => return (content, false, compressed.len()),
            Err(error) => panic!("no stream of DEFLATE: {error:?}"),
        }
    }
}

/// The content of all frames in `compressed`.
pub fn unzstd(mut compressed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    assert!(!compressed.is_empty(), "not even an empty frame");
    while !compressed.is_empty() {
        let mut decoder =
            ruzstd::decoding::StreamingDecoder::new(&mut compressed).expect("a frame");
        decoder.read_to_end(&mut content).expect("a whole frame");
    }
    content
}

/// The checksum, bit by bit as RFC 1952 defines it.
fn crc32(content: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |remainder, _| {
            (remainder >> 1) ^ (0xedb8_8320 * (remainder & 1))
        })
    });
    !content.iter().fold(!0, |crc, byte| {
        table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}
