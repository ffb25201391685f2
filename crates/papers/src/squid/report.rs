//! The outcome as text, and as a report with the paper's table.

use std::fmt;
use std::path::{Path, PathBuf};

use slipstream_bench::chart::{Bars, Rgb, palette};
use slipstream_bench::statistics::Spread;
use slipstream_bench::table::{Checked, Table, failures, median, number, percentage, range, text};
use slipstream_testbed::peers::Crypto;

use super::{Comparison, Configuration, Outcome, PAPER, Row, Version};
use crate::Error;
use crate::claim::{Claim, measured_table};
use crate::overview::Overview;
use crate::report::{Report, Section, facts};

/// The headings of the subject of a claim.
const SUBJECT: [&str; 3] = ["here", "suite", "in the paper"];

/// Differences from the paper.
const DIFFERENCES: [&str; 3] = [
    "The paper patches Squid for an asynchronous OpenSSL and a card. Here Squid stays as Debian packages it, and \
     slipstream serve in front of it does TLS, in lanes of the same core.",
    "All servers of a configuration share one core here, and the load has another.",
    "The paper does not say what its percentage of CPU is of. A ratio of CPU per connection does not depend on it.",
];

impl fmt::Display for Outcome {
    /// The measurements, the paper's table and claims beside them, and the failures.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.summary.first().map_or(0, |line| line.rounds);
        let overview = Overview {
            preface: String::new(),
            measurements: table(&self.summary),
            legend: format!(
                "CPU us: CPU time of all servers per connection. core, load: the share that servers and load took of \
                 their core each. The ratios are medians\nof {rounds} paired rounds; above 1 the configuration is better \
                 than what it stands against (more connections per second, less CPU)."
            ),
            tables: vec![
                (
                    "The paper (Silicom 2016, table 2)",
                    paper_table(&self.paper),
                ),
                ("Beside the paper", measured_table(&SUBJECT, self.claims())),
            ],
            failures: self.failures(),
        };
        overview.fmt(formatter)
    }
}

/// Writes `rows.json`, plots and `report.html` into `directory`, which is made if it is not there.
/// Returns the files that were written.
///
/// # Errors
/// [`Error::Testbed`] when a file cannot be written, [`Error::Unsupported`] when a plot cannot be
/// drawn.
pub fn write_report(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let rounds = outcome.rows.iter().map(|row| row.round).max().unwrap_or(0);
    let mut facts = facts(&outcome.machine, rounds, outcome.errors());
    facts.push(("Squid", outcome.squid.clone()));
    let plots = Plot::ALL
        .into_iter()
        .map(|plot| Ok((plot.file_name().to_owned(), draw(outcome, plot)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let report = Report {
        title: "The Squid measurement of Silicom with Slipstream",
        introduction: "QuickAssist Technology Acceleration Quadruples Squid Web Cache Server Performance, Silicom 2016, \
            table 2: a new TLS connection for each request, with a server key of RSA-2048. All ratios are medians over \
            rounds in which the configurations were measured in turn; above 1 the configuration is better.",
        facts,
        differences: DIFFERENCES.to_vec(),
        sections: vec![Section {
            heading: "Table 2".to_owned(),
            plots,
            tables: vec![
                paper_table(&outcome.paper),
                measured_table(&SUBJECT, outcome.claims()),
                table(&outcome.summary),
            ],
            ..Section::default()
        }],
    };
    report.write(outcome, directory)
}

impl Outcome {
    /// Both ratios of each of the paper's versions of Squid, beside those of `serve` to `own`.
    fn claims(&self) -> Vec<Claim> {
        let lanes = Configuration::Serve(Crypto::Slipstream).name();
        let own = Configuration::Own.name();
        let mut claims = Vec::new();
        for line in &self.summary {
            if (line.configuration, line.baseline) != (lanes, own) {
                continue;
            }
            for version in &self.paper {
                for (quantity, here, paper) in [
                    (
                        "connections/s, times",
                        line.connections_ratio,
                        version.connections_ratio(),
                    ),
                    (
                        "CPU per connection, times less",
                        line.cpu_ratio,
                        version.cpu_ratio(),
                    ),
                ] {
                    claims.push(Claim {
                        subject: vec![
                            format!("{lanes} / {own}"),
                            format!("{}, {}", line.suite, line.concurrency),
                            format!("Squid {}, card / software", version.squid),
                        ],
                        quantity,
                        here,
                        paper: format!("{paper:.2}"),
                        source: "table 2",
                    });
                }
            }
        }
        claims
    }

    fn failures(&self) -> Vec<String> {
        failures(self.rows.iter().map(|row: &Row| Checked {
            place: format!(
                "round {}, {} {} at {}",
                row.round, row.configuration, row.suite, row.concurrency
            ),
            errors: row.errors,
            first_error: row.first_error.as_deref(),
            missing: (row.connections == 0).then_some("handshake"),
        }))
    }
}

fn table(lines: &[Comparison]) -> Table {
    let mut table = Table::new([
        text("suite"),
        number("conns"),
        text("TLS by"),
        text("against"),
        number("conns/s"),
        number("CPU us"),
        number("Squid us"),
        number("serve us"),
        number("core"),
        number("load"),
        number("conns x"),
        number("(range)"),
        number("CPU x"),
        number("(range)"),
    ]);
    for line in lines {
        table.add([
            line.suite.to_owned(),
            line.concurrency.to_string(),
            line.configuration.to_owned(),
            line.baseline.to_owned(),
            median(line.connections_per_s, 0),
            median(line.server_cpu_us, 0),
            median(line.squid_cpu_us, 0),
            median(line.serve_cpu_us, 0),
            percentage(line.server_share),
            percentage(line.client_share),
            median(line.connections_ratio, 2),
            range(line.connections_ratio),
            median(line.cpu_ratio, 2),
            range(line.cpu_ratio),
        ]);
    }
    table
}

/// The four rows of table 2, and the ratios that follow from them.
fn paper_table(paper: &[Version]) -> Table {
    let mut table = Table::new([
        text("Squid"),
        text("accelerated"),
        number("conns/s"),
        number("CPU"),
        number("conns x"),
        number("CPU x"),
    ]);
    for version in paper {
        for (accelerated, rate, percent, ratios) in [
            (
                "no",
                version.connections_per_s,
                version.cpu_percent,
                (1.0, 1.0),
            ),
            (
                "yes",
                version.accelerated_connections_per_s,
                version.accelerated_cpu_percent,
                (version.connections_ratio(), version.cpu_ratio()),
            ),
        ] {
            table.add([
                version.squid.to_owned(),
                accelerated.to_owned(),
                format!("{rate:.0}"),
                format!("{percent:.0}%"),
                format!("{:.2}", ratios.0),
                format!("{:.2}", ratios.1),
            ]);
        }
    }
    table
}

/// A quantity that is plotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plot {
    /// Connections per second, times those of the first configuration; with the paper's ratios.
    ConnectionsRatio,
    Connections,
    Cpu,
}

impl Plot {
    const ALL: [Plot; 3] = [Plot::ConnectionsRatio, Plot::Connections, Plot::Cpu];

    fn file_name(self) -> &'static str {
        match self {
            Plot::ConnectionsRatio => "connections-ratio.svg",
            Plot::Connections => "connections.svg",
            Plot::Cpu => "cpu.svg",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Plot::ConnectionsRatio => {
                "Squid, a TLS connection per request: connections per second, times those with TLS of its own"
            }
            Plot::Connections => "Squid, a TLS connection per request: connections per second",
            Plot::Cpu => "Squid, a TLS connection per request: CPU time of all servers (us)",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Plot::ConnectionsRatio => "times",
            Plot::Connections => "connections per second",
            Plot::Cpu => "us per connection",
        }
    }
}

/// The name of the paper's series.
const CARD: &str = "card";

/// The plot of a quantity, as the text of an SVG file.
fn draw(outcome: &Outcome, plot: Plot) -> Result<String, Error> {
    let digits = match plot {
        Plot::ConnectionsRatio => 1,
        Plot::Connections | Plot::Cpu => 0,
    };
    let mut bars = Bars::new(plot.title(), plot.label(), digits);
    for line in outcome.against_first() {
        let value = match plot {
            Plot::ConnectionsRatio => line.connections_ratio,
            Plot::Connections => line.connections_per_s,
            Plot::Cpu => line.server_cpu_us,
        };
        let group = format!("{}, {}", line.suite, line.concurrency);
        let name = line.configuration;
        if let Some(value) = value {
            bars.add(&group, name, |_| color(name), value);
        }
    }
    if plot == Plot::ConnectionsRatio && !bars.is_empty() {
        for version in PAPER {
            let group = format!("paper, Squid {}", version.squid);
            for (name, ratio) in [
                (Configuration::Own.name(), 1.0),
                (CARD, version.connections_ratio()),
            ] {
                let value = Spread {
                    median: ratio,
                    min: ratio,
                    max: ratio,
                };
                bars.add(&group, name, |_| color(name), value);
            }
        }
    }
    bars.draw()
}

fn color(name: &str) -> Rgb {
    match Configuration::find(name) {
        Some(Configuration::Own) => palette::GRAY,
        Some(Configuration::Serve(Crypto::AwsLc)) => palette::ORANGE,
        Some(Configuration::Serve(Crypto::Slipstream)) => palette::GREEN,
        None => palette::SKY,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_testbed::machine::Machine;
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::testing::{plots_of, texts};

    #[test]
    fn the_papers_rows_stand_below_ours() {
        let text = everything().to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "tls13-rsa2048 64 serve own 1875 600 200 400 99.0% 30.0% 2.50 2.50..2.50 2.50 2.50..2.50",
            "2.6.9 no 354 35% 1.00 1.00",
            "2.6.9 yes 1276 17% 3.60 7.42",
            "3.5.13 no 298 40% 1.00 1.00",
            "3.5.13 yes 1176 25% 3.95 6.31",
            "serve / own tls13-rsa2048, 64 Squid 2.6.9, card / software connections/s, times 2.50 2.50..2.50 3.60 table 2",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn failures_and_empty_windows_stand_below_the_table() {
        let mut outcome = everything();
        outcome.rows[0].errors = 2;
        outcome.rows[0].first_error = Some("request: reset".to_owned());
        outcome.rows[1].connections = 0;
        let text = outcome.to_string();
        assert!(
            text.contains(
                "FAILED: 2 connections, round 1, own tls13-rsa2048 at 64: request: reset"
            ),
            "{text}"
        );
        assert_eq!(text.matches("NOTHING to compare").count(), 1, "{text}");
    }

    #[test]
    fn the_report_is_well_formed_and_complete() {
        let scratch = ScratchDirectory::new().unwrap();
        let outcome = everything();
        let written = write_report(&outcome, &scratch.file("results")).unwrap();
        assert_eq!(written.len(), 2 + Plot::ALL.len());
        let rows = fs::read_to_string(scratch.file("results/rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        assert_eq!(rows["paper"].as_array().unwrap().len(), 2);
        let html = fs::read_to_string(scratch.file("results/report.html")).unwrap();
        assert_eq!(plots_of(&html), Plot::ALL.len());
        assert!(html.contains("3.5.13"));
    }

    #[test]
    fn every_plot_is_well_formed_with_its_configurations_and_the_paper_where_it_belongs() {
        let outcome = everything();
        for plot in Plot::ALL {
            let texts = texts(&draw(&outcome, plot).unwrap());
            let has = |expected: &str| texts.iter().any(|text| text == expected);
            for configuration in Configuration::ALL {
                assert!(has(configuration.name()), "{plot:?}");
            }
            assert!(has("tls13-rsa2048, 64"), "{plot:?}");
            let is_ratio = plot == Plot::ConnectionsRatio;
            assert_eq!(
                has("paper, Squid 3.5.13") && has(CARD),
                is_ratio,
                "{plot:?}"
            );
        }
    }

    #[test]
    fn nothing_measured_leaves_an_empty_plot() {
        let own = Configuration::Own;
        let rows = vec![row(own, 1, f64::NAN, f64::INFINITY)];
        let outcome = Outcome::new(Machine::describe(None), String::new(), &[own], rows);
        for plot in Plot::ALL {
            let svg = draw(&outcome, plot).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            texts(&svg);
        }
    }
}
