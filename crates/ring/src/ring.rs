//! One direction: a ring of slots with one producer and one consumer.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::Words;

/// The places of a ring, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of slots, a power of two.
    pub slots: usize,
    /// The length of a slot.
    pub slot_words: usize,
    /// The place of the first slot.
    pub first: usize,
    /// The place of the count of slots that have been filled.
    pub tail: usize,
    /// The place of the count of slots that have been emptied.
    pub head: usize,
}

impl Geometry {
    /// The place behind the last slot.
    pub const fn end(&self) -> usize {
        self.first + self.slots * self.slot_words
    }

    fn slot(&self, count: u64) -> std::ops::Range<usize> {
        let index = (count as usize) & (self.slots - 1);
        let start = self.first + index * self.slot_words;
        start..start + self.slot_words
    }

    fn check(&self, words: usize) {
        assert!(
            self.slots.is_power_of_two(),
            "{} slots: not a power of two",
            self.slots
        );
        assert!(
            self.end() <= words && self.tail < words && self.head < words,
            "{self:?} does not fit into {words} words"
        );
    }
}

/// The other side has written an impossible count. From then on it cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side of the ring has written an impossible count")
    }
}

impl std::error::Error for Corrupt {}

/// The side that fills slots.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    geometry: Geometry,
    /// The number of slots that this side has filled. The copy in memory is only written.
    tail: u64,
    /// The number of slots that the other side is known to have emptied.
    head: u64,
}

impl<M: Words> Producer<M> {
    /// Makes the producer of a new ring, whose memory is all zero.
    ///
    /// # Panics
    /// If `geometry` does not fit into `memory`.
    pub fn new(memory: M, geometry: Geometry) -> Self {
        geometry.check(memory.words().len());
        Self {
            memory,
            geometry,
            tail: 0,
            head: 0,
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.geometry.slots
    }

    /// Returns the number of slots that can be filled.
    ///
    /// # Errors
    /// If the other side claims to have emptied slots that have not been filled.
    pub fn room(&mut self) -> Result<usize, Corrupt> {
        // Pairs with the store of `Consumer::pop`: the slot has been read.
        let head = self.memory.words()[self.geometry.head].load(Ordering::Acquire);
        let is_possible = head >= self.head && head <= self.tail;
        if !is_possible {
            return Err(Corrupt);
        }
        self.head = head;
        Ok(self.geometry.slots - (self.tail - head) as usize)
    }

    /// Fills a slot with `content`; the rest of the slot may be stale. Returns false if no slot is
    /// free.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    ///
    /// # Panics
    /// If `content` is longer than a slot.
    pub fn push(&mut self, content: &[u64]) -> Result<bool, Corrupt> {
        let is_full = self.tail - self.head == self.geometry.slots as u64;
        if is_full && self.room()? == 0 {
            return Ok(false);
        }
        let words = self.memory.words();
        let slot = &words[self.geometry.slot(self.tail)];
        for (word, value) in slot[..content.len()].iter().zip(content) {
            word.store(*value, Ordering::Relaxed);
        }
        self.tail += 1;
        words[self.geometry.tail].store(self.tail, Ordering::Release);
        Ok(true)
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

/// The side that empties slots.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    geometry: Geometry,
    /// The number of slots that this side has emptied. The copy in memory is only written.
    head: u64,
    /// The number of slots that the other side is known to have filled.
    tail: u64,
}

impl<M: Words> Consumer<M> {
    /// Makes the consumer of a new ring, whose memory is all zero.
    ///
    /// # Panics
    /// If `geometry` does not fit into `memory`.
    pub fn new(memory: M, geometry: Geometry) -> Self {
        geometry.check(memory.words().len());
        Self {
            memory,
            geometry,
            head: 0,
            tail: 0,
        }
    }

    /// Returns the number of slots that can be emptied.
    ///
    /// # Errors
    /// If the other side claims to have filled more slots than the ring has, or fewer than before.
    pub fn waiting(&mut self) -> Result<usize, Corrupt> {
        // Pairs with the store of `Producer::push`: the slot has been written.
        let tail = self.memory.words()[self.geometry.tail].load(Ordering::Acquire);
        let is_possible = tail >= self.tail && tail - self.head <= self.geometry.slots as u64;
        if !is_possible {
            return Err(Corrupt);
        }
        self.tail = tail;
        Ok((tail - self.head) as usize)
    }

    /// Copies the oldest slot to `content`, wipes it, since it may hold a secret, and gives it
    /// back; returns false if there is none.
    ///
    /// # Errors
    /// As [`waiting`](Self::waiting).
    ///
    /// # Panics
    /// If `content` is not as long as a slot.
    pub fn pop(&mut self, content: &mut [u64]) -> Result<bool, Corrupt> {
        assert_eq!(content.len(), self.geometry.slot_words, "length of a slot");
        if self.tail == self.head && self.waiting()? == 0 {
            return Ok(false);
        }
        let words = self.memory.words();
        for (word, value) in words[self.geometry.slot(self.head)].iter().zip(content) {
            *value = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
        }
        self.head += 1;
        words[self.geometry.head].store(self.head, Ordering::Release);
        Ok(true)
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Word;

    const GEOMETRY: Geometry = Geometry {
        slots: 4,
        slot_words: 3,
        first: 2,
        tail: 0,
        head: 1,
    };

    struct Plain(Vec<Word>);

    impl Words for Plain {
        fn words(&self) -> &[Word] {
            &self.0
        }
    }

    fn ring() -> (Arc<Plain>, Producer<Arc<Plain>>, Consumer<Arc<Plain>>) {
        let memory = Arc::new(Plain((0..GEOMETRY.end()).map(|_| Word::new(0)).collect()));
        let producer = Producer::new(memory.clone(), GEOMETRY);
        let consumer = Consumer::new(memory.clone(), GEOMETRY);
        (memory, producer, consumer)
    }

    #[test]
    fn slots_come_out_in_order_and_wiped() {
        let (memory, mut producer, mut consumer) = ring();
        let mut content = [0; 3];
        for round in 0..10 {
            for value in 0..4 {
                assert_eq!(producer.push(&[round, value, 7]), Ok(true));
            }
            assert_eq!(producer.push(&[9, 9, 9]), Ok(false), "full");
            assert_eq!((producer.room(), consumer.waiting()), (Ok(0), Ok(4)));
            for value in 0..4 {
                assert_eq!(consumer.pop(&mut content), Ok(true));
                assert_eq!(content, [round, value, 7]);
            }
            assert_eq!(consumer.pop(&mut content), Ok(false), "empty");
            let slots = &memory.0[GEOMETRY.first..];
            assert!(slots.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        for tail in [5, u64::MAX, 1 << 32] {
            let (memory, _, mut consumer) = ring();
            memory.0[GEOMETRY.tail].store(tail, Ordering::Relaxed);
            assert_eq!(consumer.waiting(), Err(Corrupt), "{tail}");
            assert_eq!(consumer.pop(&mut [0; 3]), Err(Corrupt));
        }
        for head in [2, u64::MAX] {
            let (memory, mut producer, _) = ring();
            assert_eq!(producer.push(&[1]), Ok(true));
            memory.0[GEOMETRY.head].store(head, Ordering::Relaxed);
            assert_eq!(producer.room(), Err(Corrupt), "{head}");
        }
    }

    #[test]
    fn counts_never_go_back() {
        let (memory, mut producer, mut consumer) = ring();
        for _ in 0..3 {
            producer.push(&[1]).expect("a sane ring");
        }
        assert_eq!(consumer.waiting(), Ok(3));
        memory.0[GEOMETRY.tail].store(2, Ordering::Relaxed);
        assert_eq!(consumer.waiting(), Err(Corrupt));
        memory.0[GEOMETRY.head].store(2, Ordering::Relaxed);
        assert_eq!(producer.room(), Ok(3));
        memory.0[GEOMETRY.head].store(1, Ordering::Relaxed);
        assert_eq!(producer.room(), Err(Corrupt));
    }
}
