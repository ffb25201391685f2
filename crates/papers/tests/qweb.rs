//! `slipstream-papers qweb`, and the help of every command, as a user runs them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_stock_nginx_alone_gives_rows_plots_and_a_report() {
    let scratch = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let corpus = tempfile::tempdir().unwrap();
    let line = "<tr><td>a line of a table</td></tr>\n";
    fs::write(corpus.path().join("page.html"), line.repeat(200)).unwrap();
    let directory = scratch.path().join("results");
    let output = papers(temporary.path())
        .args(["qweb", "--configuration", "sw", "--page", "abc"])
        .args(["--concurrency", "4", "--seconds", "1", "--rounds", "1"])
        .args(["--json", "-", "--corpus"])
        .arg(corpus.path())
        .arg("--out")
        .arg(&directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    // Each connection has brought the page at least once.
    assert_eq!(rows[0]["compared"], 4, "{result}");
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(report.contains("Beside the paper"), "{report}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2 + 5);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn every_command_has_help_with_examples() {
    let temporary = tempfile::tempdir().unwrap();
    for command in ["qtls", "qweb", "squid"] {
        let output = papers(temporary.path())
            .args([command, "--help"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Examples:"), "{command}");
        assert!(text.contains("--slipstream"), "{command}");
    }
}

#[test]
fn a_missing_engine_is_an_error_with_the_cure() {
    let temporary = tempfile::tempdir().unwrap();
    let output = papers(temporary.path())
        .args(["qweb", "--configuration", "pipelined"])
        // Any file passes for a module until nginx loads it.
        .args(["--module", "/etc/passwd", "--slipstream", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--slipstream"), "{text}");
}

/// The command with a temporary directory of its own.
fn papers(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipstream-papers"));
    command.env("TMPDIR", temporary);
    command
}
