//! Measures the latency of a quiet client, alone and beside one that floods, at an engine with one
//! core. Run it as root, so that the flood can be another user's, on a machine that does nothing
//! else:
//!
//! ```sh
//! cargo bench -p slipstream-engine --bench quiet
//! ```
//!
//! It prints percentiles in microseconds for each kind of flood, with 100 and with 10,000 requests
//! waiting, and the bar: the quiet client's p99 alone, and two full batches of the kind that floods.
//! `--quiet KIND` and `--flood KIND` choose the kinds, `--count NUMBER` the requests that are
//! measured.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::thread::CpuSet;
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::{
    Outcome, Slot, read_response, write_request,
};
use slipstream_accelerators::engine::{self, Connection, EngineUser, Instance};
use slipstream_accelerators::lanes::{Backend, LANES};
use slipstream_engine::{Engine, Options, Quotas};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::Size;
use slipstream_keys::{Handle, KeyParts};
use slipstream_offload::Kind;

const PATIENCE: Duration = Duration::from_secs(10);

/// Slots of the flood's rings: the most that there can be.
const FLOOD_SLOTS: usize = 4096;

/// The user of the flood.
const NOBODY: u32 = 65534;

/// The pause between two requests of the quiet client.
const PAUSE: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).map(String::as_str)
    };
    if let Some(socket) = option("--floods") {
        let number = option("--waiting").unwrap_or("100").parse()?;
        return flood(socket.as_ref(), kind(option("--flood"))?, number);
    }
    let quiet = kind(option("--quiet"))?;
    let floods = match option("--flood") {
        Some(name) => vec![kind(Some(name))?],
        None => vec![
            Kind::X25519,
            Kind::Rsa(Size::Rsa2048),
            Kind::Rsa(Size::Rsa4096),
        ],
    };
    let count = option("--count").unwrap_or("1000").parse()?;
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
    let socket = directory.path().join("engine.sock");
    let _engine = start(&socket)?;
    let mut client = Client::new(&socket, 64, quiet)?;
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "quiet {}, us: p50, p99, most; the bar for p99",
        quiet.name()
    )?;
    let alone = Latencies::measure(&mut client, count)?;
    writeln!(stdout, "alone                     {alone}")?;
    for kind in floods {
        let batch = full_batch(&socket, kind)?;
        let bar = alone.percentile(99) + 2 * batch;
        for waiting in [100, 10_000] {
            let mut flood = start_flood(&socket, kind, waiting)?;
            let beside = Latencies::measure(&mut client, count);
            flood.kill()?;
            flood.wait()?;
            writeln!(
                stdout,
                "{:<12}{waiting:>6} waiting {} {:>9}",
                kind.name(),
                beside?,
                bar.as_micros()
            )?;
        }
    }
    Ok(())
}

fn kind(name: Option<&str>) -> Result<Kind, String> {
    let name = name.unwrap_or("RSA-2048");
    let known = [
        Kind::X25519,
        Kind::Rsa(Size::Rsa2048),
        Kind::Rsa(Size::Rsa3072),
        Kind::Rsa(Size::Rsa4096),
    ];
    let found = known.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("{name} is none of {:?}", known.map(Kind::name)))
}

/// An engine on the last core that this process may use, which leaves that core to it.
fn start(socket: &Path) -> io::Result<Engine> {
    let mut usable = rustix::thread::sched_getaffinity(None)?;
    let cores = (0..CpuSet::MAX_CPU).filter(|core| usable.is_set(*core));
    let cores: Vec<usize> = cores.collect();
    let core = *cores.last().ok_or(io::ErrorKind::NotFound)?;
    let engine = Engine::start(Options {
        socket: socket.to_owned(),
        cores: vec![core],
        backend: Backend::detect().unwrap_or(Backend::Portable),
        allow: vec![NOBODY],
        quotas: Quotas::default(),
        grace: Engine::GRACE,
        linger: None,
        pace: None,
        publishes: None,
    })?;
    if cores.len() > 1 {
        usable.unset(core);
        rustix::thread::sched_setaffinity(None, &usable)?;
    }
    Ok(engine)
}

fn start_flood(socket: &Path, kind: Kind, waiting: usize) -> io::Result<Child> {
    // A directory that the other user may enter.
    let program = socket.with_file_name("flood");
    std::fs::copy(std::env::current_exe()?, &program)?;
    let mut command = Command::new(program);
    command.arg("--floods").arg(socket);
    command.args(["--flood", kind.name(), "--waiting", &waiting.to_string()]);
    match rustix::process::geteuid().is_root() {
        true => drop(command.uid(NOBODY).gid(NOBODY).current_dir("/")),
        false => eprintln!("not root: the flood is this user's, which shares its part with it"),
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut String::new())?;
    }
    Ok(child)
}

/// Keeps `waiting` requests in rings, until it is killed.
fn flood(socket: &Path, kind: Kind, waiting: usize) -> Result<(), Box<dyn Error>> {
    let clients = waiting.div_ceil(FLOOD_SLOTS);
    let mut clients = (0..clients)
        .map(|_| Client::new(socket, FLOOD_SLOTS, kind))
        .collect::<Result<Vec<_>, _>>()?;
    let each = waiting / clients.len();
    for client in &mut clients {
        (0..each).try_for_each(|_| client.push())?;
        client.ring();
    }
    println!("flooding");
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        for client in &mut clients {
            while client.pop()? {
                client.push()?;
            }
            client.ring();
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// The time that a full batch takes: the least of some.
fn full_batch(socket: &Path, kind: Kind) -> Result<Duration, Box<dyn Error>> {
    let mut client = Client::new(socket, 64, kind)?;
    let mut least = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        (0..LANES).try_for_each(|_| client.push())?;
        client.ring();
        for _ in 0..LANES {
            while !client.pop()? {
                std::hint::spin_loop();
            }
        }
        least = least.min(start.elapsed());
    }
    Ok(least)
}

struct Client {
    _connection: Connection,
    instance: Instance,
    kind: Kind,
    key: Handle,
    operands: (Vec<u8>, Vec<u8>),
}

impl Client {
    fn new(socket: &Path, slots: usize, kind: Kind) -> Result<Self, Box<dyn Error>> {
        let connection = Connection::new(socket, &EngineUser::default())?;
        let options = engine::Options {
            layout: Layout::new(slots).ok_or("slots")?,
            weight: 16,
            aggregation: Aggregation::Fixed(1),
            token: None,
            user: EngineUser::default(),
        };
        let (key, operands) = match kind {
            Kind::Rsa(size) => {
                let parts = KeyParts::Rsa(example_key(size).components);
                let handle = connection.register(parts, Policy::ANYTHING, PATIENCE)?;
                let mut residue = vec![0x55; size.bytes()];
                residue[0] = 0;
                (handle, (residue, Vec::new()))
            }
            _ => (Handle(0), (vec![1; 32], vec![9; 32])),
        };
        Ok(Self {
            instance: connection.open(&options, PATIENCE)?,
            _connection: connection,
            kind,
            key,
            operands,
        })
    }

    fn push(&mut self) -> Result<(), Box<dyn Error>> {
        let mut slot = Slot::default();
        let (first, second) = &self.operands;
        let words = write_request(&mut slot, 1, self.kind, self.key, first, second);
        let is_pushed = self.instance.requests.push(&slot.0[..words])?;
        is_pushed
            .then_some(())
            .ok_or_else(|| "the ring is full".into())
    }

    fn ring(&self) {
        if self.instance.engine_bell.must_ring() {
            // Its counter does not overflow.
            let _ = rustix::io::write(&self.instance.doorbell, &1_u64.to_ne_bytes());
        }
    }

    /// Takes an answer, if there is one.
    fn pop(&mut self) -> Result<bool, Box<dyn Error>> {
        let mut slot = Slot::default();
        if !self.instance.responses.pop(&mut slot.0)? {
            return Ok(false);
        }
        match read_response(&slot)?.outcome {
            Outcome::Computed(_) => Ok(true),
            other => Err(format!("{other:?}").into()),
        }
    }

    /// Submits a request and sleeps until its answer is there.
    fn ask(&mut self) -> Result<(), Box<dyn Error>> {
        self.push()?;
        self.ring();
        while !self.pop()? {
            self.instance.own_bell.arm();
            if self.pop()? {
                self.instance.own_bell.disarm();
                break;
            }
            let mut event = [PollFd::new(&self.instance.event, PollFlags::IN)];
            rustix::event::poll(&mut event, None)?;
            rustix::io::read(&self.instance.event, &mut [0; 4096])?;
        }
        Ok(())
    }
}

/// In order.
struct Latencies(Vec<Duration>);

impl Latencies {
    fn measure(client: &mut Client, count: usize) -> Result<Self, Box<dyn Error>> {
        let mut latencies = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            client.ask()?;
            latencies.push(start.elapsed());
            std::thread::sleep(PAUSE);
        }
        latencies.sort();
        Ok(Self(latencies))
    }

    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, most, all] = [50, 99, 100].map(|it| self.percentile(it).as_micros());
        write!(f, "{half:>9} {most:>9} {all:>9}")
    }
}
