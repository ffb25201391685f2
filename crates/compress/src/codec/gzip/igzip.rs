//! igzip, of Intel's ISA-L, behind safe types.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::is_x86_feature_detected;

use isal_sys::igzip_lib::bindings::{
    COMP_OK, FULL_FLUSH, IGZIP_GZIP, ISAL_DEF_LVL1_MEDIUM, ISAL_DEF_LVL2_MEDIUM,
    ISAL_DEF_LVL3_MEDIUM, NO_FLUSH, SYNC_FLUSH, isal_deflate, isal_deflate_init,
    isal_deflate_stateless, isal_deflate_stateless_init, isal_zstate_state_ZSTATE_END,
    isal_zstate_state_ZSTATE_NEW_HDR, isal_zstream,
};

use crate::stream::{Flush, Progress};

/// The levels that igzip is used for: its level 0 is no faster than level 1.
pub(super) const LEVELS: std::ops::RangeInclusive<u8> = 1..=3;

/// Lengths are 32-bit in igzip.
const PIECE: usize = 1 << 30;

/// Returns true if this CPU has the instructions that make igzip fast. Without them it would be
/// slower than zlib-rs.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
}

/// The state of igzip for one level at a time: 82 KB, and a buffer whose length depends on the
/// level.
pub(super) struct Igzip {
    state: Box<State>,
    level: u8,
    level_buffer: Box<[Line]>,
}

#[repr(C, align(64))]
struct State(isal_zstream);

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

// SAFETY: the pointers in the state lead to the caller's buffers during a call, to the level's
// buffer, which is owned, and to constant tables; none of them belongs to a thread.
unsafe impl Send for Igzip {}

impl Igzip {
    /// Makes state for chunks, or for a stream after [`begin`](Self::begin).
    ///
    /// # Panics
    /// If `level` is not one of [`LEVELS`].
    pub fn new(level: u8) -> Self {
        Self {
            state: zeroed_state(),
            level,
            level_buffer: level_buffer(level),
        }
    }

    /// Changes the level. An unfinished stream is dropped.
    pub fn set_level(&mut self, level: u8) {
        if level != self.level {
            self.level_buffer = level_buffer(level);
            self.level = level;
        }
    }

    /// The memory of the state, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<State>() + size_of_val(&*self.level_buffer)
    }

    /// Compresses `content` by itself into the spare capacity of `output`, ending on a byte.
    /// Returns false, and leaves `output` as it was, if the chunk does not fit or if the content is
    /// too long for igzip.
    pub fn encode_chunk(&mut self, content: &[u8], is_last: bool, output: &mut Vec<u8>) -> bool {
        if content.len() > PIECE {
            return false;
        }
        // SAFETY: the state is initialised memory, of which the call sets what it needs.
        unsafe { isal_deflate_stateless_init(&mut self.state.0) };
        let spare = self.prepare(content, output);
        let stream = &mut self.state.0;
        stream.flush = FULL_FLUSH as u16;
        stream.end_of_stream = is_last.into();
        // SAFETY: input, output and level's buffer are described by `prepare` and outlive the call.
        let code = unsafe { isal_deflate_stateless(stream) };
        let written = spare - stream.avail_out as usize;
        if code != COMP_OK as i32 || stream.avail_in > 0 {
            return false;
        }
        // SAFETY: igzip has written that many bytes into the spare capacity.
        unsafe { output.set_len(output.len() + written) };
        true
    }

    /// Begins a gzip member.
    pub fn begin(&mut self) {
        // SAFETY: the state is initialised memory, of which the call sets what it needs.
        unsafe { isal_deflate_init(&mut self.state.0) };
        self.state.0.gzip_flag = IGZIP_GZIP as u16;
    }

    /// Compresses as [`Stream::compress`](crate::Stream::compress) says.
    pub fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress {
        loop {
            let (left, spare) = (content.len(), output.capacity() - output.len());
            if spare > 0 {
                self.advance(content, flush, output);
            }
            if content.is_empty() && self.is_done(flush) {
                return Progress::Done;
            }
            let is_stuck = content.len() == left && output.capacity() - output.len() == spare;
            if is_stuck || output.len() == output.capacity() {
                return Progress::Full;
            }
        }
    }

    /// Calls igzip once. It may return before all content is taken and while there is still room.
    fn advance(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) {
        let (piece, rest) = content.split_at(content.len().min(PIECE));
        let spare = self.prepare(piece, output);
        let stream = &mut self.state.0;
        stream.flush = match flush {
            Flush::Sync if rest.is_empty() => SYNC_FLUSH as u16,
            Flush::None | Flush::Sync | Flush::Finish => NO_FLUSH as u16,
        };
        stream.end_of_stream = (flush == Flush::Finish && rest.is_empty()).into();
        // SAFETY: input, output and level's buffer are described by `prepare` and outlive the call.
        // igzip keeps no pointer into the input: it copies what it looks back at.
        let code = unsafe { isal_deflate(stream) };
        assert_eq!(code, COMP_OK as i32, "igzip knows level, buffer and flush");
        let written = spare - stream.avail_out as usize;
        *content = &content[piece.len() - stream.avail_in as usize..];
        // SAFETY: igzip has written that many bytes into the spare capacity.
        unsafe { output.set_len(output.len() + written) };
    }

    /// Returns true if igzip has done what `flush` asks for, once all content has been passed.
    fn is_done(&self, flush: Flush) -> bool {
        let state = &self.state.0.internal_state;
        match flush {
            Flush::None => true,
            // A flush is complete when igzip is between blocks, with no content in its buffer and no
            // bits that do not fill a byte.
            Flush::Sync => {
                state.state == isal_zstate_state_ZSTATE_NEW_HDR
                    && state.b_bytes_valid == state.b_bytes_processed
                    && state.bitbuf.m_bit_count == 0
            }
            Flush::Finish => state.state == isal_zstate_state_ZSTATE_END,
        }
    }

    /// Points igzip to its buffers. Returns the capacity of the output that it may use, in bytes.
    fn prepare(&mut self, content: &[u8], output: &mut Vec<u8>) -> usize {
        let spare = output.spare_capacity_mut();
        let length = spare.len().min(PIECE);
        let stream = &mut self.state.0;
        stream.level = self.level.into();
        stream.level_buf = self.level_buffer.as_mut_ptr().cast();
        stream.level_buf_size = size_of_val(&*self.level_buffer) as u32;
        // igzip does not write to its input.
        stream.next_in = content.as_ptr().cast_mut();
        stream.avail_in = content.len() as u32;
        stream.next_out = spare.as_mut_ptr().cast();
        stream.avail_out = length as u32;
        length
    }
}

/// Allocates the state on the heap at once: it is too large for the stack.
fn zeroed_state() -> Box<State> {
    let layout = Layout::new::<State>();
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<State>();
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the memory was allocated with the type's layout, and zeroes are integers and null
    // pointers.
    unsafe { Box::from_raw(memory) }
}

/// Allocates the buffer of a level. Longer ones than these are no faster.
fn level_buffer(level: u8) -> Box<[Line]> {
    let bytes = match level {
        1 => ISAL_DEF_LVL1_MEDIUM,
        2 => ISAL_DEF_LVL2_MEDIUM,
        3 => ISAL_DEF_LVL3_MEDIUM,
        _ => panic!("level {level} of igzip"),
    };
    let lines = (bytes as usize).div_ceil(size_of::<Line>());
    vec![Line([0; 64]); lines].into_boxed_slice()
}
