//! `slipstream bench kernels`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use slipstream_bench::kernels::{Experiment, Row};
use slipstream_bench::lanes::Backend;
use slipstream_bench::lanes::rsa::Size;
use slipstream_bench::processor::usable_cores;

use super::options;
use crate::output;

/// Measure RSA in lanes against libcrypto, on one core
///
/// The private-key operation with CRT: a batch of eight in vector lanes (the check with the public exponent included),
/// against libcrypto's, one at a time, in turn. The bound is the share of the core's measured multiply
/// instructions that the algorithm's count makes up.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench kernels
  slipstream bench kernels --op rsa3072 --rounds 15 --json out.json
  slipstream bench kernels --lanes 1      what a batch costs that is not full")]
pub struct BenchKernels {
    /// The operations
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "rsa2048,rsa3072,rsa4096"
    )]
    op: Vec<OperationArgument>,
    /// The instructions to compute with
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArgument,
    /// Operations per batch
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8), default_value = "8")]
    lanes: u8,
    /// Length of one measurement, in CPU time
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "0.5")]
    seconds: Duration,
    /// How many times to measure everything
    #[arg(long, value_parser = options::positive, default_value = "7")]
    rounds: usize,
    /// Core to measure on [default: the first]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Write machine and rows to this file as JSON (- for standard output, without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum OperationArgument {
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

#[derive(Clone, Copy, ValueEnum)]
enum BackendArgument {
    /// The fastest that this CPU has
    Auto,
    /// AVX-512 IFMA
    Ifma,
    /// Plain AVX-512F
    Avx512,
    /// No vector instructions: only to see that it works
    Portable,
}

impl BenchKernels {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let outcome = Experiment {
            sizes: self.op.iter().map(|&operation| operation.into()).collect(),
            backend: self.backend.resolve()?,
            live_lanes: usize::from(self.lanes),
            window: self.seconds,
            rounds: self.rounds,
            core: match self.core {
                Some(core) => core,
                None => usable_cores()?[0],
            },
        }
        .run(print_progress)?;
        if let Some(path) = &self.json {
            output::write_json(path, &outcome)?;
        }
        if !output::is_standard_output(self.json.as_deref()) {
            print!("{outcome}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl From<OperationArgument> for Size {
    fn from(operation: OperationArgument) -> Size {
        match operation {
            OperationArgument::Rsa2048 => Size::Rsa2048,
            OperationArgument::Rsa3072 => Size::Rsa3072,
            OperationArgument::Rsa4096 => Size::Rsa4096,
        }
    }
}

impl BackendArgument {
    fn resolve(self) -> anyhow::Result<Backend> {
        match self {
            BackendArgument::Auto => Backend::detect().context(
                "this CPU has no AVX-512: there are no lanes to measure (--backend portable shows that they compute)",
            ),
            BackendArgument::Ifma => Ok(Backend::Ifma),
            BackendArgument::Avx512 => Ok(Backend::Avx512),
            BackendArgument::Portable => Ok(Backend::Portable),
        }
    }
}

fn print_progress(row: &Row) {
    eprintln!(
        "{}: {:.0} operations/s in lanes ({}), {:.0} by libcrypto, ratio {:.2}",
        row.op, row.lanes_per_s, row.backend, row.libcrypto_per_s, row.ratio
    );
}
