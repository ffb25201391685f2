//! `slipstream bench pages` and `slipstream bench compress` as a user runs them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_stock_nginx_alone_gives_rows_and_plots() {
    let corpus = corpus();
    let scratch = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("results");
    let output = slipstream("pages", temporary.path())
        .args(["--configuration", "sw", "--tls", "off,on,new"])
        .args(["--page", "abc,shine", "--concurrency", "4"])
        .args(["--seconds", "1", "--rounds", "1", "--json", "-"])
        .arg("--corpus")
        .arg(corpus.path())
        .arg("--out")
        .arg(&directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 2);
    for row in rows {
        for field in [
            "transport",
            "page",
            "configuration",
            "responses_per_s",
            "completion_s",
            "server_cpu_us",
            "p50_us",
            "client_share",
        ] {
            assert!(!row[field].is_null(), "{field} in {row}");
        }
        // Each connection has brought the page at least once.
        assert_eq!(row["compared"], 4, "{row}");
        assert!(row["compression_ratio"].as_f64().unwrap() > 2.0, "{row}");
    }
    let files = fs::read_dir(&directory).unwrap().count();
    assert_eq!(files, 1 + 3 * 5);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn the_library_is_compared_with_zlib_without_an_engine() {
    let corpus = corpus();
    let temporary = tempfile::tempdir().unwrap();
    let output = slipstream("compress", temporary.path())
        .args(["--page", "shine", "--level", "1", "--zstd", "1"])
        .args(["--chunk", "64k", "--seconds", "0.01", "--rounds", "1"])
        .args(["--json", "-", "--corpus"])
        .arg(corpus.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = result["summary"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["configuration"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "zlib-1",
            "gzip-1 stream",
            "gzip-1 chunks 64k",
            "zstd-1 stream",
            "zstd-1 chunks 64k",
            "session 64k"
        ]
    );
    assert!(result["threshold"].is_null());
}

#[test]
fn what_cannot_be_measured_is_an_error_with_the_cure() {
    let corpus = corpus();
    let temporary = tempfile::tempdir().unwrap();
    let corpus = corpus.path().to_str().unwrap();
    for (arguments, code, cure) in [
        (["--configuration", "pipelined+tls"], 1, "choose among"),
        (["--module", "/nonexistent"], 1, "make build"),
        (["--page", "cnn"], 1, "--corpus"),
        (["--page", "bbc"], 2, "statesman"),
        (["--tls", "yes"], 2, "new"),
    ] {
        let mut command = slipstream("pages", temporary.path());
        if arguments[0] != "--configuration" && arguments[0] != "--module" {
            command.args(["--configuration", "sw"]);
        }
        if arguments[0] == "--configuration" {
            // Any file passes for a module until nginx loads it.
            command.args(["--module", "/etc/passwd"]);
        }
        if arguments[0] != "--page" {
            command.args(["--page", "abc"]);
        }
        let output = command
            .args(["--corpus", corpus])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(cure), "{arguments:?}: {text}");
    }
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn the_help_has_examples() {
    let temporary = tempfile::tempdir().unwrap();
    for experiment in ["pages", "compress"] {
        let output = slipstream(experiment, temporary.path())
            .arg("--help")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"));
    }
}

/// A directory with a document that is long enough for two of the pages: `/usr/share` need not have
/// any.
fn corpus() -> tempfile::TempDir {
    let corpus = tempfile::tempdir().unwrap();
    let row = |number: u32| {
        let square = number * number;
        format!("<tr><td>{number}</td><td class=\"square\">{square}</td></tr>\n")
    };
    let page: String = (0..2000).map(row).collect();
    fs::write(corpus.path().join("squares.html"), page).unwrap();
    corpus
}

/// The command with a temporary directory of its own.
fn slipstream(experiment: &str, temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipstream"));
    command.env("TMPDIR", temporary).args(["bench", experiment]);
    command
}
