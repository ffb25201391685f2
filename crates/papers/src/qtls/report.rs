//! The outcome as text, and as a report with the paper's figures.

use std::fmt;
use std::path::{Path, PathBuf};

use slipstream_bench::chart::{Bars, Lines, Panel, Rgb, palette};
use slipstream_bench::table::{Checked, Table, failures, median, number, percentage, range, text};

use super::{CLAIMS, Claim, Comparison, Configuration, Device, Figure, Outcome, Row, differences};
use crate::Error;
use crate::claim::{self, measured_table};
use crate::overview::Overview;
use crate::report::{Report, Section, facts};

/// The headings of the subject of a claim.
const SUBJECT: [&str; 3] = ["fig", "load", "compared"];

impl fmt::Display for Outcome {
    /// The measurements, the paper's claims beside them, and the failures.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overview = Overview {
            preface: String::new(),
            measurements: table(&self.summary),
            legend: format!("Device: {}. {LEGEND}", self.device),
            tables: vec![(
                "Beside the paper",
                measured_table(&SUBJECT, CLAIMS.iter().map(|claim| self.beside(claim))),
            )],
            failures: self.failures(),
        };
        overview.fmt(formatter)
    }
}

const LEGEND: &str = "\
Ratios are medians of paired rounds, against SW and in figure 12 against QAT+AH; above 1 the configuration is better
(more handshakes per second, a shorter mean time). CPU us: the worker's per handshake. offloaded: the part of the
operations that went to the device; OpenSSL computed the rest. load core: the share that load generator and engine took
of theirs; near 100% they were the limit.";

/// Writes `rows.json`, a `figure-N.svg` for each figure and `report.html` into `directory`, which
/// is made if it is not there. Returns the files that were written.
///
/// # Errors
/// [`Error::Testbed`] when a file cannot be written, [`Error::Unsupported`] when a plot cannot be
/// drawn.
pub fn write_report(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let rounds = outcome.rows.iter().map(|row| row.round).max().unwrap_or(0);
    let mut facts = facts(&outcome.machine, rounds, outcome.errors());
    facts.push(("device", device_description(outcome).to_owned()));
    let figures = outcome.figures();
    let figures = figures.iter().map(|&figure| section(outcome, figure));
    let mut sections = vec![configurations(outcome)];
    sections.extend(figures.collect::<Result<Vec<Section>, Error>>()?);
    let report = Report {
        title: "The experiments of QTLS with Slipstream",
        introduction: "Xiaokang Hu et al.: QTLS: High-Performance TLS Asynchronous Offload Framework with Intel \
            QuickAssist Technology, PPoPP 2019, section 5. Figure 10, bulk transfer, is not part of this. All ratios are \
            medians over rounds in which the configurations were measured in turn; above 1 the configuration is better.",
        facts,
        differences: differences::SETTING
            .iter()
            .chain(differences::of_device(outcome.device))
            .copied()
            .collect(),
        sections,
    };
    report.write(outcome, directory)
}

impl Outcome {
    /// A claim of the paper beside our value.
    fn beside(&self, claim: &Claim) -> claim::Claim {
        claim::Claim {
            subject: vec![
                claim.figure.number().to_string(),
                claim.load(),
                format!("{} / {}", claim.configuration.name(), claim.against.name()),
            ],
            quantity: claim.measure.description(),
            here: self.measured(claim),
            paper: claim.paper.to_owned(),
            source: claim.source,
        }
    }

    fn failures(&self) -> Vec<String> {
        failures(self.rows.iter().map(|row: &Row| Checked {
            place: format!(
                "figure {}, round {}, {} {} at {}",
                row.figure, row.round, row.configuration, row.suite, row.concurrency
            ),
            errors: row.errors,
            first_error: row.first_error.as_deref(),
            missing: (row.handshakes == 0).then_some("handshake"),
        }))
    }
}

fn table<'a>(lines: impl IntoIterator<Item = &'a Comparison>) -> Table {
    let mut table = Table::new([
        number("fig"),
        text("suite"),
        number("resumed"),
        number("conns"),
        text("config"),
        number("handshakes/s"),
        number("CPU us"),
        number("offloaded"),
        number("load core"),
        number("mean us"),
        number("p50 us"),
        number("handshakes x"),
        number("(range)"),
        number("mean x"),
    ]);
    for line in lines {
        table.add([
            line.figure.to_string(),
            line.suite.to_owned(),
            format!("{}%", line.resumed_percent),
            line.concurrency.to_string(),
            line.configuration.to_owned(),
            median(line.handshakes_per_s, 0),
            median(line.server_cpu_us, 0),
            percentage(line.offloaded_share),
            percentage(line.load_core_share),
            median(line.mean_us, 0),
            median(line.p50_us, 0),
            median(line.handshakes_ratio, 2),
            range(line.handshakes_ratio),
            median(line.mean_ratio, 2),
        ]);
    }
    table
}

fn device_description(outcome: &Outcome) -> &'static str {
    Device::find(outcome.device).map_or(outcome.device, Device::description)
}

/// The directives of each configuration.
fn configurations(outcome: &Outcome) -> Section {
    let device = Device::find(outcome.device).unwrap_or(Device::Lanes);
    let socket = (device != Device::Lanes).then_some(Path::new("/engine.sock"));
    let mut table = Table::new([text("configuration"), text("nginx.conf")]);
    for configuration in Configuration::ALL {
        let block = configuration.block(device, socket).ok().flatten();
        let block = block.unwrap_or_else(|| "(no module)".to_owned());
        table.add([configuration.name().to_owned(), block]);
    }
    Section {
        heading: "Configurations".to_owned(),
        tables: vec![table],
        ..Section::default()
    }
}

fn section(outcome: &Outcome, figure: Figure) -> Result<Section, Error> {
    let claims = claims(figure).map(|claim| outcome.beside(claim));
    Ok(Section {
        heading: title(figure),
        plots: vec![(
            format!("figure-{}.svg", figure.number()),
            plot(outcome, figure)?,
        )],
        tables: vec![claim::table(&SUBJECT, claims)],
        paragraphs: reasons(outcome, figure),
        measurements: Some(table(outcome.of(figure))),
    })
}

/// A paragraph for each configuration that was measured: our numbers, the paper's, and the reason
/// of the difference.
fn reasons(outcome: &Outcome, figure: Figure) -> Vec<(&'static str, String)> {
    let mut paragraphs = Vec::new();
    for &configuration in figure.configurations() {
        let measured = outcome
            .of(figure)
            .any(|line| line.configuration == configuration.name());
        let reason = differences::of(figure, configuration).filter(|_| measured);
        let Some(reason) = reason else { continue };
        let numbers: Vec<String> = claims(figure)
            .filter(|claim| claim.configuration == configuration)
            .filter_map(|claim| {
                Some(format!(
                    "{} times {} here, {} in the paper ({})",
                    median(Some(outcome.measured(claim)?), 2),
                    claim.against.name(),
                    claim.paper,
                    claim.load(),
                ))
            })
            .collect();
        let numbers = match &numbers[..] {
            [] => String::new(),
            numbers => format!("{}. ", numbers.join("; ")),
        };
        paragraphs.push((configuration.name(), format!("{numbers}{reason}")));
    }
    paragraphs
}

fn claims(figure: Figure) -> impl Iterator<Item = &'static Claim> {
    CLAIMS.iter().filter(move |claim| claim.figure == figure)
}

fn title(figure: Figure) -> String {
    format!("Figure {}: {}", figure.number(), figure.title())
}

/// The plot of a figure, as the text of an SVG file.
fn plot(outcome: &Outcome, figure: Figure) -> Result<String, Error> {
    let lines: Vec<&Comparison> = outcome.of(figure).collect();
    if figure.is_over_concurrency() {
        over_concurrency(figure, &lines).draw()
    } else {
        bars(figure, &lines).draw()
    }
}

/// A group of bars for each case: handshakes per second, with the range over the rounds.
fn bars(figure: Figure, lines: &[&Comparison]) -> Bars {
    let mut bars = Bars::new(&title(figure), "handshakes per second", 0);
    for (line, configuration) in shown(lines) {
        let group = match figure {
            Figure::Resumption => format!("{}% resumed", line.resumed_percent),
            _ => line.suite.to_owned(),
        };
        if let Some(rate) = line.handshakes_per_s {
            bars.add(&group, line.configuration, |_| color(configuration), rate);
        }
    }
    bars
}

/// A quantity against concurrency: its label, whether its axis is logarithmic, and its value.
type Quantity = (&'static str, bool, fn(&Comparison) -> Option<f64>);

const MEAN_RESPONSE: Quantity = ("mean response time (ms)", true, mean_ms);
const MEDIAN_RESPONSE: Quantity = ("median response time (ms)", true, |line| {
    line.p50_us.map(|time| time.median / 1e3)
});
const THROUGHPUT: Quantity = ("handshakes per second", false, |line| {
    line.handshakes_per_s.map(|rate| rate.median)
});
const MEAN_HANDSHAKE: Quantity = ("mean handshake time (ms)", true, mean_ms);

fn mean_ms(line: &Comparison) -> Option<f64> {
    line.mean_us.map(|time| time.median / 1e3)
}

/// Two plots against concurrency: times of figure 11, throughput and time of figure 12.
fn over_concurrency(figure: Figure, lines: &[&Comparison]) -> Lines {
    let quantities = match figure {
        Figure::ResponseTime => [MEAN_RESPONSE, MEDIAN_RESPONSE],
        _ => [THROUGHPUT, MEAN_HANDSHAKE],
    };
    let panels = quantities.map(|(label, is_logarithmic, _)| Panel::new(label, is_logarithmic));
    let mut plot = Lines::new(&title(figure), "concurrent connections", panels);
    for (line, configuration) in shown(lines) {
        plot.add_series(line.configuration, color(configuration));
        for (panel, (_, _, value)) in quantities.iter().enumerate() {
            let at = line.concurrency as f64;
            plot.add(panel, line.configuration, at, value(line));
        }
    }
    plot
}

/// The lines with their configurations, in the paper's order of these.
fn shown<'a>(lines: &'a [&Comparison]) -> impl Iterator<Item = (&'a Comparison, Configuration)> {
    Configuration::ALL.into_iter().flat_map(|configuration| {
        let lines = lines.iter().map(move |&line| (line, configuration));
        lines.filter(move |(line, _)| line.configuration == configuration.name())
    })
}

fn color(configuration: Configuration) -> Rgb {
    match configuration {
        Configuration::Software => palette::GRAY,
        Configuration::Straight => palette::ORANGE,
        Configuration::Asynchronous => palette::SKY,
        Configuration::AsynchronousSlow => palette::BLACK,
        Configuration::Heuristic => palette::GREEN,
        Configuration::Qtls => palette::BLUE,
        Configuration::Idle => palette::VERMILLION,
        Configuration::Hybrid => palette::PURPLE,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_testbed::machine::Machine;
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::report::escape;
    use crate::testing::{plots_of, texts};

    #[test]
    fn the_table_has_a_line_for_everything_and_the_claims() {
        let outcome = everything();
        let text = outcome.to_string();
        assert!(!text.contains("FAILED"), "{text}");
        assert!(text.contains("90.0%"), "{text}");
        let lines = text
            .lines()
            .filter(|line| line.contains("tls12-rsakx"))
            .count();
        // Seven configurations in figure 7, four and three at seven concurrencies, and the claims
        // for any concurrency.
        let claims = CLAIMS.iter();
        let claims = claims.filter(|claim| claim.load() == "tls12-rsakx").count();
        assert_eq!(lines, 7 + 4 * 7 + 3 * 7 + claims, "{text}");
        assert!(text.contains("QTLS / SW"), "{text}");
    }

    #[test]
    fn what_went_wrong_stands_below() {
        let mut outcome = everything();
        outcome.rows[0].errors = 2;
        outcome.rows[0].first_error = Some("handshake: reset".to_owned());
        outcome.rows[2].handshakes = 0;
        let text = outcome.to_string();
        assert!(text.contains("FAILED: 2 connections, figure 7"), "{text}");
        assert!(text.contains("handshake: reset"), "{text}");
        assert_eq!(text.matches("NOTHING to compare").count(), 1, "{text}");
    }

    #[test]
    fn the_report_is_well_formed_complete_and_needs_nothing_else() {
        let outcome = everything();
        let scratch = ScratchDirectory::new().unwrap();
        let directory = scratch.file("results");
        let written = write_report(&outcome, &directory).unwrap();
        assert_eq!(written.len(), 2 + Figure::ALL.len());

        let html = fs::read_to_string(directory.join("report.html")).unwrap();
        assert_eq!(plots_of(&html), Figure::ALL.len());
        for claim in CLAIMS {
            assert!(html.contains(&escape(claim.source)), "{claim:?}");
        }
        // QTLS is five times SW in these rows.
        assert!(html.contains("5.00 times SW here, 9 in the paper (tls12-rsakx)"));

        let rows = fs::read_to_string(directory.join("rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        let plot = fs::read_to_string(directory.join("figure-11.svg")).unwrap();
        assert!(roxmltree::Document::parse(&plot).is_ok());
    }

    #[test]
    fn every_figure_is_well_formed_with_axes_and_a_legend() {
        let outcome = everything();
        for figure in Figure::ALL {
            let texts = texts(&plot(&outcome, figure).unwrap());
            let expect = |text: &str| {
                assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
            };
            for configuration in figure.configurations() {
                expect(configuration.name());
            }
            match figure {
                Figure::ResponseTime => expect("median response time (ms)"),
                Figure::Polling => expect("mean handshake time (ms)"),
                _ => expect("handshakes per second"),
            }
            if figure.is_over_concurrency() {
                expect("concurrent connections");
                expect("64");
            }
        }
        let resumption = plot(&outcome, Figure::Resumption).unwrap();
        assert!(texts(&resumption).contains(&"90% resumed".to_owned()));
    }

    #[test]
    fn what_was_not_measured_leaves_a_plot_without_it() {
        for figure in Figure::ALL {
            let case = figure.cases(64)[0];
            let mut row = row(figure, case, figure.baseline(), 1, 0.0);
            row.mean_us = f64::NAN;
            row.p50_us = f64::NAN;
            let outcome = Outcome::new(Machine::describe(None), Device::Lanes, vec![row]);
            let svg = plot(&outcome, figure).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            texts(&svg);
        }
    }
}
