//! Systems under comparison: servers and their configurations.

use serde::Serialize;
use slipstream_testbed::nginx::Binary;
use slipstream_testbed::peers::Peer;
use slipstream_testbed::suite::Suite;

/// A configuration of nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As a plain operator has it.
    Stock,
    /// The same with the Slipstream module loaded and on.
    Slipstream,
}

impl Mode {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stock => "stock",
            Mode::Slipstream => "slipstream",
        }
    }
}

/// A server that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
    /// nginx.
    Nginx(Mode),
    /// Another one, as it comes.
    Peer(Peer),
}

impl System {
    /// The name of the server program on the command line and in reports.
    pub fn server(&self) -> &'static str {
        match self {
            System::Nginx(_) => "nginx",
            System::Peer(peer) => peer.name(),
        }
    }

    /// Its configuration. Servers other than nginx have a single one.
    pub fn mode(&self) -> Mode {
        match self {
            System::Nginx(mode) => *mode,
            System::Peer(_) => Mode::Stock,
        }
    }

    /// Why it cannot be measured with a suite, if so. `nginx` is the one that serves.
    pub fn lacks(&self, suite: &Suite, nginx: Option<&Binary>) -> Option<&'static str> {
        match self {
            System::Nginx(_) => suite.lacked_by(nginx?.openssl.as_deref()?),
            System::Peer(peer) => peer.lacks(suite),
        }
    }
}

/// The name of a system in reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) server: &'static str,
    /// Numbered if a server is measured twice in the same mode.
    pub(super) mode: String,
}

pub(super) fn labels(systems: &[System]) -> Vec<Label> {
    systems
        .iter()
        .enumerate()
        .map(|(index, system)| {
            let earlier = systems[..index]
                .iter()
                .filter(|other| *other == system)
                .count();
            let mode = system.mode().name();
            Label {
                server: system.server(),
                mode: match earlier {
                    0 => mode.to_owned(),
                    _ => format!("{mode}-{}", earlier + 1),
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slipstream_testbed::peers::Crypto;

    use super::*;

    #[test]
    fn a_system_that_comes_twice_is_numbered() {
        let serve = |crypto| System::Peer(Peer::serve(Path::new("/usr/bin/slipstream"), crypto));
        let systems = [
            System::Nginx(Mode::Stock),
            System::Nginx(Mode::Stock),
            System::Nginx(Mode::Slipstream),
            serve(Crypto::Slipstream),
            serve(Crypto::AwsLc),
            serve(Crypto::Slipstream),
        ];
        let labels = labels(&systems);
        let names: Vec<(&str, &str)> = labels
            .iter()
            .map(|label| (label.server, label.mode.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("nginx", "stock"),
                ("nginx", "stock-2"),
                ("nginx", "slipstream"),
                ("serve", "stock"),
                ("serve-awslc", "stock"),
                ("serve", "stock-2"),
            ]
        );
    }
}
