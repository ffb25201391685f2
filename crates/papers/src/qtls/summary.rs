//! Comparisons of the measurements: medians, and ratios that are paired by round.

use serde::Serialize;
use slipstream_bench::statistics::{Measurement, Paired, Spread};
use slipstream_testbed::machine::Machine;

use super::paper::{Claim, Measure};
use super::{Case, Configuration, Counters, Device, Figure, Row};

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: Machine,
    /// The name of the device that operations were offloaded to.
    pub device: &'static str,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// Their comparisons.
    pub summary: Vec<Comparison>,
}

/// One configuration in one case of a figure, against the figure's baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The number of the paper's figure.
    pub figure: u8,
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// Share of handshakes that were to resume a session, in per cent.
    pub resumed_percent: u8,
    /// The configuration.
    pub configuration: &'static str,
    /// The configuration that it is compared with.
    pub baseline: &'static str,
    /// In how many rounds both were measured.
    pub rounds: usize,
    /// Handshakes per second.
    pub handshakes_per_s: Option<Spread>,
    /// Worker CPU per handshake in microseconds.
    pub server_cpu_us: Option<Spread>,
    /// Mean time in microseconds, as [`Row::mean_us`].
    pub mean_us: Option<Spread>,
    /// Median time in microseconds.
    pub p50_us: Option<Spread>,
    /// The share of operations that was offloaded; none where there were no operations.
    pub offloaded_share: Option<Spread>,
    /// The share that load generator and engine together took of their core.
    pub load_core_share: Option<Spread>,
    /// Handshakes per second, configuration / baseline: above 1, the configuration serves more.
    pub handshakes_ratio: Option<Spread>,
    /// Mean time, baseline / configuration: above 1, the configuration answers faster.
    pub mean_ratio: Option<Spread>,
}

impl Outcome {
    pub(super) fn new(machine: Machine, device: Device, rows: Vec<Row>) -> Outcome {
        Outcome {
            machine,
            device: device.name(),
            summary: summarize(&rows),
            rows,
        }
    }

    /// The number of connections that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// The figures that were measured.
    pub fn figures(&self) -> Vec<Figure> {
        Figure::ALL
            .into_iter()
            .filter(|figure| self.of(*figure).next().is_some())
            .collect()
    }

    /// The comparisons of a figure.
    pub fn of(&self, figure: Figure) -> impl Iterator<Item = &Comparison> {
        self.summary
            .iter()
            .filter(move |line| line.figure == figure.number())
    }

    /// Our value for a claim of the paper; `None` if it was not measured.
    pub fn measured(&self, claim: &Claim) -> Option<Spread> {
        let found = self.of(claim.figure).find(|line| {
            line.suite == claim.suite
                && line.resumed_percent == claim.resumed_percent
                && claim
                    .concurrency
                    .is_none_or(|concurrency| line.concurrency == concurrency)
        })?;
        let case = Case {
            suite: found.suite,
            concurrency: found.concurrency,
            resumed_percent: found.resumed_percent,
        };
        let comparison = compare(
            &self.rows,
            claim.figure,
            case,
            claim.configuration.name(),
            claim.against,
        );
        match claim.measure {
            Measure::Handshakes => comparison.handshakes_ratio,
            Measure::MeanTime => comparison.mean_ratio,
        }
    }
}

/// Compares every configuration with the baseline of its figure, case by case, in the order of the
/// figures.
fn summarize(rows: &[Row]) -> Vec<Comparison> {
    let mut summary = Vec::new();
    for figure in Figure::ALL {
        let mut cases: Vec<Case> = Vec::new();
        for row in rows.iter().filter(|row| row.figure == figure.number()) {
            if !cases.contains(&row.case()) {
                cases.push(row.case());
            }
        }
        for case in cases {
            for configuration in figure.configurations() {
                let name = configuration.name();
                let is_measured = |row: &Row| {
                    row.figure == figure.number() && row.case() == case && row.configuration == name
                };
                if rows.iter().any(is_measured) {
                    summary.push(compare(rows, figure, case, name, figure.baseline()));
                }
            }
        }
    }
    summary
}

fn compare(
    rows: &[Row],
    figure: Figure,
    case: Case,
    configuration: &'static str,
    baseline: Configuration,
) -> Comparison {
    let is = |row: &Row, name: &str| {
        row.figure == figure.number() && row.case() == case && row.configuration == name
    };
    let baseline = baseline.name();
    let paired = Paired::of(rows, |row| is(row, baseline), |row| is(row, configuration));
    Comparison {
        figure: figure.number(),
        suite: case.suite,
        concurrency: case.concurrency,
        resumed_percent: case.resumed_percent,
        configuration,
        baseline,
        rounds: paired.rounds(),
        handshakes_per_s: paired.spread(|row| row.handshakes_per_s),
        server_cpu_us: paired.spread(|row| row.server_cpu_us),
        mean_us: paired.spread(|row| row.mean_us),
        p50_us: paired.spread(|row| row.p50_us),
        load_core_share: paired.spread(|row| row.client_share + row.engine_share.unwrap_or(0.0)),
        offloaded_share: paired
            .spread_of_some(|row| row.counters.as_ref().map(Counters::offloaded_share)),
        handshakes_ratio: paired.ratio(|row| row.handshakes_per_s),
        mean_ratio: paired.inverse_ratio(|row| row.mean_us),
    }
}

impl Measurement for Row {
    fn round(&self) -> usize {
        self.round
    }
}

impl Row {
    /// The load that it was measured under.
    pub(super) fn case(&self) -> Case {
        Case {
            suite: self.suite,
            concurrency: self.concurrency,
            resumed_percent: self.resumed_percent,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::qtls::CLAIMS;

    pub(in crate::qtls) fn row(
        figure: Figure,
        case: Case,
        configuration: Configuration,
        round: usize,
        rate: f64,
    ) -> Row {
        Row {
            figure: figure.number(),
            configuration: configuration.name(),
            suite: case.suite,
            concurrency: case.concurrency,
            resumed_percent: case.resumed_percent,
            round,
            handshakes: 1000,
            resumed: 0,
            handshakes_per_s: rate,
            server_cpu_us: 1e6 / rate,
            mean_us: 1e6 / rate * case.concurrency as f64,
            p50_us: 9e5 / rate * case.concurrency as f64,
            p99_us: 2e6 / rate * case.concurrency as f64,
            server_share: 1.0,
            client_share: 0.3,
            engine_share: configuration.directives().map(|_| 0.4),
            counters: configuration.directives().map(|_| Counters {
                offloaded: 900,
                software: 100,
                polls: 0,
                ineffective_polls: 0,
            }),
            errors: 0,
            first_error: None,
        }
    }

    /// Two rounds of everything, the second on a machine that is half as fast.
    pub(in crate::qtls) fn everything() -> Outcome {
        let mut rows = Vec::new();
        for round in [1, 2] {
            for figure in Figure::ALL {
                for case in figure.cases(64) {
                    for (index, &configuration) in figure.configurations().iter().enumerate() {
                        let rate = 1000.0 * (index + 1) as f64 / round as f64;
                        rows.push(row(figure, case, configuration, round, rate));
                    }
                }
            }
        }
        Outcome::new(Machine::describe(None), Device::Paced, rows)
    }

    #[test]
    fn ratios_are_paired_by_round_and_better_above_one() {
        let outcome = everything();
        assert_eq!(outcome.figures(), Figure::ALL);
        for line in &outcome.summary {
            assert_eq!(line.rounds, 2);
            let figure = Figure::find(line.figure).unwrap();
            let configurations = figure.configurations();
            let index = configurations
                .iter()
                .position(|configuration| configuration.name() == line.configuration)
                .unwrap();
            let expected = (index + 1) as f64;
            let ratio = line.handshakes_ratio.unwrap();
            assert!((ratio.min - expected).abs() < 1e-9, "{line:?}");
            assert!((ratio.max - expected).abs() < 1e-9, "{line:?}");
            assert!((line.mean_ratio.unwrap().median - expected).abs() < 1e-9);
            assert!((line.handshakes_per_s.unwrap().median - 750.0 * expected).abs() < 1e-9);
        }
    }

    #[test]
    fn every_claim_of_the_paper_finds_its_measurement() {
        let outcome = everything();
        for claim in CLAIMS {
            assert!(outcome.measured(claim).is_some(), "{claim:?}");
        }
        let step = CLAIMS
            .iter()
            .find(|claim| claim.against == Configuration::Heuristic && claim.paper == "1.08")
            .unwrap();
        assert!((outcome.measured(step).unwrap().median - 5.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn without_its_baseline_a_configuration_has_figures_but_no_ratio() {
        let figure = Figure::FullHandshakesTls13;
        let case = figure.cases(64)[0];
        let rows = vec![row(figure, case, Configuration::Qtls, 1, 2000.0)];
        let outcome = Outcome::new(Machine::describe(None), Device::Lanes, rows);
        let [line] = &outcome.summary[..] else {
            panic!("{:?}", outcome.summary);
        };
        assert_eq!(line.handshakes_per_s.unwrap().median, 2000.0);
        assert_eq!((line.rounds, line.handshakes_ratio), (0, None));
        assert!(CLAIMS.iter().all(|claim| outcome.measured(claim).is_none()));
    }
}
