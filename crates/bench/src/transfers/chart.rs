//! The plots.

use std::path::{Path, PathBuf};

use super::{Comparison, Compression, Configuration, Outcome, Transport};
use crate::chart::{Bars, Rgb, palette};
use crate::statistics::Spread;
use crate::{Error, report};

/// A quantity that is plotted for every page and configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plot {
    /// Responses per second, against `sw`.
    Responses,
    /// CPU time of the worker per response, against `sw`.
    Cpu,
    /// The time for 10,000 requests.
    Completion,
    /// The length of the page by that of the response.
    Compression,
    /// The share of its core that the worker takes.
    ServerShare,
}

impl Plot {
    /// All.
    pub const ALL: [Plot; 5] = [
        Plot::Responses,
        Plot::Cpu,
        Plot::Completion,
        Plot::Compression,
        Plot::ServerShare,
    ];

    /// The name of its file for a transport.
    pub fn file_name(self, transport: Transport) -> String {
        let name = match self {
            Plot::Responses => "requests",
            Plot::Cpu => "cpu",
            Plot::Completion => "completion",
            Plot::Compression => "ratio",
            Plot::ServerShare => "utilization",
        };
        format!("{name}-tls-{}.svg", transport.name())
    }

    fn title(self) -> &'static str {
        match self {
            Plot::Responses => "Requests per second, times sw",
            Plot::Cpu => "CPU time of the worker per request, times less than sw",
            Plot::Completion => "Time for 10,000 requests",
            Plot::Compression => "Length of the page by that of the response",
            Plot::ServerShare => "Share of its core that the worker takes",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Plot::Responses | Plot::Cpu => "times",
            Plot::Completion => "seconds",
            Plot::Compression => "ratio",
            Plot::ServerShare => "share",
        }
    }

    fn value(self, line: &Comparison) -> Option<Spread> {
        match self {
            Plot::Responses => line.responses_ratio,
            Plot::Cpu => line.cpu_ratio,
            Plot::Completion => line.completion_s,
            Plot::Compression => line.compression_ratio,
            Plot::ServerShare => line.server_share,
        }
    }
}

/// The plot of a quantity with a transport, as the text of an SVG file. The `note` stands behind
/// its title.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be drawn.
pub fn draw(
    outcome: &Outcome,
    transport: Transport,
    plot: Plot,
    note: &str,
) -> Result<String, Error> {
    let digits = match plot {
        Plot::Completion => 0,
        _ => 1,
    };
    let title = format!("{} (tls {}{note})", plot.title(), transport.name());
    let mut bars = Bars::new(&title, plot.label(), digits);
    for line in outcome.of(transport) {
        let configuration = Configuration::find(line.configuration);
        if let (Some(configuration), Some(value)) = (configuration, plot.value(line)) {
            bars.add(
                line.page,
                line.configuration,
                |_| color(configuration),
                value,
            );
        }
    }
    bars.draw()
}

/// Writes `rows.json` and the plots into `directory`, which is made if it is not there. Returns the
/// files that were written.
///
/// # Errors
/// [`Error::Testbed`] when a file cannot be written, [`Error::Unsupported`] when a plot cannot be
/// drawn.
pub fn write_report(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut plots = Vec::new();
    for transport in outcome.transports() {
        for plot in Plot::ALL {
            let text = draw(outcome, transport, plot, "")?;
            plots.push((plot.file_name(transport), text));
        }
    }
    report::write(outcome, plots, directory)
}

/// A colour for each way to compress, darker with accelerated TLS.
fn color(configuration: Configuration) -> Rgb {
    let Rgb(red, green, blue) = match configuration.compression {
        Compression::Stock => palette::GRAY,
        Compression::Software => palette::ORANGE,
        Compression::Straight => palette::PURPLE,
        Compression::Pipelined => palette::SKY,
        Compression::Asynchronous => palette::GREEN,
        Compression::Failover => palette::VERMILLION,
    };
    let part = |value: u8| match configuration.accelerates_tls {
        true => (u16::from(value) * 6 / 10) as u8,
        false => value,
    };
    Rgb(part(red), part(green), part(blue))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_testbed::machine::Machine;
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::chart::tests::texts;
    use crate::corpus::PAGES;

    #[test]
    fn every_plot_is_well_formed_with_its_pages_and_configurations() {
        let outcome = everything();
        for transport in Transport::ALL {
            for plot in Plot::ALL {
                let texts = texts(&draw(&outcome, transport, plot, "").unwrap());
                let names = transport.configurations().map(Configuration::name);
                for expected in names.chain(PAGES.iter().map(|page| page.name)) {
                    assert!(texts.iter().any(|text| text == expected), "{expected}");
                }
            }
        }
    }

    #[test]
    fn a_report_is_rows_and_plots() {
        let scratch = ScratchDirectory::new().unwrap();
        let outcome = everything();
        let written = write_report(&outcome, &scratch.file("results")).unwrap();
        assert_eq!(written.len(), 1 + Transport::ALL.len() * Plot::ALL.len());
        let rows = fs::read_to_string(scratch.file("results/rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        assert!(scratch.file("results/requests-tls-new.svg").is_file());
    }

    #[test]
    fn what_was_not_measured_leaves_a_plot_without_it() {
        let mut row = row(Transport::Plain, &PAGES[0], Configuration::BASELINE, 1, 1.0);
        row.completion_s = f64::NAN;
        let source = everything().source;
        let outcome = Outcome::new(Machine::describe(None), source, vec![row]);
        for plot in Plot::ALL {
            let svg = draw(&outcome, Transport::Plain, plot, "; figure 13").unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            texts(&svg);
        }
    }
}
