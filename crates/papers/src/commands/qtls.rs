//! `slipstream-papers qtls`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use slipstream_bench::command::{experiment, options};
use slipstream_papers::qtls::{Configuration, Device, Experiment, Figure, Row, write_report};
use slipstream_testbed::nginx::{Binary, find_module};
use slipstream_testbed::program;

/// Repeat the experiments of the QTLS paper (PPoPP 2019, section 5)
///
/// nginx's only worker has a core to itself; the load generator shares another with the engine that
/// replaces the paper's QAT card. Servers and engines are this command's own: they
/// are started afresh for each measurement, on loopback, with throw-away keys, and nothing of them
/// stays. In every round each configuration is measured once, and the ratios are taken within the
/// round.
///
/// SW is a stock nginx; QAT+S, QAT+A, QAT+AH and QTLS offload as the paper's configurations of
/// these names do; idle and hybrid are ours. mean and p50 are times from connect() to the completed
/// handshake, in figure 11 to the end of the response. Not reproduced: figure 10 (bulk transfer)
/// and the number of workers (the paper's HT axis).
///
/// Exits with 1 if any connection failed, after printing all there is.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream-papers qtls --out results
  slipstream-papers qtls --figure 7,8 --rounds 5 --seconds 2 --json rows.json
  slipstream-papers qtls --figure 7 --device lanes --configuration SW,idle
  slipstream-papers qtls --figure 9 --configuration SW      a stock nginx alone: needs neither module nor engine")]
pub struct Qtls {
    /// The figures of the paper
    #[arg(long, value_delimiter = ',', value_parser = figure(), default_value = "7,8,9,11,12")]
    figure: Vec<Figure>,
    /// The configurations [default: all that a figure has]
    #[arg(long, value_delimiter = ',', value_parser = configuration())]
    configuration: Vec<Configuration>,
    /// Device that operations are offloaded to
    #[arg(long, value_parser = device(), default_value = "paced")]
    device: Device,
    /// Connections at work at a time, in the figures that are not about concurrency
    #[arg(long, value_parser = options::positive, default_value = "64")]
    concurrency: usize,
    /// The slipstream executable, which is the engine [default: the one beside this program, else
    /// the installed one]
    #[arg(long, value_name = "FILE")]
    slipstream: Option<PathBuf>,
    #[command(flatten)]
    options: experiment::Options,
}

impl Qtls {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment()?;
        let outcome =
            experiment.run(options::counted(experiment.measurements(), print_progress))?;
        let errors = outcome.errors();
        Ok(self.options.finish(&outcome, errors, write_report)?)
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let nginx = Binary::find(self.options.nginx.as_deref())?;
        let configurations = match &self.configuration[..] {
            [] => Configuration::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let (module, engine_program) = if configurations == [Configuration::Software] {
            (None, PathBuf::new())
        } else {
            let module = find_module(&nginx, self.options.module.as_deref())?;
            let engine = match self.device {
                Device::Lanes => PathBuf::new(),
                Device::Paced | Device::Engine => program::slipstream(self.slipstream.as_deref())?,
            };
            (Some(module), engine)
        };
        let (server_core, load_core) =
            options::cores(self.options.server_core, self.options.load_core)?;
        Ok(Experiment {
            nginx,
            module,
            engine_program,
            device: self.device,
            figures: self.figure.clone(),
            configurations,
            concurrency: self.concurrency,
            window: self.options.seconds,
            rounds: self.options.rounds,
            server_core,
            load_core,
        })
    }
}

/// Parses the number of a figure.
fn figure() -> impl TypedValueParser<Value = Figure> {
    let numbers = Figure::ALL
        .map(|figure| PossibleValue::new(number_name(figure.number())).help(figure.title()));
    PossibleValuesParser::new(numbers).map(|number| {
        let number = number.parse().expect("the possible values are numbers");
        Figure::find(number).expect("clap has found it among the figures")
    })
}

/// clap takes names that live as long as the program.
fn number_name(number: u8) -> &'static str {
    match number {
        7 => "7",
        8 => "8",
        9 => "9",
        11 => "11",
        _ => "12",
    }
}

/// Parses the name of a configuration.
fn configuration() -> impl TypedValueParser<Value = Configuration> {
    options::named(&Configuration::ALL, |&configuration| {
        let directives = configuration.directives().unwrap_or("(a stock nginx)");
        (configuration.name(), directives.to_owned(), configuration)
    })
}

/// Parses the name of a device.
fn device() -> impl TypedValueParser<Value = Device> {
    options::named(&Device::ALL, |&device| {
        (device.name(), device.description().to_owned(), device)
    })
}

/// A line on standard error for every measurement.
fn print_progress(done: usize, total: usize, row: &Row) {
    eprintln!(
        "{done}/{total} round {}, figure {}: {:<24} {:>3}% resumed, {:>3} connections, {:<9} {:>7.0} handshakes/s, \
         {:>6.0} us worker CPU, mean {:>6.0} us, load {:.2} + engine {:.2} of a core, {} errors",
        row.round,
        row.figure,
        row.suite,
        row.resumed_percent,
        row.concurrency,
        row.configuration,
        row.handshakes_per_s,
        row.server_cpu_us,
        row.mean_us,
        row.client_share,
        row.engine_share.unwrap_or(0.0),
        row.errors,
    );
}
