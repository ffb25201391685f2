//! The published figures of all processes in the text format of Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use slipstream_metrics::published::{Entry, Published};
use slipstream_metrics::{Histogram, Page, Type};

/// The programs, and the prefix of their metrics, which is that of their own pages.
const PROGRAMS: [(&str, &str); 3] = [
    ("nginx", "slipstream_"),
    ("serve", "slipstream_serve_"),
    ("engine", "slipstream_engine_"),
];

const HELP: &str = "Described in the reference of metrics.";

pub(super) fn render(entries: &[Entry]) -> String {
    let all: Vec<&Published> = entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
        .collect();
    let mut page = Page::new("slipstream_");
    let help = "Processes that publish figures.";
    let mut family = page.family("processes", Type::Gauge, help);
    for (program, _) in PROGRAMS {
        let count = all.iter().filter(|one| one.program == program).count();
        family.sample(&[("program", program)], count as u64);
    }
    let unreadable = entries.len() - all.len();
    let help = "Processes whose figures cannot be read.";
    page.gauge("unreadable_processes", help, unreadable as u64);
    let mut text = page.finish();
    for (program, prefix) in PROGRAMS {
        let processes: Vec<&Published> = all
            .iter()
            .copied()
            .filter(|one| one.program == program)
            .collect();
        if !processes.is_empty() {
            text.push_str(&render_program(prefix, &processes));
        }
    }
    text
}

fn render_program(prefix: &'static str, processes: &[&Published]) -> String {
    let mut page = Page::new(prefix);
    let mut family = page.family("writers", Type::Gauge, "Workers, event loops or threads.");
    for process in processes {
        let number = process.process.to_string();
        family.sample(
            &[("process", &number), ("version", &process.version)],
            process.writers,
        );
    }
    let names: BTreeSet<&str> = processes
        .iter()
        .flat_map(|process| process.figures.keys())
        .map(|name| split(name).0)
        .collect();
    for name in names {
        match name.strip_suffix("_seconds_bucket") {
            Some(base) => histograms(&mut page, base, processes),
            None if name.ends_with("_nanoseconds_sum") => {}
            None => plain(&mut page, name, processes),
        }
    }
    batch_size(&mut page, processes);
    page.finish()
}

fn plain(page: &mut Page, name: &str, processes: &[&Published]) {
    let kind = match name.ends_with("_total") {
        true => Type::Counter,
        false => Type::Gauge,
    };
    let mut family = page.family(name, kind, HELP);
    for process in processes {
        let number = process.process.to_string();
        for (series, value) in &process.figures {
            let (same, label) = split(series);
            if same == name {
                let mut labels = vec![("process", number.as_str())];
                labels.extend(label);
                family.sample(&labels, *value);
            }
        }
    }
}

fn histograms(page: &mut Page, base: &str, processes: &[&Published]) {
    let name = format!("{base}_seconds");
    let mut family = page.family(&name, Type::Histogram, HELP);
    let sum = format!("{base}_nanoseconds_sum");
    for process in processes {
        let number = process.process.to_string();
        let series = process.figures.keys().map(|name| split(name));
        for (_, label) in series.filter(|(name, _)| *name == sum) {
            let mut labels = vec![("process", number.as_str())];
            labels.extend(label);
            let label = label.map(|(name, value)| format!("{name}=\"{value}\""));
            family.durations(
                &labels,
                &histogram(process, base, &label.unwrap_or_default()),
            );
        }
    }
}

fn histogram(process: &Published, base: &str, label: &str) -> Histogram {
    let names = Histogram::names(base, label);
    let figures = names.map(|name| process.figures.get(&name).copied());
    Histogram::from_figures(figures.map(Option::unwrap_or_default))
}

fn batch_size(page: &mut Page, processes: &[&Published]) {
    let help = "Operations in a batch computed in lanes.";
    let mut family = page.family("batch_size", Type::Histogram, help);
    for process in processes {
        let number = process.process.to_string();
        let fill: BTreeMap<u64, u64> = process
            .figures
            .iter()
            .filter_map(|(name, count)| match split(name) {
                ("batches_by_fill_total", Some((_, lanes))) => Some((lanes.parse().ok()?, *count)),
                _ => None,
            })
            .collect();
        let sum: u64 = fill.iter().map(|(lanes, count)| lanes * count).sum();
        family.distribution(&[("process", &number)], fill, 0, sum);
    }
}

/// Splits a series into its name and its first label.
fn split(series: &str) -> (&str, Option<(&str, &str)>) {
    let Some((name, rest)) = series.split_once('{') else {
        return (series, None);
    };
    let label = rest.split_once("=\"").and_then(|(label, rest)| {
        let (value, _) = rest.split_once('"')?;
        Some((label, value))
    });
    (name, label)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn figures_become_families() {
        let mut figures: BTreeMap<String, u64> = Histogram::names("handshake_duration", "")
            .zip(1..)
            .collect();
        let more = [
            ("handshakes_total", 7),
            ("batches_by_fill_total{lanes=\"2\"}", 3),
            ("fibers", 1),
        ];
        figures.extend(more.map(|(name, value)| (name.to_owned(), value)));
        let entry = Entry {
            path: "/run/slipstream/nginx.7".into(),
            content: Ok(Published {
                program: "nginx".to_owned(),
                version: "1.2.3".to_owned(),
                process: 7,
                start: 1,
                note: None,
                writers: 2,
                figures,
                read: Instant::now(),
            }),
        };
        let text = render(&[entry]);
        for line in [
            "slipstream_processes{program=\"nginx\"} 1",
            "slipstream_processes{program=\"engine\"} 0",
            "slipstream_writers{process=\"7\",version=\"1.2.3\"} 2",
            "# TYPE slipstream_handshakes_total counter",
            "slipstream_handshakes_total{process=\"7\"} 7",
            "# TYPE slipstream_fibers gauge",
            "# TYPE slipstream_handshake_duration_seconds histogram",
            "slipstream_handshake_duration_seconds_bucket{process=\"7\",le=\"0.000002\"} 3",
            "slipstream_handshake_duration_seconds_sum{process=\"7\"} 0.000000027",
            "slipstream_batches_by_fill_total{process=\"7\",lanes=\"2\"} 3",
            "slipstream_batch_size_sum{process=\"7\"} 6",
        ] {
            assert!(
                text.lines().any(|known| known == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(!text.contains("nanoseconds"), "{text}");
    }
}
