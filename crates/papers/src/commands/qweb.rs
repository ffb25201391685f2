//! `slipstream-papers qweb`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use slipstream_bench::command::transfers::Transfers;
use slipstream_testbed::program;

use slipstream_papers::qweb::{Outcome, write_report};

/// Repeat the compression experiments of the QWEB paper (sections 5.3 and 5.4, figures 12 to 14)
///
/// nginx's only worker has a core to itself; the load shares another with the engine. Servers and
/// engines are this command's own: they are started afresh for each measurement, on loopback, and
/// nothing of them stays. In every round each configuration is measured once, and the ratios are
/// taken within the round. The first response of each connection is decompressed and compared with
/// the page.
///
/// The pages have the lengths of the paper's and are real documents: chapters of Debian's
/// documentation, which is fetched once with apt-get and kept in the user's cache, or those of a
/// directory of your own (--corpus). Figure 11, the lengths of stream and chunk, is measured by
/// `slipstream bench compress --engine`.
///
/// Exits with 1 if any connection failed, after printing all there is.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream-papers qweb --out results
  slipstream-papers qweb --tls off,on,new --page abc,cnn --rounds 5 --json rows.json
  slipstream-papers qweb --configuration sw,software --page text
  slipstream-papers qweb --configuration sw --corpus /srv/www    a stock nginx alone: needs neither module nor engine")]
pub struct Qweb {
    #[command(flatten)]
    transfers: Transfers,
    /// The slipstream executable, which is the engine [default: the one beside this program, else
    /// the installed one]
    #[arg(long, value_name = "FILE")]
    slipstream: Option<PathBuf>,
}

impl Qweb {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let engine = || program::slipstream(self.slipstream.as_deref());
        let outcome = Outcome(self.transfers.measure(engine)?);
        let errors = outcome.0.errors();
        Ok(self
            .transfers
            .options
            .finish(&outcome, errors, write_report)?)
    }
}
