//! The nginx.conf of a test.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use slipstream_testbed::program::RUN_VARIABLE;

use crate::{Build, Credentials};

/// Contents of an nginx.conf. Directives that matter to a test are written as in nginx.conf. The
/// rest is the same for all tests: one worker, the module switched on for all of http, TLS 1.2 and
/// 1.3, and a status page.
#[derive(Clone, Debug)]
pub struct Configuration {
    lanes: Lanes,
    is_block_last: bool,
    slipstream: Option<bool>,
    module: bool,
    workers: usize,
    daemon: bool,
    main: String,
    events: String,
    http: String,
    servers: String,
    others: Vec<Other>,
    others_are_first: bool,
}

/// A block beside that of http, whose modules the distribution's nginx loads.
#[derive(Clone, Debug)]
struct Other {
    name: &'static str,
    directives: String,
}

/// The `slipstream { ... }` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Lanes that this CPU can run, portable ones if need be, and every operation goes through
    /// them: the configuration in which tests exercise the same on all machines.
    Forced,
    /// As [`Lanes::Forced`], with more directives in the block.
    ForcedWith(String),
    /// No block at all: the measured cost decides what goes through lanes.
    Defaults,
    /// This inside the block.
    Block(String),
}

impl Configuration {
    /// The module with [`Lanes::Forced`], and `slipstream on` in http.
    pub fn new() -> Self {
        Self {
            lanes: Lanes::Forced,
            is_block_last: false,
            slipstream: Some(true),
            module: true,
            workers: 1,
            daemon: false,
            main: String::new(),
            events: String::new(),
            http: String::new(),
            servers: String::new(),
            others: Vec::new(),
            others_are_first: false,
        }
    }

    /// nginx as it is without the module.
    pub fn stock() -> Self {
        Self {
            module: false,
            ..Self::new()
        }
    }

    /// Sets the `slipstream { ... }` block.
    pub fn lanes(self, lanes: Lanes) -> Self {
        Self { lanes, ..self }
    }

    /// Puts that block behind all others.
    pub fn block_last(self) -> Self {
        Self {
            is_block_last: true,
            ..self
        }
    }

    /// Sets the `slipstream` directive of http; `None` leaves it out.
    pub fn slipstream(self, slipstream: Option<bool>) -> Self {
        Self { slipstream, ..self }
    }

    /// Sets the number of workers.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Has nginx leave the process that has started it, as services do: it refuses SIGUSR2
    /// otherwise.
    pub fn daemon(self) -> Self {
        Self {
            daemon: true,
            ..self
        }
    }

    /// Adds directives to the main context.
    pub fn main(mut self, directives: impl Display) -> Self {
        line(&mut self.main, directives);
        self
    }

    /// Adds directives to the events block.
    pub fn events(mut self, directives: impl Display) -> Self {
        line(&mut self.events, directives);
        self
    }

    /// Adds directives to the http block.
    pub fn http(mut self, directives: impl Display) -> Self {
        line(&mut self.http, directives);
        self
    }

    /// Adds directives to the stream block. Where stream is a module that can be loaded, it is
    /// loaded.
    pub fn stream(self, directives: impl Display) -> Self {
        self.other("stream", directives)
    }

    /// As [`Configuration::stream`], for mail.
    pub fn mail(self, directives: impl Display) -> Self {
        self.other("mail", directives)
    }

    /// Loads the modules of stream and mail before the module that is tested, instead of after it,
    /// and puts their blocks before that of http.
    pub fn others_first(self) -> Self {
        Self {
            others_are_first: true,
            ..self
        }
    }

    /// Adds a server: the parameters of its `listen`, its certificates, and whatever else stands in
    /// the block.
    pub fn server(
        mut self,
        listen: impl Display,
        credentials: &[&Credentials],
        directives: impl Display,
    ) -> Self {
        line(
            &mut self.servers,
            server_block(listen, credentials, directives),
        );
        self
    }

    fn other(mut self, name: &'static str, directives: impl Display) -> Self {
        let known = self.others.iter_mut().find(|other| other.name == name);
        match known {
            Some(other) => line(&mut other.directives, directives),
            None => self.others.push(Other {
                name,
                directives: format!("{directives}\n"),
            }),
        }
        self
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers
    }

    pub(crate) fn is_daemon(&self) -> bool {
        self.daemon
    }

    pub(crate) fn has_module(&self) -> bool {
        self.module
    }

    /// The whole text. `status` is the address of the status page; a stock nginx listens there too,
    /// so that it can be seen to be up.
    pub(crate) fn render(&self, build: Build, directory: &Path, status: SocketAddr) -> String {
        let mut text = String::new();
        let modules = self
            .others
            .iter()
            .filter_map(|other| build.dynamic(other.name));
        let mut modules: Vec<_> = modules.collect();
        if self.module {
            let place = if self.others_are_first {
                modules.len()
            } else {
                0
            };
            modules.insert(place, build.module());
        }
        for module in &modules {
            line(&mut text, format_args!("load_module {};", quoted(module)));
        }
        let block = self.lanes.block().filter(|_| self.module);
        if let (Some(block), false) = (&block, self.is_block_last) {
            line(&mut text, format_args!("slipstream {{ {block} }}"));
        }
        if rustix::process::geteuid().is_root() {
            text.push_str("user www-data;\n");
        }
        let daemon = if self.daemon { "on" } else { "off" };
        let workers = self.workers;
        let pid = quoted(&directory.join(PID_FILE));
        let log = quoted(&directory.join(ERROR_LOG));
        line(
            &mut text,
            format_args!("daemon {daemon};\nworker_processes {workers};"),
        );
        line(&mut text, format_args!("pid {pid};\nerror_log {log} info;"));
        // nginx passes no other variable on to a new master.
        line(&mut text, format_args!("env {RUN_VARIABLE};"));
        text.push_str(&self.main);
        line(
            &mut text,
            format_args!("events {{\nworker_connections 2048;\n{}}}", self.events),
        );
        if self.others_are_first {
            self.render_others(&mut text);
        }
        // nginx 1.22 does not offer TLS 1.3 unless it is told to.
        text.push_str("http {\naccess_log off;\nssl_protocols TLSv1.2 TLSv1.3;\n");
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            let path = quoted(&directory.join(kind));
            line(&mut text, format_args!("{kind}_temp_path {path};"));
        }
        let page = if self.module {
            "slipstream_status;"
        } else {
            "return 404;"
        };
        line(
            &mut text,
            format_args!("server {{ listen {status}; location = {STATUS_PATH} {{ {page} }} }}"),
        );
        if let (Some(on), true) = (self.slipstream, self.module) {
            let flag = if on { "on" } else { "off" };
            line(&mut text, format_args!("slipstream {flag};"));
        }
        text.push_str(&self.http);
        text.push_str(&self.servers);
        text.push_str("}\n");
        if !self.others_are_first {
            self.render_others(&mut text);
        }
        if let (Some(block), true) = (&block, self.is_block_last) {
            line(&mut text, format_args!("slipstream {{ {block} }}"));
        }
        text
    }

    fn render_others(&self, text: &mut String) {
        for Other { name, directives } in &self.others {
            let protocols = "ssl_protocols TLSv1.2 TLSv1.3;";
            line(text, format_args!("{name} {{\n{protocols}\n{directives}}}"));
        }
    }
}

/// A server block, as [`Configuration::server`] has them in http.
pub fn server_block(
    listen: impl Display,
    credentials: &[&Credentials],
    directives: impl Display,
) -> String {
    let mut text = format!("server {{\nlisten {listen};\n");
    for credentials in credentials {
        let certificate = quoted(&credentials.certificate_file);
        let key = quoted(&credentials.key_file);
        line(&mut text, format_args!("ssl_certificate {certificate};"));
        line(&mut text, format_args!("ssl_certificate_key {key};"));
    }
    line(&mut text, format_args!("{directives}\n}}"));
    text
}

pub(crate) const PID_FILE: &str = "nginx.pid";
pub(crate) const ERROR_LOG: &str = "error.log";
pub(crate) const STATUS_PATH: &str = "/slipstream";

impl Default for Configuration {
    fn default() -> Self {
        Self::new()
    }
}

impl Lanes {
    /// Returns the directives inside the block; `None` if there is no block.
    fn block(&self) -> Option<String> {
        match self {
            Lanes::Forced => Some(forced().to_owned()),
            Lanes::ForcedWith(directives) => Some(format!("{} {directives}", forced())),
            Lanes::Defaults => None,
            Lanes::Block(directives) => Some(directives.clone()),
        }
    }
}

/// A batch is run from one waiting operation on, so none is left to software.
fn forced() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx512f") {
        "lanes auto; flush 1;"
    } else {
        "lanes portable; flush 1;"
    }
}

fn line(text: &mut String, line: impl Display) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}

/// A path as nginx takes it. The tests' own directories hold nothing that would have to be escaped.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
