//! Compression without a session, on the calling thread.

use slipstream_compress::{self as deflate, Flush, Method, Progress, Stream};

use super::Configuration;
use crate::Error;
use crate::zlib;

/// Bytes of content that are passed to a stream at a time, as nginx reads files.
const INPUT: usize = 32 * 1024;
/// The room for output that a stream gets at a time.
const OUTPUT: usize = 64 * 1024;

/// Compresses pages in one of the ways, with state that is kept from one to the next as far as the
/// library keeps it.
pub(super) struct Compressor {
    state: State,
    output: Vec<u8>,
}

enum State {
    Zlib,
    Stream(Method, Box<Stream>),
    Chunks(Method, usize, Box<deflate::Compressor>),
}

impl Compressor {
    /// # Panics
    /// When the configuration is of a session.
    pub(super) fn new(configuration: Configuration) -> Compressor {
        Compressor {
            state: match configuration {
                Configuration::Zlib => State::Zlib,
                Configuration::Stream(method) => {
                    State::Stream(method, Box::new(Stream::new(method)))
                }
                Configuration::Chunks(method, chunk) => {
                    State::Chunks(method, chunk, Box::default())
                }
                Configuration::Session(..) | Configuration::Engine { .. } => {
                    panic!("a session compresses by itself")
                }
            },
            output: Vec::new(),
        }
    }

    /// A page, compressed.
    ///
    /// # Errors
    /// Zlib's.
    pub(super) fn compress(&mut self, content: &[u8]) -> Result<&[u8], Error> {
        let output = &mut self.output;
        output.clear();
        match &mut self.state {
            State::Zlib => zlib::gzip_as_nginx(content, 1, output)?,
            State::Stream(method, stream) => {
                stream.reset(*method);
                let mut pieces = content.chunks(INPUT).peekable();
                while let Some(piece) = pieces.next() {
                    let flush = match pieces.peek() {
                        Some(_) => Flush::None,
                        None => Flush::Finish,
                    };
                    pass(stream, piece, flush, output);
                }
            }
            State::Chunks(method, chunk, compressor) => {
                let mut chunks = content.chunks(*chunk).peekable();
                while let Some(chunk) = chunks.next() {
                    output.reserve(method.bound(chunk.len()));
                    compressor.compress(*method, chunk, chunks.peek().is_none(), output);
                }
            }
        }
        Ok(&self.output)
    }
}

fn pass(stream: &mut Stream, mut piece: &[u8], flush: Flush, output: &mut Vec<u8>) {
    loop {
        if output.capacity() == output.len() {
            output.reserve(OUTPUT);
        }
        if stream.compress(&mut piece, flush, output) == Progress::Done {
            return;
        }
    }
}
