//! Comparisons of the measurements: medians, and ratios that are paired by round.

use serde::Serialize;
use slipstream_bench::statistics::{Measurement, Paired, Spread};
use slipstream_testbed::machine::Machine;
use slipstream_testbed::peers::Crypto;

use super::{Configuration, PAPER, Row, Version};

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: Machine,
    /// The line that Squid prints about its version.
    pub squid: String,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// Their comparisons.
    pub summary: Vec<Comparison>,
    /// The paper's results.
    pub paper: [Version; 2],
}

/// One configuration against another: against the first, and `serve` against `serve-awslc` too.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// The configuration that is compared with.
    pub baseline: &'static str,
    /// The configuration.
    pub configuration: &'static str,
    /// In how many rounds both were measured.
    pub rounds: usize,
    /// Connections per second.
    pub connections_per_s: Option<Spread>,
    /// CPU time of all servers per connection in microseconds.
    pub server_cpu_us: Option<Spread>,
    /// That of Squid alone.
    pub squid_cpu_us: Option<Spread>,
    /// That of `slipstream serve`.
    pub serve_cpu_us: Option<Spread>,
    /// The share of their core that the servers took.
    pub server_share: Option<Spread>,
    /// The share of its core that the load took.
    pub client_share: Option<Spread>,
    /// Median time of a connection in microseconds.
    pub p50_us: Option<Spread>,
    /// Connections per second, configuration / baseline: above 1, the configuration serves more.
    pub connections_ratio: Option<Spread>,
    /// CPU per connection, baseline / configuration: above 1, the configuration takes less.
    pub cpu_ratio: Option<Spread>,
}

impl Outcome {
    pub(super) fn new(
        machine: Machine,
        squid: String,
        configurations: &[Configuration],
        rows: Vec<Row>,
    ) -> Outcome {
        Outcome {
            machine,
            squid,
            summary: summarize(&rows, configurations),
            rows,
            paper: PAPER,
        }
    }

    /// The number of connections that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// The comparisons with the first configuration, itself included, which the plots have.
    pub(super) fn against_first(&self) -> impl Iterator<Item = &Comparison> {
        let first = self.summary.first().map(|line| line.baseline);
        self.summary
            .iter()
            .filter(move |line| Some(line.baseline) == first)
    }
}

fn summarize(rows: &[Row], configurations: &[Configuration]) -> Vec<Comparison> {
    let mut cases: Vec<(&'static str, usize)> = Vec::new();
    for row in rows {
        let case = (row.suite, row.concurrency);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let pairs = pairs(configurations);
    cases
        .iter()
        .flat_map(|&case| pairs.iter().map(move |&pair| compare(rows, case, pair)))
        .collect()
}

/// The first with each, itself included, and aws-lc with lanes.
fn pairs(configurations: &[Configuration]) -> Vec<(&'static str, &'static str)> {
    const SOFTWARE: Configuration = Configuration::Serve(Crypto::AwsLc);
    const LANES: Configuration = Configuration::Serve(Crypto::Slipstream);
    let Some(first) = configurations.first() else {
        return Vec::new();
    };
    let mut pairs: Vec<_> = configurations
        .iter()
        .map(|compared| (first.name(), compared.name()))
        .collect();
    if configurations[1..].contains(&SOFTWARE) && configurations.contains(&LANES) {
        pairs.push((SOFTWARE.name(), LANES.name()));
    }
    pairs
}

fn compare(
    rows: &[Row],
    (suite, concurrency): (&'static str, usize),
    (baseline, configuration): (&'static str, &'static str),
) -> Comparison {
    let is = |row: &Row, name: &str| {
        row.configuration == name && row.suite == suite && row.concurrency == concurrency
    };
    let paired = Paired::of(rows, |row| is(row, baseline), |row| is(row, configuration));
    Comparison {
        suite,
        concurrency,
        baseline,
        configuration,
        rounds: paired.rounds(),
        connections_per_s: paired.spread(|row| row.connections_per_s),
        server_cpu_us: paired.spread(|row| row.server_cpu_us),
        squid_cpu_us: paired.spread(|row| row.squid_cpu_us),
        serve_cpu_us: paired.spread_of_some(|row| row.serve_cpu_us),
        server_share: paired.spread(|row| row.server_share),
        client_share: paired.spread(|row| row.client_share),
        p50_us: paired.spread(|row| row.p50_us),
        connections_ratio: paired.ratio(|row| row.connections_per_s),
        cpu_ratio: paired.inverse_ratio(|row| row.server_cpu_us),
    }
}

impl Measurement for Row {
    fn round(&self) -> usize {
        self.round
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(
        configuration: Configuration,
        round: usize,
        rate: f64,
        cpu: f64,
    ) -> Row {
        Row {
            configuration: configuration.name(),
            suite: "tls13-rsa2048",
            concurrency: 64,
            round,
            connections: 1000,
            connections_per_s: rate,
            server_cpu_us: cpu,
            squid_cpu_us: 200.0,
            serve_cpu_us: (configuration != Configuration::Own).then_some(cpu - 200.0),
            p50_us: 1e6 / rate,
            p99_us: 2e6 / rate,
            server_share: 0.99,
            client_share: 0.3,
            errors: 0,
            first_error: None,
        }
    }

    /// All configurations over two rounds, in the second of which the machine is half as fast.
    pub(in super::super) fn everything() -> Outcome {
        let [own, software, lanes] = Configuration::ALL;
        let rows = vec![
            row(own, 1, 1000.0, 1000.0),
            row(software, 1, 1250.0, 800.0),
            row(lanes, 1, 2500.0, 400.0),
            row(lanes, 2, 1250.0, 800.0),
            row(software, 2, 625.0, 1600.0),
            row(own, 2, 500.0, 2000.0),
        ];
        let squid = "Squid Cache: Version 5.7".to_owned();
        Outcome::new(Machine::describe(None), squid, &Configuration::ALL, rows)
    }

    #[test]
    fn ratios_are_paired_and_lanes_are_compared_with_aws_lc_too() {
        let ratios: Vec<(&str, &str, f64, f64)> = everything()
            .summary
            .iter()
            .map(|line| {
                let median = |spread: Option<Spread>| spread.unwrap().median;
                (
                    line.baseline,
                    line.configuration,
                    median(line.connections_ratio),
                    median(line.cpu_ratio),
                )
            })
            .collect();
        assert_eq!(
            ratios,
            [
                ("own", "own", 1.0, 1.0),
                ("own", "serve-awslc", 1.25, 1.25),
                ("own", "serve", 2.5, 2.5),
                ("serve-awslc", "serve", 2.0, 2.0),
            ]
        );
        assert_eq!(everything().against_first().count(), 3);
    }

    #[test]
    fn what_has_no_terminator_has_no_time_of_it() {
        let outcome = everything();
        assert!(outcome.summary[0].serve_cpu_us.is_none());
        assert_eq!(outcome.summary[2].serve_cpu_us.unwrap().min, 200.0);
    }

    #[test]
    fn without_a_second_configuration_there_are_its_figures() {
        let lanes = Configuration::Serve(Crypto::Slipstream);
        assert_eq!(pairs(&[lanes]), [("serve", "serve")]);
        assert_eq!(pairs(&[]), []);
    }
}
