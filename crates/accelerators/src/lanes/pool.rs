//! Secrets that wait to be used, each once, in the process that made them.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use slipstream_keys::pages::Pages;
use zeroize::Zeroize;

/// A stack of at most `capacity` values. All of it, the number of values included, lies in memory
/// that is zero in a child process: there it is an empty pool.
pub(super) struct Pool<T> {
    pages: Pages,
    capacity: usize,
    values: PhantomData<T>,
}

impl<T> Pool<T> {
    /// An empty pool.
    ///
    /// # Errors
    /// If the system has no memory that is wiped on fork.
    ///
    /// # Panics
    /// If `T` is aligned to more than a page.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        assert!(align_of::<T>() <= 4096, "pages are aligned to 4096 bytes");
        let bytes = Self::VALUES_AT + capacity * size_of::<T>();
        Ok(Self {
            pages: Pages::new(bytes)?,
            capacity,
            values: PhantomData,
        })
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        // SAFETY: a number at the start of the pages, aligned to them. Volatile, since the kernel
        // changes it on fork.
        unsafe { self.pages.base().cast::<usize>().read_volatile() }
    }

    /// The number of values that there is still room for.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.len()
    }

    /// Adds a value; where there is no room it is dropped.
    pub(super) fn put(&mut self, value: T) {
        let len = self.len();
        if len < self.capacity {
            self.slot(len).write(value);
            self.set_len(len + 1);
        }
    }

    /// Takes a value out. Nothing of it stays behind.
    pub(super) fn take(&mut self) -> Option<T> {
        let last = self.len().checked_sub(1)?;
        // First, so that the value is never found again, even after a panic.
        self.set_len(last);
        let slot = self.slot(last);
        // SAFETY: a value was written here by `put`, and was not taken, by the number of values.
        let value = unsafe { slot.assume_init_read() };
        std::slice::from_mut(slot).zeroize();
        Some(value)
    }

    /// Behind the number of values, as `T` is aligned.
    const VALUES_AT: usize = size_of::<usize>().next_multiple_of(align_of::<T>());

    fn set_len(&mut self, len: usize) {
        // SAFETY: as in `len`; `self` is borrowed mutably.
        unsafe { self.pages.base().cast::<usize>().write_volatile(len) };
    }

    fn slot(&mut self, index: usize) -> &mut MaybeUninit<T> {
        assert!(index < self.capacity);
        // SAFETY: within the pages by their size, aligned as `T`, borrowed as `self` is; bytes of
        // any value are a `MaybeUninit`.
        unsafe {
            let values = self.pages.base().byte_add(Self::VALUES_AT);
            values.cast::<MaybeUninit<T>>().add(index).as_mut()
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstream_keys::fork_test::in_child;

    #[test]
    fn each_value_is_given_once_and_leaves_nothing_behind() {
        let mut pool = Pool::new(3).expect("pages");
        for value in 1..=4_u32 {
            pool.put(value);
        }
        assert_eq!((pool.len(), pool.room()), (3, 0));
        assert_eq!(
            [pool.take(), pool.take(), pool.take(), pool.take()],
            [Some(3), Some(2), Some(1), None]
        );
        for index in 0..3 {
            // SAFETY: plain numbers in zeroed pages.
            assert_eq!(unsafe { pool.slot(index).assume_init_read() }, 0);
        }
    }

    #[test]
    fn a_child_finds_nothing_and_its_parent_everything() {
        let mut pool = Pool::new(2).expect("pages");
        pool.put([7_u8; 16]);
        let seen = in_child(|| {
            let slot = pool.slot(0).as_ptr();
            // SAFETY: sixteen bytes, which the kernel has zeroed.
            let bytes = unsafe { slot.read() };
            u8::from(pool.len() == 0 && bytes == [0; 16] && pool.take().is_none())
        });
        assert_eq!(seen, 1);
        assert_eq!(pool.take(), Some([7; 16]));
    }

    #[test]
    fn what_is_left_is_dropped() {
        let value = std::rc::Rc::new(());
        let mut pool = Pool::new(4).expect("pages");
        pool.put(value.clone());
        pool.put(value.clone());
        drop(pool);
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }
}
