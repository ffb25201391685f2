//! Comparisons of the measurements: medians, and ratios that are paired by round.

use serde::Serialize;
use slipstream_testbed::machine::Machine;

use super::{Configuration, Row, Transport};
use crate::corpus::{PAGES, Page, Source};
use crate::statistics::{Paired, Spread};

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: Machine,
    /// The documents that the pages were made of.
    pub source: Source,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// Their comparisons.
    pub summary: Vec<Comparison>,
}

/// One configuration with one page, against `sw`.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The transport.
    pub transport: &'static str,
    /// The name of the page.
    pub page: &'static str,
    /// Its length in bytes.
    pub bytes: usize,
    /// The configuration, which is compared with `sw`.
    pub configuration: &'static str,
    /// In how many rounds both were measured.
    pub rounds: usize,
    /// Responses per second.
    pub responses_per_s: Option<Spread>,
    /// The time that 10,000 requests take, in seconds.
    pub completion_s: Option<Spread>,
    /// Worker CPU per response in microseconds.
    pub server_cpu_us: Option<Spread>,
    /// The length of the page divided by that of the response's body.
    pub compression_ratio: Option<Spread>,
    /// Median time of a response in microseconds.
    pub p50_us: Option<Spread>,
    /// The share of its core that the worker took.
    pub server_share: Option<Spread>,
    /// The share of their core that the load took.
    pub client_share: Option<Spread>,
    /// The share of the same core that the engine took.
    pub engine_share: Option<Spread>,
    /// The share of the chunks that the engine has compressed.
    pub offloaded_share: Option<Spread>,
    /// Responses per second, configuration / sw: above 1, the configuration serves more.
    pub responses_ratio: Option<Spread>,
    /// Worker CPU per response, sw / configuration: above 1, the configuration takes less.
    pub cpu_ratio: Option<Spread>,
    /// Length of a body, configuration / sw: below 1, the configuration compresses better.
    pub size_ratio: Option<Spread>,
}

impl Outcome {
    /// Compares the rows of an experiment.
    pub fn new(machine: Machine, source: Source, rows: Vec<Row>) -> Outcome {
        Outcome {
            machine,
            source,
            summary: summarize(&rows),
            rows,
        }
    }

    /// The number of connections that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// The transports that were measured.
    pub fn transports(&self) -> Vec<Transport> {
        Transport::ALL
            .into_iter()
            .filter(|transport| self.of(*transport).next().is_some())
            .collect()
    }

    /// The comparisons with a transport.
    pub fn of(&self, transport: Transport) -> impl Iterator<Item = &Comparison> {
        self.summary
            .iter()
            .filter(move |line| line.transport == transport.name())
    }
}

/// Compares every configuration with `sw`, page by page.
fn summarize(rows: &[Row]) -> Vec<Comparison> {
    let mut summary = Vec::new();
    for transport in Transport::ALL {
        for page in &PAGES {
            for configuration in transport.configurations() {
                summary.extend(compare(rows, transport, page, configuration));
            }
        }
    }
    summary
}

fn compare(
    rows: &[Row],
    transport: Transport,
    page: &Page,
    configuration: Configuration,
) -> Option<Comparison> {
    let is = |row: &Row, configuration: Configuration| {
        row.transport == transport.name()
            && row.page == page.name
            && row.configuration == configuration.name()
    };
    let paired = Paired::of(
        rows,
        |row| is(row, Configuration::BASELINE),
        |row| is(row, configuration),
    );
    let first = paired.first()?;
    Some(Comparison {
        transport: first.transport,
        page: first.page,
        bytes: first.bytes,
        configuration: first.configuration,
        rounds: paired.rounds(),
        responses_per_s: paired.spread(|row| row.responses_per_s),
        completion_s: paired.spread(|row| row.completion_s),
        server_cpu_us: paired.spread(|row| row.server_cpu_us),
        compression_ratio: paired.spread(|row| row.compression_ratio),
        p50_us: paired.spread(|row| row.p50_us),
        server_share: paired.spread(|row| row.server_share),
        client_share: paired.spread(|row| row.client_share),
        engine_share: paired.spread_of_some(|row| row.engine_share),
        offloaded_share: paired.spread_of_some(|row| row.offloaded_share),
        responses_ratio: paired.ratio(|row| row.responses_per_s),
        cpu_ratio: paired.inverse_ratio(|row| row.server_cpu_us),
        size_ratio: paired.inverse_ratio(|row| row.compression_ratio),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::transfers) fn row(
        transport: Transport,
        page: &'static Page,
        configuration: Configuration,
        round: usize,
        rate: f64,
    ) -> Row {
        Row {
            transport: transport.name(),
            page: page.name,
            bytes: page.length,
            configuration: configuration.name(),
            round,
            responses: rate,
            responses_per_s: rate,
            completion_s: 10_000.0 / rate,
            server_cpu_us: 1e6 / rate,
            compression_ratio: 5.0,
            mean_us: 64e6 / rate,
            p50_us: 64e6 / rate,
            p99_us: 64e6 / rate,
            server_share: 0.9,
            client_share: 0.3,
            engine_share: configuration.compression.offloads().then_some(0.4),
            offloaded_share: configuration.compression.offloads().then_some(0.9),
            compared: 64,
            errors: 0,
            first_error: None,
        }
    }

    /// Two rounds of everything, the second on a machine that is half as fast.
    pub(in crate::transfers) fn everything() -> Outcome {
        let mut rows = Vec::new();
        for round in [1, 2] {
            for transport in Transport::ALL {
                for page in &PAGES {
                    for (index, configuration) in transport.configurations().enumerate() {
                        let rate = 100.0 * (index + 1) as f64 / round as f64;
                        rows.push(row(transport, page, configuration, round, rate));
                    }
                }
            }
        }
        let source = Source {
            origin: "a <test>".to_owned(),
            pages: Vec::new(),
        };
        Outcome::new(Machine::describe(None), source, rows)
    }

    #[test]
    fn ratios_are_paired_by_round_and_better_above_one() {
        let outcome = everything();
        assert_eq!(outcome.transports(), Transport::ALL);
        assert_eq!(outcome.summary.len(), PAGES.len() * (6 + 11 + 11));
        for line in &outcome.summary {
            assert_eq!(line.rounds, 2);
            let transport = Transport::find(line.transport).unwrap();
            let index = transport
                .configurations()
                .position(|configuration| configuration.name() == line.configuration)
                .unwrap();
            let expected = (index + 1) as f64;
            for ratio in [line.responses_ratio, line.cpu_ratio] {
                let ratio = ratio.unwrap();
                assert!((ratio.min - expected).abs() < 1e-9, "{line:?}");
                assert!((ratio.max - expected).abs() < 1e-9, "{line:?}");
            }
            assert!((line.responses_per_s.unwrap().median - 75.0 * expected).abs() < 1e-9);
        }
    }

    #[test]
    fn without_sw_a_configuration_has_figures_but_no_ratio() {
        let configuration = Configuration::find("pipelined").unwrap();
        let rows = vec![row(Transport::Plain, &PAGES[0], configuration, 1, 2000.0)];
        let source = everything().source;
        let outcome = Outcome::new(Machine::describe(None), source, rows);
        let [line] = &outcome.summary[..] else {
            panic!("{:?}", outcome.summary);
        };
        assert_eq!(line.responses_per_s.unwrap().median, 2000.0);
        assert_eq!((line.rounds, line.responses_ratio), (0, None));
    }
}
