//! The differences between two looks at the figures.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;
use slipstream_metrics::Histogram;
use slipstream_metrics::published::{Entry, Published};

use crate::commands::figures::Figures;

/// The state of all processes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Processes that could be read.
    pub(super) processes: Vec<Process>,
    /// Files that could not be read, each with the cure.
    pub(super) problems: Vec<String>,
    /// Masters of nginx that publish nothing.
    pub(super) unpublished_nginx: Vec<u32>,
}

/// The state of a process.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    pub(super) program: String,
    pub(super) process: u32,
    pub(super) version: String,
    /// The reason why nothing is accelerated, or less than was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// Workers, event loops or threads.
    pub(super) workers: u64,
    pub(super) uptime_seconds: Option<f64>,
    /// The time between the two looks.
    pub(super) interval_seconds: f64,
    /// True if nothing happened between the two looks, so that shares, batches and times are those
    /// since the start of the process.
    pub(super) is_since_start: bool,
    pub(super) handshakes: Handshakes,
    pub(super) operations: Operations,
    pub(super) batches: Batches,
    /// Time from submission to the answer, by operation.
    pub(super) waiting: BTreeMap<String, Times>,
    pub(super) compression: Compression,
    /// Counters of failures since the start of the process, those above 0.
    pub(super) faults: BTreeMap<String, u64>,
    /// All figures since the start of the process, by the names that metrics have.
    pub(super) figures: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Handshakes {
    pub(super) total: u64,
    pub(super) per_second: f64,
    pub(super) time: Option<Times>,
}

#[derive(Debug, Serialize)]
pub(super) struct Operations {
    /// Since the start of the process.
    pub(super) total: u64,
    pub(super) per_second: f64,
    /// Parts of one, which add up to 1 if there was any operation.
    pub(super) lanes: f64,
    pub(super) at_once: f64,
    pub(super) device: f64,
    pub(super) software: f64,
    /// The parts of `software`.
    pub(super) reasons: BTreeMap<String, f64>,
    pub(super) in_flight: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Batches {
    pub(super) per_second: f64,
    pub(super) mean_size: f64,
    /// Parts of one, by size from 1 on.
    pub(super) sizes: Vec<f64>,
}

/// Quantiles of durations: bounds of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) p50_seconds: f64,
    pub(super) p90_seconds: f64,
    pub(super) p99_seconds: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Compression {
    pub(super) responses_per_second: f64,
    pub(super) content_bytes_per_second: f64,
    pub(super) output_bytes_per_second: f64,
    /// Chunks by who has compressed them, since the start of the process.
    pub(super) chunks: BTreeMap<String, u64>,
}

/// Figures that count what went wrong.
const FAULTS: [&str; 18] = [
    "software_operations_total{reason=\"full\"}",
    "software_operations_total{reason=\"fault\"}",
    "software_operations_total{reason=\"cancelled\"}",
    "software_operations_total{reason=\"lost\"}",
    "fallbacks_total{reason=\"out_of_fibers\"}",
    "fallbacks_total{reason=\"nested\"}",
    "compressed_chunks_total{by=\"worker_after_loss\"}",
    "failed_handshakes_total{reason=\"timed_out\"}",
    "refused_connections_total{limit=\"connections\"}",
    "refused_connections_total{limit=\"handshakes\"}",
    "refused_requests_total{limit=\"requests\"}",
    "refused_requests_total{limit=\"backend\"}",
    "refused_requests_total{limit=\"descriptors\"}",
    "backend_failures_total",
    "faults_total",
    "refused_operations_total",
    "malformed_messages_total",
    "malformed_rings_total",
];

impl Report {
    /// Compares two looks. Of a process that was not there at the first one, all is new.
    pub(super) fn new(before: &[Entry], after: &[Entry], unpublished_nginx: &[u32]) -> Self {
        let earlier = |now: &Published| {
            let mut all = before
                .iter()
                .filter_map(|entry| entry.content.as_ref().ok());
            all.find(|entry| (entry.process, entry.start) == (now.process, now.start))
        };
        let mut report = Self {
            processes: Vec::new(),
            problems: Vec::new(),
            unpublished_nginx: unpublished_nginx.to_vec(),
        };
        for entry in after {
            match &entry.content {
                Ok(now) => report.processes.push(Process::new(earlier(now), now)),
                Err(problem) => {
                    let path = entry.path.display();
                    report.problems.push(format!("{path}: {problem}"));
                }
            }
        }
        report
            .processes
            .sort_by(|a, b| (&a.program, a.process).cmp(&(&b.program, b.process)));
        report
    }
}

impl Process {
    fn new(before: Option<&Published>, now: &Published) -> Self {
        let seconds = before.map_or(0.0, |before| {
            now.read
                .saturating_duration_since(before.read)
                .as_secs_f64()
        });
        let total = Figures(now.figures.clone());
        let interval = before.map(|before| total.since(&Figures(before.figures.clone())));
        let interval = interval.unwrap_or_default();
        let is_since_start = interval.is_quiet();
        let basis = if is_since_start { &total } else { &interval };
        let per_second = |name: &str| match before {
            Some(_) if seconds > 0.0 => interval.sum(name) as f64 / seconds,
            _ => 0.0,
        };
        let all_per_second = match before {
            Some(_) if seconds > 0.0 => interval.operations().all() as f64 / seconds,
            _ => 0.0,
        };
        Self {
            program: now.program.clone(),
            process: now.process,
            version: now.version.clone(),
            note: now.note.clone(),
            workers: now.writers,
            uptime_seconds: uptime(now.start),
            interval_seconds: seconds,
            is_since_start,
            handshakes: Handshakes {
                total: total.sum("handshakes_total"),
                per_second: per_second("handshakes_total"),
                time: basis.times("handshake_duration", ""),
            },
            operations: Operations {
                total: total.operations().all(),
                per_second: all_per_second,
                in_flight: total.sum("in_flight"),
                ..basis.shares()
            },
            batches: Batches {
                per_second: per_second("batches_by_fill_total"),
                ..basis.batches()
            },
            waiting: basis.waiting(),
            compression: Compression {
                responses_per_second: per_second("compressed_responses_total"),
                content_bytes_per_second: per_second("compressed_content_bytes_total"),
                output_bytes_per_second: per_second("compressed_output_bytes_total"),
                chunks: total.by_label("compressed_chunks_total"),
            },
            faults: total.nonzero(&FAULTS),
            figures: total.0,
        }
    }
}

/// The time since a process was started, in ticks since the system was.
fn uptime(start: u64) -> Option<f64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let system: f64 = text.split_whitespace().next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some((system - start as f64 / ticks).max(0.0))
}

impl Figures {
    fn shares(&self) -> Operations {
        let places = self.operations();
        let share = |count: u64| count as f64 / places.all().max(1) as f64;
        let reasons = self.by_label("software_operations_total");
        Operations {
            total: 0,
            per_second: 0.0,
            lanes: share(places.lanes),
            at_once: share(places.at_once),
            device: share(places.device),
            software: share(places.software),
            reasons: reasons
                .into_iter()
                .map(|(reason, count)| (reason, share(count)))
                .collect(),
            in_flight: 0,
        }
    }

    fn batches(&self) -> Batches {
        let fill = self.fill();
        let count: u64 = fill.iter().sum();
        let operations: u64 = (1..).zip(&fill).map(|(size, count)| size * count).sum();
        let share = |part: u64| part as f64 / count.max(1) as f64;
        Batches {
            per_second: 0.0,
            mean_size: share(operations),
            sizes: fill.into_iter().map(share).collect(),
        }
    }

    fn waiting(&self) -> BTreeMap<String, Times> {
        let sums = self.of("operation_duration_nanoseconds_sum");
        let kinds = sums.filter_map(|(labels, _)| Some(labels.split('"').nth(1)?.to_owned()));
        let times = |kind: &str| self.times("operation_duration", &format!("operation=\"{kind}\""));
        kinds
            .filter_map(|kind| Some((times(&kind)?, kind)))
            .map(|(times, kind)| (kind, times))
            .collect()
    }

    /// Quantiles of a histogram; `None` if it is not there or empty.
    fn times(&self, name: &str, label: &str) -> Option<Times> {
        let histogram = self.histogram(name, label);
        let quantile = |share| Some(histogram.quantile(share)?.as_secs_f64());
        let count = histogram.count();
        (count > 0).then_some(Times {
            count,
            p50_seconds: quantile(0.5)?,
            p90_seconds: quantile(0.9)?,
            p99_seconds: quantile(0.99)?,
        })
    }

    fn histogram(&self, name: &str, label: &str) -> Histogram {
        let figures = Histogram::names(name, label).map(|name| self.0.get(&name).copied());
        Histogram::from_figures(figures.map(Option::unwrap_or_default))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn published(figures: &[(&str, u64)], read: Instant) -> Entry {
        let figures = figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        Entry {
            path: "/run/slipstream/nginx.7".into(),
            content: Ok(Published {
                program: "nginx".to_owned(),
                version: "1.2.3".to_owned(),
                process: 7,
                start: 1,
                note: None,
                writers: 2,
                figures: figures.collect(),
                read,
            }),
        }
    }

    const BEFORE: [(&str, u64); 8] = [
        ("handshakes_total", 100),
        ("lane_operations_total{operation=\"RSA-2048\"}", 1000),
        ("at_once_operations_total{operation=\"X25519\"}", 0),
        ("software_operations_total{reason=\"cheaper\"}", 10),
        ("software_operations_total{reason=\"lost\"}", 3),
        ("batches_by_fill_total{lanes=\"1\"}", 5),
        ("batches_by_fill_total{lanes=\"2\"}", 5),
        (
            "operation_duration_seconds_bucket{operation=\"RSA-2048\",le=\"0.000004\"}",
            8,
        ),
    ];

    #[test]
    fn rates_and_shares_are_of_the_time_between_two_looks() {
        let start = Instant::now();
        let mut after = BEFORE;
        after[0].1 += 50;
        after[1].1 += 60;
        after[2].1 += 20;
        after[3].1 += 20;
        after[6].1 += 5;
        let entries = |figures, seconds| [published(figures, start + Duration::from_secs(seconds))];
        let report = Report::new(&entries(&BEFORE, 0), &entries(&after, 2), &[]);
        let process = &report.processes[0];
        assert!(!process.is_since_start);
        assert_eq!(
            (process.handshakes.total, process.handshakes.per_second),
            (150, 25.0)
        );
        let operations = &process.operations;
        assert_eq!(
            (operations.lanes, operations.at_once, operations.software),
            (0.6, 0.2, 0.2)
        );
        assert_eq!((operations.total, operations.per_second), (1113, 50.0));
        assert_eq!(operations.reasons["cheaper"], 0.2);
        assert_eq!(process.batches.sizes, [0.0, 1.0]);
        assert_eq!(
            (process.batches.mean_size, process.batches.per_second),
            (2.0, 2.5)
        );
        assert!(process.waiting.is_empty());
        assert_eq!(process.faults.len(), 1);
    }

    #[test]
    fn a_quiet_process_is_shown_since_its_start() {
        let now = [published(&BEFORE, Instant::now())];
        for before in [&now[..], &[]] {
            let report = Report::new(before, &now, &[]);
            let process = &report.processes[0];
            assert!(process.is_since_start);
            assert_eq!(process.handshakes.per_second, 0.0);
            assert_eq!(process.batches.mean_size, 1.5);
            assert_eq!(process.operations.total, 1013);
        }
    }

    #[test]
    fn an_engine_counts_batches_only() {
        let figures = [
            ("batches_by_fill_total{lanes=\"1\"}", 5),
            ("batches_by_fill_total{lanes=\"2\"}", 7),
        ];
        let now = [published(&figures, Instant::now())];
        let report = Report::new(&now, &now, &[]);
        assert_eq!(report.processes[0].operations.total, 19);
        assert_eq!(report.processes[0].operations.lanes, 1.0);
    }
}
