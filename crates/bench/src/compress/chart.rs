//! The plots: the library against zlib on each page, and the lengths of stream and chunk over an
//! engine.

use super::{Comparison, Outcome};
use crate::Error;
use crate::chart::{Bars, palette};
use crate::statistics::Spread;

/// Every plot that has something to show, as the name of a file and the text of an SVG.
///
/// # Errors
/// [`Error::Unsupported`] when one cannot be drawn.
pub(super) fn draw_all(outcome: &Outcome) -> Result<Vec<(String, String)>, Error> {
    let rate = plot(
        outcome,
        "One stream on one core: rate, times zlib at level 1",
        |line| Some((line.page.to_owned(), stream(line)?, line.rate_ratio?)),
    );
    let size = plot(
        outcome,
        "One stream: compressed size, times that of zlib at level 1",
        |line| Some((line.page.to_owned(), stream(line)?, line.size_ratio?)),
    );
    let chunks = plot(
        outcome,
        "Chunks: compressed size, times that of zlib at level 1",
        |line| {
            let (method, chunk) = line.configuration.split_once(" chunks ")?;
            let group = format!("{chunk}, {}", line.page);
            Some((group, method.to_owned(), line.size_ratio?))
        },
    );
    let mut plots = vec![
        ("rate.svg".to_owned(), rate),
        ("size.svg".to_owned(), size),
        ("chunks.svg".to_owned(), chunks),
    ];
    let mut pages: Vec<&str> = outcome.summary.iter().map(|line| line.page).collect();
    pages.dedup();
    for page in pages {
        let title = format!("{page} over an engine, by stream and chunk in KB: rate, times zlib");
        let over_engine = plot(outcome, &title, |line| {
            let (mode, lengths) = line.configuration.split_once(' ')?;
            let is_engine = lengths.contains('/') && line.page == page;
            is_engine.then_some((lengths.to_owned(), mode.to_owned(), line.rate_ratio?))
        });
        plots.push((format!("engine-{page}.svg"), over_engine));
    }
    plots
        .into_iter()
        .filter(|(_, plot)| !plot.is_empty())
        .map(|(name, plot)| Ok((name, plot.draw()?)))
        .collect()
}

/// The method of a line that is about one stream in software.
fn stream(line: &Comparison) -> Option<String> {
    line.configuration
        .strip_suffix(" stream")
        .map(str::to_owned)
}

/// A plot of what `value` finds in each line: the names of group and series, and how high it is.
fn plot(
    outcome: &Outcome,
    title: &str,
    value: impl Fn(&Comparison) -> Option<(String, String, Spread)>,
) -> Bars {
    let mut bars = Bars::new(title, "times", 1);
    for (group, series, value) in outcome.summary.iter().filter_map(value) {
        bars.add(
            &group,
            &series,
            |place| palette::ALL[place % palette::ALL.len()],
            value,
        );
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::outcome_of;
    use super::*;
    use crate::chart::tests::texts;

    #[test]
    fn what_was_measured_is_plotted_and_nothing_else() {
        let names = [
            "zlib-1",
            "gzip-1 stream",
            "gzip-1 chunks 64k",
            "pipelined 256/64",
            "asynchronous 256/64",
        ];
        let plots = draw_all(&outcome_of(&names)).unwrap();
        let files: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            files,
            ["rate.svg", "size.svg", "chunks.svg", "engine-cnn.svg"]
        );
        let of_engine = texts(&plots[3].1);
        for text in ["256/64", "pipelined", "asynchronous"] {
            assert!(of_engine.iter().any(|found| found == text), "{of_engine:?}");
        }
        let without = draw_all(&outcome_of(&names[..2])).unwrap();
        assert_eq!(without.len(), 2);
    }
}
