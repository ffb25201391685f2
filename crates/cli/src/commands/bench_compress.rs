//! `slipstream bench compress`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use slipstream_bench::command::options;
use slipstream_bench::command::output;
use slipstream_bench::compress::{Experiment, Row, write_report};
use slipstream_bench::corpus::{self, Page};

/// Compare the compression library with the system's zlib
///
/// Pages as in `bench pages`, each compressed whole by zlib at level 1 in the way nginx calls it,
/// and by the library: as one stream (gzip-1 stream), as chunks that refer to no other (gzip-1
/// chunks 64k), and as responses in software (session). With --engine, responses go to an engine on
/// another core too, with the stream and chunk sizes of the QWEB paper's figure 11: pipelined
/// 256/64 accumulates 256 KB, submits chunks of 64 KB, and waits for all; 64/64 is straight
/// offload.
///
/// Everything is decompressed and compared once before it is measured.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench compress
  slipstream bench compress --page cnn --level 1 --zstd 1 --chunk 64k --rounds 5 --seconds 0.5
  slipstream bench compress --engine --page text,cnn --out report
  slipstream bench compress --corpus /srv/www --page abc,shine")]
pub struct BenchCompress {
    /// The pages [default: all]
    #[arg(long, value_delimiter = ',', value_parser = options::page())]
    page: Vec<&'static Page>,
    /// Make the pages of the *.html and *.txt in this directory
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Levels of gzip, 1 to 9; responses have the first
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=9), default_value = "1,2,3,6")]
    level: Vec<u8>,
    /// Levels of zstd, 1 to 19
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=19), default_value = "1,3")]
    zstd: Vec<u8>,
    /// Lengths of chunks, and of what accumulates before they are submitted
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = chunk, default_value = "32k,64k,128k,256k")]
    chunk: Vec<usize>,
    /// Measure over an engine too, and the length from which on it saves the caller time
    #[arg(long)]
    engine: bool,
    /// Responses at a time where nothing waits for the engine
    #[arg(long, value_parser = options::positive, default_value = "8")]
    concurrency: usize,
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "0.1")]
    seconds: Duration,
    /// Number of rounds
    #[arg(long, value_parser = options::positive, default_value = "3")]
    rounds: usize,
    /// Write rows.json and plots to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the
    /// table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Core that compresses [default: the first]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Core of the engine [default: the second]
    #[arg(long, value_name = "CORE")]
    engine_core: Option<usize>,
}

impl BenchCompress {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment()?;
        let outcome =
            experiment.run(options::counted(experiment.measurements(), print_progress))?;
        output::write_with_report(
            self.out.as_deref(),
            self.json.as_deref(),
            &outcome,
            write_report,
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let (contents, source) = corpus::load(&options::pages(&self.page), self.corpus.as_deref())?;
        let (core, engine_core) = options::cores(self.core, self.engine_core)?;
        let engine_program = match self.engine {
            true => Some(
                std::env::current_exe()
                    .context("cannot find this program, which is the engine too")?,
            ),
            false => None,
        };
        Ok(Experiment {
            contents,
            source,
            levels: self.level.clone(),
            zstd_levels: self.zstd.clone(),
            chunks: self.chunk.clone(),
            engine_program,
            concurrency: self.concurrency,
            window: self.seconds,
            rounds: self.rounds,
            core,
            engine_core,
        })
    }
}

/// Parses the length of a chunk in bytes, as nginx's sizes are written: a number, perhaps with k.
fn chunk(text: &str) -> Result<usize, String> {
    const LONGEST: usize = 256 << 10;
    let length = match text.strip_suffix(['k', 'K']) {
        Some(number) => number
            .parse()
            .ok()
            .and_then(|number: usize| number.checked_mul(1 << 10)),
        None => text.parse().ok(),
    };
    match length {
        Some(length) if (1 << 10..=LONGEST).contains(&length) => Ok(length),
        _ => Err("must be a size from 1k to 256k".to_owned()),
    }
}

/// A line on standard error for every measurement.
fn print_progress(done: usize, total: usize, row: &Row) {
    eprintln!(
        "{done}/{total} round {}, {:<9} {:<22} {:>6.0} MB/s, {:>8.1} us CPU, {:>8} bytes",
        row.round, row.page, row.configuration, row.mb_per_s, row.cpu_us, row.output_bytes,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_nginx_reads_them() {
        assert_eq!(chunk("64k"), Ok(64 << 10));
        assert_eq!(chunk("256K"), Ok(256 << 10));
        assert_eq!(chunk("5000"), Ok(5000));
        for text in [
            "",
            "k",
            "0",
            "1023",
            "257k",
            "1m",
            "-1",
            "18446744073709551615k",
        ] {
            assert!(chunk(text).is_err(), "{text}");
        }
    }
}
