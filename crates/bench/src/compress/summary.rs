//! What the measurements come to: medians, and ratios that are paired by round.

use serde::Serialize;

use super::{Configuration, Row, Threshold};
use crate::machine::Machine;
use crate::pages::Source;
use crate::statistics::Spread;
use crate::zlib;

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    pub machine: Machine,
    /// The version of zlib that the library is compared with.
    pub zlib: String,
    /// What the pages were made of.
    pub source: Source,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// What they come to.
    pub summary: Vec<Comparison>,
    /// From which length on an engine saves time, if there was one.
    pub threshold: Option<Threshold>,
}

/// One configuration with one page, against zlib at level 1.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The name of the page.
    pub page: &'static str,
    /// What is compared.
    pub configuration: String,
    /// In how many rounds both were measured.
    pub rounds: usize,
    /// Content per second in MB.
    pub mb_per_s: Option<Spread>,
    /// CPU time of the caller for a page in microseconds.
    pub cpu_us: Option<Spread>,
    /// The share of its core that the caller took.
    pub core_share: Option<Spread>,
    /// The length of the page divided by that of what it becomes.
    pub compression_ratio: Option<Spread>,
    /// Content per second, configuration / zlib: above 1, the configuration is faster.
    pub rate_ratio: Option<Spread>,
    /// CPU time, zlib / configuration: above 1, the configuration takes less.
    pub cpu_ratio: Option<Spread>,
    /// Length of what the page becomes, configuration / zlib: below 1, the configuration compresses better.
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
    let select = |configuration: &str| -> Vec<&Row> {
        rows.iter()
            .filter(|row| row.page == page && row.configuration == configuration)
            .collect()
    };
    let own = select(configuration);
    let pairs: Vec<(&Row, &Row)> = select(&Configuration::Zlib.name())
        .into_iter()
        .filter_map(|base| Some((base, *own.iter().find(|row| row.round == base.round)?)))
        .collect();
    let spread = |part: fn(&Row) -> f64| Spread::of(own.iter().map(|row| part(row)));
    let ratio = |part: fn(&Row, &Row) -> (f64, f64)| {
        Spread::of_ratios(pairs.iter().map(|(base, own)| part(base, own)))
    };
    Comparison {
        page,
        configuration: configuration.to_owned(),
        rounds: pairs.len(),
        mb_per_s: spread(|row| row.mb_per_s),
        cpu_us: spread(|row| row.cpu_us),
        core_share: spread(|row| row.core_share),
        compression_ratio: spread(|row| row.bytes as f64 / row.output_bytes as f64),
        rate_ratio: ratio(|base, own| (own.mb_per_s, base.mb_per_s)),
        cpu_ratio: ratio(|base, own| (base.cpu_us, own.cpu_us)),
        size_ratio: ratio(|base, own| (own.output_bytes as f64, base.output_bytes as f64)),
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
