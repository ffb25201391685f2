//! Lines that nginx's error log must not hold.

/// The lines that nobody has `expected`: alarming ones of nginx (a worker that died is one of
/// them), and warnings of the module.
pub(crate) fn unexpected(log: &str, expected: &[String]) -> Vec<String> {
    log.lines()
        .filter(|line| is_alarming(line))
        .filter(|line| !expected.iter().any(|text| line.contains(text.as_str())))
        .map(str::to_owned)
        .collect()
}

fn is_alarming(line: &str) -> bool {
    const LEVELS: [&str; 3] = ["[alert]", "[emerg]", "[crit]"];
    LEVELS.iter().any(|level| line.contains(level))
        || line.contains("exited on signal")
        || (line.contains("[warn]") && line.contains("slipstream:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_alarms_and_the_modules_warnings_are_found() {
        let log = "\
2026/01/01 00:00:00 [notice] 1#1: slipstream: portable lanes\n\
2026/01/01 00:00:00 [alert] 1#1: worker process 2 exited on signal 11 (core dumped)\n\
2026/01/01 00:00:00 [warn] 1#1: *1 slipstream: out of fibers\n\
2026/01/01 00:00:00 [warn] 1#1: the \"listen ... http2\" directive is deprecated\n\
2026/01/01 00:00:00 [crit] 1#1: *2 SSL_do_handshake() failed\n";
        let lines = unexpected(log, &["SSL_do_handshake() failed".to_owned()]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("signal 11"));
        assert!(lines[1].contains("out of fibers"));
    }
}
