//! Fibers: handlers of an event loop that can be paused anywhere, on pooled stacks.
//!
//! A C function deep inside a TLS library pauses without knowing it: the frames between it and the
//! event loop stay on the fiber's stack until the event loop resumes it.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use corosensei::stack::valgrind::ValgrindStackRegistration;
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::pause::{JobToken, Notification, Pause};
use crate::request::Reason;

/// Inaccessible bytes below each stack. Wider than any single frame of OpenSSL or PCRE, so that a
/// frame cannot step over it.
const GUARD_BYTES: usize = 64 * 1024;

/// The smallest stack that is accepted. A handshake takes 8 to 14 KiB, a regular expression that
/// PCRE compiled just in time 35 KiB.
pub const LEAST_STACK_BYTES: usize = 64 * 1024;

/// The fibers of one event loop.
pub struct Fibers {
    free: Vec<FiberStack>,
    stack_bytes: usize,
    limit: usize,
    live: usize,
}

/// A fiber that is paused. It must be resumed until it finishes: frames of C code cannot be
/// unwound, so a fiber that is dropped while paused leaves its stack mapped forever.
#[must_use = "a paused fiber has to be resumed"]
pub struct Fiber {
    coroutine: ManuallyDrop<Coroutine<(), (), (), FiberStack>>,
    running: Running,
}

/// The state of a fiber after it has been started or resumed.
#[derive(Debug)]
pub enum Progress {
    /// The fiber has paused.
    Paused(Fiber),
    /// The fiber has returned; its stack is back in the pool.
    Finished,
}

/// The reason why no fiber could be started. The handler has not been run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfFibers {
    /// The configured limit of live fibers is reached.
    Limit,
    /// The system has no memory for another stack.
    Memory,
}

impl Fibers {
    /// Makes an empty pool for at most `limit` fibers, each with a stack of `stack_bytes`, rounded
    /// up to whole pages and to [`LEAST_STACK_BYTES`]. Stacks are mapped when first needed and then
    /// reused.
    pub fn new(limit: usize, stack_bytes: usize) -> Self {
        let page = page_bytes();
        let stack_bytes = stack_bytes.max(LEAST_STACK_BYTES).next_multiple_of(page);
        Self {
            free: Vec::new(),
            stack_bytes,
            limit,
            live: 0,
        }
    }

    /// Returns the number of fibers that are running or paused.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of stacks that are mapped, in use or pooled.
    pub fn stacks(&self) -> usize {
        self.live + self.free.len()
    }

    /// Runs `body` on a fiber until it returns or pauses. While it runs, [`current`] names it as
    /// `job`.
    ///
    /// # Errors
    /// If there is no stack to run it on.
    pub fn start(
        &mut self,
        job: JobToken,
        body: impl FnOnce() + 'static,
    ) -> Result<Progress, OutOfFibers> {
        let stack = self.stack()?;
        self.live += 1;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            CURRENT.set(Some(Running {
                yielder: NonNull::from(yielder),
                job,
            }));
            body();
        });
        // The yielder's address is only known inside; it is recorded when the fiber first pauses.
        let running = Running {
            yielder: NonNull::dangling(),
            job,
        };
        let fiber = Fiber {
            coroutine: ManuallyDrop::new(coroutine),
            running,
        };
        Ok(self.switch_to(fiber, None))
    }

    /// Resumes a paused fiber until it returns or pauses again.
    pub fn resume(&mut self, fiber: Fiber) -> Progress {
        let running = fiber.running;
        self.switch_to(fiber, Some(running))
    }

    fn switch_to(&mut self, mut fiber: Fiber, running: Option<Running>) -> Progress {
        let outer = CURRENT.replace(running);
        let result = fiber.coroutine.resume(());
        let inner = CURRENT.replace(outer);
        match result {
            CoroutineResult::Yield(()) => {
                fiber.running = inner.expect("only the running fiber can pause");
                Progress::Paused(fiber)
            }
            CoroutineResult::Return(()) => {
                self.live -= 1;
                self.free
                    .push(ManuallyDrop::into_inner(fiber.coroutine).into_stack());
                Progress::Finished
            }
        }
    }

    fn stack(&mut self) -> Result<FiberStack, OutOfFibers> {
        if self.live >= self.limit {
            return Err(OutOfFibers::Limit);
        }
        match self.free.pop() {
            Some(stack) => Ok(stack),
            None => FiberStack::map(self.stack_bytes).ok_or(OutOfFibers::Memory),
        }
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fiber({:?})", self.running.job)
    }
}

/// Returns the fiber that is running on this thread, if any.
pub fn current() -> Option<CurrentFiber> {
    CURRENT.get().map(CurrentFiber)
}

/// Rules of an event loop for its fibers.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Asks if a fiber may pause where it is; see [`Pause::admits`].
    pub admits: fn(JobToken) -> Result<(), Reason>,
    /// The number of concurrent jobs; see [`Pause::concurrency`].
    pub concurrency: fn() -> usize,
    /// The way in which the loop learns that a job can go on; see [`Pause::notification`].
    pub notification: fn(JobToken) -> Notification,
}

/// Sets the rules for the fibers of this thread. Without rules, all may pause at any time.
pub fn set_rules(rules: Rules) {
    RULES.set(Some(rules));
}

/// The running fiber, which can pause itself.
#[derive(Clone, Copy)]
pub struct CurrentFiber(Running);

impl CurrentFiber {
    /// Returns the name under which it was started.
    pub fn job(&self) -> JobToken {
        self.0.job
    }
}

impl Pause for CurrentFiber {
    fn admits(&self) -> Result<(), Reason> {
        RULES
            .get()
            .map_or(Ok(()), |rules| (rules.admits)(self.0.job))
    }

    fn concurrency(&self) -> usize {
        RULES
            .get()
            .map_or(usize::MAX, |rules| (rules.concurrency)())
    }

    fn notification(&self) -> Notification {
        let job = self.0.job;
        RULES.get().map_or(Notification::ReadyQueue(job), |rules| {
            (rules.notification)(job)
        })
    }

    fn pause(&self) -> bool {
        assert!(
            CURRENT
                .get()
                .is_some_and(|running| running.yielder == self.0.yielder),
            "only the running fiber can pause"
        );
        let errno = errno();
        // SAFETY: the yielder lives in the coroutine's first frame, which exists as long as the
        // fiber has not finished; the assertion above shows that this is the running fiber.
        unsafe { self.0.yielder.as_ref() }.suspend(());
        set_errno(errno);
        true
    }
}

#[derive(Clone, Copy)]
struct Running {
    yielder: NonNull<Yielder<(), ()>>,
    job: JobToken,
}

thread_local! {
    static CURRENT: Cell<Option<Running>> = const { Cell::new(None) };
    static RULES: Cell<Option<Rules>> = const { Cell::new(None) };
}

/// A mapped stack with an inaccessible guard below it.
pub(crate) struct FiberStack {
    mapping: NonNull<u8>,
    bytes: usize,
    _valgrind: ValgrindStackRegistration,
}

impl FiberStack {
    /// `bytes` must be a multiple of the page size. `None` if the system has no memory.
    pub(crate) fn map(bytes: usize) -> Option<Self> {
        let total = bytes + GUARD_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                total,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the first GUARD_BYTES of the mapping just made, which nothing uses yet.
        if unsafe { libc::mprotect(address, GUARD_BYTES, libc::PROT_NONE) } != 0 {
            // SAFETY: the mapping just made, not used by anything.
            unsafe { libc::munmap(address, total) };
            return None;
        }
        let mapping = NonNull::new(address.cast::<u8>())?;
        // SAFETY: within the mapping of GUARD_BYTES + bytes.
        let lowest = unsafe { mapping.as_ptr().add(GUARD_BYTES) };
        Some(Self {
            mapping,
            bytes,
            _valgrind: ValgrindStackRegistration::new(lowest, bytes),
        })
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, whole; a stack is only dropped when no coroutine
        // owns it, so nothing points into it.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), GUARD_BYTES + self.bytes) };
    }
}

// SAFETY: base and limit are the ends of one mapping that lives as long as the value, page-aligned
// (hence aligned to STACK_ALIGNMENT), at least LEAST_STACK_BYTES long, with a guard at its low end
// that `limit` includes.
unsafe impl Stack for FiberStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.mapping.as_ptr() as usize + GUARD_BYTES + self.bytes)
            .expect("a mapping is never at address zero")
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.mapping.as_ptr() as usize)
            .expect("a mapping is never at address zero")
    }
}

fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

// Pausing must not change errno under the C code that paused: OpenSSL reads it after a call.
fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is valid as long as the thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn paused(progress: Progress) -> Fiber {
        match progress {
            Progress::Paused(fiber) => fiber,
            Progress::Finished => panic!("the fiber has finished"),
        }
    }

    #[test]
    fn fibers_interleave_and_finish() {
        let mut fibers = Fibers::new(2, LEAST_STACK_BYTES);
        let trace = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut waiting = Vec::new();
        for job in 0..2 {
            let trace = trace.clone();
            let progress = fibers.start(JobToken(job), move || {
                for step in 0..2 {
                    let fiber = current().expect("inside a fiber");
                    trace.borrow_mut().push((fiber.job().0, step));
                    assert!(fiber.pause());
                }
            });
            waiting.push(paused(progress.expect("a stack")));
        }
        assert!(current().is_none(), "the event loop is not a fiber");
        assert_eq!(
            fibers.start(JobToken(9), || ()).err(),
            Some(OutOfFibers::Limit)
        );
        for fiber in waiting {
            let fiber = paused(fibers.resume(fiber));
            assert!(matches!(fibers.resume(fiber), Progress::Finished));
        }
        assert_eq!(*trace.borrow(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!((fibers.live(), fibers.stacks()), (0, 2));
    }

    #[test]
    fn stacks_are_reused() {
        let mut fibers = Fibers::new(1, LEAST_STACK_BYTES);
        for _ in 0..1000 {
            assert!(matches!(
                fibers.start(JobToken(0), || ()),
                Ok(Progress::Finished)
            ));
        }
        assert_eq!(fibers.stacks(), 1);
    }

    #[test]
    fn errno_survives_a_pause() {
        let mut fibers = Fibers::new(1, LEAST_STACK_BYTES);
        let progress = fibers.start(JobToken(0), || {
            set_errno(libc::EAGAIN);
            current().expect("inside a fiber").pause();
            assert_eq!(errno(), libc::EAGAIN);
        });
        let fiber = paused(progress.expect("a stack"));
        set_errno(libc::EBADF);
        assert!(matches!(fibers.resume(fiber), Progress::Finished));
    }

    #[test]
    fn an_overflow_hits_the_guard() {
        // SAFETY: the child only runs code on its own stack and ends with a signal or _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The default handler of the test runner would report the fault on its own stack.
            // SAFETY: resets a signal disposition in the child.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            let mut fibers = Fibers::new(1, LEAST_STACK_BYTES);
            let _ = fibers.start(JobToken(0), || {
                std::hint::black_box(recurse(std::hint::black_box(1 << 20)));
            });
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
    }

    fn recurse(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 64]);
        if depth == 0 {
            0
        } else {
            recurse(depth - 1) + frame[(depth % 64) as usize]
        }
    }
}
