//! The outcome as text.

use std::fmt;

use super::{Outcome, Threshold};
use crate::table::{median, percentage, range};

impl fmt::Display for Outcome {
    /// The pages, the summary and the threshold.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "Pages from {}:", self.source.origin)?;
        for page in &self.source.pages {
            writeln!(
                formatter,
                "  {:<10} {:>9} bytes, {:.2}:1 at zlib level 1",
                page.page, page.bytes, page.zlib_1_ratio
            )?;
        }
        writeln!(
            formatter,
            "\n{:<10} {:<22} {:>8} {:>9} {:>6} {:>6} {:>7} {:>13} {:>7} {:>7}",
            "page",
            "config",
            "MB/s",
            "CPU us",
            "core",
            "ratio",
            "MB/s x",
            "(range)",
            "CPU x",
            "size x"
        )?;
        for line in &self.summary {
            writeln!(
                formatter,
                "{:<10} {:<22} {:>8} {:>9} {:>6} {:>6} {:>7} {:>13} {:>7} {:>7}",
                line.page,
                line.configuration,
                median(line.mb_per_s, 0),
                median(line.cpu_us, 1),
                percentage(line.core_share),
                median(line.compression_ratio, 2),
                median(line.rate_ratio, 2),
                range(line.rate_ratio),
                median(line.cpu_ratio, 2),
                median(line.size_ratio, 3),
            )?;
        }
        writeln!(
            formatter,
            "Ratios are medians of paired rounds, against zlib {} at level 1: above 1 more content per second (MB/s x) and \
             less CPU time of\nthe caller (CPU x); size x is the length of the output. core: the caller's share of its \
             core, waiting for an engine (pipelined) included. Over an engine: stream/chunk in KB.",
            self.zlib
        )?;
        match &self.threshold {
            Some(threshold) => write!(formatter, "{threshold}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "\n{:>8} {:>12} {:>12} {:>7}",
            "bytes", "in place us", "engine us", "CPU x"
        )?;
        for point in &self.points {
            writeln!(
                formatter,
                "{:>8} {:>12} {:>12} {:>7}",
                point.bytes,
                median(Some(point.in_place_us), 1),
                median(Some(point.engine_us), 1),
                median(Some(point.ratio), 2)
            )?;
        }
        match self.bytes {
            Some(bytes) => writeln!(
                formatter,
                "threshold: from {bytes} bytes on the caller spends less when the engine compresses"
            ),
            None => writeln!(
                formatter,
                "threshold: none; the caller never spends less when the engine compresses"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::outcome;
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_configuration() {
        let mut outcome = outcome();
        let text = outcome.to_string();
        assert!(text.contains("gzip-1 stream"), "{text}");
        assert!(text.contains("4.00"), "{text}");
        assert!(!text.contains("threshold"), "{text}");
        outcome.threshold = Some(Threshold {
            bytes: Some(4096),
            points: Vec::new(),
        });
        let text = outcome.to_string();
        assert!(text.contains("threshold: from 4096 bytes on"), "{text}");
    }
}
