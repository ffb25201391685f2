//! Ways to compress a page.

use slipstream_compress::{Method, Mode, Offload, Settings};

/// The length of the blocks that nginx has for output: its `gzip_buffers` are as long.
const BLOCK_BYTES: usize = 4096;

/// A way to compress a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// The system's zlib at level 1, as nginx calls it. The others are compared with this.
    Zlib,
    /// One stream in software.
    Stream(Method),
    /// Chunks of this number of bytes in software, none of which refers to another.
    Chunks(Method, usize),
    /// A response in software that holds this number of bytes.
    Session(Method, usize),
    /// A response over an engine.
    Engine {
        /// The coding and its level.
        method: Method,
        /// Number of bytes that accumulate before they are submitted.
        stream: usize,
        /// The length of a chunk in bytes.
        chunk: usize,
        /// The way in which the caller waits for the engine.
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

    /// Settings of the session if it is a response.
    pub(super) fn settings(&self) -> Option<Settings> {
        let settings = Settings {
            method: Method::DEFAULT,
            chunk_bytes: 0,
            stream_bytes: 0,
            threshold: 0,
            block_bytes: BLOCK_BYTES,
            offload: Offload::Software,
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
                offload: Offload::Device,
                mode,
                ..settings
            }),
            _ => None,
        }
    }

    /// Number of responses that are compressed at a time: one if the thread waits for it or
    /// compresses it itself.
    pub(super) fn concurrency(&self, asynchronous: usize) -> usize {
        match self {
            Configuration::Engine {
                mode: Mode::Asynchronous,
                ..
            } => asynchronous,
            _ => 1,
        }
    }

    /// Number of bytes that its output lacks to be a response.
    pub(super) fn framing(&self) -> usize {
        match self {
            Configuration::Chunks(method, _) => {
                let framing = method.codec().framing();
                framing.header.len() + framing.trailer_bytes
            }
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
    format!("{}-{}", method.codec().name(), method.level())
}
