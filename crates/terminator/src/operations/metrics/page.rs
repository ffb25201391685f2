//! Metrics page in the Prometheus text format, version 0.0.4.

use std::collections::BTreeMap;

use slipstream_http::BackendStatus;
use slipstream_http::access_log;
use slipstream_http::usage::Overload;
use slipstream_metrics::{Histogram, Page, Type};
use slipstream_offload::counters::Counters as OffloadCounters;

use super::{Count, Metrics, Refusal};

/// Values of the page at one moment.
pub(super) struct Values<'a, M> {
    pub(super) loops: &'a [M],
    pub(super) backends: Vec<BackendStatus>,
    pub(super) is_ready: bool,
}

impl<M: AsRef<Metrics>> Values<'_, M> {
    /// Returns the text.
    pub(super) fn render(&self) -> String {
        let mut page = Page::new("slipstream_serve_");
        self.process(&mut page);
        self.connections(&mut page);
        self.responses(&mut page);
        backends(&mut page, &self.backends);
        self.offload(&mut page);
        page.finish()
    }

    fn sum(&self, count: impl Fn(&Metrics) -> &Count) -> u64 {
        let counts = self
            .loops
            .iter()
            .map(|metrics| count(metrics.as_ref()).get());
        counts.fold(0, u64::wrapping_add)
    }

    /// Writes the families of the offload framework, with the names that the nginx module uses.
    fn offload(&self, page: &mut Page) {
        let mut counters = OffloadCounters::default();
        for metrics in self.loops {
            counters.add(&metrics.as_ref().offload());
        }
        counters.write(page, "aws-lc");
    }

    fn process(&self, page: &mut Page) {
        let mut family = page.family("info", Type::Gauge, "The version that runs.");
        family.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.gauge("event_loops", "Event loops.", self.loops.len() as u64);
        let help = "Whether new connections are taken: 0 while draining.";
        page.gauge("ready", help, u64::from(self.is_ready));
        let help = "Lines of the access log that the disk has not taken, or not in time.";
        page.counter("access_log_dropped_total", help, access_log::dropped());
    }

    fn connections(&self, page: &mut Page) {
        let help = "Connections accepted.";
        page.counter("connections_total", help, self.sum(|of| &of.connections));
        let help = "Connections that are open.";
        page.gauge("open_connections", help, self.sum(|of| &of.open));

        let help = "Connections refused, by the limit that was reached.";
        let mut family = page.family("refused_connections_total", Type::Counter, help);
        for refusal in Refusal::ALL {
            let count = self.sum(|of| &of.refused[refusal.index()]);
            family.sample(&[("limit", refusal.name())], count);
        }

        let mut family = page.family("handshakes_total", Type::Counter, "Handshakes completed.");
        for (version, count) in [
            ("TLSv1.2", self.sum(|of| &of.handshakes_tls12)),
            ("TLSv1.3", self.sum(|of| &of.handshakes_tls13)),
        ] {
            family.sample(&[("version", version)], count);
        }
        let help = "Of the handshakes completed, resumptions.";
        page.counter("resumptions_total", help, self.sum(|of| &of.resumptions));

        let help = "Handshakes that were not completed, by reason.";
        let mut family = page.family("failed_handshakes_total", Type::Counter, help);
        for (reason, count) in [
            ("failed", self.sum(|of| &of.handshakes_failed)),
            ("timed_out", self.sum(|of| &of.handshakes_timed_out)),
        ] {
            family.sample(&[("reason", reason)], count);
        }
        let mut durations = Histogram::default();
        for metrics in self.loops {
            durations.add(&metrics.as_ref().handshakes());
        }
        let help = "Time from accepting a connection to the end of its handshake.";
        page.family("handshake_duration_seconds", Type::Histogram, help)
            .durations(&[], &durations);
        let help = "Handshakes under way.";
        page.gauge(
            "active_handshakes",
            help,
            self.sum(|of| &of.handshakes_active),
        );
    }

    fn responses(&self, page: &mut Page) {
        let help = "Bytes of content read from clients, after decryption.";
        page.counter(
            "received_bytes_total",
            help,
            self.sum(|of| &of.http.received_bytes),
        );
        let help = "Bytes of content sent to clients, before encryption.";
        page.counter("sent_bytes_total", help, self.sum(|of| &of.http.sent_bytes));

        let help = "Responses by the first digit of their status.";
        let mut family = page.family("responses_total", Type::Counter, help);
        for (index, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
            let count = self.sum(|of| &of.http.responses[index]);
            family.sample(&[("status", class)], count);
        }
        let help = "Requests and tunnels refused, by the limit that was reached.";
        let mut family = page.family("refused_requests_total", Type::Counter, help);
        for overload in Overload::ALL {
            let count = self.sum(|of| &of.http.overloads[overload.index()]);
            family.sample(&[("limit", overload.name())], count);
        }
        let help = "Connections to backends that could not be made.";
        page.counter(
            "backend_failures_total",
            help,
            self.sum(|of| &of.http.backend_failures),
        );
        let help = "Backends tried after such a failure, others or the same again.";
        page.counter(
            "backend_retries_total",
            help,
            self.sum(|of| &of.http.backend_retries),
        );
    }
}

/// Writes the families of backends. An address that several listeners use is one backend here,
/// since two samples of one name and label would be malformed.
fn backends(page: &mut Page, statuses: &[BackendStatus]) {
    let mut backends: BTreeMap<&str, BackendStatus> = BTreeMap::new();
    for status in statuses {
        backends
            .entry(&status.address)
            .and_modify(|total| {
                total.is_up &= status.is_up;
                total.active += status.active;
                total.total += status.total;
                total.failures += status.failures;
                total.waiting += status.waiting;
            })
            .or_insert_with(|| status.clone());
    }
    type Figure = fn(&BackendStatus) -> u64;
    let families: [(&str, Type, &str, Figure); 5] = [
        (
            "backend_up",
            Type::Gauge,
            "Whether the backend is taken for new connections.",
            |of| u64::from(of.is_up),
        ),
        (
            "backend_active",
            Type::Gauge,
            "Connections or requests that the backend has now.",
            |of| of.active as u64,
        ),
        (
            "backend_waiting",
            Type::Gauge,
            "Connections or requests that wait for a connection to the backend.",
            |of| of.waiting as u64,
        ),
        (
            "backend_uses_total",
            Type::Counter,
            "Connections or requests that the backend has had.",
            |of| of.total,
        ),
        (
            "backend_connect_failures_total",
            Type::Counter,
            "How often the backend could not be connected to.",
            |of| of.failures,
        ),
    ];
    for (name, kind, help, figure) in families {
        let mut family = page.family(name, kind, help);
        for (address, status) in &backends {
            family.sample(&[("backend", address)], figure(status));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;
    use std::time::Duration;

    use slipstream_offload::Kind;

    use super::*;

    /// Parses the text format, and panics if it is malformed.
    fn parse(text: &str) -> HashMap<String, u64> {
        assert!(text.ends_with('\n'));
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
        };
        let mut families = HashSet::new();
        let mut samples = HashMap::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) = line
                .strip_prefix("# HELP ")
                .unwrap()
                .split_once(' ')
                .unwrap();
            assert!(
                is_name(name) && !help.is_empty() && !help.contains('\\'),
                "{line}"
            );
            assert!(name.starts_with("slipstream_serve_"), "{line}");
            assert!(families.insert(name), "{name} comes twice");
            let line = lines.next().unwrap();
            let (same, kind) = line
                .strip_prefix("# TYPE ")
                .unwrap()
                .split_once(' ')
                .unwrap();
            assert_eq!(same, name);
            let expected = match name {
                _ if name.ends_with("_total") => "counter",
                _ if name.ends_with("_seconds") || name.ends_with("batch_size") => "histogram",
                _ => "gauge",
            };
            assert_eq!(kind, expected, "{line}");
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let mut labels = sample.strip_prefix(name).unwrap();
                if kind == "histogram" {
                    let suffixes = ["_bucket", "_sum", "_count"];
                    let mut rests = suffixes.iter().map(|suffix| labels.strip_prefix(suffix));
                    labels = rests.find_map(|rest| rest).expect("a part of a histogram");
                    // Sums are fractions.
                    if sample.contains("_sum") {
                        value.parse::<f64>().unwrap();
                        continue;
                    }
                }
                if !labels.is_empty() {
                    let label = labels
                        .strip_prefix('{')
                        .unwrap()
                        .strip_suffix("\"}")
                        .unwrap();
                    // A histogram may have two, of which the last one is a number.
                    let (label, _) = label.split_once("\",le=").unwrap_or((label, ""));
                    let (key, value) = label.split_once("=\"").unwrap();
                    assert!(is_name(key), "{line}");
                    let plain = value
                        .replace("\\\\", "")
                        .replace("\\\"", "")
                        .replace("\\n", "");
                    assert!(!plain.contains(['\\', '"']), "{line}");
                }
                let previous = samples.insert(sample.to_owned(), value.parse().unwrap());
                assert_eq!(previous, None, "{sample} comes twice");
            }
        }
        samples
    }

    fn backend(address: &str, is_up: bool) -> BackendStatus {
        BackendStatus {
            address: address.to_owned(),
            is_up,
            active: 2,
            total: 10,
            failures: 1,
            waiting: 3,
        }
    }

    #[test]
    fn loops_are_summed_and_the_text_is_well_formed() {
        let loops: Vec<Arc<Metrics>> = (0..2).map(|_| Arc::default()).collect();
        for metrics in &loops {
            metrics.connections.add(3);
            metrics.open.add(5);
            metrics.open.subtract(2);
            metrics.refused[Refusal::Rate.index()].add(4);
            metrics.http.responses[4].add(7);
            let mut offload = OffloadCounters::default();
            offload.count_batch(Kind::X25519, 8);
            offload.durations[Kind::X25519.index()].observe(Duration::from_micros(3));
            metrics.publish(Some(&offload));
            metrics.count_handshake(Duration::from_millis(2));
        }
        let values = Values {
            loops: &loops,
            backends: vec![
                backend("127.0.0.1:80", true),
                backend("127.0.0.1:80", false),
                backend("unix:/run/\"a\\b\n", true),
            ],
            is_ready: true,
        };
        let samples = parse(&values.render());
        let sample = |name: &str| samples[&format!("slipstream_serve_{name}")];
        assert_eq!(sample("event_loops"), 2);
        assert_eq!(sample("ready"), 1);
        assert_eq!(sample("connections_total"), 6);
        assert_eq!(sample("open_connections"), 6);
        assert_eq!(sample("refused_connections_total{limit=\"rate\"}"), 8);
        assert_eq!(sample("responses_total{status=\"5xx\"}"), 14);
        assert_eq!(sample("lane_operations_total{operation=\"X25519\"}"), 16);
        assert_eq!(sample("batches_by_fill_total{lanes=\"8\"}"), 2);
        assert_eq!(sample("batch_size_bucket{le=\"7\"}"), 0);
        assert_eq!(sample("batch_size_bucket{le=\"8\"}"), 2);
        let duration = "operation_duration_seconds_bucket{operation=\"X25519\",le=";
        assert_eq!(sample(&format!("{duration}\"0.000002\"}}")), 0);
        assert_eq!(sample(&format!("{duration}\"0.000004\"}}")), 2);
        assert_eq!(sample("handshake_duration_seconds_count"), 2);
        assert_eq!(sample("backend_up{backend=\"127.0.0.1:80\"}"), 0);
        assert_eq!(sample("backend_waiting{backend=\"127.0.0.1:80\"}"), 6);
        assert_eq!(sample("backend_uses_total{backend=\"127.0.0.1:80\"}"), 20);
        assert_eq!(sample("backend_up{backend=\"unix:/run/\\\"a\\\\b\\n\"}"), 1);
    }
}
