//! What is compared.

use slipstream_deflate::{Coding, Method, Mode, Place, Settings};

/// The length of the blocks that nginx has for output: its `gzip_buffers` are as long.
const BLOCK_BYTES: usize = 4096;
/// Header and trailer of gzip.
const GZIP_FRAMING: usize = 18;

/// A way to compress a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// The system's zlib at level 1, as nginx calls it. The others are compared with this.
    Zlib,
    /// One stream in software.
    Stream(Method),
    /// Chunks of so many bytes in software, none of which refers to another.
    Chunks(Method, usize),
    /// A response in software that holds so many bytes.
    Session(Method, usize),
    /// A response over an engine.
    Engine {
        /// With what it is compressed.
        method: Method,
        /// How many bytes accumulate before they are submitted.
        stream: usize,
        /// The length of a chunk in bytes.
        chunk: usize,
        /// How the engine is waited for.
        mode: Mode,
    },
}

impl Configuration {
    /// Its name in reports, with the lengths of stream and chunk in KB as in the paper's figure 11.
    pub fn name(&self) -> String {
        match *self {
            Configuration::Zlib => "zlib-1".to_owned(),
            Configuration::Stream(method) => format!("{} stream", describe(method)),
            Configuration::Chunks(method, chunk) => {
                format!("{} chunks {}k", describe(method), chunk >> 10)
            }
            Configuration::Session(_, stream) => format!("session {}k", stream >> 10),
            Configuration::Engine {
                stream,
                chunk,
                mode,
                ..
            } => {
                let mode = match mode {
                    Mode::Pipelined => "pipelined",
                    Mode::Asynchronous => "asynchronous",
                };
                format!("{mode} {}/{}", stream >> 10, chunk >> 10)
            }
        }
    }

    /// How it is compressed if it is a response.
    pub(super) fn settings(&self) -> Option<Settings> {
        let settings = Settings {
            method: Method::DEFAULT,
            chunk_bytes: 0,
            stream_bytes: 0,
            threshold: 0,
            block_bytes: BLOCK_BYTES,
            place: Place::Software,
            mode: Mode::Asynchronous,
        };
        match *self {
            Configuration::Session(method, stream) => Some(Settings {
                method,
                chunk_bytes: stream,
                stream_bytes: stream,
                ..settings
            }),
            Configuration::Engine {
                method,
                stream,
                chunk,
                mode,
            } => Some(Settings {
                method,
                chunk_bytes: chunk,
                stream_bytes: stream,
                place: Place::Device,
                mode,
                ..settings
            }),
            _ => None,
        }
    }

    /// How many responses are compressed at a time: one where the thread waits for it, or compresses it itself.
    pub(super) fn concurrency(&self, asynchronous: usize) -> usize {
        match self {
            Configuration::Engine {
                mode: Mode::Asynchronous,
                ..
            } => asynchronous,
            _ => 1,
        }
    }

    /// What is missing of its output to be a response.
    pub(super) fn framing(&self) -> usize {
        match self {
            Configuration::Chunks(method, _) if method.coding() == Coding::Deflate => GZIP_FRAMING,
            _ => 0,
        }
    }
}

/// Every pair of a stream and a chunk that is not longer, both ways.
pub(super) fn over_engine(method: Method, lengths: &[usize]) -> Vec<Configuration> {
    let mut all = Vec::new();
    for &chunk in lengths {
        for &stream in lengths.iter().filter(|&&stream| stream >= chunk) {
            for mode in [Mode::Pipelined, Mode::Asynchronous] {
                all.push(Configuration::Engine {
                    method,
                    stream,
                    chunk,
                    mode,
                });
            }
        }
    }
    all
}

fn describe(method: Method) -> String {
    let coding = match method.coding() {
        Coding::Deflate => "gzip",
        Coding::Zstd => "zstd",
    };
    format!("{coding}-{}", method.level())
}
