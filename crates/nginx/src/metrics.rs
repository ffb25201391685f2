//! Counters of all workers, in memory that they share, so that any worker can answer for all, and
//! that is published for `slipstream status`.
//!
//! Each worker writes to a slot of its own, relaxed and without a lock. The counts of a worker
//! that exits are added to the totals of those that have gone.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nginx_sys::{NGX_PROCESS_SINGLE, ngx_process};
use slipstream_compress::Totals as Compressed;
use slipstream_metrics::Histogram;
use slipstream_metrics::published::{Layout, Region, directory};
use slipstream_offload::Class;
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::Fibers;
use slipstream_offload::instance::Instance;

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

/// Their names among published figures.
const EVENTS: [&str; 5] = [
    "handshakes_total",
    "closed_handshakes_total",
    "late_handshakes_total",
    "fallbacks_total{reason=\"out_of_fibers\"}",
    "fallbacks_total{reason=\"nested\"}",
];

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

/// Their names among published figures.
const COMPRESSIONS: [&str; 6] = [
    "compressed_responses_total",
    "compressed_content_bytes_total",
    "compressed_output_bytes_total",
    "compressed_chunks_total{by=\"device\"}",
    "compressed_chunks_total{by=\"worker\"}",
    "compressed_chunks_total{by=\"worker_after_loss\"}",
];

/// The place of each figure in a slot. The counters of the instance stand before all of them.
pub(crate) mod layout {
    use super::{COMPRESSIONS, Class, Counters, EVENTS, Histogram};

    pub(crate) const EVENT: usize = Counters::FIGURES;
    pub(crate) const COMPRESSION: usize = EVENT + EVENTS.len();
    pub(crate) const HANDSHAKE: usize = COMPRESSION + COMPRESSIONS.len();
    /// From here on figures are gauges: they end with their worker.
    pub(crate) const IN_FLIGHT: usize = HANDSHAKE + Histogram::FIGURES;
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
    slot: Option<Slot>,
    events: RefCell<[u64; EVENTS.len()]>,
    compressions: RefCell<[u64; COMPRESSIONS.len()]>,
}

const WORKERS: usize = 512;

/// The figures that one worker writes.
#[derive(Clone, Copy)]
struct Slot {
    /// 0, or the process that writes here.
    owner: &'static AtomicU64,
    figures: &'static [AtomicU64],
}

static REGION: OnceLock<Option<Region>> = OnceLock::new();

/// Makes the shared memory, in the master, before workers are forked. Members of `group`, that of
/// the workers, may read what it publishes. Without memory there are no metrics, and nothing else
/// is lost.
///
/// # Errors
/// The reason why the figures are not published, when it is called first.
pub(crate) fn share(group: Option<u32>) -> Result<(), String> {
    let mut outcome = Ok(());
    REGION.get_or_init(|| {
        let layout = layout();
        // nginx forks its master later: the first worker says which process that is.
        let published = Region::publish(&directory::own(), &layout, None, group);
        published
            .or_else(|error| {
                outcome = Err(error.to_string());
                Region::anonymous(&layout)
            })
            .ok()
    });
    outcome
}

fn layout() -> Layout {
    let named = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    let mut counters = Counters::names();
    counters.extend(named(&EVENTS));
    counters.extend(named(&COMPRESSIONS));
    counters.extend(Histogram::names("handshake_duration", ""));
    let in_flight = Class::ALL.map(|class| format!("in_flight{{class=\"{}\"}}", class.name()));
    let mut gauges = in_flight.to_vec();
    gauges.extend(named(&["fibers", "fiber_stacks"]));
    Layout {
        program: "nginx",
        version: env!("CARGO_PKG_VERSION"),
        counters,
        gauges,
        slots: WORKERS,
    }
}

/// Names the master in what is published. Called in each worker, since nginx forks its master after
/// it has read the configuration.
pub(crate) fn name_master() {
    let Some(region) = region() else { return };
    // SAFETY: nginx's global, and a call without preconditions.
    let (process, parent) = unsafe { (ngx_process, libc::getppid()) };
    let master = match process {
        process if process == NGX_PROCESS_SINGLE as usize => std::process::id(),
        _ => u32::try_from(parent).unwrap_or(0),
    };
    if !region.names(master) {
        region.name(master);
    }
}

/// Publishes the reason why handshakes are served as without the module; with an empty text, that
/// there is none.
pub(crate) fn note(reason: &str) {
    if let Some(region) = region() {
        region.note(reason);
    }
}

/// Called when the master ends: removes what it has published.
pub(crate) fn withdraw() {
    if let Some(region) = region()
        && region.names(std::process::id())
    {
        region.remove();
    }
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
    add(region.totals());
    for slot in slots(region) {
        let process = slot.owner.load(Ordering::Relaxed);
        if process == 0 {
            continue;
        }
        if is_alive(process) {
            add(slot.figures);
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
        let process = u64::from(std::process::id());
        let slot = region()
            .and_then(|region| slots(region).find(|slot| slot.claim(process, region.totals())));
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

    /// Counts a completed handshake that took this long.
    pub(crate) fn count_handshake(&self, duration: Duration) {
        if let Some(slot) = self.slot {
            Histogram::observe_in(&slot.figures[layout::HANDSHAKE..], duration);
        }
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
        instance.counters().store(slot.figures);
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
            slot.fold_into(region.totals());
            slot.owner.store(0, Ordering::Release);
        }
    }
}

impl Slot {
    /// Takes the slot if it is free or its worker has died, whose counts then go to `gone`.
    fn claim(&self, process: u64, gone: &[AtomicU64]) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        // A slot with our own number was left by a process that had it before.
        if owner != 0 && owner != process && is_alive(owner) {
            return false;
        }
        let exchange =
            self.owner
                .compare_exchange(owner, process, Ordering::AcqRel, Ordering::Relaxed);
        if exchange.is_ok() {
            self.fold_into(gone);
        }
        exchange.is_ok()
    }

    fn fold_into(&self, gone: &[AtomicU64]) {
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

fn slots(region: &'static Region) -> impl Iterator<Item = Slot> {
    let owners = region.owners().iter().enumerate();
    owners.map(|(index, owner)| Slot {
        owner,
        figures: region.slot(index),
    })
}

fn region() -> Option<&'static Region> {
    REGION.get()?.as_ref()
}

fn is_alive(process: u64) -> bool {
    let Ok(process) = i32::try_from(process) else {
        return false;
    };
    // SAFETY: signal 0 only asks if the process exists.
    let sent = unsafe { libc::kill(process, 0) } == 0;
    // A worker may not signal one of another user, but the error shows that it exists.
    sent || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}
