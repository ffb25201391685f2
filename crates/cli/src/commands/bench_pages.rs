//! `slipstream bench pages`.

use std::env;
use std::process::ExitCode;

use clap::Args;
use slipstream_bench::command::transfers::Transfers;
use slipstream_bench::transfers::write_report;
use slipstream_testbed::Error;

/// Measure nginx with compressed pages: stock, and with the Slipstream module in several modes
///
/// nginx's only worker has a core to itself; the load shares another with the engine. Servers and
/// engines are this command's own: they are started afresh for each measurement, on loopback, and
/// are removed afterwards. In every round each configuration is measured once, and the ratios are
/// taken within the round. The first response of each connection is decompressed and compared with
/// the page.
///
/// The pages are real documents: chapters of Debian's documentation, which is fetched once with
/// apt-get and kept in the user's cache, or those of a directory of your own (--corpus).
///
/// Exits with 1 if any connection failed, after printing all results.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench pages --corpus /srv/www --configuration sw,software,failover
  slipstream bench pages --tls off,on,new --page abc,cnn --rounds 5 --json rows.json
  slipstream bench pages --configuration sw,software --page text --out results
  slipstream bench pages --configuration sw --corpus /srv/www    a stock nginx alone: needs neither module nor engine")]
pub struct BenchPages {
    #[command(flatten)]
    transfers: Transfers,
}

impl BenchPages {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let this_program = || {
            env::current_exe().map_err(Error::io("cannot find this program, which is the engine"))
        };
        let outcome = self.transfers.measure(this_program)?;
        let options = &self.transfers.options;
        Ok(options.finish(&outcome, outcome.errors(), write_report)?)
    }
}
