//! The compression library against the system's zlib, which nginx uses: on a core, and over an
//! engine with the parameters of QWEB's figure 11.
//!
//! Every configuration is decompressed and compared once before it is measured. Rates and CPU times
//! are those of the calling thread, which has a core to itself; an engine has another.

mod chart;
mod configuration;
mod offload;
mod report;
mod software;
mod summary;
mod table;
mod threshold;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use slipstream_compress::{Codec, GZIP, Method, ZSTD};

pub use configuration::Configuration;
pub use report::write as write_report;
pub use summary::{Comparison, Outcome};
pub use threshold::{Point, Threshold};

use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::engine::Engine;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::processor::{on_core, thread_cpu_time};

use crate::Error;
use crate::corpus::{Content, Source};
use crate::statistics::{Measurement, in_turn};
use crate::zlib;
use offload::Line;

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The pages.
    pub contents: Vec<Content>,
    /// The documents that they were made of.
    pub source: Source,
    /// The levels of DEFLATE; over an engine, the first of them.
    pub levels: Vec<u8>,
    /// The levels of Zstandard.
    pub zstd_levels: Vec<u8>,
    /// The lengths of chunks in bytes, and of what accumulates before they are submitted.
    pub chunks: Vec<usize>,
    /// The executable with the `engine` command, if an engine is to be measured.
    pub engine_program: Option<PathBuf>,
    /// Number of responses that are compressed at a time where nothing waits for the engine.
    pub concurrency: usize,
    /// The length of one measurement.
    pub window: Duration,
    /// Number of times that all is measured.
    pub rounds: usize,
    /// The core that compresses, or submits.
    pub core: usize,
    /// The core of the engine.
    pub engine_core: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The name of the page.
    pub page: &'static str,
    /// Its length in bytes.
    pub bytes: usize,
    /// The name of the configuration.
    pub configuration: String,
    /// The round, from 1.
    pub round: usize,
    /// Content per second, in MB.
    pub mb_per_s: f64,
    /// CPU time of the caller for a page, in microseconds.
    pub cpu_us: f64,
    /// The share of its core that the caller took.
    pub core_share: f64,
    /// The length of what a page becomes, in bytes.
    pub output_bytes: usize,
}

impl Measurement for Row {
    fn round(&self) -> usize {
        self.round
    }
}

/// Work that was done, and the time that it took.
#[derive(Debug, Clone, Copy)]
struct Measured {
    pages: u64,
    wall: Duration,
    cpu: Duration,
}

impl Experiment {
    /// Runs the experiment; `progress` is called with every row.
    ///
    /// # Errors
    /// [`Error::Testbed`] when the engine does not start or dies, and when a signal asks for the
    /// end; [`Error::WrongContent`] when decompressed bytes are not the page;
    /// [`Error::Unsupported`].
    pub fn run(&self, mut progress: impl FnMut(&Row) + Send) -> Result<Outcome, Error> {
        let engine = match &self.engine_program {
            Some(program) => Some(Engine::start(program, None, self.engine_core)?),
            None => None,
        };
        let socket = engine.as_ref().map(Engine::socket);
        let (rows, threshold) = on_core(self.core, || {
            let mut line = match socket {
                Some(socket) => Line::with_engine(socket)?,
                None => Line::without_engine(),
            };
            let rows = self.measure_all(&mut line, &mut progress)?;
            let threshold = match &self.engine_program {
                Some(_) => threshold::measure(self, &mut line)?,
                None => None,
            };
            Ok::<_, Error>((rows, threshold))
        })?;
        let outcome = Outcome::new(
            Machine::describe(None),
            self.source.clone(),
            rows,
            threshold,
        );
        Ok(outcome)
    }

    /// The configurations, the first of which is what the others are compared with.
    pub fn configurations(&self) -> Vec<Configuration> {
        let of = |codec: &'static dyn Codec, levels: &[u8]| -> Vec<Method> {
            let method = |&level: &u8| Method::new(codec, level);
            levels.iter().filter_map(method).collect()
        };
        let mut methods = of(GZIP, &self.levels);
        methods.extend(of(ZSTD, &self.zstd_levels));
        let mut all = vec![Configuration::Zlib];
        for method in &methods {
            all.push(Configuration::Stream(*method));
            let chunks = |&chunk: &usize| Configuration::Chunks(*method, chunk);
            all.extend(self.chunks.iter().map(chunks));
        }
        if let Some(method) = methods.first() {
            let sessions = |&stream: &usize| Configuration::Session(*method, stream);
            all.extend(self.chunks.iter().map(sessions));
            if self.engine_program.is_some() {
                all.extend(configuration::over_engine(*method, &self.chunks));
            }
        }
        all
    }

    /// Number of measurements that it takes, without those of the threshold.
    pub fn measurements(&self) -> usize {
        self.rounds * self.contents.len() * self.configurations().len()
    }

    fn measure_all(
        &self,
        line: &mut Line,
        progress: &mut impl FnMut(&Row),
    ) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            for content in &self.contents {
                for configuration in in_turn(self.configurations(), round) {
                    check_interrupted()?;
                    let row = self.measure(line, content, configuration, round)?;
                    progress(&row);
                    rows.push(row);
                }
            }
        }
        Ok(rows)
    }

    fn measure(
        &self,
        line: &mut Line,
        content: &Content,
        configuration: Configuration,
        round: usize,
    ) -> Result<Row, Error> {
        let bytes = &content.bytes;
        let (compressed, measured) = match configuration.settings() {
            Some(settings) => {
                let concurrency = configuration.concurrency(self.concurrency);
                let compressed = line.compress_once(settings, bytes)?;
                let run = |line: &mut Line| line.run(settings, bytes, concurrency, self.window);
                (compressed, run(line)?)
            }
            None => {
                let mut compressor = software::Compressor::new(configuration);
                let compressed = compressor.compress(bytes)?.to_vec();
                let measured = repeat(self.window, || compressor.compress(bytes).map(|_| ()))?;
                (compressed, measured)
            }
        };
        check(configuration, bytes, &compressed)?;
        Ok(Row {
            page: content.page.name,
            bytes: bytes.len(),
            configuration: configuration.name(),
            round,
            mb_per_s: bytes.len() as f64 * measured.pages as f64
                / 1e6
                / measured.wall.as_secs_f64(),
            cpu_us: measured.cpu.as_secs_f64() * 1e6 / measured.pages as f64,
            core_share: measured.cpu.as_secs_f64() / measured.wall.as_secs_f64(),
            output_bytes: compressed.len() + configuration.framing(),
        })
    }
}

/// Does something again and again until `window` is over.
fn repeat(
    window: Duration,
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<Measured, Error> {
    let (started, cpu) = (Instant::now(), thread_cpu_time());
    let mut pages = 0;
    while pages == 0 || started.elapsed() < window {
        work()?;
        pages += 1;
    }
    Ok(Measured {
        pages,
        wall: started.elapsed(),
        cpu: thread_cpu_time() - cpu,
    })
}

/// Checks that compressed bytes are the page, by a decompressor that is none of the library's own.
fn check(configuration: Configuration, content: &[u8], compressed: &[u8]) -> Result<(), Error> {
    let decompressed = match configuration {
        Configuration::Stream(method) | Configuration::Chunks(method, _)
            if method.codec() == ZSTD =>
        {
            let mut decompressed = Vec::with_capacity(content.len());
            zstd_safe::decompress(&mut decompressed, compressed)
                .map(|_| decompressed)
                .map_err(|code| Error::Unsupported(zstd_safe::get_error_name(code).to_owned()))
        }
        Configuration::Chunks(..) => zlib::inflate(compressed),
        _ => zlib::gunzip(compressed),
    };
    let reason = match decompressed {
        Ok(decompressed) if decompressed == content => return Ok(()),
        Ok(_) => "its content differs".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Error::WrongContent(format!(
        "what {} has compressed cannot be read back: {reason}",
        configuration.name()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        let line =
            |number: usize| format!("<tr><td>{number}</td><td>{}</td></tr>\n", number * number);
        (0..6000).map(line).collect::<String>().into_bytes()
    }

    fn experiment() -> Experiment {
        Experiment {
            contents: Vec::new(),
            source: Source {
                origin: String::new(),
                pages: Vec::new(),
            },
            levels: vec![1, 6],
            zstd_levels: vec![1],
            chunks: vec![32 << 10, 64 << 10],
            engine_program: None,
            concurrency: 2,
            window: Duration::ZERO,
            rounds: 1,
            core: 0,
            engine_core: 0,
        }
    }

    #[test]
    fn every_configuration_compresses_so_that_it_can_be_read_back() {
        let page = page();
        let mut line = Line::without_engine();
        for configuration in experiment().configurations() {
            let compressed = match configuration.settings() {
                Some(settings) => line.compress_once(settings, &page).unwrap(),
                None => software::Compressor::new(configuration)
                    .compress(&page)
                    .unwrap()
                    .to_vec(),
            };
            assert!(
                compressed.len() < page.len() / 2,
                "{}",
                configuration.name()
            );
            check(configuration, &page, &compressed).unwrap();
            let mut damaged = compressed.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 0x10;
            assert!(check(configuration, &page, &damaged).is_err());
            assert!(check(configuration, &page[1..], &compressed).is_err());
        }
    }

    #[test]
    fn several_responses_at_a_time_are_all_counted() {
        let page = page();
        let mut line = Line::without_engine();
        let configuration = Configuration::Session(Method::DEFAULT, 64 << 10);
        let settings = configuration.settings().unwrap();
        let measured = line.run(settings, &page, 3, Duration::ZERO).unwrap();
        assert!(measured.pages >= 3, "{measured:?}");
    }

    #[test]
    fn over_an_engine_there_are_the_pairs_of_figure_11() {
        let mut experiment = experiment();
        let software = experiment.configurations().len();
        assert_eq!(software, 1 + 3 * (1 + 2) + 2);
        experiment.engine_program = Some(PathBuf::from("slipstream"));
        let names: Vec<String> = experiment.configurations()[software..]
            .iter()
            .map(Configuration::name)
            .collect();
        assert_eq!(
            names,
            [
                "pipelined 32/32",
                "asynchronous 32/32",
                "pipelined 64/32",
                "asynchronous 64/32",
                "pipelined 64/64",
                "asynchronous 64/64"
            ]
        );
    }
}
