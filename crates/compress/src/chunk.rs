//! Single chunks.

use crate::Method;
use crate::codec::{ChunkEncoder, Codec};

/// Compresses chunks that do not refer to each other, with state that is reused from one to the
/// next. A thread has one.
#[derive(Default)]
pub struct Compressor {
    encoders: Vec<(&'static dyn Codec, Box<dyn ChunkEncoder>)>,
}

impl Compressor {
    /// Makes a compressor. It allocates state for a codec when that is first used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `content`, compressed as one chunk of a response, to `output`. The chunk ends on a
    /// byte, and the response ends with it if `is_last`. [`Codec::framing`] says how chunks are
    /// joined to a response.
    pub fn compress(
        &mut self,
        method: Method,
        content: &[u8],
        is_last: bool,
        output: &mut Vec<u8>,
    ) {
        output.reserve(method.bound(content.len()));
        self.encoder(method.codec())
            .encode(method.level(), content, is_last, output);
    }

    fn encoder(&mut self, codec: &'static dyn Codec) -> &mut dyn ChunkEncoder {
        let found = self.encoders.iter().position(|(of, _)| *of == codec);
        let index = found.unwrap_or_else(|| {
            self.encoders.push((codec, codec.chunk_encoder()));
            self.encoders.len() - 1
        });
        &mut *self.encoders[index].1
    }
}
