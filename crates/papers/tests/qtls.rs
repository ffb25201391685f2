//! `slipstream-papers qtls` as a user runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use slipstream_testbed::scratch::ScratchDirectory;

#[test]
fn a_stock_nginx_alone_gives_rows_a_plot_and_a_report() {
    let scratch = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("results");
    let output = papers(temporary.path())
        .args(["--figure", "9", "--configuration", "SW"])
        .args(["--concurrency", "4", "--seconds", "1", "--rounds", "1"])
        .args(["--json", "-", "--out"])
        .arg(&directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["device"], "paced");
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        for field in [
            "figure",
            "configuration",
            "suite",
            "concurrency",
            "resumed_percent",
            "round",
            "handshakes_per_s",
            "server_cpu_us",
            "mean_us",
            "p50_us",
            "p99_us",
            "client_share",
            "errors",
        ] {
            assert!(!row[field].is_null(), "{field} in {row}");
        }
    }
    let mut files: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["figure-9.svg", "report.html", "rows.json"]);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn what_does_not_exist_is_refused_and_what_does_is_listed() {
    let scratch = tempfile::tempdir().unwrap();
    for (option, value, listed) in [
        ("--figure", "10", "12"),
        ("--configuration", "QAT", "QAT+AH"),
        ("--device", "card", "lanes"),
    ] {
        let output = papers(scratch.path())
            .args([option, value])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(listed), "{text}");
    }
}

#[test]
fn a_figure_without_the_configuration_and_a_missing_module_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    for (arguments, cure) in [
        (["--figure", "12", "--configuration", "SW"], "choose among"),
        (["--figure", "7", "--module", "/nonexistent"], "make build"),
    ] {
        let output = papers(scratch.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(cure), "{text}");
    }
}

/// Any file passes for a module until nginx loads it, and by then there is an engine.
#[test]
fn nothing_is_left_when_a_server_does_not_start() {
    let scratch = tempfile::tempdir().unwrap();
    let engine = ScratchDirectory::new().unwrap();
    let output = papers(scratch.path())
        .args(["--figure", "8", "--configuration", "idle"])
        .args(["--device", "engine", "--module", "/etc/passwd"])
        .arg("--slipstream")
        .arg(engine.executable("slipstream", ENGINE).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/etc/passwd"), "{text}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let left = Command::new("pgrep")
        .arg("-f")
        .arg(scratch.path())
        .output()
        .unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
}

/// An engine that takes connections and nothing else: `engine --socket FILE ...`.
const ENGINE: &str = "#!/usr/bin/perl
use Socket;
socket(my $listener, AF_UNIX, SOCK_SEQPACKET, 0) or die;
bind($listener, pack_sockaddr_un($ARGV[2])) or die;
listen($listener, 8) or die;
accept(my $connection, $listener) or die while 1;
";

#[test]
fn the_help_has_examples() {
    let scratch = tempfile::tempdir().unwrap();
    let output = papers(scratch.path()).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"));
}

/// The command with a temporary directory of its own.
fn papers(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipstream-papers"));
    command.env("TMPDIR", temporary).arg("qtls");
    command
}
