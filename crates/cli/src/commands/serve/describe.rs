//! Configurations in one line.

use slipstream_bench::kernels;
use slipstream_terminator::Configuration;
use slipstream_terminator::configuration::{Backend, Crypto, Lanes, Service};
use slipstream_terminator::crypto;

/// Returns a line such as `0.0.0.0:443 (TCP 127.0.0.1:3128), 2 event loops`.
pub(super) fn configuration(configuration: &Configuration) -> String {
    let listeners: Vec<String> = configuration
        .listeners
        .iter()
        .map(|listener| {
            let addresses: Vec<String> =
                listener.addresses.iter().map(ToString::to_string).collect();
            format!("{} ({})", addresses.join(" "), service(&listener.service))
        })
        .collect();
    let loops = match configuration.workers {
        Some(1) => "1 event loop".to_owned(),
        Some(count) => format!("{count} event loops"),
        None => "an event loop per core".to_owned(),
    };
    format!("{}, {loops}", listeners.join(", "))
}

/// Returns the name of the computing part, such as `ifma lanes`, or the features that the CPU lacks
/// for lanes.
pub(super) fn computation(configuration: &Configuration) -> String {
    if configuration.crypto == Crypto::AwsLc {
        return "aws-lc only".to_owned();
    }
    if let Some(engine) = &configuration.engine {
        return format!("engine at {}", engine.socket.display());
    }
    if configuration.lanes == Lanes::Off {
        return "lanes are off; aws-lc computes".to_owned();
    }
    match crypto::backend() {
        Some(lanes) => format!("{} lanes", lanes.name()),
        None => {
            let missing: Vec<&str> = kernels::Backend::Ifma.missing().collect();
            match &missing[..] {
                [] => "no lanes: they are no faster here; aws-lc computes".to_owned(),
                _ => format!(
                    "no lanes: this CPU lacks {}; aws-lc computes",
                    missing.join(" and ")
                ),
            }
        }
    }
}

fn service(service: &Service) -> String {
    let upstream = |kind: &str, backends: &[Backend]| {
        let backends: Vec<String> = backends.iter().map(backend).collect();
        format!("{kind} {}", backends.join(" "))
    };
    match service {
        Service::Tcp(of) => upstream("TCP", &of.backends),
        Service::Http(of) => upstream("HTTP", &of.backends),
        Service::Files(root) => format!("files of {}", root.display()),
    }
}

fn backend(backend: &Backend) -> String {
    let tls = if backend.tls.is_some() { "tls:" } else { "" };
    format!("{tls}{}", backend.address)
}
