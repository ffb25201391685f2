//! Metrics page in the Prometheus text format, version 0.0.4.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use slipstream_http::BackendStatus;
use slipstream_http::access_log;
use slipstream_metrics::{Page, Type};
use slipstream_offload::counters::{BATCH_SIZE, Counters as OffloadCounters};
use slipstream_offload::{Kind, Reason};

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
        offload(&mut page, &self.counters());
        page.finish()
    }

    fn sum(&self, count: impl Fn(&Metrics) -> &Count) -> u64 {
        let counts = self
            .loops
            .iter()
            .map(|metrics| count(metrics.as_ref()).get());
        counts.fold(0, u64::wrapping_add)
    }

    fn counters(&self) -> OffloadCounters {
        let mut total = OffloadCounters::default();
        for metrics in self.loops {
            let counters = metrics.as_ref().offload.lock();
            total.add(&counters.unwrap_or_else(PoisonError::into_inner));
        }
        total
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
            })
            .or_insert_with(|| status.clone());
    }
    type Figure = fn(&BackendStatus) -> u64;
    let families: [(&str, Type, &str, Figure); 4] = [
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

/// Writes the families of the offload framework, with the names that the nginx module uses.
fn offload(page: &mut Page, counters: &OffloadCounters) {
    let by_kind = |page: &mut Page, name: &str, help: &str, counts: &[u64; Kind::COUNT]| {
        let mut family = page.family(name, Type::Counter, help);
        for kind in Kind::ALL {
            family.sample(&[("operation", kind.name())], counts[kind.index()]);
        }
    };
    by_kind(
        page,
        "operations_total",
        "Operations submitted.",
        &counters.submitted,
    );
    let help = "Operations computed in lanes.";
    by_kind(
        page,
        "lane_operations_total",
        help,
        &counters.lane_operations,
    );
    let help = "Operations computed by the device.";
    by_kind(
        page,
        "device_operations_total",
        help,
        &counters.device_operations,
    );
    let help = "Operations computed in lanes at once, without a pause.";
    by_kind(page, "at_once_operations_total", help, &counters.at_once);

    for (name, help, count) in [
        (
            "retried_total",
            "Operations for which the accelerator had no room at first.",
            counters.retried,
        ),
        (
            "polls_total",
            "How often the accelerator was polled.",
            counters.polls,
        ),
        (
            "ineffective_polls_total",
            "Polls that brought nothing although operations were in flight.",
            counters.ineffective_polls,
        ),
        (
            "batches_total",
            "Batches computed in lanes.",
            counters.batches,
        ),
        (
            "orphans_total",
            "Operations whose connection went away while they were in flight.",
            counters.orphans,
        ),
        (
            "ahead_used_total",
            "Key pairs and nonces that were made ahead and then used.",
            counters.precomputed(),
        ),
    ] {
        page.counter(name, help, count);
    }

    let help = "Batches by the number of live lanes.";
    let mut family = page.family("batches_by_fill_total", Type::Counter, help);
    for live in 1..=BATCH_SIZE {
        let label = live.to_string();
        family.sample(&[("lanes", &label)], counters.fill[live - 1]);
    }
    let help = "Operations left to aws-lc, by reason.";
    let mut family = page.family("software_operations_total", Type::Counter, help);
    for reason in Reason::ALL {
        let count = counters.software[reason.index()];
        family.sample(&[("reason", reason.name())], count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

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
            assert_eq!(
                kind,
                if name.ends_with("_total") {
                    "counter"
                } else {
                    "gauge"
                },
                "{line}"
            );
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let labels = sample.strip_prefix(name).unwrap();
                if !labels.is_empty() {
                    let label = labels
                        .strip_prefix('{')
                        .unwrap()
                        .strip_suffix("\"}")
                        .unwrap();
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
            metrics.offload.lock().unwrap().count_batch(Kind::X25519, 8);
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
        assert_eq!(sample("backend_up{backend=\"127.0.0.1:80\"}"), 0);
        assert_eq!(sample("backend_uses_total{backend=\"127.0.0.1:80\"}"), 20);
        assert_eq!(sample("backend_up{backend=\"unix:/run/\\\"a\\\\b\\n\"}"), 1);
    }
}
