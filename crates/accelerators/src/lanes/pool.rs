//! Secrets that wait to be used, each once, in the process that made them.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use slipstream_keys::pages::Pages;
use zeroize::Zeroize;

/// A queue of at most `capacity` values, the oldest first, with the times at which they were made.
/// All of it, the number of values included, lies in memory that is zero in a child process: there
/// it is an empty pool.
///
/// Times are those of one clock of the caller, which does not go back.
pub(super) struct Pool<T> {
    pages: Pages,
    capacity: usize,
    values: PhantomData<T>,
}

/// The values in a pool: `count` slots from number `first` on, round the end.
#[derive(Clone, Copy)]
struct Filled {
    first: usize,
    count: usize,
}

struct Slot<T> {
    made: Duration,
    value: MaybeUninit<T>,
}

impl<T> Pool<T> {
    /// An empty pool.
    ///
    /// # Errors
    /// If the system has no memory that is wiped on fork.
    ///
    /// # Panics
    /// If `T` is aligned to more than a page, or if `capacity` is zero.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        assert!(align_of::<T>() <= 4096, "pages are aligned to 4096 bytes");
        assert!(capacity > 0, "a pool without room");
        let bytes = Self::SLOTS_AT + capacity * size_of::<Slot<T>>();
        Ok(Self {
            pages: Pages::new(bytes)?,
            capacity,
            values: PhantomData,
        })
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.filled().count
    }

    /// The number of values that there is still room for.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.len()
    }

    /// The time at which the oldest value was made.
    pub(super) fn oldest(&mut self) -> Option<Duration> {
        let Filled { first, count } = self.filled();
        // SAFETY: bytes of any slot are a time, and this one was written by `put`.
        (count > 0).then(|| unsafe { self.slot(first).assume_init_ref() }.made)
    }

    /// Adds a value that was made at `made`; where there is no room it is dropped.
    pub(super) fn put(&mut self, value: T, made: Duration) {
        let Filled { first, count } = self.filled();
        if count < self.capacity {
            let value = MaybeUninit::new(value);
            let place = (first + count) % self.capacity;
            self.slot(place).write(Slot { made, value });
            self.set_filled(Filled {
                first,
                count: count + 1,
            });
        }
    }

    /// Takes the oldest value out. Nothing of it stays behind.
    pub(super) fn take(&mut self) -> Option<T> {
        self.remove_first(|value| {
            // SAFETY: the value was written by `put`, and is not used again.
            unsafe { value.assume_init_read() }
        })
    }

    /// Drops and wipes values that were made before `time`.
    pub(super) fn discard_before(&mut self, time: Duration) {
        while self.oldest().is_some_and(|made| made < time) {
            self.discard_first();
        }
    }

    /// Drops and wipes all values.
    pub(super) fn discard_all(&mut self) {
        while self.len() > 0 {
            self.discard_first();
        }
    }

    fn discard_first(&mut self) {
        // In its place, so that there is no copy.
        self.remove_first(|value| {
            // SAFETY: the value was written by `put`, and is not used again.
            unsafe { value.assume_init_drop() }
        });
    }

    fn remove_first<R>(&mut self, remove: impl FnOnce(&mut MaybeUninit<T>) -> R) -> Option<R> {
        let Filled { first, count } = self.filled();
        let count = count.checked_sub(1)?;
        // First, so that the value is never found again, even after a panic.
        self.set_filled(Filled {
            first: (first + 1) % self.capacity,
            count,
        });
        let slot = self.slot(first);
        // SAFETY: a slot was written here by `put`, and was not taken, by the number of values.
        let removed = remove(&mut unsafe { slot.assume_init_mut() }.value);
        std::slice::from_mut(slot).zeroize();
        Some(removed)
    }

    /// Behind the numbers of values, as slots are aligned.
    const SLOTS_AT: usize = size_of::<Filled>().next_multiple_of(align_of::<Slot<T>>());

    fn filled(&self) -> Filled {
        // SAFETY: numbers at the start of the pages, aligned to them. Volatile, since the kernel
        // changes them on fork.
        unsafe { self.pages.base().cast::<Filled>().read_volatile() }
    }

    fn set_filled(&mut self, filled: Filled) {
        // SAFETY: as in `filled`; `self` is borrowed mutably.
        unsafe { self.pages.base().cast::<Filled>().write_volatile(filled) };
    }

    fn slot(&mut self, index: usize) -> &mut MaybeUninit<Slot<T>> {
        assert!(index < self.capacity);
        // SAFETY: within the pages by their size, aligned as a slot, borrowed as `self` is; bytes
        // of any value are a `MaybeUninit`.
        unsafe {
            let slots = self.pages.base().byte_add(Self::SLOTS_AT);
            slots.cast::<MaybeUninit<Slot<T>>>().add(index).as_mut()
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        self.discard_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstream_keys::fork_test::in_child;

    const fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// The bytes of a slot.
    fn bytes<T>(pool: &mut Pool<T>, index: usize) -> Vec<u8> {
        let slot = pool.slot(index).as_ptr();
        // SAFETY: as many bytes as a slot has, all of which have been written: zeroed pages, and
        // values of the tests, which have no padding.
        unsafe { std::slice::from_raw_parts(slot.cast(), size_of::<Slot<T>>()) }.to_vec()
    }

    #[test]
    fn each_value_is_given_once_and_leaves_nothing_behind() {
        let mut pool = Pool::new(3).expect("pages");
        for value in 1..=4_u64 {
            pool.put(value, second(value));
        }
        assert_eq!((pool.len(), pool.room()), (3, 0));
        assert_eq!(
            [pool.take(), pool.take(), pool.take(), pool.take()],
            [Some(1), Some(2), Some(3), None]
        );
        for index in 0..3 {
            assert!(bytes(&mut pool, index).iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_oldest_value_is_given_first_whatever_has_been_taken_before() {
        let mut pool = Pool::new(3).expect("pages");
        let mut next = 0;
        for value in 0..20_u64 {
            pool.put(value, second(value));
            if value % 3 != 0 {
                assert_eq!(pool.oldest(), Some(second(next)));
                assert_eq!(pool.take(), Some(next));
                next += 1;
            }
            if pool.room() == 0 {
                assert_eq!(pool.take(), Some(next));
                next += 1;
            }
        }
    }

    #[test]
    fn what_is_too_old_is_wiped_and_not_given() {
        let mut pool = Pool::new(4).expect("pages");
        for value in 1..=4_u64 {
            pool.put(value, second(value));
        }
        pool.discard_before(second(3));
        assert_eq!((pool.len(), pool.oldest()), (2, Some(second(3))));
        for index in 0..2 {
            assert!(bytes(&mut pool, index).iter().all(|byte| *byte == 0));
        }
        assert_eq!(pool.take(), Some(3));
        pool.discard_all();
        assert_eq!((pool.len(), pool.oldest()), (0, None));
        assert!(bytes(&mut pool, 3).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_child_finds_nothing_and_its_parent_everything() {
        let mut pool = Pool::new(2).expect("pages");
        pool.put([7_u64; 2], second(7));
        let seen = in_child(|| {
            let is_empty = pool.len() == 0 && bytes(&mut pool, 0).iter().all(|byte| *byte == 0);
            u8::from(is_empty && pool.take().is_none())
        });
        assert_eq!(seen, 1);
        assert_eq!(pool.take(), Some([7; 2]));
    }

    #[test]
    fn what_is_left_is_dropped() {
        let value = std::rc::Rc::new(());
        let mut pool = Pool::new(4).expect("pages");
        pool.put(value.clone(), second(0));
        pool.put(value.clone(), second(0));
        drop(pool);
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }
}
