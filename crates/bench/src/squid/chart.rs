//! The plots.

use plotters::style::RGBColor;

use super::{Configuration, Outcome, PAPER};
use crate::Error;
use crate::chart::Bars;
use crate::peers::Crypto;
use crate::statistics::Spread;

/// A quantity that is plotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plot {
    /// Times the first configuration, with the paper's.
    ConnectionsRatio,
    Connections,
    Cpu,
}

impl Plot {
    pub(super) const ALL: [Plot; 3] = [Plot::ConnectionsRatio, Plot::Connections, Plot::Cpu];

    /// What its file is called.
    pub(super) fn file_name(self) -> &'static str {
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
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be drawn.
pub(super) fn draw(outcome: &Outcome, plot: Plot) -> Result<String, Error> {
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
        let (group, name) = (
            format!("{}, {}", line.suite, line.concurrency),
            line.configuration,
        );
        if let Some(value) = value {
            bars.add(&group, name, |_| color(name), value);
        }
    }
    if plot == Plot::ConnectionsRatio && !bars.bars.is_empty() {
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

/// The palette of Okabe and Ito, which those who see some colours alike can tell apart.
fn color(name: &str) -> RGBColor {
    match Configuration::find(name) {
        Some(Configuration::Own) => RGBColor(130, 130, 130),
        Some(Configuration::Serve(Crypto::AwsLc)) => RGBColor(230, 159, 0),
        Some(Configuration::Serve(Crypto::Slipstream)) => RGBColor(0, 158, 115),
        None => RGBColor(86, 180, 233),
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::chart::tests::texts;
    use crate::machine::Machine;

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
