//! Counters of all workers, in memory that they share, so that any worker can answer for all.
//!
//! Each worker writes to a slot of its own, relaxed and without a lock. The counts of a worker
//! that exits are added to the totals of those that have gone.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use slipstream_compress::Totals as Compressed;
use slipstream_offload::counters::BATCH_SIZE;
use slipstream_offload::fiber::Fibers;
use slipstream_offload::instance::Instance;
use slipstream_offload::{Class, Kind, Reason};

/// Events of handshakes, each a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A handshake has been completed on a fiber.
    Handshake,
    /// A connection was closed by nginx during its handshake.
    Closed,
    /// A connection was to be closed while its operation was in flight.
    Late,
    /// A handshake was left to nginx since there was no fiber.
    OutOfFibers,
    /// A handshake was left to nginx since it went on inside another one.
    Nested,
}

const EVENTS: usize = 5;

/// The counters of compressed responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Responses.
    Responses,
    /// Bytes of their content.
    Content,
    /// Bytes of their compressed content.
    Output,
    /// Chunks that the device has compressed.
    DeviceChunks,
    /// Chunks that the worker has compressed and the device has not accepted before.
    OwnChunks,
    /// Chunks that the device had accepted and lost, and that the worker has compressed.
    LostChunks,
}

const COMPRESSIONS: usize = 6;

/// The place of each figure in a slot.
pub(crate) mod layout {
    use super::{BATCH_SIZE, COMPRESSIONS, Class, EVENTS, Kind, Reason};

    pub(crate) const EVENT: usize = 0;
    pub(crate) const SUBMITTED: usize = EVENT + EVENTS;
    pub(crate) const BATCHES: usize = SUBMITTED + Kind::COUNT;
    pub(crate) const LANE_OPERATIONS: usize = BATCHES + 1;
    pub(crate) const DEVICE_OPERATIONS: usize = LANE_OPERATIONS + Kind::COUNT;
    pub(crate) const POLLS: usize = DEVICE_OPERATIONS + Kind::COUNT;
    pub(crate) const INEFFECTIVE_POLLS: usize = POLLS + 1;
    pub(crate) const RETRIED: usize = INEFFECTIVE_POLLS + 1;
    pub(crate) const ORPHANS: usize = RETRIED + 1;
    pub(crate) const AT_ONCE: usize = ORPHANS + 1;
    pub(crate) const FILL: usize = AT_ONCE + Kind::COUNT;
    pub(crate) const SOFTWARE: usize = FILL + BATCH_SIZE;
    pub(crate) const COMPRESSION: usize = SOFTWARE + Reason::ALL.len();
    /// From here on figures are gauges: they end with their worker.
    pub(crate) const IN_FLIGHT: usize = COMPRESSION + COMPRESSIONS;
    pub(crate) const FIBERS: usize = IN_FLIGHT + Class::ALL.len();
    pub(crate) const STACKS: usize = FIBERS + 1;
    pub(crate) const FIGURES: usize = STACKS + 1;
}

/// One figure of each kind, summed over workers.
pub(crate) struct Totals {
    pub(crate) figures: [u64; layout::FIGURES],
    /// Workers that are alive and take part.
    pub(crate) workers: u64,
}

/// This worker's side.
pub(crate) struct Metrics {
    slot: Option<&'static Slot>,
    events: RefCell<[u64; EVENTS]>,
    compressions: RefCell<[u64; COMPRESSIONS]>,
}

const WORKERS: usize = 512;

#[repr(C)]
struct Region {
    gone: [AtomicU64; layout::FIGURES],
    slots: [Slot; WORKERS],
}

#[repr(C, align(64))]
struct Slot {
    /// 0, or the process that writes here.
    process: AtomicI32,
    figures: [AtomicU64; layout::FIGURES],
}

static REGION: OnceLock<Option<&'static Region>> = OnceLock::new();

/// Makes the shared memory, in the master, before workers are forked. Without memory for it there
/// are no metrics, and nothing else is lost.
pub(crate) fn share() {
    REGION.get_or_init(|| {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Region>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        // SAFETY: the mapping is page-aligned, large enough, never unmapped, and all zero, which is
        // a valid value of every atomic in it.
        (address != libc::MAP_FAILED).then(|| unsafe { &*address.cast::<Region>() })
    });
}

/// The figures of all workers, present and gone.
pub(crate) fn totals() -> Totals {
    let mut totals = Totals {
        figures: [0; layout::FIGURES],
        workers: 0,
    };
    let Some(region) = region() else {
        return totals;
    };
    let mut add = |figures: &[AtomicU64]| {
        for (total, figure) in totals.figures.iter_mut().zip(figures) {
            *total += figure.load(Ordering::Relaxed);
        }
    };
    add(&region.gone);
    for slot in &region.slots {
        let process = slot.process.load(Ordering::Relaxed);
        if process != 0 && is_alive(process) {
            add(&slot.figures);
            totals.workers += 1;
        } else {
            // A worker that has crashed leaves its counts here until the slot is claimed.
            add(&slot.figures[..layout::IN_FLIGHT]);
        }
    }
    totals
}

impl Metrics {
    /// Takes a slot for this process.
    pub(crate) fn claim() -> Self {
        let process = std::process::id() as i32;
        let slot = region().and_then(|region| {
            region
                .slots
                .iter()
                .find(|slot| slot.claim(process, &region.gone))
        });
        Self {
            slot,
            events: RefCell::default(),
            compressions: RefCell::default(),
        }
    }

    /// Counts an event. Returns true if it is the first of its kind.
    pub(crate) fn count(&self, event: Event) -> bool {
        let count = {
            let mut events = self.events.borrow_mut();
            events[event as usize] += 1;
            events[event as usize]
        };
        if let Some(slot) = self.slot {
            slot.set(layout::EVENT + event as usize, count);
        }
        count == 1
    }

    /// Counts a response that was compressed.
    pub(crate) fn count_response(&self, totals: &Compressed) {
        let mut figures = self.compressions.borrow_mut();
        for (figure, count) in [
            (Compression::Responses, 1),
            (Compression::Content, totals.content),
            (Compression::Output, totals.output),
            (Compression::DeviceChunks, totals.device_chunks),
            (
                Compression::OwnChunks,
                totals.own_chunks - totals.lost_chunks,
            ),
            (Compression::LostChunks, totals.lost_chunks),
        ] {
            figures[figure as usize] += count;
        }
        if let Some(slot) = self.slot {
            for (index, figure) in figures.iter().enumerate() {
                slot.set(layout::COMPRESSION + index, *figure);
            }
        }
    }

    /// Writes the state of this worker's instance and fibers.
    pub(crate) fn publish(&self, instance: &Instance, fibers: &Fibers) {
        let Some(slot) = self.slot else { return };
        let counters = instance.counters();
        slot.set(layout::BATCHES, counters.batches);
        for kind in Kind::ALL {
            let index = kind.index();
            slot.set(layout::SUBMITTED + index, counters.submitted[index]);
            slot.set(
                layout::LANE_OPERATIONS + index,
                counters.lane_operations[index],
            );
            slot.set(
                layout::DEVICE_OPERATIONS + index,
                counters.device_operations[index],
            );
            slot.set(layout::AT_ONCE + index, counters.at_once[index]);
        }
        slot.set(layout::POLLS, counters.polls);
        slot.set(layout::INEFFECTIVE_POLLS, counters.ineffective_polls);
        slot.set(layout::RETRIED, counters.retried);
        slot.set(layout::ORPHANS, counters.orphans);
        for (index, count) in counters.fill.iter().enumerate() {
            slot.set(layout::FILL + index, *count);
        }
        for (index, count) in counters.software.iter().enumerate() {
            slot.set(layout::SOFTWARE + index, *count);
        }
        for class in Class::ALL {
            slot.set(
                layout::IN_FLIGHT + class.index(),
                instance.in_flight(class) as u64,
            );
        }
        slot.set(layout::FIBERS, fibers.live() as u64);
        slot.set(layout::STACKS, fibers.stacks() as u64);
    }

    /// Gives the slot back; its counts stay in the totals.
    pub(crate) fn retire(&self) {
        if let (Some(slot), Some(region)) = (self.slot, region()) {
            slot.fold_into(&region.gone);
            slot.process.store(0, Ordering::Release);
        }
    }
}

impl Slot {
    /// Takes the slot if it is free or its worker has died, whose counts then go to `gone`.
    fn claim(&self, process: i32, gone: &[AtomicU64; layout::FIGURES]) -> bool {
        let owner = self.process.load(Ordering::Acquire);
        // A slot with our own number was left by a process that had it before.
        if owner != 0 && owner != process && is_alive(owner) {
            return false;
        }
        let exchange =
            self.process
                .compare_exchange(owner, process, Ordering::AcqRel, Ordering::Relaxed);
        if exchange.is_ok() {
            self.fold_into(gone);
        }
        exchange.is_ok()
    }

    fn fold_into(&self, gone: &[AtomicU64; layout::FIGURES]) {
        for (index, (figure, gone)) in self.figures.iter().zip(gone).enumerate() {
            let value = figure.swap(0, Ordering::Relaxed);
            if index < layout::IN_FLIGHT {
                gone.fetch_add(value, Ordering::Relaxed);
            }
        }
    }

    fn set(&self, index: usize, value: u64) {
        self.figures[index].store(value, Ordering::Relaxed);
    }
}

fn region() -> Option<&'static Region> {
    REGION.get().copied().flatten()
}

fn is_alive(process: i32) -> bool {
    // SAFETY: signal 0 only asks if the process exists.
    let sent = unsafe { libc::kill(process, 0) } == 0;
    // A worker may not signal one of another user, but the error shows that it exists.
    sent || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}
