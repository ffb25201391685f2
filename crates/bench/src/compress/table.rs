//! The outcome as text.

use std::fmt;

use super::{Outcome, Threshold};
use crate::table::{Table, median, number, percentage, range, text};

impl fmt::Display for Outcome {
    /// The pages, the summary and the threshold.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            text("page"),
            text("config"),
            number("MB/s"),
            number("CPU us"),
            number("core"),
            number("ratio"),
            number("MB/s x"),
            number("(range)"),
            number("CPU x"),
            number("size x"),
        ]);
        for line in &self.summary {
            table.add([
                line.page.to_owned(),
                line.configuration.clone(),
                median(line.mb_per_s, 0),
                median(line.cpu_us, 1),
                percentage(line.core_share),
                median(line.compression_ratio, 2),
                median(line.rate_ratio, 2),
                range(line.rate_ratio),
                median(line.cpu_ratio, 2),
                median(line.size_ratio, 3),
            ]);
        }
        writeln!(
            formatter,
            "{}\n{table}Ratios are medians of paired rounds, against zlib {} at level 1: above 1 more content per \
             second (MB/s x) and less CPU time of\nthe caller (CPU x); size x is the length of the output. core: the \
             caller's share of its core, waiting for an engine (pipelined) included. Over an engine: stream/chunk in KB.",
            self.source, self.zlib
        )?;
        match &self.threshold {
            Some(threshold) => write!(formatter, "{threshold}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            number("bytes"),
            number("in place us"),
            number("engine us"),
            number("CPU x"),
        ]);
        for point in &self.points {
            table.add([
                point.bytes.to_string(),
                median(Some(point.in_place_us), 1),
                median(Some(point.engine_us), 1),
                median(Some(point.ratio), 2),
            ]);
        }
        write!(formatter, "\n{table}")?;
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
