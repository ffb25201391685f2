//! Content, and how it is decompressed by code that shares nothing with the compressors.

use std::io::Read;

use slipstream_offload::Coding;

/// Text that compresses, and differs from one `seed` to the next.
pub(crate) fn text(seed: usize, length: usize) -> Vec<u8> {
    let words = [
        "device",
        "engine",
        "<div class=\"row\">",
        "</div>",
        "chunk",
        "stream",
    ];
    let mut text = Vec::with_capacity(length + 64);
    for number in seed.. {
        if text.len() >= length {
            break;
        }
        text.extend_from_slice(words[number * number % words.len()].as_bytes());
        text.extend_from_slice(format!(" {} ", number * 7 % 1000).as_bytes());
    }
    text.truncate(length);
    text
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    getrandom::fill(&mut noise).expect("randomness");
    noise
}

/// Decompresses a whole stream, or all frames.
pub(crate) fn decompress(coding: Coding, compressed: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Deflate => {
            miniz_oxide::inflate::decompress_to_vec(compressed).expect("a whole stream of DEFLATE")
        }
        Coding::Zstd => {
            let mut rest = compressed;
            let mut content = Vec::new();
            while !rest.is_empty() {
                let mut decoder =
                    ruzstd::decoding::StreamingDecoder::new(&mut rest).expect("a frame");
                decoder.read_to_end(&mut content).expect("a whole frame");
            }
            content
        }
    }
}

/// Decompresses a chunk.
pub(crate) fn decompress_chunk(coding: Coding, chunk: &[u8], is_last: bool) -> Vec<u8> {
    let mut stream = chunk.to_vec();
    if coding == Coding::Deflate && !is_last {
        // An empty last block of the fixed code.
        stream.extend_from_slice(&[0x03, 0x00]);
    }
    decompress(coding, &stream)
}
