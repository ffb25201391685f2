//! Operations of jobs. A job is a fiber or an asynchronous job of OpenSSL; its operations may be
//! offloaded. The operations of all other callers are left to software, or, if the instance serves
//! them, computed at once where that is cheaper.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use slipstream_accelerators::lanes::{Backend, Lanes, Options};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::fiber::CurrentFiber;
use slipstream_offload::instance::Instance;
use slipstream_offload::pause::{Never, Outside};
pub(crate) use slipstream_offload::refuse;
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{
    Answer, Kind, Notification, Operation, Output, Pause, Reason, Route, fiber, instance,
};

use crate::counters::{OFFLOADED_OPERATIONS, PRECOMPUTED_KEYS, PRECOMPUTED_NONCES};
use crate::libcrypto::{AsyncWaitCtx, Libcrypto};
use crate::loaded::LoadedRef;

/// The number of requests that an instance made here has room for.
const REQUESTS: usize = 4096;

/// The number of key pairs in each pool of an instance made here.
const KEY_PAIRS: usize = 32;

/// The size of the stack on which batches are computed if the stack of the caller is too small. An
/// asynchronous job has 32 KiB without a guard page, and a handshake takes up to half of that.
const BATCH_STACK_BYTES: usize = 128 * 1024;

/// Returns true if the caller is a job whose operations may be offloaded.
pub(crate) fn participates(loaded: LoadedRef) -> bool {
    let not_admitted = |job: Job| job.pauser().admits() == Err(Reason::NotAdmitted);
    Job::current(loaded).is_some_and(|job| !not_admitted(job))
}

/// Decides how the caller's operation of `kind` is computed. To be called once for each operation,
/// before its operands are prepared.
///
/// # Errors
/// If the operation is left to software: the reason, which [`refuse`] counts.
pub(crate) fn admit(loaded: LoadedRef, kind: Kind) -> Result<Route, Reason> {
    let job = Job::current(loaded).ok_or(Reason::NotOffered)?;
    if let Job::OpenSsl(_) = job {
        ensure_instance(loaded).ok_or(Reason::NotOffered)?;
    }
    slipstream_offload::admit(kind, job.pauser())
}

/// Computes `operation` on the route to which it was [admitted](admit). `None` if software has to
/// compute it.
pub(crate) fn compute(loaded: LoadedRef, route: Route, operation: Operation) -> Option<Output> {
    let kind = operation.kind();
    let output = match route {
        Route::AtOnce => {
            // On a large stack: an empty pool is filled with a batch.
            on_batch_stack(|| slipstream_offload::compute_at_once(&operation)).flatten()?
        }
        Route::Pause => match slipstream_offload::run(operation, Job::current(loaded)?.pauser()) {
            Answer::Computed(output) => output,
            Answer::Software(_) => return None,
        },
    };
    match (route, kind) {
        (Route::AtOnce, Kind::KeyPair(_)) => PRECOMPUTED_KEYS.add_one(),
        (Route::AtOnce, Kind::Ecdsa(_)) => PRECOMPUTED_NONCES.add_one(),
        (Route::AtOnce, _) => {}
        (Route::Pause, _) => OFFLOADED_OPERATIONS.add_one(),
    }
    (output.as_slice().len() == kind.output_bytes()).then_some(output)
}

/// Computes `operation` at the accelerator that holds its key. `None` if that does not answer.
///
/// Software does not have the key. So a caller that must not yield blocks until the answer
/// arrives, and so does an asynchronous job, which its server could resume before the accelerator
/// has answered.
pub(crate) fn compute_held(operation: Operation) -> Option<Output> {
    let kind = operation.kind();
    let answer = match fiber::current().filter(|fiber| fiber.admits().is_ok()) {
        Some(fiber) => slipstream_offload::run(operation, &fiber),
        // On a large stack: while it waits, lanes may compute batches of other callers.
        None => on_batch_stack(|| slipstream_offload::run(operation, &Never))?,
    };
    match answer {
        Answer::Computed(output) if output.as_slice().len() == kind.output_bytes() => Some(output),
        Answer::Computed(_) | Answer::Software(_) => None,
    }
}

/// The running job.
enum Job {
    Fiber(CurrentFiber),
    OpenSsl(AsyncJob),
    /// No job, in the thread of an instance that serves such callers.
    Outside,
}

impl Job {
    fn current(loaded: LoadedRef) -> Option<Self> {
        match fiber::current() {
            Some(fiber) => Some(Self::Fiber(fiber)),
            None => {
                AsyncJob::current(loaded).map_or_else(Self::outside, |job| Some(Self::OpenSsl(job)))
            }
        }
    }

    fn outside() -> Option<Self> {
        let is_served = instance::with(|instance| instance.serves_others());
        (is_served == Some(true)).then_some(Self::Outside)
    }

    fn pauser(&self) -> &dyn Pause {
        match self {
            Self::Fiber(fiber) => fiber,
            Self::OpenSsl(job) => job,
            Self::Outside => &Outside,
        }
    }
}

/// Makes this thread's instance if it has none. `None` without lanes.
fn ensure_instance(loaded: LoadedRef) -> Option<()> {
    if instance::with(|_| ()).is_some() {
        return Some(());
    }
    let backend = loaded.backend()?;
    // On a large stack: the first measurement computes batches, and an instance is large itself,
    // with a histogram for each kind of operation.
    on_batch_stack(|| make_instance(loaded, backend))?
}

fn make_instance(loaded: LoadedRef, backend: Backend) -> Option<()> {
    let measured = loaded.costs(backend);
    let scheduler = Scheduler {
        flush: loaded.flush(),
        software: measured.software,
    };
    let lanes = Lanes::new(Options {
        backend,
        costs: measured.lanes,
        scheduler: scheduler.clone(),
        has_batches: true,
        key_pairs: KEY_PAIRS,
        nonces: 0,
    });
    instance::install(Instance::new(vec![Box::new(lanes)], scheduler, REQUESTS).ok()?);
    Some(())
}

/// An `ASYNC_JOB` of OpenSSL. Servers with an asynchronous mode of their own run handshakes in such
/// jobs.
struct AsyncJob {
    loaded: LoadedRef,
    wait_context: NonNull<AsyncWaitCtx>,
}

impl AsyncJob {
    fn current(loaded: LoadedRef) -> Option<Self> {
        let libcrypto = &loaded.default.libcrypto;
        // SAFETY: no preconditions.
        let job = NonNull::new(unsafe { (libcrypto.async_current_job)() })?;
        // SAFETY: the job that is running.
        let wait_context = NonNull::new(unsafe { (libcrypto.async_wait_ctx)(job.as_ptr()) })?;
        Some(Self {
            loaded,
            wait_context,
        })
    }
}

impl Pause for AsyncJob {
    fn notification(&self) -> Notification {
        Notification::ByPauser
    }

    fn pause(&self) -> bool {
        let libcrypto = &self.loaded.default.libcrypto;
        let round = ROUNDS.get();
        let event = Event::of(libcrypto, self.wait_context);
        let paused = event.is_some_and(|event| {
            // Raised before the pause: the server's event loop first serves its other connections,
            // whose operations join this one, and then resumes the job.
            event.raise();
            // SAFETY: a job is running.
            let paused = unsafe { (libcrypto.async_pause_job)() } == 1;
            event.clear();
            paused
        });
        // If the round has changed, a job that was resumed earlier has computed all operations that
        // were waiting. Later operations wait, so that they can be computed in a larger batch.
        if ROUNDS.get() == round {
            compute_waiting();
        }
        paused
    }
}

/// Computes all operations that wait on this thread. Without memory for a stack nothing is
/// computed, and the operations are left to software.
fn compute_waiting() {
    ROUNDS.set(ROUNDS.get() + 1);
    on_batch_stack(|| {
        while instance::with(|instance| instance.poll(Moment::Idle))
            .is_some_and(|answers| answers > 0)
        {}
    });
}

/// Calls `batch` on a stack that is large enough for a batch. `None` if there is no memory for one.
///
/// `batch` must not pause, and must not call this function.
pub(crate) fn on_batch_stack<T>(batch: impl FnOnce() -> T) -> Option<T> {
    STACK.with_borrow_mut(|stack| {
        if stack.is_none() {
            *stack = DefaultStack::new(BATCH_STACK_BYTES).ok();
        }
        stack
            .as_mut()
            .map(|stack| corosensei::on_stack(stack, batch))
    })
}

thread_local! {
    /// The stack of [`on_batch_stack`].
    static STACK: RefCell<Option<DefaultStack>> = const { RefCell::new(None) };
    /// The number of times that [`compute_waiting`] has run.
    static ROUNDS: Cell<u64> = const { Cell::new(0) };
}

/// An event descriptor in the wait context of a connection. It stays open until the connection is
/// freed, since a server may wait for it until then.
struct Event(c_int);

impl Event {
    /// The descriptor that the wait context has, or a new one.
    fn of(libcrypto: &Libcrypto, wait_context: NonNull<AsyncWaitCtx>) -> Option<Self> {
        /// Its address names this descriptor among those of other engines and providers.
        static KEY: u8 = 0;
        let key = (&raw const KEY).cast();
        let (mut descriptor, mut custom) = (-1, std::ptr::null_mut());
        // SAFETY: a wait context and room for the answers.
        let found = unsafe {
            (libcrypto.async_wait_fd)(wait_context.as_ptr(), key, &mut descriptor, &mut custom)
        };
        if found == 1 {
            return Some(Self(descriptor));
        }
        // SAFETY: no preconditions.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: a wait context, a descriptor that it may keep, and a function that closes it.
        let kept = unsafe {
            (libcrypto.async_set_wait_fd)(
                wait_context.as_ptr(),
                key,
                descriptor,
                std::ptr::null_mut(),
                Some(close),
            )
        };
        if kept != 1 {
            // SAFETY: opened above; nothing else knows it.
            unsafe { libc::close(descriptor) };
            return None;
        }
        Some(Self(descriptor))
    }

    fn raise(&self) {
        // The only possible error is a full counter, which is readable, too.
        // SAFETY: an open event descriptor; eight bytes.
        unsafe { libc::write(self.0, (&raw const EVENT).cast(), size_of_val(&EVENT)) };
    }

    fn clear(&self) {
        let mut events = 0_u64;
        loop {
            // SAFETY: an open event descriptor; room for eight bytes.
            let read =
                unsafe { libc::read(self.0, (&raw mut events).cast(), size_of_val(&events)) };
            if read >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

static EVENT: u64 = 1;

unsafe extern "C" fn close(
    _context: *mut AsyncWaitCtx,
    _key: *const c_void,
    descriptor: c_int,
    _custom: *mut c_void,
) {
    // SAFETY: the descriptor that `Event::of` opened for this wait context, closed once.
    unsafe { libc::close(descriptor) };
}
