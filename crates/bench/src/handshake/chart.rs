//! The plots: the server's CPU time for each kind of handshake, one plot for each number of
//! connections.

use std::path::{Path, PathBuf};

use super::Outcome;
use crate::chart::{Bars, palette};
use crate::statistics::Spread;
use crate::{Error, report};

/// Writes `rows.json` and the plots to `directory`. Returns the paths of all files.
///
/// # Errors
/// [`Error::Testbed`] when a file cannot be written; [`Error::Unsupported`] when a plot cannot be
/// drawn.
pub fn write_report(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    report::write(outcome, draw_all(outcome)?, directory)
}

fn draw_all(outcome: &Outcome) -> Result<Vec<(String, String)>, Error> {
    let mut numbers: Vec<usize> = outcome.rows.iter().map(|row| row.concurrency).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
        .into_iter()
        .map(|number| {
            let name = format!("handshakes-{number}.svg");
            Ok((name, plot(outcome, number).draw()?))
        })
        .collect()
}

fn plot(outcome: &Outcome, concurrency: usize) -> Bars {
    let title = match concurrency {
        1 => "CPU time per TLS handshake in microseconds, one connection at a time".to_owned(),
        number => format!("CPU time per TLS handshake in microseconds, {number} connections"),
    };
    let mut bars = Bars::new(&title, "us", 0);
    let mut rows: Vec<_> = outcome.rows.iter().collect();
    rows.retain(|row| row.concurrency == concurrency);
    rows.sort_by_key(|row| row.round);
    let mut known: Vec<(&str, &str, &str)> = Vec::new();
    for row in &rows {
        let system = (row.suite, row.server, row.mode.as_str());
        if known.contains(&system) {
            continue;
        }
        known.push(system);
        let same = rows
            .iter()
            .filter(|other| (other.suite, other.server, other.mode.as_str()) == system);
        if let Some(spread) = Spread::of(same.map(|row| row.server_cpu_us)) {
            let series = format!("{} {}", row.server, row.mode);
            let color = |place| palette::ALL[place % palette::ALL.len()];
            bars.add(row.suite, &series, color, spread);
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use slipstream_testbed::machine::Machine;

    use super::super::summary::tests::{SLIPSTREAM, STOCK, row};
    use super::*;
    use crate::chart::tests::texts;

    #[test]
    fn each_system_has_a_bar_for_each_suite() {
        let outcome = Outcome {
            machine: Machine::describe(None),
            versions: Vec::new(),
            rows: vec![
                row(STOCK, 1, 500.0, 2000.0),
                row(SLIPSTREAM, 1, 200.0, 5000.0),
                row(SLIPSTREAM, 2, 240.0, 4800.0),
            ],
            summary: Vec::new(),
        };
        let plots = draw_all(&outcome).unwrap();
        assert_eq!(plots.len(), 1);
        let (name, plot) = &plots[0];
        assert_eq!(name, "handshakes-64.svg");
        let texts = texts(plot);
        for text in ["tls13-rsa2048", "nginx stock", "nginx slipstream"] {
            let count = texts.iter().filter(|known| *known == text).count();
            assert_eq!(count, 1, "{text}: {texts:?}");
        }
    }
}
