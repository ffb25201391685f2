//! A running nginx with one worker.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::geteuid;

use super::binary::{command, last_lines, test_configuration};
use super::{Binary, Configuration, Listener};
use crate::Error;
use crate::child::ChildGroup;
use crate::process::{children, process_cpu_time};
use crate::scratch::ScratchDirectory;

/// A running nginx in a directory of its own. It is stopped and its directory
/// removed when this is dropped, and it gets SIGTERM from the kernel should this program die.
pub struct Server {
    binary: Binary,
    // Before `scratch`: fields are dropped in this order.
    master: ChildGroup,
    worker: u32,
    scratch: ScratchDirectory,
}

/// Options of a [`Server`].
#[derive(Debug, Clone)]
pub struct ServerOptions<'a> {
    /// The nginx to run.
    pub binary: &'a Binary,
    /// The Slipstream module; `None` for a stock nginx.
    pub module: Option<&'a Path>,
    /// As [`Configuration::module_directives`].
    pub module_directives: &'a str,
    /// The core of the worker.
    pub worker_core: usize,
    /// The ports that it listens on.
    pub listeners: &'a [Listener<'a>],
}

impl Server {
    /// Starts nginx and waits until its worker runs and every port accepts connections.
    ///
    /// # Errors
    /// [`Error::Nginx`] with the end of nginx's log when it does not start;
    /// [`Error::UnusablePath`]; [`Error::Io`]; [`Error::Interrupted`].
    pub fn start(options: &ServerOptions<'_>) -> Result<Server, Error> {
        let scratch = ScratchDirectory::new()?;
        let text = render(options, &scratch)?;
        let addresses: Vec<SocketAddr> = options
            .listeners
            .iter()
            .map(|listener| listener.address)
            .collect();
        Server::start_configured(options.binary, scratch, &text, &addresses)
    }

    /// Starts nginx with a configuration, in a directory that it may already refer to, and waits
    /// until its worker runs and all of `addresses` accept connections.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_configured(
        binary: &Binary,
        scratch: ScratchDirectory,
        configuration: &str,
        addresses: &[SocketAddr],
    ) -> Result<Server, Error> {
        let configuration_file = write_configuration(configuration, &scratch)?;
        let standard_error = fs::File::create(scratch.file("stderr"))
            .map_err(Error::file("write", scratch.path()))?;

        let mut command = command(binary, scratch.path(), &configuration_file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(standard_error);
        let master =
            ChildGroup::spawn(&mut command, None).map_err(Error::file("run", &binary.path))?;
        let mut server = Server {
            binary: binary.clone(),
            master,
            worker: 0,
            scratch,
        };
        server.await_start(addresses)?;
        Ok(server)
    }

    /// Checks a configuration without starting it: a module that does not fit this nginx is refused
    /// here.
    ///
    /// # Errors
    /// [`Error::Nginx`] with nginx's message; [`Error::UnusablePath`]; [`Error::Io`].
    pub fn check(options: &ServerOptions<'_>) -> Result<(), Error> {
        let scratch = ScratchDirectory::new()?;
        let configuration_file = write_configuration(&render(options, &scratch)?, &scratch)?;
        test_configuration(options.binary, scratch.path(), &configuration_file)
    }

    /// The process id of the worker.
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// The process id of the master.
    pub fn master(&self) -> u32 {
        self.master.id()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The CPU time its worker has used.
    ///
    /// # Errors
    /// [`Error::Nginx`] with the end of the log if the worker is gone.
    pub fn worker_cpu_time(&self) -> Result<Duration, Error> {
        process_cpu_time(self.worker)
            .map_err(|error| self.failure(format!("lost its worker: {error}")))
    }

    /// The end of its error log; empty if nothing was logged.
    pub fn log(&self) -> String {
        last_lines(&fs::read_to_string(self.scratch.file("error.log")))
    }

    fn await_start(&mut self, addresses: &[SocketAddr]) -> Result<(), Error> {
        let mut worker = 0;
        let is_ready = || {
            let [child] = children(self.master.id())?[..] else {
                return Ok(false);
            };
            worker = child;
            Ok(addresses
                .iter()
                .all(|address| TcpStream::connect(address).is_ok()))
        };
        self.master
            .await_start(is_ready, |reason| self.failure(reason))?;
        self.worker = worker;
        Ok(())
    }

    fn failure(&self, reason: String) -> Error {
        let mut log = self.log();
        if log.is_empty() {
            log = last_lines(&fs::read_to_string(self.scratch.file("stderr")));
        }
        Error::Nginx {
            program: self.binary.path.clone(),
            reason,
            log,
        }
    }
}

fn render(options: &ServerOptions<'_>, scratch: &ScratchDirectory) -> Result<String, Error> {
    Configuration {
        module: options.module,
        module_directives: options.module_directives,
        directory: scratch.path(),
        worker_core: options.worker_core,
        listeners: options.listeners,
        as_root: geteuid().is_root(),
    }
    .render()
}

fn write_configuration(text: &str, scratch: &ScratchDirectory) -> Result<PathBuf, Error> {
    let path = scratch.file("nginx.conf");
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    Ok(path)
}
