//! Comparisons of the measurements: medians, and ratios that are paired by round.

use serde::Serialize;
use slipstream_testbed::machine::Machine;

use super::{Configuration, Row, Threshold};
use crate::corpus::Source;
use crate::statistics::{Paired, Spread};
use crate::zlib;

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: Machine,
    /// The version of zlib that the library is compared with.
    pub zlib: String,
    /// The documents that the pages were made of.
    pub source: Source,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// Their comparisons.
    pub summary: Vec<Comparison>,
    /// The length from which on an engine saves time, if there was one.
    pub threshold: Option<Threshold>,
}

/// One configuration with one page, against zlib at level 1.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The name of the page.
    pub page: &'static str,
    /// The configuration.
    pub configuration: String,
    /// In how many rounds both were measured.
    pub rounds: usize,
    /// Content per second in MB.
    pub mb_per_s: Option<Spread>,
    /// CPU time of the caller for a page in microseconds.
    pub cpu_us: Option<Spread>,
    /// The share of its core that the caller took.
    pub core_share: Option<Spread>,
    /// The length of the page divided by that of the output.
    pub compression_ratio: Option<Spread>,
    /// Content per second, configuration / zlib: above 1, the configuration is faster.
    pub rate_ratio: Option<Spread>,
    /// CPU time, zlib / configuration: above 1, the configuration takes less.
    pub cpu_ratio: Option<Spread>,
    /// Length of the output, configuration / zlib: below 1, the configuration compresses
    /// better.
    pub size_ratio: Option<Spread>,
}

impl Outcome {
    pub(super) fn new(
        machine: Machine,
        source: Source,
        rows: Vec<Row>,
        threshold: Option<Threshold>,
    ) -> Outcome {
        Outcome {
            machine,
            zlib: zlib::version(),
            source,
            summary: summarize(&rows),
            rows,
            threshold,
        }
    }
}

/// Compares every configuration with zlib, in the order in which they were measured first.
fn summarize(rows: &[Row]) -> Vec<Comparison> {
    let mut summary: Vec<Comparison> = Vec::new();
    for row in rows {
        let is_known = summary
            .iter()
            .any(|line| line.page == row.page && line.configuration == row.configuration);
        if !is_known {
            summary.push(compare(rows, row.page, &row.configuration));
        }
    }
    summary
}

fn compare(rows: &[Row], page: &'static str, configuration: &str) -> Comparison {
    let is = |row: &Row, name: &str| row.page == page && row.configuration == name;
    let baseline = Configuration::Zlib.name();
    let paired = Paired::of(rows, |row| is(row, &baseline), |row| is(row, configuration));
    Comparison {
        page,
        configuration: configuration.to_owned(),
        rounds: paired.rounds(),
        mb_per_s: paired.spread(|row| row.mb_per_s),
        cpu_us: paired.spread(|row| row.cpu_us),
        core_share: paired.spread(|row| row.core_share),
        compression_ratio: paired.spread(|row| row.bytes as f64 / row.output_bytes as f64),
        rate_ratio: paired.ratio(|row| row.mb_per_s),
        cpu_ratio: paired.inverse_ratio(|row| row.cpu_us),
        size_ratio: paired.ratio(|row| row.output_bytes as f64),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn row(configuration: &str, round: usize, rate: f64) -> Row {
        Row {
            page: "cnn",
            bytes: 1000,
            configuration: configuration.to_owned(),
            round,
            mb_per_s: rate,
            cpu_us: 1e3 / rate,
            core_share: 1.0,
            output_bytes: if configuration == "zlib-1" { 200 } else { 190 },
        }
    }

    /// Two rounds, the second backwards and on a machine that is half as fast.
    pub(in crate::compress) fn outcome() -> Outcome {
        of_rows(vec![
            row("zlib-1", 1, 100.0),
            row("gzip-1 stream", 1, 400.0),
            row("gzip-1 stream", 2, 200.0),
            row("zlib-1", 2, 50.0),
        ])
    }

    /// One round of these configurations.
    pub(in crate::compress) fn outcome_of(configurations: &[&str]) -> Outcome {
        let row = |name: &&str| row(name, 1, 100.0);
        of_rows(configurations.iter().map(row).collect())
    }

    fn of_rows(rows: Vec<Row>) -> Outcome {
        let source = Source {
            origin: "a test".to_owned(),
            pages: Vec::new(),
        };
        Outcome::new(Machine::describe(None), source, rows, None)
    }

    #[test]
    fn ratios_are_paired_by_round_and_better_above_one() {
        let outcome = outcome();
        let [base, stream] = &outcome.summary[..] else {
            panic!("{:?}", outcome.summary);
        };
        assert_eq!(base.rate_ratio.unwrap().median, 1.0);
        assert_eq!(stream.rounds, 2);
        for ratio in [stream.rate_ratio, stream.cpu_ratio] {
            let ratio = ratio.unwrap();
            assert!((ratio.min - 4.0).abs() < 1e-9 && (ratio.max - 4.0).abs() < 1e-9);
        }
        assert!((stream.size_ratio.unwrap().median - 0.95).abs() < 1e-9);
        assert!((base.compression_ratio.unwrap().median - 5.0).abs() < 1e-9);
    }
}
