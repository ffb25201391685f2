//! RSA in lanes against libcrypto, on one core.

mod bound;

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use serde::Serialize;
use slipstream_lanes::rsa::{
    Components, Operation, PrivateKey, Size, Workspace, private_operation,
};
use slipstream_lanes::{Backend, LANES};

use crate::Error;
use crate::cleanup::check_interrupted;
use crate::machine::Machine;
use crate::processor::{on_core, thread_cpu_time};
use crate::statistics::Spread;

pub use bound::{multiplications_per_batch, multiply_rate};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The sizes of keys.
    pub sizes: Vec<Size>,
    /// The instructions to compute with.
    pub backend: Backend,
    /// The number of operations per batch, 1 to [`LANES`].
    pub live_lanes: usize,
    /// The length of one measurement, in CPU time.
    pub window: Duration,
    /// How many times all is measured.
    pub rounds: usize,
    /// The core to measure on.
    pub core: usize,
}

/// What is found for one operation: medians over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// `rsa2048`, `rsa3072` or `rsa4096`: the private-key operation with CRT, checked with the public exponent.
    pub op: &'static str,
    /// The backend's name.
    pub backend: &'static str,
    /// Operations per batch.
    pub live_lanes: usize,
    /// How many pairs were measured.
    pub rounds: usize,
    /// Operations per second of CPU time, in lanes.
    pub lanes_per_s: f64,
    /// Operations per second of CPU time, by libcrypto.
    pub libcrypto_per_s: f64,
    /// lanes / libcrypto, median of the paired ratios.
    pub ratio: f64,
    /// Its smallest and largest value.
    pub ratio_range: [f64; 2],
    /// The share of the core's multiply instructions that the algorithm's count makes up; `None` for the portable
    /// backend, which no vector instruction bounds.
    pub bound_fraction: Option<f64>,
}

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    pub machine: Machine,
    /// One per operation.
    pub rows: Vec<Row>,
}

/// One pair of measurements.
struct Pair {
    lanes_per_s: f64,
    libcrypto_per_s: f64,
    bound_fraction: Option<f64>,
}

impl Experiment {
    /// Runs the experiment; `progress` sees every row as it comes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this CPU cannot run the backend or a result is wrong, [`Error::OpenSsl`],
    /// [`Error::Io`], [`Error::Interrupted`].
    ///
    /// # Panics
    /// If the number of live lanes is not 1 to [`LANES`].
    pub fn run(&self, mut progress: impl FnMut(&Row) + Send) -> Result<Outcome, Error> {
        assert!((1..=LANES).contains(&self.live_lanes), "1 to 8 live lanes");
        if !self.backend.is_available() {
            let missing: Vec<&str> = self.backend.missing().collect();
            return Err(Error::Unsupported(format!(
                "this CPU cannot run the backend {}: it lacks {}",
                self.backend.name(),
                missing.join(" and ")
            )));
        }
        let rows = on_core(self.core, || {
            let mut rows = Vec::new();
            for &size in &self.sizes {
                let row = self.measure(size)?;
                progress(&row);
                rows.push(row);
            }
            Ok(rows)
        })?;
        Ok(Outcome {
            machine: Machine::describe(None),
            rows,
        })
    }

    fn measure(&self, size: Size) -> Result<Row, Error> {
        let mut subject = Subject::new(self.backend, size, self.live_lanes)?;
        subject.check()?;
        let pairs = (0..self.rounds)
            .map(|round| self.measure_pair(&mut subject, size, round))
            .collect::<Result<Vec<Pair>, Error>>()?;

        let unmeasurable = || Error::Unsupported("nothing was computed in a window".to_owned());
        let median = |part: fn(&Pair) -> f64| {
            Spread::of(pairs.iter().map(part))
                .map(|spread| spread.median)
                .ok_or_else(unmeasurable)
        };
        let ratio = Spread::of_ratios(
            pairs
                .iter()
                .map(|pair| (pair.lanes_per_s, pair.libcrypto_per_s)),
        )
        .ok_or_else(unmeasurable)?;
        let bounds: Option<Vec<f64>> = pairs.iter().map(|pair| pair.bound_fraction).collect();
        Ok(Row {
            op: name(size),
            backend: self.backend.name(),
            live_lanes: self.live_lanes,
            rounds: pairs.len(),
            lanes_per_s: median(|pair| pair.lanes_per_s)?,
            libcrypto_per_s: median(|pair| pair.libcrypto_per_s)?,
            ratio: ratio.median,
            ratio_range: [ratio.min, ratio.max],
            bound_fraction: bounds.and_then(Spread::of).map(|spread| spread.median),
        })
    }

    fn measure_pair(&self, subject: &mut Subject, size: Size, round: usize) -> Result<Pair, Error> {
        let mut batches_per_s = 0.0;
        let mut libcrypto_per_s = 0.0;
        // Lanes first in one round, libcrypto first in the next: a drift favours neither.
        for turn in [round, round + 1] {
            check_interrupted()?;
            if turn.is_multiple_of(2) {
                batches_per_s = rate(self.window, || subject.run_batch())?;
            } else {
                libcrypto_per_s = rate(self.window, || subject.run_libcrypto())?;
            }
        }
        // Measured next to what it bounds: the clock depends on how much 512-bit work there has just been.
        let bound = multiply_rate(self.backend).zip(multiplications_per_batch(self.backend, size));
        Ok(Pair {
            lanes_per_s: batches_per_s * self.live_lanes as f64,
            libcrypto_per_s,
            bound_fraction: bound.map(|(rate, count)| batches_per_s * count as f64 / rate),
        })
    }
}

/// The name of the operation with keys of this size.
pub fn name(size: Size) -> &'static str {
    match size {
        Size::Rsa2048 => "rsa2048",
        Size::Rsa3072 => "rsa3072",
        Size::Rsa4096 => "rsa4096",
    }
}

/// One key in both libraries, with a message.
struct Subject {
    libcrypto: Rsa<Private>,
    lanes: PrivateKey,
    workspace: Box<Workspace>,
    input: Vec<u8>,
    outputs: Vec<Vec<u8>>,
    expected: Vec<u8>,
}

impl Subject {
    fn new(backend: Backend, size: Size, live_lanes: usize) -> Result<Subject, Error> {
        let bits = u32::try_from(size.bits()).expect("a few thousand");
        let libcrypto = Rsa::generate(bits).map_err(Error::openssl("cannot generate a key"))?;
        let lanes = lanes_key(backend, &libcrypto)?;
        // Any number below the modulus, whose highest bit is set.
        let input: Vec<u8> = (0..size.bytes()).map(|index| index as u8 & 0x7f).collect();
        Ok(Subject {
            libcrypto,
            lanes,
            workspace: Workspace::new(),
            input,
            outputs: vec![vec![0; size.bytes()]; live_lanes],
            expected: vec![0; size.bytes()],
        })
    }

    /// Compares the two libraries' results, which also warms both up: libcrypto prepares its Montgomery contexts and its
    /// blinding with a key's first operation.
    fn check(&mut self) -> Result<(), Error> {
        self.run_libcrypto()?;
        self.run_batch()?;
        if self.outputs.iter().all(|output| *output == self.expected) {
            Ok(())
        } else {
            Err(Error::Unsupported(
                "lanes and libcrypto disagree: do not use this build on this machine".to_owned(),
            ))
        }
    }

    fn run_batch(&mut self) -> Result<(), Error> {
        let mut operations: Vec<Operation<'_>> = self
            .outputs
            .iter_mut()
            .map(|output| Operation {
                key: &self.lanes,
                input: black_box(&self.input),
                output,
            })
            .collect();
        let outcomes = private_operation(&mut self.workspace, &mut operations);
        match outcomes.iter().find_map(|outcome| outcome.err()) {
            None => Ok(()),
            Some(error) => Err(Error::Unsupported(format!(
                "an operation in lanes failed: {error}"
            ))),
        }
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.libcrypto
            .private_decrypt(black_box(&self.input), &mut self.expected, Padding::NONE)
            .map(drop)
            .map_err(Error::openssl("libcrypto's private-key operation failed"))
    }
}

fn lanes_key(backend: Backend, key: &Rsa<Private>) -> Result<PrivateKey, Error> {
    let bytes = |number: Option<&openssl::bn::BigNumRef>| {
        number.map_or_else(Vec::new, openssl::bn::BigNumRef::to_vec)
    };
    PrivateKey::new(
        backend,
        &Components {
            modulus: &key.n().to_vec(),
            public_exponent: &key.e().to_vec(),
            prime1: &bytes(key.p()),
            prime2: &bytes(key.q()),
            exponent1: &bytes(key.dmp1()),
            exponent2: &bytes(key.dmq1()),
            coefficient: &bytes(key.iqmp()),
        },
    )
    .map_err(|error| Error::Unsupported(format!("lanes refused a key of libcrypto's: {error}")))
}

/// How often `work` runs per second of CPU time, over about `window` of it. CPU time, since the core may be shared.
fn rate(window: Duration, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    // The first run after the other library's turn finds its tables and the branch predictors cold.
    work()?;
    let started = thread_cpu_time();
    let mut runs = 0_u64;
    loop {
        work()?;
        runs += 1;
        let used = thread_cpu_time() - started;
        if used >= window {
            return Ok(runs as f64 / used.as_secs_f64());
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<9} {:<12} {:>5} {:>12} {:>14} {:>8} {:>14} {:>8}",
            "operation", "backend", "lanes", "lanes/s", "libcrypto/s", "ratio", "(range)", "bound"
        )?;
        for row in &self.rows {
            let bound = row
                .bound_fraction
                .map_or_else(|| "-".to_owned(), |bound| format!("{bound:.2}"));
            let range = format!("{:.2}..{:.2}", row.ratio_range[0], row.ratio_range[1]);
            writeln!(
                formatter,
                "{:<9} {:<12} {:>5} {:>12.0} {:>14.0} {:>8.2} {range:>14} {bound:>8}",
                row.op,
                row.backend,
                row.live_lanes,
                row.lanes_per_s,
                row.libcrypto_per_s,
                row.ratio,
            )?;
        }
        writeln!(
            formatter,
            "Operations per second of one core's time; ratio: median of {} paired rounds, lanes / libcrypto ({});\n\
             bound: share of the multiply instructions that this core was measured to retire.",
            self.rows.first().map_or(0, |row| row.rounds),
            self.machine.openssl,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::usable_cores;

    #[test]
    fn a_row_is_consistent_in_itself() {
        let backend = Backend::detect().unwrap_or(Backend::Portable);
        let outcome = Experiment {
            sizes: vec![Size::Rsa2048],
            backend,
            live_lanes: 3,
            window: Duration::from_millis(20),
            rounds: 3,
            core: usable_cores().unwrap()[0],
        }
        .run(|_| ())
        .unwrap();
        let row = &outcome.rows[0];
        assert_eq!((row.op, row.rounds, row.live_lanes), ("rsa2048", 3, 3));
        assert!(row.ratio_range[0] <= row.ratio && row.ratio <= row.ratio_range[1]);
        assert_eq!(row.bound_fraction.is_some(), backend != Backend::Portable);
        assert!(outcome.to_string().contains("rsa2048"));
    }

    #[test]
    fn a_wrong_result_is_not_measured() {
        let mut subject = Subject::new(Backend::Portable, Size::Rsa2048, 1).unwrap();
        subject.check().unwrap();
        subject.libcrypto = Rsa::generate(2048).unwrap();
        assert!(matches!(subject.check(), Err(Error::Unsupported(_))));
    }
}
