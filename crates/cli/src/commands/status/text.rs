//! The report for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::report::{Process, Report, Times};

/// Operations that are shown one by one; a handshake needs two kinds.
const KINDS: usize = 4;

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    for process in &report.processes {
        // Writing to a string does not fail.
        let _ = show(&mut text, process);
        text.push('\n');
    }
    for problem in &report.problems {
        let _ = writeln!(text, "{problem}");
    }
    for process in &report.unpublished_nginx {
        let _ = writeln!(
            text,
            "nginx {process} publishes nothing: it has no `slipstream on`, or a module of an earlier version; \
             see `slipstream doctor`"
        );
    }
    if report.processes.is_empty() && report.problems.is_empty() {
        let _ = writeln!(
            text,
            "nothing runs: no nginx with `slipstream on`, no engine and no terminator that this user may see{}",
            match rustix::process::geteuid().is_root() {
                true => "",
                false => "; root sees all of them",
            }
        );
    }
    text
}

fn show(text: &mut String, process: &Process) -> std::fmt::Result {
    let writers = match (process.program.as_str(), process.workers) {
        ("nginx", 1) => "worker",
        ("nginx", _) => "workers",
        ("serve", 1) => "event loop",
        ("serve", _) => "event loops",
        (_, 1) => "thread",
        _ => "threads",
    };
    let uptime = process
        .uptime_seconds
        .map(|seconds| format!(", up {}", long(seconds)));
    writeln!(
        text,
        "{} {}, slipstream {}, {} {writers}{}",
        process.program,
        process.process,
        process.version,
        process.workers,
        uptime.unwrap_or_default()
    )?;
    if let Some(note) = &process.note {
        writeln!(text, "  not accelerated: {note}")?;
    }
    if process.is_since_start {
        writeln!(text, "  quiet now; shares and times since the start")?;
    }
    let mut line = |name: &str, content: String| writeln!(text, "  {name:<12}{content}");

    if process.program != "engine" {
        let handshakes = &process.handshakes;
        let rate = rate(handshakes.per_second);
        let time = handshakes.time.map(|time| format!(", {}", times(&time)));
        let total = handshakes.total;
        line(
            "handshakes",
            format!("{rate}/s, {total} in all{}", time.unwrap_or_default()),
        )?;
    }

    let operations = &process.operations;
    line(
        "operations",
        format!(
            "{}/s, {} in all",
            rate(operations.per_second),
            operations.total
        ),
    )?;
    if operations.total > 0 {
        let shares = [
            ("in lanes", operations.lanes),
            ("at once", operations.at_once),
            ("on a device", operations.device),
            ("in software", operations.software),
        ];
        let shares = shares.map(|(place, share)| format!("{} {place}", percent(share)));
        let reasons = &operations.reasons;
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, share)| format!("{reason} {}", percent(*share)))
            .collect();
        let reasons = match reasons.is_empty() {
            true => String::new(),
            false => format!(" ({})", reasons.join(", ")),
        };
        line("", format!("{}{reasons}", shares.join(", ")))?;
    }

    let batches = &process.batches;
    if batches.mean_size > 0.0 {
        let sizes = (1..).zip(&batches.sizes).filter(|(_, share)| **share > 0.0);
        let sizes: Vec<String> = sizes
            .map(|(size, share)| format!("{size}: {}", percent(*share)))
            .collect();
        line(
            "batches",
            format!(
                "{}/s, {:.1} operations each ({})",
                rate(batches.per_second),
                batches.mean_size,
                sizes.join(", ")
            ),
        )?;
    }

    let mut kinds: Vec<(&String, &Times)> = process.waiting.iter().collect();
    kinds.sort_by_key(|(_, times)| std::cmp::Reverse(times.count));
    for (index, (kind, time)) in kinds.into_iter().take(KINDS).enumerate() {
        let name = if index == 0 { "waiting" } else { "" };
        line(name, format!("{kind} {}", times(time)))?;
    }

    let compression = &process.compression;
    if !compression.chunks.is_empty() || compression.content_bytes_per_second > 0.0 {
        line(
            "compression",
            format!(
                "{} responses/s, {}/s to {}/s, chunks in all: {}",
                rate(compression.responses_per_second),
                bytes(compression.content_bytes_per_second),
                bytes(compression.output_bytes_per_second),
                list(&compression.chunks)
            ),
        )?;
    }
    let faults = match process.faults.is_empty() {
        true => "none".to_owned(),
        false => list(&process.faults),
    };
    line("faults", faults)
}

fn list(counts: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    all.join(", ")
}

fn times(times: &Times) -> String {
    format!(
        "half within {}, 90% within {}, 99% within {}",
        short(times.p50_seconds),
        short(times.p90_seconds),
        short(times.p99_seconds)
    )
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate < 10.0 && rate > 0.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => "<1%".to_owned(),
        percent => format!("{percent:.0}%"),
    }
}

fn bytes(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        count if count >= 1e3 => format!("{:.1} kB", count / 1e3),
        count => format!("{count:.0} bytes"),
    }
}

fn short(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-3 => format!("{:.0} us", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

fn long(seconds: f64) -> String {
    let minutes = seconds as u64 / 60;
    match minutes {
        0 => format!("{seconds:.0} s"),
        1..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_that_fit() {
        assert_eq!([rate(0.0), rate(1.26), rate(1234.5)], ["0", "1.3", "1234"]);
        assert_eq!(
            [percent(0.0), percent(0.004), percent(1.0)],
            ["0%", "<1%", "100%"]
        );
        assert_eq!(
            [short(0.000004), short(0.002048), short(2.1)],
            ["4 us", "2.0 ms", "2.1 s"]
        );
        assert_eq!(
            [long(59.0), long(600.0), long(7200.0), long(1e6)],
            ["59 s", "10 min", "2 h", "11 days"]
        );
        assert_eq!(
            [bytes(10.0), bytes(1500.0), bytes(2e6)],
            ["10 bytes", "1.5 kB", "2.0 MB"]
        );
    }
}
