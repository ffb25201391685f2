//! Metrics: [histograms](Histogram), the text format of Prometheus, version 0.0.4, and figures that a
//! process [publishes in a file](published).
//!
//! A [`Page`] is written from top to bottom: a [`Family`] after the other, each with its samples.
//!
//! ```
//! use slipstream_metrics::{Page, Type};
//!
//! let mut page = Page::new("example_");
//! page.gauge("workers", "Workers.", 2);
//! page.family("requests_total", Type::Counter, "Requests by method.")
//!     .sample(&[("method", "GET")], 7)
//!     .sample(&[("method", "PUT")], 1);
//! let text = page.finish();
//! let lines: Vec<&str> = text.lines().collect();
//! assert_eq!(
//!     lines,
//!     [
//!         "# HELP example_workers Workers.",
//!         "# TYPE example_workers gauge",
//!         "example_workers 2",
//!         "# HELP example_requests_total Requests by method.",
//!         "# TYPE example_requests_total counter",
//!         "example_requests_total{method=\"GET\"} 7",
//!         "example_requests_total{method=\"PUT\"} 1",
//!     ]
//! );
//! ```

mod histogram;
pub mod published;

use std::fmt::{self, Display, Formatter, Write};

pub use histogram::Histogram;

/// A page of metrics whose names have a common prefix.
#[derive(Debug)]
pub struct Page {
    prefix: &'static str,
    text: String,
}

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// A value that only grows; its name ends in `_total`.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Page {
    /// Begins a page. `prefix` ends with an underscore.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            text: String::new(),
        }
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Type::Counter, help).sample(&[], value);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Type::Gauge, help).sample(&[], value);
    }

    /// Begins a family; `name` is written after the prefix of the page. All its samples must be
    /// written before the next family begins, and no other family of the page may have this name.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Type, help: &str) -> Family<'a> {
        let prefix = self.prefix;
        debug_assert!(is_name(prefix) && is_name(name), "{prefix}{name}");
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let help = Escaped(help, &['\\', '\n']);
        self.line(format_args!("# HELP {prefix}{name} {help}"));
        self.line(format_args!("# TYPE {prefix}{name} {kind}"));
        Family { page: self, name }
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    name: &'a str,
}

impl Family<'_> {
    /// Writes a sample. `labels` are names and values; no other sample of the family may have the
    /// same ones.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        let (prefix, name) = (self.page.prefix, self.name);
        let labels = Labels(labels);
        self.page
            .line(format_args!("{prefix}{name}{labels} {value}"));
        self
    }

    /// Writes a distribution of a family of [`Type::Histogram`], as the text format wants it:
    /// `bounds` are the inclusive upper bounds of buckets and the number of values in each, not
    /// cumulative, and `rest` is the number of values above the last one. `sum` is that of all
    /// values.
    pub fn distribution<B: Display>(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl IntoIterator<Item = (B, u64)>,
        rest: u64,
        sum: impl Display,
    ) -> &mut Self {
        let (prefix, name) = (self.page.prefix, self.name);
        let mut count = 0;
        let mut bucket = |page: &mut Page, bound: &str, more: u64| {
            count += more;
            let mut labels = labels.to_vec();
            labels.push(("le", bound));
            let labels = Labels(&labels);
            page.line(format_args!("{prefix}{name}_bucket{labels} {count}"));
        };
        for (bound, more) in buckets {
            bucket(self.page, &bound.to_string(), more);
        }
        bucket(self.page, "+Inf", rest);
        let labels = Labels(labels);
        self.page
            .line(format_args!("{prefix}{name}_sum{labels} {sum}"));
        self.page
            .line(format_args!("{prefix}{name}_count{labels} {count}"));
        self
    }

    /// Writes a distribution of durations in seconds.
    pub fn durations(&mut self, labels: &[(&str, &str)], histogram: &Histogram) -> &mut Self {
        let (rest, sum) = (histogram.rest(), histogram.sum());
        self.distribution(labels, histogram.buckets(), rest, sum)
    }
}

struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            debug_assert!(is_name(name), "{name}");
            let separator = if index == 0 { '{' } else { ',' };
            let value = Escaped(value, &['\\', '\n', '"']);
            write!(f, "{separator}{name}=\"{value}\"")?;
        }
        if self.0.is_empty() {
            Ok(())
        } else {
            f.write_char('}')
        }
    }
}

/// A text in which these characters are escaped with a backslash.
struct Escaped<'a>(&'a str, &'static [char]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(self.1) {
            let Some(character) = part.chars().next_back().filter(|it| self.1.contains(it)) else {
                f.write_str(part)?;
                continue;
            };
            f.write_str(&part[..part.len() - character.len_utf8()])?;
            f.write_char('\\')?;
            f.write_char(if character == '\n' { 'n' } else { character })?;
        }
        Ok(())
    }
}

/// Returns true if `text` can be a part of the name of a metric, or the name of a label.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(help: &str, labels: &[(&str, &str)]) -> String {
        let mut page = Page::new("a_");
        page.family("b", Type::Gauge, help).sample(labels, u64::MAX);
        page.finish()
    }

    #[test]
    fn labels_are_escaped() {
        for (value, escaped) in [
            ("", ""),
            ("plain", "plain"),
            ("\"", "\\\""),
            ("\\", "\\\\"),
            ("\n", "\\n"),
            ("unix:/run/\"a\\b\n", "unix:/run/\\\"a\\\\b\\n"),
            ("\\n", "\\\\n"),
            ("Zo\u{eb}\r\t", "Zo\u{eb}\r\t"),
        ] {
            let expected = format!(
                "# HELP a_b c\n# TYPE a_b gauge\na_b{{d=\"{escaped}\"}} 18446744073709551615\n"
            );
            assert_eq!(family("c", &[("d", value)]), expected);
        }
    }

    #[test]
    fn several_labels_are_separated() {
        let text = family("c", &[("d", "1"), ("e", "\""), ("f", "3")]);
        assert!(
            text.contains("\na_b{d=\"1\",e=\"\\\"\",f=\"3\"} "),
            "{text}"
        );
    }

    #[test]
    fn a_sample_may_have_no_label() {
        assert!(family("c", &[]).ends_with("\na_b 18446744073709551615\n"));
    }

    #[test]
    fn a_distribution_is_cumulative() {
        let mut page = Page::new("a_");
        page.family("b", Type::Histogram, "c").distribution(
            &[("d", "e")],
            [(1, 2), (2, 0), (3, 5)],
            1,
            17,
        );
        let text = page.finish();
        let samples: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            samples,
            [
                "# TYPE a_b histogram",
                "a_b_bucket{d=\"e\",le=\"1\"} 2",
                "a_b_bucket{d=\"e\",le=\"2\"} 2",
                "a_b_bucket{d=\"e\",le=\"3\"} 7",
                "a_b_bucket{d=\"e\",le=\"+Inf\"} 8",
                "a_b_sum{d=\"e\"} 17",
                "a_b_count{d=\"e\"} 8",
            ]
        );
    }

    #[test]
    fn help_is_one_line_in_which_quotes_are_not_escaped() {
        let text = family("a \"b\"\\\nc", &[]);
        assert!(
            text.starts_with("# HELP a_b a \"b\"\\\\\\nc\n# TYPE "),
            "{text}"
        );
    }
}
