//! A server of one page, and the engine that it offloads to.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::geteuid;
use slipstream_testbed::engine::Engine;
use slipstream_testbed::nginx::{Configuration, Server, quote, write_suite};
use slipstream_testbed::port::unused_address;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::status;

use super::{Case, Experiment};
use crate::Error;
use crate::load::CpuTimes;

/// A running server, and its engine if it has one.
pub(super) struct Running {
    // Before `engine`: fields are dropped in this order, and a server that lost its engine would
    // complain.
    server: Server,
    engine: Option<Engine>,
    address: SocketAddr,
}

impl Running {
    pub(super) fn start(experiment: &Experiment, case: &Case<'_>) -> Result<Running, Error> {
        let engine = match case.configuration.compression.offloads() {
            true => Some(Engine::start(
                &experiment.engine_program,
                None,
                experiment.load_core,
            )?),
            false => None,
        };
        let socket = engine.as_ref().map(Engine::socket);
        let scratch = ScratchDirectory::new()?;
        let address = unused_address()?;
        let path = scratch.file(&case.content.page.file_name());
        fs::write(&path, &case.content.bytes).map_err(Error::file("write", &path))?;
        let text = render(experiment, case, socket.as_deref(), scratch.path(), address)?;
        let server = Server::start_configured(&experiment.nginx, scratch, &text, &[address])?;
        Ok(Running {
            server,
            engine,
            address,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The share of the chunks that the engine has compressed; not a number if there were none.
    pub(super) fn offloaded_share(&self, case: &Case<'_>) -> Result<f64, Error> {
        let page = status::fetch(self.address, case.transport.is_encrypted())?;
        Ok(parse_offloaded_share(&page))
    }

    pub(super) fn cpu_times(&self) -> Result<CpuTimes, Error> {
        Ok(CpuTimes {
            server: self.server.worker_cpu_time()?,
            beside: self.engine.as_ref().map(Engine::cpu_time).transpose()?,
        })
    }
}

fn parse_offloaded_share(page: &str) -> f64 {
    let family = "slipstream_compressed_chunks_total{";
    let all = status::total(page, |series| series.starts_with(family));
    let offloaded = status::total(page, |series| {
        series.starts_with(family) && series.contains("by=\"device\"")
    });
    offloaded as f64 / all as f64
}

/// The nginx.conf. All differ in [`super::Configuration`] and in nothing else.
fn render(
    experiment: &Experiment,
    case: &Case<'_>,
    socket: Option<&Path>,
    directory: &Path,
    address: SocketAddr,
) -> Result<String, Error> {
    let needs_module = case.configuration.needs_module();
    let mut text = String::new();
    Configuration {
        module: experiment.module.as_deref().filter(|_| needs_module),
        module_directives: &case.configuration.block(socket)?,
        directory,
        worker_core: experiment.server_core,
        listeners: &[],
        as_root: geteuid().is_root(),
    }
    .begin(&mut text)?;
    let tls = match case.transport.is_encrypted() {
        true => " ssl",
        false => "",
    };
    write!(
        text,
        "    types {{ text/html html; text/plain txt; }}\n    \
             keepalive_requests 1000000;\n    \
             keepalive_timeout 60s;\n    \
             {}\n    \
             server {{\n        \
                 listen {address}{tls};\n        \
                 root {};\n",
        case.configuration.directives(),
        quote(directory)?,
    )
    .expect("writing to a String cannot fail");
    if case.transport.is_encrypted() {
        write!(
            text,
            "        ssl_certificate {};\n        ssl_certificate_key {};\n",
            quote(&case.credentials.certificate)?,
            quote(&case.credentials.key)?
        )
        .expect("writing to a String cannot fail");
        write_suite(&mut text, case.suite);
    }
    if needs_module {
        text.push_str(
            "        location = /slipstream {\n            slipstream_status;\n        }\n",
        );
    }
    text.push_str("    }\n}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_engine_is_read_off_the_status_page() {
        let page = "slipstream_compressed_chunks_total{by=\"device\"} 30\n\
            slipstream_compressed_chunks_total{by=\"worker\"} 10\n\
            slipstream_polls_total 7\n";
        assert!((parse_offloaded_share(page) - 0.75).abs() < 1e-9);
        assert!(parse_offloaded_share("").is_nan());
    }
}
