//! A whole response as one stream on the caller's core.

use crate::Method;
use crate::codec::{Codec, StreamEncoder};

/// A stream, which may refer back to all of its content so far. [`reset`](Self::reset) makes it
/// ready for another response.
pub struct Stream {
    codec: &'static dyn Codec,
    encoder: Box<dyn StreamEncoder>,
}

/// The output that is wanted for the content so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// None in particular: the library writes output when it has enough.
    None,
    /// All of it, so that the client can read the content.
    Sync,
    /// All of it, and the end of the stream.
    Finish,
}

/// The state of a stream after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All content has been taken, and the requested [`Flush`] has been done.
    Done,
    /// `output` is full, or nearly so.
    Full,
}

impl Stream {
    /// Makes a stream, at the beginning of a response.
    pub fn new(method: Method) -> Self {
        Self {
            codec: method.codec(),
            encoder: method.codec().stream_encoder(method.level()),
        }
    }

    /// Begins another response. An unfinished one is dropped.
    pub fn reset(&mut self, method: Method) {
        if self.codec == method.codec() {
            self.encoder.reset(method.level());
        } else {
            *self = Self::new(method);
        }
    }

    /// Compresses `content` into the spare capacity of `output`, and advances `content` past the
    /// bytes that it has taken. After [`Progress::Full`] it is called again with the same `flush`,
    /// and with at least 64 bytes of capacity.
    pub fn compress(
        &mut self,
        content: &mut &[u8],
        flush: Flush,
        output: &mut Vec<u8>,
    ) -> Progress {
        self.encoder.encode(content, flush, output)
    }

    /// Returns true if [`reset`](Self::reset) to `method` reuses the memory of this stream.
    pub(crate) fn can_reuse(&self, method: Method) -> bool {
        self.codec == method.codec() && self.encoder.can_reuse(method.level())
    }

    /// The memory of the stream, in bytes.
    pub fn memory(&self) -> usize {
        self.encoder.memory()
    }
}
