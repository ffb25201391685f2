//! Options of transfers, and the experiment that they describe.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;
use slipstream_testbed as testbed;
use slipstream_testbed::nginx::{Binary, find_module};

use super::{experiment, options};
use crate::Error;
use crate::corpus::{self, Page};
use crate::transfers::{Configuration, Experiment, Outcome, Row, Transport};

/// Transport, pages and configurations.
#[derive(Args)]
pub struct Transfers {
    /// Transport of the requests
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
    /// Length, rounds, servers and results.
    #[command(flatten)]
    pub options: experiment::Options,
}

impl Transfers {
    /// Runs the experiment, with a line on standard error for every measurement. `engine` finds the
    /// executable with the `engine` command.
    ///
    /// # Errors
    /// If nginx, the module, the engine or the pages are missing, and those of
    /// [`Experiment::run`].
    pub fn measure(
        &self,
        engine: impl FnOnce() -> Result<PathBuf, testbed::Error>,
    ) -> Result<Outcome, Error> {
        let nginx = Binary::find(self.options.nginx.as_deref())?;
        let configurations = match &self.configuration[..] {
            [] => Configuration::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let any = |is: fn(&Configuration) -> bool| configurations.iter().any(is);
        let module = match any(|configuration| configuration.needs_module()) {
            true => Some(find_module(&nginx, self.options.module.as_deref())?),
            false => None,
        };
        let engine_program = match any(|configuration| configuration.compression.offloads()) {
            true => engine()?,
            false => PathBuf::new(),
        };
        let (contents, source) = corpus::load(&options::pages(&self.page), self.corpus.as_deref())?;
        let (server_core, load_core) =
            options::cores(self.options.server_core, self.options.load_core)?;
        let experiment = Experiment {
            nginx,
            module,
            engine_program,
            contents,
            source,
            transports: self.tls.clone(),
            configurations,
            concurrency: self.concurrency,
            window: self.options.seconds,
            rounds: self.options.rounds,
            server_core,
            load_core,
        };
        experiment.run(options::counted(experiment.measurements(), print_progress))
    }
}

/// Parses the name of a transport.
fn transport() -> impl TypedValueParser<Value = Transport> {
    options::named(&Transport::ALL, |&transport| {
        let description = transport.description().to_owned();
        (transport.name(), description, transport)
    })
}

/// Parses the name of a configuration.
fn configuration() -> impl TypedValueParser<Value = Configuration> {
    options::named(&Configuration::ALL, |&configuration| {
        let description = configuration.description().to_owned();
        (configuration.name(), description, configuration)
    })
}

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
