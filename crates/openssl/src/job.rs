//! Pausing: operations of fibers and of OpenSSL's own asynchronous jobs are computed together;
//! everybody else's are left to software at once.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use slipstream_lanes::Backend;
use slipstream_lanes::ec::{Curve, Nonce};
use slipstream_offload::accelerator::{Moment, WorkerLanes};
use slipstream_offload::ahead::{self, Ahead, Group, KeyPair};
use slipstream_offload::fiber::CurrentFiber;
use slipstream_offload::instance::Instance;
use slipstream_offload::pause::Never;
use slipstream_offload::policy::{Costs, Policy};
use slipstream_offload::request::Operand;
use slipstream_offload::{Answer, Kind, Notification, Operation, Pause, Reason, fiber, instance};

pub(crate) use slipstream_offload::Output;

use crate::counts::{KEYS_MADE_AHEAD, LANE_OPERATIONS, NONCES_MADE_AHEAD};
use crate::held::Held;
use crate::libcrypto::{AsyncWaitCtx, Libcrypto};
use crate::provider::LoadedRef;

/// Requests that a thread's own instance has room for.
const REQUESTS: usize = 4096;

/// Entries of each pool of a thread's own instance.
const MADE_AHEAD: usize = 32;

/// The stack on which batches are computed where the stack of the caller is too small: that of an asynchronous
/// job has 32 KiB, without a guard, of which a handshake takes up to half.
const BATCH_STACK_BYTES: usize = 128 * 1024;

/// Whether the caller is a job that may be paused here, if enough others are under way.
pub(crate) fn may_pause(loaded: LoadedRef) -> bool {
    Job::current(loaded).is_some_and(|job| job.pauser().admits().is_ok())
}

/// Whether the caller is a job that would be paused here for an operation of `kind`.
pub(crate) fn pauses(loaded: LoadedRef, kind: Kind) -> bool {
    Job::current(loaded).is_some_and(|job| slipstream_offload::admits(kind, job.pauser()).is_ok())
}

/// Whether the caller is a job of a server that takes part: it uses what has been made ahead even where it is not worth
/// while to pause.
pub(crate) fn takes_part(loaded: LoadedRef) -> bool {
    let not_admitted = |job: Job| job.pauser().admits() == Err(Reason::NotAdmitted);
    Job::current(loaded).is_some_and(|job| !not_admitted(job))
}

/// Counts an operation that is left to software since the caller was not to be paused when it began.
pub(crate) fn count_refusal(loaded: LoadedRef, kind: Kind) {
    if let Some(job) = Job::current(loaded) {
        slipstream_offload::count_refusal(kind, job.pauser());
    }
}

/// A key pair that has been made ahead, for a caller whose server [takes part](takes_part).
pub(crate) fn key_pair(loaded: LoadedRef, group: Group) -> Option<KeyPair> {
    let pair = made_ahead(loaded, || ahead::key_pair(group))?;
    KEYS_MADE_AHEAD.add_one();
    Some(pair)
}

/// A nonce that has been made ahead, as for [`key_pair`].
pub(crate) fn nonce(loaded: LoadedRef, curve: Curve) -> Option<Nonce> {
    let nonce = made_ahead(loaded, || ahead::nonce(curve))?;
    NONCES_MADE_AHEAD.add_one();
    Some(nonce)
}

/// Computes an operation of `kind` in lanes of `backend` while the caller is paused. `None` if software has to do it.
/// `operation` is only called if the caller can be paused.
pub(crate) fn compute(
    loaded: LoadedRef,
    backend: Backend,
    kind: Kind,
    operation: impl FnOnce() -> Option<Operation>,
) -> Option<Output> {
    let job = Job::current(loaded)?;
    if slipstream_offload::admits(kind, job.pauser()).is_err() {
        slipstream_offload::count_refusal(kind, job.pauser());
        return None;
    }
    if let Job::OpenSsl(_) = job {
        ensure_instance(loaded, || Some(backend))?;
    }
    match slipstream_offload::run(operation()?, job.pauser()) {
        Answer::Computed(output) => {
            LANE_OPERATIONS.add_one();
            Some(output)
        }
        Answer::Software(_) => None,
    }
}

/// Has the device that holds a private key compute with it. `None` if it does not answer.
///
/// No software can stand in for it. So whoever may not be paused waits here, and so does an asynchronous job, which its
/// server could resume before the device has answered.
pub(crate) fn ask_device(held: Held, input: Operand) -> Option<Output> {
    let operation = Operation::Held {
        kind: held.kind,
        key: held.handle,
        input,
    };
    let answer = match fiber::current().filter(|fiber| fiber.admits().is_ok()) {
        Some(fiber) => slipstream_offload::run(operation, &fiber),
        // Meanwhile others' operations may be computed in lanes, on this stack.
        None => on_batch_stack(|| slipstream_offload::run(operation, &Never))?,
    };
    match answer {
        Answer::Computed(output) if output.as_slice().len() == held.kind.output_bytes() => {
            Some(output)
        }
        Answer::Computed(_) | Answer::Software(_) => None,
    }
}

fn made_ahead<T>(loaded: LoadedRef, take: impl FnOnce() -> Option<T>) -> Option<T> {
    if !takes_part(loaded) {
        return None;
    }
    if fiber::current().is_none() {
        ensure_instance(loaded, || loaded.backend())?;
    }
    // A pool that is empty is filled with a batch.
    on_batch_stack(take).flatten()
}

/// What is running, if it can be paused.
enum Job {
    Fiber(CurrentFiber),
    OpenSsl(AsyncJob),
}

impl Job {
    fn current(loaded: LoadedRef) -> Option<Self> {
        match fiber::current() {
            Some(fiber) => Some(Self::Fiber(fiber)),
            None => AsyncJob::current(loaded).map(Self::OpenSsl),
        }
    }

    fn pauser(&self) -> &dyn Pause {
        match self {
            Self::Fiber(fiber) => fiber,
            Self::OpenSsl(job) => job,
        }
    }
}

/// Makes this thread's instance, if an event loop has not.
fn ensure_instance(loaded: LoadedRef, backend: impl FnOnce() -> Option<Backend>) -> Option<()> {
    if instance::with(|_| ()).is_some() {
        return Some(());
    }
    let backend = backend()?;
    let costs = match loaded.policy() {
        // Measured with batches, if they have not been.
        Policy::Cheapest => on_batch_stack(|| loaded.costs(backend))?,
        // No cost is looked at, only whether lanes offer the operation.
        Policy::AtLeast(_) => Costs {
            batch: [Some(Duration::ZERO); Kind::COUNT],
            ..Costs::default()
        },
    };
    let lanes = WorkerLanes::new(backend, loaded.policy(), costs);
    let mut instance = Instance::new(Box::new(lanes), REQUESTS).ok()?;
    if let Some(ahead) = Ahead::new(backend, MADE_AHEAD) {
        instance.make_ahead(ahead);
    }
    instance::install(instance);
    Some(())
}

/// An `ASYNC_JOB` of OpenSSL, in which servers with an asynchronous mode of their own run their
/// handshakes.
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
            // The event is there before the job is paused: the server's loop serves what else it
            // has, whose operations join this one, and then comes back.
            event.raise();
            // SAFETY: a job is running.
            let paused = unsafe { (libcrypto.async_pause_job)() } == 1;
            event.clear();
            paused
        });
        // Another job that was resumed before this one has computed all that waited. What has come
        // since then waits for its own turn, and for company.
        if ROUNDS.get() == round {
            compute_waiting();
        }
        paused
    }
}

/// Computes what waits on this thread, all of it. Without memory for a stack nothing is, and software has to do it.
fn compute_waiting() {
    ROUNDS.set(ROUNDS.get() + 1);
    on_batch_stack(|| {
        while instance::with(|instance| instance.poll(Moment::Idle))
            .is_some_and(|answers| answers > 0)
        {}
    });
}

/// Calls `batch`, which neither pauses nor calls this, on a stack that is large enough for a batch. `None` if there is no
/// memory for one.
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
    /// How often [`compute_waiting`] has run.
    static ROUNDS: Cell<u64> = const { Cell::new(0) };
}

/// An event descriptor in the wait context of a connection. It stays there until the connection is
/// freed: servers that wait for it must not see it closed before.
struct Event(c_int);

impl Event {
    /// The one that the wait context has, or a new one.
    fn of(libcrypto: &Libcrypto, wait_context: NonNull<AsyncWaitCtx>) -> Option<Self> {
        /// Its address is what names our descriptor among those of others.
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
            // SAFETY: opened above; nobody else knows it.
            unsafe { libc::close(descriptor) };
            return None;
        }
        Some(Self(descriptor))
    }

    fn raise(&self) {
        // A full counter, the only error that there can be, is as readable as a small one.
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
