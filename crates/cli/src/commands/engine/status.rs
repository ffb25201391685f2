//! `slipstream engine status`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use slipstream_accelerators::engine::Connection;
use slipstream_accelerators::engine::protocol::message::{ToClient, ToEngine};
use slipstream_testbed::output::print;

/// Longer than a busy engine takes to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show the counters of an engine
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream engine status
  slipstream engine status --json | jq .mean_fill")]
pub struct Status {
    /// Path of the engine's socket
    #[arg(long, value_name = "PATH", default_value = super::SOCKET)]
    socket: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let socket = self.socket.display();
        let connection = Connection::to_anybody(&self.socket)
            .with_context(|| format!("no engine answers at {socket}"))?;
        let answer = connection
            .ask(&ToEngine::Status, PATIENCE)
            .with_context(|| format!("the engine at {socket} does not report its counters"))?;
        let ToClient::Status(text) = answer.0 else {
            bail!("the engine at {socket} has answered with another message");
        };
        if self.json {
            print(&format_args!("{text}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let figures: Value = serde_json::from_str(&text)
            .with_context(|| format!("the engine at {socket} has not answered in JSON"))?;
        print(&describe(&figures))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(figures: &Value) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, text: String| lines += &format!("{name:<13}{text}\n");
    let number = |name: &str| figures[name].as_u64().unwrap_or(0);
    line(
        "clients",
        format!(
            "{} connections, {} instances, {} keys in {} sessions",
            number("connections"),
            number("instances"),
            number("keys"),
            number("sessions")
        ),
    );
    for (kind, count) in figures["requests"].as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            line(kind, format!("{count} requests"));
        }
    }
    line(
        "batches",
        format!(
            "{}, {:.2} requests each; by live lanes: {}",
            number("batches"),
            figures["mean_fill"].as_f64().unwrap_or(0.0),
            histogram(&figures["fill"])
        ),
    );
    if number("compressed_chunks") != 0 {
        let (content, compressed) = (number("content_bytes"), number("compressed_bytes"));
        line(
            "compressed",
            format!(
                "{} chunks, {content} bytes to {compressed}, ratio {:.2}",
                number("compressed_chunks"),
                content as f64 / compressed.max(1) as f64
            ),
        );
    }
    line(
        "responses",
        format!(
            "{}, {} events, {} faults, {} refused, {} dropped",
            number("responses"),
            number("events"),
            number("faults"),
            number("refused"),
            number("dropped")
        ),
    );
    line(
        "turned away",
        format!(
            "{} foreign users, {} messages refused, {} malformed, {} malformed rings",
            number("foreign_users"),
            number("refused_messages"),
            number("malformed_messages"),
            number("malformed_rings")
        ),
    );
    lines
}

fn histogram(fill: &Value) -> String {
    let counts = fill.as_array().into_iter().flatten();
    let entries: Vec<String> = (1..)
        .zip(counts)
        .map(|(lanes, count)| format!("{lanes}: {count}"))
        .collect();
    entries.join(", ")
}
