//! The plots.

use plotters::style::RGBColor;

use super::{Comparison, Compression, Configuration, Outcome, Transport};
use crate::Error;
use crate::chart::{Bar, Bars, Series};
use crate::statistics::Spread;

/// A quantity that is plotted for every page and configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plot {
    Responses,
    Cpu,
    Completion,
    Compression,
    ServerShare,
}

impl Plot {
    pub(super) const ALL: [Plot; 5] = [
        Plot::Responses,
        Plot::Cpu,
        Plot::Completion,
        Plot::Compression,
        Plot::ServerShare,
    ];

    /// The name of its file, together with the transport's.
    pub(super) fn name(self) -> &'static str {
        match self {
            Plot::Responses => "requests",
            Plot::Cpu => "cpu",
            Plot::Completion => "completion",
            Plot::Compression => "ratio",
            Plot::ServerShare => "utilization",
        }
    }

    fn title(self, transport: Transport) -> String {
        // The paper's figure 13 is without TLS, 14 with it; figure 12 is of requests per second.
        let figure = match transport {
            Transport::Plain => "figure 13",
            Transport::Kept | Transport::New => "figure 14",
        };
        let (what, place) = match self {
            Plot::Responses => ("Requests per second, times sw", "figure 12".to_owned()),
            Plot::Cpu => (
                "CPU time of the worker per request, times less than sw",
                "not in the paper".to_owned(),
            ),
            Plot::Completion => ("Time for 10,000 requests", format!("{figure}a")),
            Plot::Compression => (
                "Length of the page by that of the response",
                "figure 13b".to_owned(),
            ),
            Plot::ServerShare => (
                "Share of its core that the worker takes",
                format!("{figure}, CPU utilization"),
            ),
        };
        format!("{what} (tls {}; {place})", transport.name())
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

/// The plot of a quantity with a transport, as the text of an SVG file.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be drawn.
pub(super) fn draw(outcome: &Outcome, transport: Transport, plot: Plot) -> Result<String, Error> {
    let lines: Vec<&Comparison> = outcome.of(transport).collect();
    let shown: Vec<Configuration> = transport
        .configurations()
        .filter(|shown| lines.iter().any(|line| line.configuration == shown.name()))
        .collect();
    let mut groups: Vec<&str> = Vec::new();
    for line in &lines {
        if !groups.contains(&line.page) {
            groups.push(line.page);
        }
    }
    let bars = lines.iter().filter_map(|line| {
        Some(Bar {
            group: groups.iter().position(|group| *group == line.page)?,
            series: shown
                .iter()
                .position(|shown| shown.name() == line.configuration)?,
            value: plot.value(line)?,
        })
    });
    let series = |configuration: &Configuration| Series {
        name: configuration.name().to_owned(),
        color: color(*configuration),
    };
    Bars {
        title: plot.title(transport),
        label: plot.label(),
        digits: match plot {
            Plot::Completion => 0,
            _ => 1,
        },
        bars: bars.collect(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        series: shown.iter().map(series).collect(),
    }
    .draw()
}

/// The palette of Okabe and Ito, which those who see some colours alike can tell apart; darker with accelerated TLS.
fn color(configuration: Configuration) -> RGBColor {
    let RGBColor(red, green, blue) = match configuration.compression {
        Compression::Stock => RGBColor(130, 130, 130),
        Compression::Software => RGBColor(230, 159, 0),
        Compression::Straight => RGBColor(204, 121, 167),
        Compression::Pipelined => RGBColor(86, 180, 233),
        Compression::Asynchronous => RGBColor(0, 158, 115),
        Compression::Failover => RGBColor(213, 94, 0),
    };
    let part = |value: u8| match configuration.accelerates_tls {
        true => (u16::from(value) * 6 / 10) as u8,
        false => value,
    };
    RGBColor(part(red), part(green), part(blue))
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::chart::tests::texts;
    use crate::machine::Machine;
    use crate::pages::PAGES;

    #[test]
    fn every_plot_is_well_formed_with_its_pages_and_configurations() {
        let outcome = everything();
        for transport in Transport::ALL {
            for plot in Plot::ALL {
                let texts = texts(&draw(&outcome, transport, plot).unwrap());
                let names = transport.configurations().map(Configuration::name);
                for expected in names.chain(PAGES.iter().map(|page| page.name)) {
                    assert!(texts.iter().any(|text| text == expected), "{expected}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_leaves_a_plot_without_it() {
        let mut row = row(Transport::Plain, &PAGES[0], Configuration::BASELINE, 1, 1.0);
        row.completion_s = f64::NAN;
        let source = everything().source;
        let outcome = Outcome::new(Machine::describe(None), source, vec![row]);
        for plot in Plot::ALL {
            let svg = draw(&outcome, Transport::Plain, plot).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            texts(&svg);
        }
    }
}
