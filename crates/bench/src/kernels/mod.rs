//! Private-key operations in lanes against libcrypto, on one core.

mod bound;
mod exchange;
mod operation;
mod rsa;
mod scalar;
mod signature;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use slipstream_lanes::LANES;

pub use slipstream_lanes::Backend;
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::processor::{on_core, thread_cpu_time};

use crate::Error;
use crate::statistics::Spread;

pub use bound::{multiplications_per_batch, multiply_rate};
pub use operation::{Group, Operation};

/// Stretches of work between two readings of the clock last at least this long: one reading is a
/// system call, which takes as long as a part of a fast operation.
const SHORTEST_STRETCH: Duration = Duration::from_micros(200);

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The instructions to compute with.
    pub backend: Backend,
    /// The number of operations per batch, 1 to [`LANES`]. Signatures with precomputed nonces come
    /// one at a time.
    pub live_lanes: usize,
    /// The length of one measurement in CPU time, with what is prepared for it.
    pub window: Duration,
    /// Number of times that all is measured.
    pub rounds: usize,
    /// The core to measure on.
    pub core: usize,
}

/// The result for one operation: medians over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The operation's name.
    pub op: &'static str,
    /// The backend's name.
    pub backend: &'static str,
    /// Operations per call.
    pub live_lanes: usize,
    /// Number of pairs that were measured.
    pub rounds: usize,
    /// Operations per second of CPU time, in lanes.
    pub lanes_per_s: f64,
    /// Operations per second of CPU time, by libcrypto.
    pub libcrypto_per_s: f64,
    /// lanes / libcrypto, median of the paired ratios.
    pub ratio: f64,
    /// Its smallest and largest value.
    pub ratio_range: [f64; 2],
    /// The share of the core's multiply instructions that the algorithm's count makes up; `None`
    /// for the portable backend, which no vector instruction bounds, and on curves, where additions
    /// and carries count as much.
    pub bound_fraction: Option<f64>,
}

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
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
    /// [`Error::Unsupported`] when this CPU cannot run the backend, the backend does not compute an
    /// operation or a result is wrong, [`Error::Testbed`].
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
        let missing = |operation: &&Operation| !operation.is_offered(self.backend);
        if let Some(operation) = self.operations.iter().find(missing) {
            return Err(Error::Unsupported(format!(
                "the backend {} does not compute {}",
                self.backend.name(),
                operation.name()
            )));
        }
        let rows = on_core(self.core, || {
            let mut rows = Vec::new();
            for &operation in &self.operations {
                let row = self.measure(operation)?;
                progress(&row);
                rows.push(row);
            }
            Ok::<_, Error>(rows)
        })?;
        Ok(Outcome {
            machine: Machine::describe(None),
            rows,
        })
    }

    fn measure(&self, operation: Operation) -> Result<Row, Error> {
        let mut subject = self.subject(operation)?;
        if !subject.agrees()? {
            return Err(Error::Unsupported(
                "lanes and libcrypto disagree: do not use this build on this machine".to_owned(),
            ));
        }
        let pairs = (0..self.rounds)
            .map(|round| self.measure_pair(operation, subject.as_mut(), round))
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
            op: operation.name(),
            backend: self.backend.name(),
            live_lanes: self.operations_per_call(operation),
            rounds: pairs.len(),
            lanes_per_s: median(|pair| pair.lanes_per_s)?,
            libcrypto_per_s: median(|pair| pair.libcrypto_per_s)?,
            ratio: ratio.median,
            ratio_range: [ratio.min, ratio.max],
            bound_fraction: bounds.and_then(Spread::of).map(|spread| spread.median),
        })
    }

    fn measure_pair(
        &self,
        operation: Operation,
        subject: &mut dyn Subject,
        round: usize,
    ) -> Result<Pair, Error> {
        let mut calls_per_s = 0.0;
        let mut libcrypto_per_s = 0.0;
        // Lanes first in one round, libcrypto first in the next: a drift favours neither.
        for turn in [round, round + 1] {
            check_interrupted()?;
            if turn.is_multiple_of(2) {
                calls_per_s = rate(self.window, |runs| {
                    subject.prepare(runs)?;
                    time(runs, || subject.run_lanes())
                })?;
            } else {
                libcrypto_per_s = rate(self.window, |runs| time(runs, || subject.run_libcrypto()))?;
            }
        }
        let multiplications = match operation {
            Operation::Rsa(size) => multiplications_per_batch(self.backend, size),
            _ => None,
        };
        // Measured next to what it bounds: the clock depends on how much 512-bit work there has
        // just been.
        let bound = multiplications.and_then(|count| Some((count, multiply_rate(self.backend)?)));
        Ok(Pair {
            lanes_per_s: calls_per_s * self.operations_per_call(operation) as f64,
            libcrypto_per_s,
            bound_fraction: bound.map(|(count, rate)| calls_per_s * count as f64 / rate),
        })
    }

    fn subject(&self, operation: Operation) -> Result<Box<dyn Subject>, Error> {
        let (backend, live_lanes) = (self.backend, self.live_lanes);
        Ok(match operation {
            Operation::Rsa(size) => {
                Box::new(rsa::PrivateOperation::new(backend, size, live_lanes)?)
            }
            Operation::Public(group) => {
                Box::new(exchange::KeyPairs::new(backend, group, live_lanes)?)
            }
            Operation::Shared(group) => {
                Box::new(exchange::SharedSecrets::new(backend, group, live_lanes)?)
            }
            Operation::Sign(curve) => {
                Box::new(signature::Signatures::new(backend, curve, live_lanes)?)
            }
            Operation::SignAhead(curve) => {
                Box::new(signature::SignaturesAhead::new(backend, curve)?)
            }
        })
    }

    fn operations_per_call(&self, operation: Operation) -> usize {
        match operation {
            Operation::SignAhead(_) => 1,
            _ => self.live_lanes,
        }
    }
}

/// An operation in both libraries.
trait Subject {
    /// Makes ready what that many runs of lanes use up, outside of what is timed.
    fn prepare(&mut self, _runs: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Computes one batch in lanes.
    fn run_lanes(&mut self) -> Result<(), Error>;

    /// Computes one operation with libcrypto.
    fn run_libcrypto(&mut self) -> Result<(), Error>;

    /// Returns true if both come to the same results.
    fn agrees(&mut self) -> Result<bool, Error>;
}

/// Runs per second of CPU time: not of real time, since the core may be shared. `stretch` runs it
/// as many times as it is told to and returns the time that this took; what else it does ends the
/// measurement sooner.
fn rate(
    window: Duration,
    mut stretch: impl FnMut(usize) -> Result<Duration, Error>,
) -> Result<f64, Error> {
    // The first run after the other library's turn finds its tables and the branch predictors cold.
    stretch(1)?;
    let started = thread_cpu_time();
    let mut used = Duration::ZERO;
    let mut done = 0_u64;
    let mut runs = 1;
    while thread_cpu_time() - started < window {
        let time = stretch(runs)?;
        used += time;
        done += runs as u64;
        if time < SHORTEST_STRETCH {
            runs *= 2;
        }
    }
    Ok(done as f64 / used.as_secs_f64())
}

/// The CPU time of that many runs of `work`.
fn time(runs: usize, mut work: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    let started = thread_cpu_time();
    (0..runs).try_for_each(|_| work())?;
    Ok(thread_cpu_time() - started)
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<16} {:<12} {:>5} {:>12} {:>14} {:>8} {:>14} {:>8}",
            "operation", "backend", "lanes", "lanes/s", "libcrypto/s", "ratio", "(range)", "bound"
        )?;
        for row in &self.rows {
            let bound = row
                .bound_fraction
                .map_or_else(|| "-".to_owned(), |bound| format!("{bound:.2}"));
            let range = format!("{:.2}..{:.2}", row.ratio_range[0], row.ratio_range[1]);
            writeln!(
                formatter,
                "{:<16} {:<12} {:>5} {:>12.0} {:>14.0} {:>8.2} {range:>14} {bound:>8}",
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
    use slipstream_testbed::processor::usable_cores;

    use super::*;

    fn experiment(backend: Backend, operations: &[Operation]) -> Experiment {
        Experiment {
            operations: operations.to_vec(),
            backend,
            live_lanes: 3,
            window: Duration::from_millis(5),
            rounds: 3,
            core: usable_cores().unwrap()[0],
        }
    }

    #[test]
    fn every_operation_gives_a_row_that_is_consistent_in_itself() {
        let backend = Backend::detect().unwrap_or(Backend::Portable);
        let offered: Vec<Operation> = Operation::ALL
            .into_iter()
            .filter(|operation| operation.is_offered(backend))
            .collect();
        let outcome = experiment(backend, &offered).run(|_| ()).unwrap();
        assert_eq!(outcome.rows.len(), offered.len());
        for (row, operation) in outcome.rows.iter().zip(&offered) {
            let lanes = match operation {
                Operation::SignAhead(_) => 1,
                _ => 3,
            };
            assert_eq!(
                (row.op, row.rounds, row.live_lanes),
                (operation.name(), 3, lanes)
            );
            assert!(row.lanes_per_s > 0.0 && row.libcrypto_per_s > 0.0);
            assert!(row.ratio_range[0] <= row.ratio && row.ratio <= row.ratio_range[1]);
            let is_rsa = matches!(operation, Operation::Rsa(_));
            assert_eq!(
                row.bound_fraction.is_some(),
                is_rsa && backend != Backend::Portable,
                "{}",
                row.op
            );
            assert!(outcome.to_string().contains(row.op));
        }
    }

    #[test]
    fn an_operation_that_the_backend_lacks_is_refused() {
        if Backend::Avx512.is_available() {
            let curves = experiment(Backend::Avx512, &[Operation::Shared(Group::X25519)]);
            let error = curves.run(|_| ()).err().unwrap();
            assert!(error.to_string().contains("x25519-shared"), "{error}");
        }
    }

    #[test]
    fn a_rate_is_that_of_what_was_timed_in_stretches_long_enough_for_the_clock() {
        let mut stretches = Vec::new();
        let rate = rate(Duration::from_millis(20), |runs| {
            stretches.push(runs);
            let started = thread_cpu_time();
            while thread_cpu_time() - started < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
            Ok(Duration::from_micros(10) * u32::try_from(runs).unwrap())
        })
        .unwrap();
        assert!((rate - 100_000.0).abs() < 1.0, "{rate}");
        assert!(stretches.len() <= 201, "{stretches:?}");
        let expected = [1, 1, 2, 4, 8, 16, 32, 32, 32];
        for (runs, expected) in stretches.iter().zip(expected) {
            assert_eq!(*runs, expected, "{stretches:?}");
        }
    }
}
