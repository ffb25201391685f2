//! The `slipstream` command as a user runs it: exit codes, output, and what it leaves behind.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn bench_handshake_writes_rows_and_summary() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("out.json");
    let output = slipstream(scratch.path())
        .args([
            "bench",
            "handshake",
            "--mode",
            "stock,stock",
            "--suite",
            "tls13-rsa2048",
        ])
        .args([
            "--concurrency",
            "1,4",
            "--seconds",
            "1",
            "--rounds",
            "1",
            "--json",
        ])
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("tls13-rsa2048"));

    let result: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        for field in [
            "server",
            "mode",
            "suite",
            "concurrency",
            "round",
            "handshakes_per_s",
            "server_cpu_us",
            "p50_us",
            "p99_us",
            "client_share",
            "errors",
        ] {
            assert!(!row[field].is_null(), "{field} in {row}");
        }
    }
    assert_eq!(result["summary"].as_array().unwrap().len(), 2);
    assert!(
        result["machine"]["nginx"]
            .as_str()
            .unwrap()
            .starts_with("nginx/")
    );
    fs::remove_file(&json).unwrap();
    assert_empty(scratch.path());
}

#[test]
fn ctrl_c_stops_the_servers_and_removes_the_files() {
    let scratch = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = start_long_bench(scratch.path());
        let nginx = await_nginx(scratch.path());
        kill_process(pid(running.id()), signal).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(130));
        assert_gone(&nginx);
        assert_empty(scratch.path());
    }
}

#[test]
fn a_command_that_is_killed_takes_its_servers_along() {
    let scratch = tempfile::tempdir().unwrap();
    let mut running = start_long_bench(scratch.path());
    let nginx = await_nginx(scratch.path());
    running.kill().unwrap();
    running.wait().unwrap();
    assert_gone(&nginx);
}

#[test]
fn a_missing_module_is_an_error_that_says_how_to_build_it() {
    let scratch = tempfile::tempdir().unwrap();
    let output = slipstream(scratch.path())
        .args(["bench", "handshake", "--module", "/nonexistent/module.so"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("make build"), "{output:?}");
    assert_empty(scratch.path());
}

#[test]
fn load_fails_when_connections_do() {
    let scratch = tempfile::tempdir().unwrap();
    // Below the ports that other tests are given.
    let closed = "127.0.0.1:1";
    let output = slipstream(scratch.path())
        .args([
            "bench",
            "load",
            "--suite",
            "tls12-rsakx",
            "--connections",
            "3",
            "--connect",
        ])
        .arg(closed)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("failed connections: 3 (connect 3"),
        "{output:?}"
    );
}

#[test]
fn load_keeps_to_this_machine() {
    let scratch = tempfile::tempdir().unwrap();
    let output = slipstream(scratch.path())
        .args([
            "bench",
            "load",
            "--suite",
            "tls12-rsakx",
            "--connect",
            "192.0.2.1:443",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("--allow-remote"),
        "{output:?}"
    );
}

#[test]
fn demo_does_not_fight_for_its_port() {
    let scratch = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = slipstream(scratch.path())
        // Any file passes for a module until nginx loads it.
        .args(["demo", "--module", "/etc/passwd", "--port"])
        .arg(taken.local_addr().unwrap().port().to_string())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("choose another --port"),
        "{output:?}"
    );
    assert_empty(scratch.path());
}

#[test]
fn doctor_reports_what_is_missing_as_json() {
    let scratch = tempfile::tempdir().unwrap();
    let output = slipstream(scratch.path())
        .args(["doctor", "--nginx", "/nonexistent/nginx", "--json", "-"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nginx = findings["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "nginx")
        .unwrap();
    assert_eq!(nginx["status"], "missing");
    assert!(!nginx["cure"].as_str().unwrap().is_empty());
    assert_empty(scratch.path());
}

#[test]
fn a_suite_that_does_not_exist_is_refused_and_those_that_do_are_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let output = slipstream(scratch.path())
        .args(["bench", "handshake", "--suite", "tls13-rsa1024"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    for suite in slipstream_testbed::suite::SUITES {
        assert!(text(&output.stderr).contains(suite.name), "{output:?}");
    }
}

#[test]
fn bench_kernels_measures_what_it_is_asked_for() {
    let scratch = tempfile::tempdir().unwrap();
    let output = slipstream(scratch.path())
        .args(["bench", "kernels", "--op", "p256-sign-ahead,x25519-shared"])
        .args(["--backend", "portable", "--lanes", "2"])
        .args(["--seconds", "0.01", "--rounds", "2", "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let lanes: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| {
            assert!(row["lanes_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["bound_fraction"].is_null(), "{row}");
            (
                row["op"].as_str().unwrap(),
                row["live_lanes"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(lanes, [("p256-sign-ahead", 1), ("x25519-shared", 2)]);
}

#[test]
fn every_command_has_help_with_examples() {
    let scratch = tempfile::tempdir().unwrap();
    for command in [
        &["doctor"][..],
        &["demo"],
        &["bench", "handshake"],
        &["bench", "kernels"],
        &["bench", "load"],
        &["engine"],
        &["engine", "status"],
        &["serve"],
    ] {
        let output = slipstream(scratch.path())
            .args(command)
            .arg("--help")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stdout).contains("Examples:"), "{command:?}");
    }
}

/// The command with a temporary directory of its own.
#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("man");
    let mut command = slipstream(scratch.path());
    let status = command.arg("manual").arg(&folder).status().unwrap();
    assert!(status.success());
    let page = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let overview = page("slipstream.1");
    for command in ["bench", "demo", "doctor", "engine", "serve", "status"] {
        assert!(
            overview.contains(&format!("slipstream\\-{command}(1)")),
            "{command}"
        );
        assert!(page(&format!("slipstream-{command}.1")).contains(".SH OPTIONS"));
    }
    assert!(page("slipstream-bench-handshake.1").contains("\\-\\-server"));
    // It is for those who make packages.
    assert!(!overview.contains("manual"));
}

fn slipstream(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipstream"));
    command.env("TMPDIR", temporary);
    command
}

fn start_long_bench(temporary: &Path) -> Child {
    slipstream(temporary)
        .args([
            "bench",
            "handshake",
            "--mode",
            "stock",
            "--concurrency",
            "2",
            "--seconds",
            "60",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for the nginx that has its directory under `temporary`; its master and workers.
fn await_nginx(temporary: &Path) -> Vec<u32> {
    for _ in 0..6000 {
        thread::sleep(Duration::from_millis(10));
        let master = fs::read_dir(temporary)
            .unwrap()
            .flatten()
            .find_map(|entry| fs::read_to_string(entry.path().join("nginx.pid")).ok())
            .and_then(|pid| pid.trim().parse().ok());
        if let Some(master) = master {
            let workers = slipstream_testbed::process::children(master).unwrap();
            if !workers.is_empty() {
                return [vec![master], workers].concat();
            }
        }
    }
    panic!("nginx did not start");
}

fn assert_gone(processes: &[u32]) {
    for process in processes {
        let alive = (0..6000).all(|_| {
            thread::sleep(Duration::from_millis(10));
            fs::read_to_string(format!("/proc/{process}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        });
        assert!(!alive, "process {process} is left");
    }
}

fn assert_empty(directory: &Path) {
    let left: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?} are left");
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
