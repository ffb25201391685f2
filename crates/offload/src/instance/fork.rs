//! Detection of a fork without a system call.

use std::io;

use slipstream_keys::pages::Pages;

/// A page that the kernel wipes in a child process.
pub(super) struct Mark(Pages);

const SAME_PROCESS: u8 = 1;

impl Mark {
    pub(super) fn new() -> io::Result<Self> {
        let pages = Pages::new(1)?;
        // SAFETY: one byte, writable, that only `pages` refers to.
        unsafe { pages.base().as_ptr().write_volatile(SAME_PROCESS) };
        Ok(Self(pages))
    }

    pub(super) fn is_forked(&self) -> bool {
        // SAFETY: the page stays mapped and readable as long as `self`. Volatile, since the kernel
        // changes it.
        let mark = unsafe { self.0.base().as_ptr().read_volatile() };
        mark != SAME_PROCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstream_keys::fork_test::in_child;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let mark = Mark::new().expect("a page");
        assert!(!mark.is_forked());
        assert_eq!(in_child(|| u8::from(mark.is_forked())), 1);
        assert!(!mark.is_forked());
    }
}
