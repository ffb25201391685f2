//! The outcome as text, and as a report.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipstream_bench::statistics::Spread;
use slipstream_bench::table::{Table, number, text};
use slipstream_bench::transfers::table::LEGEND;
use slipstream_bench::transfers::{self, Configuration, Plot, Transport, draw};

use super::differences;
use super::paper::{CLAIMS, Claim, Measure};
use crate::Error;
use crate::claim::{self, measured_table};
use crate::overview::Overview;
use crate::report::{Report, Section, facts};

/// The headings of the subject of a claim.
const SUBJECT: [&str; 3] = ["tls", "page", "config"];

/// Transfers beside the paper's claims.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Outcome(pub transfers::Outcome);

impl fmt::Display for Outcome {
    /// The pages, the measurements, the paper's claims beside them, and the failures.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overview = Overview {
            preface: format!("{}\n", self.0.source),
            measurements: self.0.table(|_| true),
            legend: LEGEND.to_owned(),
            tables: vec![(
                "Beside the paper",
                measured_table(&SUBJECT, CLAIMS.iter().map(|claim| self.beside(claim))),
            )],
            failures: self.0.failures(),
        };
        overview.fmt(formatter)
    }
}

impl Outcome {
    /// Our value for a claim of the paper; `None` if it was not measured.
    pub fn measured(&self, claim: &Claim) -> Option<Spread> {
        let line = self.0.of(claim.transport).find(|line| {
            line.page == claim.page && line.configuration == claim.configuration.name()
        })?;
        match claim.measure {
            Measure::Responses => line.responses_ratio,
            Measure::Size => line.size_ratio,
            Measure::ServerShare => line.server_share,
        }
    }

    fn beside(&self, claim: &Claim) -> claim::Claim {
        claim::Claim {
            subject: vec![
                claim.transport.name().to_owned(),
                claim.page.to_owned(),
                claim.configuration.name().to_owned(),
            ],
            quantity: claim.measure.description(),
            here: self.measured(claim),
            paper: claim.paper.to_owned(),
            source: claim.source,
        }
    }
}

/// Writes `rows.json`, plots and `report.html` into `directory`, which is made if it is not there.
/// Returns the files that were written.
///
/// # Errors
/// [`Error::Testbed`] when a file cannot be written, [`Error::Unsupported`] when a plot cannot be
/// drawn.
pub fn write_report(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let measured = &outcome.0;
    let rounds = measured.rows.iter().map(|row| row.round).max().unwrap_or(0);
    let mut sections = vec![pages(measured), configurations(measured), claims(outcome)];
    for transport in measured.transports() {
        sections.push(section(measured, transport)?);
    }
    let report = Report {
        title: "The compression experiments of QWEB with Slipstream",
        introduction: "QWEB: High-Performance Event-Driven Web Architecture with QAT Acceleration, sections 5.3 and 5.4, \
            figures 12 to 14. All ratios are medians over rounds in which the configurations were measured in turn, \
            against sw: nginx's own gzip filter with zlib at level 1.",
        facts: facts(&measured.machine, rounds, measured.errors()),
        differences: differences::SETTING.to_vec(),
        sections,
    };
    report.write(outcome, directory)
}

fn pages(outcome: &transfers::Outcome) -> Section {
    let mut table = Table::new([
        text("page"),
        number("bytes"),
        number("ratio at zlib level 1"),
    ]);
    for line in &outcome.source.pages {
        table.add([
            line.page.to_owned(),
            line.bytes.to_string(),
            format!("{:.2}", line.zlib_1_ratio),
        ]);
    }
    Section {
        heading: "Pages".to_owned(),
        tables: vec![table],
        paragraphs: vec![("", format!("From {}.", outcome.source.origin))],
        ..Section::default()
    }
}

/// The directives of each configuration that was measured.
fn configurations(outcome: &transfers::Outcome) -> Section {
    let mut table = Table::new([text("configuration"), text(""), text("nginx.conf")]);
    let measured = |configuration: &Configuration| {
        let name = configuration.name();
        outcome.rows.iter().any(|row| row.configuration == name)
    };
    for configuration in Configuration::ALL.into_iter().filter(measured) {
        table.add([
            configuration.name().to_owned(),
            configuration.description().to_owned(),
            configuration.directives(),
        ]);
    }
    Section {
        heading: "Configurations".to_owned(),
        tables: vec![table],
        ..Section::default()
    }
}

fn claims(outcome: &Outcome) -> Section {
    let claims = CLAIMS.iter().map(|claim| outcome.beside(claim));
    Section {
        heading: "Beside the paper".to_owned(),
        tables: vec![claim::table(&SUBJECT, claims)],
        ..Section::default()
    }
}

fn section(outcome: &transfers::Outcome, transport: Transport) -> Result<Section, Error> {
    let plots = Plot::ALL.into_iter().map(|plot| {
        let note = format!("; {}", place(plot, transport));
        let text = draw(outcome, transport, plot, &note)?;
        Ok((plot.file_name(transport), text))
    });
    let note = (transport == Transport::New).then(|| ("", differences::NEW_CONNECTIONS.to_owned()));
    Ok(Section {
        heading: format!("tls {}: {}", transport.name(), transport.description()),
        plots: plots.collect::<Result<_, Error>>()?,
        tables: Vec::new(),
        paragraphs: note.into_iter().collect(),
        measurements: Some(outcome.table(|line| line.transport == transport.name())),
    })
}

/// The paper's figure that has the same quantity. Figure 13 is without TLS and 14 with it.
fn place(plot: Plot, transport: Transport) -> String {
    let figure = match transport {
        Transport::Plain => "figure 13",
        Transport::Kept | Transport::New => "figure 14",
    };
    match plot {
        Plot::Responses => "figure 12".to_owned(),
        Plot::Cpu => "not in the paper".to_owned(),
        Plot::Completion => format!("{figure}a"),
        Plot::Compression => "figure 13b".to_owned(),
        Plot::ServerShare => format!("{figure}, CPU utilization"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_bench::corpus::{PAGES, Source};
    use slipstream_bench::transfers::Row;
    use slipstream_testbed::machine::Machine;
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::*;
    use crate::report::escape;
    use crate::testing::{plots_of, texts};

    /// One round of everything.
    fn everything() -> Outcome {
        let mut rows = Vec::new();
        for transport in Transport::ALL {
            for page in &PAGES {
                for (index, configuration) in transport.configurations().enumerate() {
                    let rate = 100.0 * (index + 1) as f64;
                    let offloads = configuration.compression.offloads();
                    rows.push(Row {
                        transport: transport.name(),
                        page: page.name,
                        bytes: page.length,
                        configuration: configuration.name(),
                        round: 1,
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
                        engine_share: offloads.then_some(0.4),
                        offloaded_share: offloads.then_some(0.9),
                        compared: 64,
                        errors: 0,
                        first_error: None,
                    });
                }
            }
        }
        let source = Source {
            origin: "a <test>".to_owned(),
            pages: Vec::new(),
        };
        Outcome(transfers::Outcome::new(
            Machine::describe(None),
            source,
            rows,
        ))
    }

    #[test]
    fn every_claim_of_the_paper_finds_its_measurement() {
        let outcome = everything();
        for claim in CLAIMS {
            assert!(outcome.measured(claim).is_some(), "{claim:?}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_everything_and_the_claims() {
        let text = everything().to_string();
        assert!(text.contains("Pages from a <test>:"), "{text}");
        let lines = text.lines().filter(|line| line.contains("pipelined+tls"));
        let claims = CLAIMS.iter();
        let claims = claims.filter(|claim| claim.configuration.name() == "pipelined+tls");
        assert_eq!(lines.count(), 2 * 6 + claims.count(), "{text}");
    }

    #[test]
    fn the_report_is_well_formed_complete_and_needs_nothing_else() {
        let outcome = everything();
        let scratch = ScratchDirectory::new().unwrap();
        let directory = scratch.file("results");
        let written = write_report(&outcome, &directory).unwrap();
        let plots = Transport::ALL.len() * Plot::ALL.len();
        assert_eq!(written.len(), 2 + plots);

        let html = fs::read_to_string(directory.join("report.html")).unwrap();
        assert_eq!(plots_of(&html), plots);
        assert!(html.contains("a &lt;test&gt;"));
        for claim in CLAIMS {
            assert!(html.contains(&escape(claim.source)), "{claim:?}");
        }
        let rows = fs::read_to_string(directory.join("rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.0.rows.len());
        let plot = fs::read_to_string(directory.join("requests-tls-new.svg")).unwrap();
        let title = "Requests per second, times sw (tls new; figure 12)";
        assert!(texts(&plot).iter().any(|text| text == title), "{plot}");
    }
}
