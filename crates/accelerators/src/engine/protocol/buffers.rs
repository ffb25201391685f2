//! Buffers in the memory of an instance, for content that is too long for slots.
//!
//! The client puts content into a buffer and names it in a request; the engine puts the result into
//! the same buffer before it answers. A reader copies a buffer first: the other side can write to
//! it at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstream_ring::memory::Memory;
use slipstream_ring::{Word, Words};

use super::layout::{BUFFERS, BUFFERS_USED, Layout};

/// Copies `bytes` into the words of a buffer. The rest of the last word becomes zero.
///
/// # Panics
/// If the buffer is shorter.
pub fn write(buffer: &[Word], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    let (filled, behind) = buffer.split_at(whole.len());
    for (word, bytes) in filled.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        behind[0].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// Copies the first bytes of a buffer to `bytes`.
///
/// # Panics
/// If the buffer is shorter.
pub fn read(buffer: &[Word], bytes: &mut [u8]) {
    let (whole, rest) = bytes.as_chunks_mut::<8>();
    let (filled, behind) = buffer.split_at(whole.len());
    for (bytes, word) in whole.iter_mut().zip(filled) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if !rest.is_empty() {
        let last = behind[0].load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// The client's side: keeps account of free buffers.
pub(in crate::engine) struct Buffers {
    layout: Layout,
    memory: Arc<Memory>,
    /// A bit for each.
    free: u64,
}

// A bit for each.
const _: () = assert!(*BUFFERS.end() <= u64::BITS as usize);

impl Buffers {
    /// Makes the buffers of a new instance.
    pub(in crate::engine) fn new(layout: Layout, memory: Arc<Memory>) -> Self {
        let free = match layout.buffers() as u32 {
            0 => 0,
            count => u64::MAX >> (u64::BITS - count),
        };
        Self {
            layout,
            memory,
            free,
        }
    }

    /// Returns the buffer to use next: the first one that is free, so that no more memory is
    /// touched than was ever needed at a time.
    pub(in crate::engine) fn next(&self) -> Option<usize> {
        (self.free != 0).then(|| self.free.trailing_zeros() as usize)
    }

    /// Copies `content` into the buffer.
    pub(in crate::engine) fn put(&self, index: usize, content: &[u8]) {
        let words = self.memory.words();
        let used = &words[BUFFERS_USED];
        // Only this side writes the word.
        if used.load(Ordering::Relaxed) <= index as u64 {
            used.store(index as u64 + 1, Ordering::Relaxed);
        }
        write(&words[self.layout.buffer(index)], content);
    }

    /// Marks the buffer as used.
    pub(in crate::engine) fn take(&mut self, index: usize) {
        self.free &= !(1 << index);
    }

    /// Returns a copy of the result in the buffer; `None` if it cannot be that long.
    pub(in crate::engine) fn get(&self, index: usize, length: usize) -> Option<Vec<u8>> {
        if length > self.layout.buffer_bytes() {
            return None;
        }
        let mut content = vec![0; length];
        read(
            &self.memory.words()[self.layout.buffer(index)],
            &mut content,
        );
        Some(content)
    }

    /// Marks the buffer as free.
    pub(in crate::engine) fn release(&mut self, index: usize) {
        self.free |= 1 << index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        let buffer: Vec<Word> = (0..4).map(|_| Word::new(u64::MAX)).collect();
        for length in 0..=32 {
            let bytes: Vec<u8> = (1..=length).collect();
            write(&buffer, &bytes);
            let mut back = vec![0; bytes.len()];
            read(&buffer, &mut back);
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn each_buffer_is_used_once_at_a_time() {
        for count in [1, 2, 63, 64] {
            let layout = Layout::new(8).and_then(|layout| layout.with_buffers(count, 4096));
            let layout = layout.expect("in range");
            let (memory, _file) = Memory::create(layout.words()).expect("memory");
            let memory = Arc::new(memory);
            let mut buffers = Buffers::new(layout, memory.clone());
            for index in 0..count {
                assert_eq!(buffers.next(), Some(index));
                buffers.put(index, &[index as u8; 100]);
                assert_eq!(buffers.next(), Some(index), "not taken yet");
                buffers.take(index);
            }
            assert_eq!(buffers.next(), None);
            for index in 0..count {
                assert_eq!(buffers.get(index, 100), Some(vec![index as u8; 100]));
            }
            buffers.release(count / 2);
            assert_eq!(buffers.next(), Some(count / 2));
            buffers.put(count / 2, &[]);
            let used = memory.words()[BUFFERS_USED].load(Ordering::Relaxed);
            assert_eq!(used, count as u64);
            assert_eq!(buffers.get(0, layout.buffer_bytes() + 1), None);
        }
    }
}
