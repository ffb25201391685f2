//! nginx under valgrind's memcheck.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;

use crate::configuration::{ERROR_LOG, PID_FILE, STATUS_PATH};
use crate::nginx::{CONFIGURATION, add_arguments};
use crate::process::children;
use crate::server::{Server, supervised};
use crate::{Build, Configuration, Metrics, eventually, http, unused_address};

/// A running nginx whose every access to memory is checked: about thirty times slower than without.
pub struct Memcheck {
    build: Build,
    status: SocketAddr,
    server: Server,
}

/// A finding of memcheck: an invalid access, a use of uninitialised memory, or memory that nothing
/// refers to any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryError {
    /// Valgrind's word for it, such as `InvalidRead` or `Leak_DefinitelyLost`.
    pub kind: String,
    /// The functions that were running, the innermost first; for one without a name its shared
    /// object.
    pub stack: Vec<String>,
}

impl Memcheck {
    /// Starts nginx and waits until its workers serve.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(build: Build, configuration: &Configuration) -> Self {
        let mut server = Server::new("nginx under valgrind").log(ERROR_LOG);
        let status = unused_address();
        let text = configuration.render(build, server.folder(), status);
        server.write(CONFIGURATION, text);
        let mut command = supervised("TERM");
        command
            .args(["valgrind", "--quiet", "--xml=yes"])
            .args(["--child-silent-after-fork=no", "--leak-check=full"])
            .args(["--show-leak-kinds=definite", "--error-limit=no"])
            .arg("--num-callers=60")
            .arg(format!(
                "--xml-file={}",
                server.file("memcheck.%p").display()
            ))
            .arg(build.executable());
        add_arguments(&mut command, server.folder());
        server.start(command, |server| {
            server.file(PID_FILE).exists() && http::fetch(status, "GET", STATUS_PATH).is_ok()
        });
        Self {
            build,
            status,
            server,
        }
    }

    /// The module's figures.
    ///
    /// # Panics
    /// If the status page is not there or not in order.
    pub fn metrics(&self) -> Metrics {
        let response = http::fetch(self.status, "GET", STATUS_PATH).expect("a status page");
        Metrics::parse(response.text()).expect("a status page in order")
    }

    /// Replaces the configuration, and waits until all workers are new ones.
    ///
    /// # Panics
    /// If that does not come to pass.
    pub fn reload(&mut self, configuration: &Configuration) {
        let old = self.workers();
        let text = configuration.render(self.build, self.server.folder(), self.status);
        self.server.write(CONFIGURATION, text);
        self.server.signal(Signal::HUP);
        eventually("nginx has reloaded", || {
            let workers = self.workers();
            !workers.is_empty() && !workers.iter().any(|worker| old.contains(worker))
        });
    }

    /// Ends nginx in order, and returns what has been found in any of its processes.
    ///
    /// # Panics
    /// If nginx does not end, or has not ended well.
    pub fn finish(mut self) -> BTreeSet<MemoryError> {
        self.server.stop(Signal::QUIT);
        // Garbage that clients have sent is in the log too.
        let log = fs::read(self.server.file(ERROR_LOG)).expect("nginx has a log");
        let log = String::from_utf8_lossy(&log);
        assert!(
            !log.contains("[alert]") && !log.contains("[emerg]"),
            "{log}"
        );
        fs::read_dir(self.server.folder())
            .expect("a directory of our own")
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with("memcheck."))
            .flat_map(|file| {
                let report = fs::read_to_string(file.path()).expect("a report of valgrind");
                assert!(report.contains("</valgrindoutput>"), "{file:?} is cut off");
                errors(&report)
            })
            .collect()
    }

    /// Their titles do not tell them apart: nginx writes those to memory that the kernel does not
    /// look at.
    fn workers(&self) -> Vec<u32> {
        children(self.server.process()).expect("/proc can be read")
    }
}

/// The errors in a report of valgrind (docs/internals/xml-output-protocol4.txt in its source).
fn errors(report: &str) -> Vec<MemoryError> {
    elements(report, "error")
        .map(|error| MemoryError {
            kind: element(error, "kind").unwrap_or_default().to_owned(),
            // Further stacks tell where memory was allocated.
            stack: element(error, "stack")
                .map(|stack| elements(stack, "frame").map(function).collect())
                .unwrap_or_default(),
        })
        .collect()
}

fn function(frame: &str) -> String {
    let object = element(frame, "obj").map(|path| Path::new(path).file_name());
    element(frame, "fn")
        .map(str::to_owned)
        .or_else(|| Some(object??.to_string_lossy().into_owned()))
        .unwrap_or_default()
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    elements(text, name).next()
}

fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let end = format!("</{name}>");
    text.split(&format!("<{name}>")[..])
        .skip(1)
        .filter_map(move |rest| rest.split(&end[..]).next())
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_with_the_stack_in_which_they_happened() {
        let report = "\
<valgrindoutput><error><unique>0x1</unique><kind>InvalidRead</kind><stack>\
<frame><ip>0x1</ip><obj>/lib/libx.so.1</obj><fn>inner</fn></frame>\
<frame><ip>0x2</ip><obj>/lib/libx.so.1</obj></frame></stack>\
<auxwhat>Block was alloc'd at</auxwhat><stack><frame><fn>malloc</fn></frame></stack></error>\
<errorcounts></errorcounts></valgrindoutput>";
        let expected = MemoryError {
            kind: "InvalidRead".to_owned(),
            stack: vec!["inner".to_owned(), "libx.so.1".to_owned()],
        };
        assert_eq!(errors(report), [expected]);
    }
}
