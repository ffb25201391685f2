//! `slipstream bench kernels`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use slipstream_bench::command::options;
use slipstream_bench::kernels::Backend;
use slipstream_bench::kernels::{Experiment, Operation, Row};
use slipstream_testbed::output::write;
use slipstream_testbed::processor::usable_cores;

/// Measure private-key operations in lanes against libcrypto, on one core
///
/// A batch of eight in vector lanes against libcrypto's operations, one at a time, in turn. RSA in
/// lanes includes the check with the public exponent. A public key and a signature include the
/// drawing of the private key or nonce, on both sides. For a shared secret lanes check the peer's
/// key; of libcrypto it is EVP_PKEY_derive alone, without the check that a server pays for before.
/// With sign-ahead the nonces have been precomputed, which is not counted: it is the rest of the
/// work in a handshake, one signature at a time.
///
/// The bound is the share of the core's measured multiply instructions that the algorithm's count
/// makes up. It is known for RSA.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench kernels
  slipstream bench kernels --op rsa3072 --rounds 15 --json out.json
  slipstream bench kernels --op x25519-shared,p256-ecdh,p256-sign,p256-sign-ahead
  slipstream bench kernels --lanes 1      what a batch costs that is not full")]
pub struct BenchKernels {
    /// The operations [default: all that the backend computes]
    #[arg(long, value_delimiter = ',', value_parser = operation())]
    op: Vec<Operation>,
    /// The instructions to compute with
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArgument,
    /// Operations per batch
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8), default_value = "8")]
    lanes: u8,
    /// Length of one measurement, in CPU time
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "0.5")]
    seconds: Duration,
    /// Number of rounds
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
        let backend = self.backend.resolve()?;
        let outcome = Experiment {
            operations: match self.op.as_slice() {
                [] => Operation::ALL
                    .into_iter()
                    .filter(|operation| operation.is_offered(backend))
                    .collect(),
                chosen => chosen.to_vec(),
            },
            backend,
            live_lanes: usize::from(self.lanes),
            window: self.seconds,
            rounds: self.rounds,
            core: match self.core {
                Some(core) => core,
                None => usable_cores()?[0],
            },
        }
        .run(print_progress)?;
        write(self.json.as_deref(), &outcome)?;
        Ok(ExitCode::SUCCESS)
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

/// Parses the name of an operation, and lists all in the help.
fn operation() -> impl TypedValueParser<Value = Operation> {
    PossibleValuesParser::new(Operation::ALL.map(Operation::name))
        .map(|name| Operation::find(&name).expect("clap has found it among the names"))
}

fn print_progress(row: &Row) {
    eprintln!(
        "{}: {:.0} operations/s in lanes ({}), {:.0} by libcrypto, ratio {:.2}",
        row.op, row.lanes_per_s, row.backend, row.libcrypto_per_s, row.ratio
    );
}
