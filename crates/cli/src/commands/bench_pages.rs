//! `slipstream bench pages`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use slipstream_bench::nginx::{Binary, find_module};
use slipstream_bench::pages::{
    Configuration, Experiment, Page, Row, Transport, corpus, write_report,
};

use super::{experiment, options};

/// Repeat the compression experiments of the QWEB paper (sections 5.3 and 5.4)
///
/// nginx's only worker has a core to itself; the load shares another with the engine. Servers and engines are this command's
/// own: they are started afresh for each measurement, on loopback, and nothing of them stays. In every round each
/// configuration is measured once, and the ratios are taken within the round. The first response of each connection is
/// decompressed and compared with the page.
///
/// The pages have the lengths of the paper's and are real documents: chapters of Debian's documentation, which is fetched
/// once with apt-get and kept in the user's cache, or those of a directory of your own (--corpus).
///
/// Exits with 1 if any connection failed, after printing all there is.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench pages --out results
  slipstream bench pages --tls off,on,new --page abc,cnn --rounds 5 --json rows.json
  slipstream bench pages --configuration sw,software --page text
  slipstream bench pages --configuration sw --corpus /srv/www    a stock nginx alone: needs neither module nor engine")]
pub struct BenchPages {
    /// How pages are asked for
    #[arg(long, value_delimiter = ',', value_parser = transport(), default_value = "off")]
    tls: Vec<Transport>,
    /// The pages [default: all]
    #[arg(long, value_delimiter = ',', value_parser = options::page())]
    page: Vec<&'static Page>,
    /// The configurations [default: all that make sense]
    #[arg(long, value_delimiter = ',', value_parser = configuration())]
    configuration: Vec<Configuration>,
    /// Make the pages of the *.html and *.txt in this directory
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Connections, each with one request at a time
    #[arg(long, value_parser = options::positive, default_value = "64")]
    concurrency: usize,
    #[command(flatten)]
    options: experiment::Options,
}

impl BenchPages {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment()?;
        let outcome =
            experiment.run(options::counted(experiment.measurements(), print_progress))?;
        self.options
            .finish(&outcome, outcome.errors(), write_report)
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let nginx = Binary::find(self.options.nginx.as_deref())?;
        let configurations = match &self.configuration[..] {
            [] => Configuration::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let needs_module = configurations
            .iter()
            .any(|configuration| configuration.needs_module());
        let module = match needs_module {
            true => Some(find_module(&nginx, self.options.module.as_deref())?),
            false => None,
        };
        let (contents, source) = corpus::load(&options::pages(&self.page), self.corpus.as_deref())?;
        let (server_core, load_core) =
            options::cores(self.options.server_core, self.options.load_core)?;
        Ok(Experiment {
            nginx,
            module,
            engine_program: std::env::current_exe()
                .context("cannot find this program, which is the engine too")?,
            contents,
            source,
            transports: self.tls.clone(),
            configurations,
            concurrency: self.concurrency,
            window: self.options.seconds,
            rounds: self.options.rounds,
            server_core,
            load_core,
        })
    }
}

/// Parses the name of a transport.
fn transport() -> impl TypedValueParser<Value = Transport> {
    let names = Transport::ALL
        .map(|transport| PossibleValue::new(transport.name()).help(transport.description()));
    PossibleValuesParser::new(names)
        .map(|name| Transport::find(&name).expect("clap has found it among the names"))
}

/// Parses the name of a configuration.
fn configuration() -> impl TypedValueParser<Value = Configuration> {
    let names = Configuration::ALL.map(|configuration| {
        PossibleValue::new(configuration.name()).help(configuration.description())
    });
    PossibleValuesParser::new(names)
        .map(|name| Configuration::find(&name).expect("clap has found it among the names"))
}

/// A line on standard error for every measurement.
fn print_progress(done: usize, total: usize, row: &Row) {
    eprintln!(
        "{done}/{total} round {}, tls {:<3} {:<9} {:<16} {:>7.0} requests/s, {:>6.0} us worker CPU, {:>5.2}:1, worker {:.2}, \
         engine {:.2} + load {:.2} of a core, {} errors",
        row.round,
        row.transport,
        row.page,
        row.configuration,
        row.responses_per_s,
        row.server_cpu_us,
        row.compression_ratio,
        row.server_share,
        row.engine_share.unwrap_or(0.0),
        row.client_share,
        row.errors,
    );
}
