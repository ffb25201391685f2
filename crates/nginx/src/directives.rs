//! The directives of the `slipstream { ... }` block.

use std::path::Path;
use std::time::Duration;

use slipstream_accelerators::engine::EngineUser;
use slipstream_accelerators::engine::protocol::layout::{Layout, SLOTS};
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_accelerators::lanes::{Backend, LANES};
use slipstream_offload::fiber::LEAST_STACK_BYTES;
use slipstream_offload::polling::{Heuristic, Scheme};
use slipstream_offload::scheduler::FlushPolicy;

/// The settings of the block. nginx copies them and never drops them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConf {
    /// `fibers`: the most handshakes of one worker that run on fibers at a time.
    pub(crate) fibers: usize,
    /// `fiber_stack`: bytes for each fiber.
    pub(crate) stack_bytes: usize,
    /// `flush`: the rule by which a batch that is not full is run.
    pub(crate) flush: FlushPolicy,
    /// `lanes`: the backend.
    pub(crate) lanes: Lanes,
    /// `ahead`: the number of key pairs of each kind that are precomputed; 0 for none.
    pub(crate) ahead: usize,
    /// `nonces_ahead`: the number of nonces of each kind that are precomputed; 0 for none.
    pub(crate) nonces_ahead: usize,
    /// `offload`: the mode of offloading.
    pub(crate) offload: Offload,
    /// `poll`: the scheme of polling; `None` for the one that suits the accelerator.
    poll: Option<Scheme>,
    /// `poll_thresholds`: the thresholds of the heuristic scheme.
    thresholds: Heuristic,
    /// `notify`: the way in which a paused job is notified.
    pub(crate) notify: Notify,
    /// `device`: the engine's socket.
    pub(crate) device: Option<&'static Path>,
    /// `device_user`: the user that the engine may run as; `None` for that of its systemd unit.
    device_user: Option<&'static str>,
    /// `ring`: slots of the rings to it; `None` for [`DEFAULT_SLOTS`].
    ring: Option<Layout>,
    /// `interrupts`: the rule by which the engine wakes a worker.
    pub(crate) interrupts: Aggregation,
    /// `weight`: the number of requests of a worker that the engine takes in its turn.
    pub(crate) weight: u32,
    /// `keys isolated`: private keys are held by the device, and workers do not have them.
    pub(crate) keys_are_isolated: bool,
    /// A second block is refused.
    pub(crate) has_block: bool,
    /// The directives that have been given, by their place in [`DIRECTIVES`].
    given: [bool; DIRECTIVES.len()],
}

/// The `lanes` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The fastest that this CPU has, if any.
    Auto,
    /// None. Without a device, nginx serves as without the module.
    Off,
    /// This backend.
    Only(Backend),
}

/// The `offload` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    /// Nothing is offloaded: nginx serves as without the module.
    Software,
    /// The worker waits for each answer.
    Synchronous,
    /// Connections wait, the worker goes on.
    Asynchronous,
}

/// The `notify` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// Through a queue in the worker, without a system call.
    Queue,
    /// Through a descriptor for each connection.
    Descriptor,
}

pub(crate) const DEFAULT: CoreConf = CoreConf {
    fibers: 4096,
    stack_bytes: 128 * 1024,
    flush: FlushPolicy::Cheapest,
    lanes: Lanes::Auto,
    ahead: 64,
    nonces_ahead: 0,
    offload: Offload::Asynchronous,
    poll: None,
    thresholds: Heuristic::DEFAULT,
    notify: Notify::Queue,
    device: None,
    device_user: None,
    ring: None,
    interrupts: Aggregation::Adaptive,
    weight: 1,
    keys_are_isolated: false,
    has_block: false,
    given: [false; DIRECTIVES.len()],
};

const DEFAULT_SLOTS: usize = 256;

/// Each stack is two mappings, and by default Linux allows a process 65,530.
const MOST_FIBERS: usize = 30_000;

/// Three kinds of key pairs and two of nonces are kept in locked memory, of which a process has 8
/// MiB by default.
const MOST_AHEAD: usize = 4096;

const MOST_INTERRUPTS: u32 = 64;

const MOST_WEIGHT: u32 = 16;

/// The longest path in a socket address, without the NUL that ends it.
const SOCKET_PATH_BYTES: usize = 107;

type Set = fn(&mut CoreConf, &[&str]) -> Result<(), &'static str>;

/// Each directive with the function that reads its values. An error names the valid values.
const DIRECTIVES: [(&str, Set); 16] = [
    ("fibers", |conf, values| {
        conf.fibers = one(values, |value| number(value, 1..=MOST_FIBERS))
            .ok_or("give a number from 1 to 30000")?;
        Ok(())
    }),
    ("fiber_stack", |conf, values| {
        conf.stack_bytes = one(values, parse_size)
            .filter(|bytes| (LEAST_STACK_BYTES..=64 << 20).contains(bytes))
            .ok_or("give a size from 64k to 64m, such as 128k")?;
        Ok(())
    }),
    ("flush", |conf, values| {
        conf.flush = match values {
            ["auto"] => FlushPolicy::Cheapest,
            _ => one(values, |value| number(value, 1..=LANES))
                .map(FlushPolicy::AtLeast)
                .ok_or(
                    "give auto, or the number of waiting operations, 1 to 8, from which a batch is \
                     run when the worker is idle",
                )?,
        };
        Ok(())
    }),
    ("lanes", |conf, values| {
        conf.lanes = match values {
            ["auto"] => Lanes::Auto,
            ["off"] => Lanes::Off,
            ["ifma"] => Lanes::Only(Backend::Ifma),
            ["avx512"] => Lanes::Only(Backend::Avx512),
            ["portable"] => Lanes::Only(Backend::Portable),
            _ => return Err("give auto, off, ifma, avx512 or portable"),
        };
        Ok(())
    }),
    ("ahead", |conf, values| {
        conf.ahead = parse_ahead(values).ok_or(
            "give off, or the number of key pairs of each kind, 8 to 4096, that are precomputed",
        )?;
        Ok(())
    }),
    ("nonces_ahead", |conf, values| {
        conf.nonces_ahead = parse_ahead(values).ok_or(
            "give off, or the number of nonces of each kind, 8 to 4096, that are precomputed",
        )?;
        Ok(())
    }),
    ("offload", |conf, values| {
        conf.offload = match values {
            ["software"] => Offload::Software,
            ["sync"] => Offload::Synchronous,
            ["async"] => Offload::Asynchronous,
            _ => return Err("give async, sync or software"),
        };
        Ok(())
    }),
    ("poll", |conf, values| {
        conf.poll = Some(match values {
            ["idle"] => Scheme::Idle,
            ["hybrid"] => Scheme::Hybrid,
            ["interrupt"] => Scheme::Interrupt,
            ["heuristic"] => Scheme::Heuristic(conf.thresholds),
            ["timer", interval] => {
                Scheme::Timer(parse_interval(interval).ok_or("give timer a time from 1us to 1s")?)
            }
            _ => return Err("give idle, hybrid, interrupt, heuristic, or timer and a time"),
        });
        Ok(())
    }),
    ("poll_thresholds", |conf, values| {
        let threshold = |value| number(value, 1..=MOST_FIBERS);
        let [asymmetric, otherwise] = values else {
            return Err("give two numbers, for asymmetric operations and for others");
        };
        conf.thresholds = threshold(asymmetric)
            .zip(threshold(otherwise))
            .map(|(asymmetric, otherwise)| Heuristic {
                asymmetric,
                otherwise,
            })
            .ok_or("give two numbers from 1 to 30000")?;
        Ok(())
    }),
    ("notify", |conf, values| {
        conf.notify = match values {
            ["queue"] => Notify::Queue,
            ["fd"] => Notify::Descriptor,
            _ => return Err("give queue or fd"),
        };
        Ok(())
    }),
    ("device", |conf, values| {
        conf.device = match values {
            ["off"] => None,
            _ => one(values, parse_socket_path)
                .map(Some)
                .ok_or("give off, or unix: and the path of an engine's socket")?,
        };
        Ok(())
    }),
    ("device_user", |conf, values| {
        conf.device_user =
            Some(one(values, parse_user).ok_or("give the name or the number of a user")?);
        Ok(())
    }),
    ("ring", |conf, values| {
        let layout = one(values, |value| Layout::new(number(value, SLOTS)?));
        conf.ring = Some(layout.ok_or("give a power of two from 8 to 4096")?);
        Ok(())
    }),
    ("interrupts", |conf, values| {
        conf.interrupts = match values {
            ["adaptive"] => Aggregation::Adaptive,
            _ => one(values, |value| number(value, 1..=MOST_INTERRUPTS))
                .map(Aggregation::Fixed)
                .ok_or("give adaptive, or for how many answers, 1 to 64, one is sent")?,
        };
        Ok(())
    }),
    ("weight", |conf, values| {
        conf.weight = one(values, |value| number(value, 1..=MOST_WEIGHT))
            .ok_or("give a number from 1 to 16")?;
        Ok(())
    }),
    ("keys", |conf, values| {
        conf.keys_are_isolated = match values {
            ["isolated"] => true,
            ["shared"] => false,
            _ => return Err("give shared or isolated"),
        };
        Ok(())
    }),
];

impl CoreConf {
    /// Sets the value of the directive that `words` are.
    pub(crate) fn set(&mut self, words: &[String]) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, values) = words
            .split_first()
            .map_or(("", &[][..]), |(name, values)| (*name, values));
        let known = DIRECTIVES.iter().position(|(known, _)| *known == name);
        let Some(place) = known else {
            let names = DIRECTIVES.map(|(name, _)| name).join(", ");
            return Err(format!(
                "unknown directive \"{name}\" in slipstream block: {names} are known"
            ));
        };
        let most = match name {
            "poll" | "poll_thresholds" => 2,
            _ => 1,
        };
        if !(1..=most).contains(&values.len()) {
            let cure = if most == 1 {
                "one value"
            } else {
                "one value, or two"
            };
            return Err(format!(
                "invalid number of arguments in \"{name}\" directive: give {cure}"
            ));
        }
        if std::mem::replace(&mut self.given[place], true) {
            return Err(format!("\"{name}\" directive is duplicate"));
        }
        DIRECTIVES[place].1(self, values).map_err(|cure| {
            let values = values.join(" ");
            format!("invalid value \"{values}\" in \"{name}\" directive: {cure}")
        })
    }

    /// Checks the directives against each other, at the end of the block.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.keys_are_isolated && self.device.is_none() {
            return Err("\"keys isolated\" needs a \"device\" that holds the keys".into());
        }
        if self.keys_are_isolated && self.offload == Offload::Software {
            return Err("\"keys isolated\" cannot be combined with \"offload software\"".into());
        }
        if self.device.is_none() {
            for name in ["device_user", "ring", "interrupts", "weight"] {
                let place = DIRECTIVES.iter().position(|(known, _)| *known == name);
                if place.is_some_and(|place| self.given[place]) {
                    return Err(format!("\"{name}\" means nothing without a \"device\""));
                }
            }
        }
        Ok(())
    }

    /// Returns the scheme of polling.
    pub(crate) fn scheme(&self) -> Scheme {
        match (self.poll, self.device) {
            // The thresholds may follow the scheme.
            (Some(Scheme::Heuristic(_)), _) => Scheme::Heuristic(self.thresholds),
            (Some(scheme), _) => scheme,
            (None, Some(_)) => Scheme::Hybrid,
            (None, None) => Scheme::Idle,
        }
    }

    /// Returns the user that the engine may run as, beside root and nginx's own.
    pub(crate) fn engine_user(&self) -> EngineUser {
        self.device_user.map(EngineUser::new).unwrap_or_default()
    }

    /// Returns the layout of the rings to the device.
    pub(crate) fn layout(&self) -> Layout {
        self.ring
            .or(Layout::new(DEFAULT_SLOTS))
            .expect("the default is a power of two")
    }
}

fn parse_ahead(values: &[&str]) -> Option<usize> {
    match values {
        ["off"] => Some(0),
        _ => one(values, |value| number(value, LANES..=MOST_AHEAD)),
    }
}

fn one<T>(values: &[&str], parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    match values {
        [value] => parse(value),
        _ => None,
    }
}

fn number<T: std::str::FromStr + PartialOrd>(
    text: &str,
    range: std::ops::RangeInclusive<T>,
) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// Reads nginx's notation of sizes: a number with an optional k or m.
fn parse_size(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// Reads a number with one of the units us, ms and s, of which nginx knows the last two.
fn parse_interval(text: &str) -> Option<Duration> {
    const MOST: Duration = Duration::from_secs(1);
    let (digits, unit) = if let Some(digits) = text.strip_suffix("us") {
        (digits, Duration::from_micros(1))
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, Duration::from_millis(1))
    } else {
        (text.strip_suffix('s')?, Duration::from_secs(1))
    };
    let interval = unit.checked_mul(digits.parse().ok()?)?;
    (!interval.is_zero() && interval <= MOST).then_some(interval)
}

/// Reads the name or the number of a user, who need not exist.
fn parse_user(text: &str) -> Option<&'static str> {
    // As for the path of the socket.
    (!text.is_empty()).then(|| &*Box::leak(text.to_owned().into_boxed_str()))
}

/// Reads `unix:` and an absolute path, as in nginx's own directives.
fn parse_socket_path(text: &str) -> Option<&'static Path> {
    let path = text.strip_prefix("unix:")?;
    let fits = path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES;
    // The configuration is copied and never dropped; one leaked path for each reload is little.
    fits.then(|| Path::new(Box::leak(path.to_owned().into_boxed_str())))
}
