//! The module's own figures, as its status page tells them.

use std::collections::BTreeMap;

/// The figures of all workers at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    samples: BTreeMap<String, u64>,
}

impl Metrics {
    /// Reads the Prometheus text format, version 0.0.4, strictly: every sample belongs to the
    /// family whose HELP and TYPE lines stand before it, and none comes twice.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Metrics, String> {
        let mut samples = BTreeMap::new();
        let mut family = Family::default();
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        for line in text.lines() {
            let taken = match line.strip_prefix("# ") {
                Some(comment) => family.describe(comment),
                None if family.is_sum(line) => Some(Ok(())),
                None => family.sample(line).map(|(name, value)| {
                    if samples.insert(name, value).is_some() {
                        return Err("a sample that was there before");
                    }
                    Ok(())
                }),
            };
            taken
                .ok_or("not in the text format")
                .and_then(|result| result)
                .map_err(|reason| format!("{reason}: {line}"))?;
        }
        Ok(Metrics { samples })
    }

    /// Private-key operations with RSA keys computed in lanes.
    pub fn lane_operations(&self) -> u64 {
        self.sum_of("lane_operations_total{operation=\"RSA-")
    }

    /// Signatures with ECDSA keys computed in lanes, in batches.
    pub fn lane_signatures(&self) -> u64 {
        self.sum_of("lane_operations_total{operation=\"ECDSA-")
    }

    /// Key exchanges computed in lanes.
    pub fn lane_exchanges(&self) -> u64 {
        self.sum("lane_operations_total") - self.lane_operations() - self.lane_signatures()
    }

    /// Private-key operations with RSA keys submitted to lanes.
    pub fn operations(&self) -> u64 {
        self.sum_of("operations_total{operation=\"RSA-")
    }

    /// Precomputed key pairs and nonces that were used.
    pub fn ahead_used(&self) -> u64 {
        self.get("ahead_used_total")
    }

    /// Batches computed in lanes.
    pub fn batches(&self) -> u64 {
        self.get("batches_total")
    }

    /// Batches with this many live lanes.
    pub fn batches_with(&self, lanes: usize) -> u64 {
        self.get(&format!("batches_by_fill_total{{lanes=\"{lanes}\"}}"))
    }

    /// Key exchanges computed in lanes at once, without a pause, since no other handshake was in
    /// progress.
    pub fn lone_exchanges(&self) -> u64 {
        self.sum("at_once_operations_total") - self.ahead_used()
    }

    /// Operations computed by a device.
    pub fn device_operations(&self) -> u64 {
        self.sum("device_operations_total")
    }

    /// Operations for which there was no room at first.
    pub fn retried(&self) -> u64 {
        self.get("retried_total")
    }

    /// Operations left to OpenSSL's own software for `reason`.
    pub fn software_operations(&self, reason: &str) -> u64 {
        self.get(&format!("software_operations_total{{reason=\"{reason}\"}}"))
    }

    /// Operations left to OpenSSL's own software, for whatever reason.
    pub fn all_software_operations(&self) -> u64 {
        self.sum("software_operations_total")
    }

    /// Checks that this many private-key operations with RSA keys, and the key exchanges beside them,
    /// have been computed, in lanes or by OpenSSL.
    ///
    /// # Panics
    /// If there were more or fewer.
    pub fn expect_all_done(&self, private_operations: u64) {
        // Each precomputed key is used for an exchange; nonces are for other keys than RSA.
        let exchanges = self.ahead_used();
        let lanes = self.lane_operations() + self.lane_exchanges() + self.lone_exchanges();
        assert_eq!(
            lanes + self.all_software_operations(),
            private_operations + exchanges,
            "{self:#?}"
        );
    }

    /// Handshakes completed on fibers.
    pub fn handshakes(&self) -> u64 {
        self.get("handshakes_total")
    }

    /// Handshakes whose duration was counted.
    pub fn timed_handshakes(&self) -> u64 {
        self.get("handshake_duration_seconds_count")
    }

    /// Operations whose time from submission to the answer was counted.
    pub fn timed_operations(&self) -> u64 {
        self.sum("operation_duration_seconds_count")
    }

    /// Operations submitted, of all kinds.
    pub fn all_operations(&self) -> u64 {
        self.sum("operations_total")
    }

    /// Batches by the histogram of their size.
    pub fn sized_batches(&self) -> u64 {
        self.get("batch_size_count")
    }

    /// Connections closed during their handshake.
    pub fn closed_handshakes(&self) -> u64 {
        self.get("closed_handshakes_total")
    }

    /// Handshakes served as without the module for `reason`.
    pub fn fallbacks(&self, reason: &str) -> u64 {
        self.get(&format!("fallbacks_total{{reason=\"{reason}\"}}"))
    }

    /// Operations whose connection went away while they were in flight.
    pub fn orphans(&self) -> u64 {
        self.get("orphans_total")
    }

    /// Operations of all classes submitted and not answered.
    pub fn in_flight(&self) -> u64 {
        self.sum("in_flight")
    }

    /// Handshakes that are paused on a fiber.
    pub fn fibers(&self) -> u64 {
        self.get("fibers")
    }

    /// Stacks of fibers, in use or pooled.
    pub fn fiber_stacks(&self) -> u64 {
        self.get("fiber_stacks")
    }

    /// Workers that take part.
    pub fn workers(&self) -> u64 {
        self.get("workers")
    }

    fn get(&self, name: &str) -> u64 {
        *self
            .samples
            .get(&format!("slipstream_{name}"))
            .unwrap_or_else(|| panic!("no slipstream_{name} in {:#?}", self.samples))
    }

    fn sum(&self, family: &str) -> u64 {
        self.sum_of(&format!("{family}{{"))
    }

    /// Returns the sum of the samples whose name and labels begin so.
    fn sum_of(&self, prefix: &str) -> u64 {
        let prefix = format!("slipstream_{prefix}");
        self.samples
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .map(|(_, value)| value)
            .sum()
    }
}

/// The family whose samples are being read.
#[derive(Default)]
struct Family {
    name: String,
    has_type: bool,
    is_histogram: bool,
}

impl Family {
    /// A line `HELP name text` or `TYPE name kind`; `None` if it is neither.
    fn describe(&mut self, comment: &str) -> Option<Result<(), &'static str>> {
        let (keyword, rest) = comment.split_once(' ')?;
        let (name, text) = rest.split_once(' ')?;
        match keyword {
            "HELP" => {
                *self = Family {
                    name: name.to_owned(),
                    ..Family::default()
                };
                Some(if is_name(name) {
                    Ok(())
                } else {
                    Err("a wrong name")
                })
            }
            "TYPE" if name != self.name => Some(Err("a type without help")),
            "TYPE" => {
                self.has_type = true;
                self.is_histogram = text == "histogram";
                let fits = match text {
                    "counter" => name.ends_with("_total"),
                    "gauge" | "histogram" => !name.ends_with("_total"),
                    _ => false,
                };
                Some(if fits { Ok(()) } else { Err("a wrong type") })
            }
            _ => None,
        }
    }

    /// Returns true for the sum of a histogram, the one sample that is a fraction.
    fn is_sum(&self, line: &str) -> bool {
        let rest = line.strip_prefix(self.name.as_str());
        let rest = rest.and_then(|rest| rest.strip_prefix("_sum"));
        let value = rest.and_then(|rest| rest.rsplit(' ').next());
        self.is_histogram && value.is_some_and(|value| value.parse::<f64>().is_ok())
    }

    /// A line `name value` or `name{label="value"} value`; `None` if it is neither, or of no
    /// family.
    fn sample(&self, line: &str) -> Option<(String, u64)> {
        let (name, value) = line.rsplit_once(' ')?;
        let mut labels = name.strip_prefix(self.name.as_str())?;
        if self.is_histogram {
            let suffixes = ["_bucket", "_count"];
            labels = suffixes
                .iter()
                .find_map(|suffix| labels.strip_prefix(suffix))?;
        }
        let belongs = labels.is_empty() || {
            let all = labels.strip_prefix('{')?.strip_suffix("\"}")?;
            all.split("\",").all(|label| {
                label
                    .split_once("=\"")
                    .is_some_and(|(label, value)| is_name(label) && !value.contains(['"', '\\']))
            })
        };
        (belongs && self.has_type).then_some(())?;
        Some((name.to_owned(), value.parse().ok()?))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP slipstream_in_flight Operations.
# TYPE slipstream_in_flight gauge
slipstream_in_flight{class=\"asymmetric\"} 2
slipstream_in_flight{class=\"cipher\"} 1
# HELP slipstream_orphans_total Orphans.
# TYPE slipstream_orphans_total counter
slipstream_orphans_total 7
# HELP slipstream_wait_seconds Waits.
# TYPE slipstream_wait_seconds histogram
slipstream_wait_seconds_bucket{class=\"prf\",le=\"0.5\"} 1
slipstream_wait_seconds_bucket{class=\"prf\",le=\"+Inf\"} 3
slipstream_wait_seconds_sum{class=\"prf\"} 1.75
slipstream_wait_seconds_count{class=\"prf\"} 3
";

    #[test]
    fn figures_are_read() {
        let metrics = Metrics::parse(PAGE).unwrap();
        assert_eq!(metrics.in_flight(), 3);
        assert_eq!(metrics.orphans(), 7);
    }

    #[test]
    fn what_prometheus_would_refuse_is_refused() {
        for (from, to) in [
            ("# TYPE slipstream_orphans_total counter\n", ""),
            ("# HELP slipstream_orphans_total Orphans.\n", ""),
            ("total counter", "total gauge"),
            ("in_flight gauge", "in_flight other"),
            ("seconds histogram", "seconds gauge"),
            ("1.75", "much"),
            ("seconds_count", "seconds_number"),
            (
                "slipstream_orphans_total 7",
                "slipstream_orphans_total seven",
            ),
            ("slipstream_orphans_total 7", "slipstream_orphans 7"),
            ("cipher", "asymmetric"),
            ("\"cipher\"}", "\"cipher\""),
            ("_count{class=\"prf\"} 3\n", "_count{class=\"prf\"} 3"),
            (
                "slipstream_orphans_total 7\n",
                "slipstream_orphans_total 7\n\n",
            ),
        ] {
            let page = PAGE.replacen(from, to, 1);
            assert_ne!(page, PAGE);
            assert!(Metrics::parse(&page).is_err(), "{page}");
        }
    }
}
