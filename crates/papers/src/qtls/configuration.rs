//! The configurations that the paper compares (section 5.1) and ours, and their directives.

use std::path::Path;

use slipstream_testbed::nginx::quote;

use crate::Error;

/// A way in which nginx offloads, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// SW: nginx without the module, all in OpenSSL.
    Software,
    /// QAT+S: each operation blocks the worker until a polling thread has its response.
    Straight,
    /// QAT+A: asynchronous, a polling thread every 10 µs, notification through descriptors.
    Asynchronous,
    /// QAT+A with a polling thread every 1 ms (section 5.6).
    AsynchronousSlow,
    /// QAT+AH: heuristic polling instead of the polling thread.
    Heuristic,
    /// QTLS: heuristic polling, notification through a queue in the worker.
    Qtls,
    /// Ours: as QTLS, but polls when nginx has nothing else to do.
    Idle,
    /// Ours: as QTLS, but polls in turn with waiting for the engine's signal.
    Hybrid,
}

/// The device that operations are offloaded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// An engine on the other core that answers at the pace of the paper's card, a DH8970.
    Paced,
    /// An engine on the other core, as fast as it is.
    Engine,
    /// None: the lanes of the worker's own core.
    Lanes,
}

impl Configuration {
    /// All, in the paper's order, ours last.
    pub const ALL: [Configuration; 8] = [
        Configuration::Software,
        Configuration::Straight,
        Configuration::Asynchronous,
        Configuration::AsynchronousSlow,
        Configuration::Heuristic,
        Configuration::Qtls,
        Configuration::Idle,
        Configuration::Hybrid,
    ];

    /// Its name on the command line and in reports: the paper's, where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Configuration::Software => "SW",
            Configuration::Straight => "QAT+S",
            Configuration::Asynchronous => "QAT+A",
            Configuration::AsynchronousSlow => "QAT+A-1ms",
            Configuration::Heuristic => "QAT+AH",
            Configuration::Qtls => "QTLS",
            Configuration::Idle => "idle",
            Configuration::Hybrid => "hybrid",
        }
    }

    /// The configuration of this name.
    pub fn find(name: &str) -> Option<Configuration> {
        Configuration::ALL
            .into_iter()
            .find(|configuration| configuration.name() == name)
    }

    /// Its directives in the `slipstream` block; `None` for a stock nginx.
    pub fn directives(self) -> Option<&'static str> {
        match self {
            Configuration::Software => None,
            Configuration::Straight => Some("offload sync; poll timer 10us;"),
            Configuration::Asynchronous => Some("offload async; poll timer 10us; notify fd;"),
            Configuration::AsynchronousSlow => Some("offload async; poll timer 1ms; notify fd;"),
            Configuration::Heuristic => Some("offload async; poll heuristic; notify fd;"),
            Configuration::Qtls => Some("offload async; poll heuristic; notify queue;"),
            Configuration::Idle => Some("offload async; poll idle; notify queue;"),
            Configuration::Hybrid => Some("offload async; poll hybrid; notify queue;"),
        }
    }

    /// Its whole `slipstream` block, with the engine at `socket`; `None` for a stock nginx.
    ///
    /// # Errors
    /// [`Error::Testbed`] when nginx would not read the path of the socket as it is.
    pub fn block(self, device: Device, socket: Option<&Path>) -> Result<Option<String>, Error> {
        let Some(directives) = self.directives() else {
            return Ok(None);
        };
        let device = match socket {
            Some(socket) => format!(
                "device {}; flush {};",
                quote(Path::new(&format!("unix:{}", socket.display())))?,
                device.flush()
            ),
            None => format!("device off; flush {};", device.flush()),
        };
        // Precomputed keys would be work that the paper's server does when it is asked.
        Ok(Some(format!(
            "slipstream {{ {device} ahead off; {directives} }}"
        )))
    }
}

impl Device {
    /// All.
    pub const ALL: [Device; 3] = [Device::Paced, Device::Engine, Device::Lanes];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Device::Paced => "paced",
            Device::Engine => "engine",
            Device::Lanes => "lanes",
        }
    }

    /// The device of this name.
    pub fn find(name: &str) -> Option<Device> {
        Device::ALL.into_iter().find(|device| device.name() == name)
    }

    /// A description in one line.
    pub fn description(self) -> &'static str {
        match self {
            Device::Paced => {
                "an engine in software on the core of the load generator, with the pace of the paper's DH8970 card"
            }
            Device::Engine => {
                "an engine in software on the core of the load generator, as fast as it is"
            }
            Device::Lanes => "no engine: the vector lanes of the worker's own core",
        }
    }

    /// The name of the card whose pace its engine keeps: that of QTLS (section 5.1).
    pub(super) fn pace(self) -> Option<&'static str> {
        (self == Device::Paced).then_some("dh8970")
    }

    /// The value of `flush`. An engine gets each operation when it is submitted, as a card does,
    /// and makes batches itself; the worker's own lanes have to wait for a batch.
    fn flush(self) -> &'static str {
        match self {
            Device::Paced | Device::Engine => "1",
            Device::Lanes => "auto",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for configuration in Configuration::ALL {
            assert_eq!(
                Configuration::find(configuration.name()),
                Some(configuration)
            );
        }
        for device in Device::ALL {
            assert_eq!(Device::find(device.name()), Some(device));
        }
        assert_eq!(Configuration::find("sw"), None);
    }

    #[test]
    fn a_block_names_the_device_and_how_it_is_used() {
        let socket = Path::new("/tmp/s/engine.sock");
        assert_eq!(
            Configuration::Qtls
                .block(Device::Paced, Some(socket))
                .unwrap()
                .unwrap(),
            "slipstream { device \"unix:/tmp/s/engine.sock\"; flush 1; ahead off; \
             offload async; poll heuristic; notify queue; }"
        );
        assert_eq!(
            Configuration::Idle
                .block(Device::Lanes, None)
                .unwrap()
                .unwrap(),
            "slipstream { device off; flush auto; ahead off; offload async; poll idle; notify queue; }"
        );
        assert_eq!(
            Configuration::Software
                .block(Device::Paced, Some(socket))
                .unwrap(),
            None
        );
        let hostile = Path::new("/tmp/$pid");
        assert!(
            Configuration::Qtls
                .block(Device::Engine, Some(hostile))
                .is_err()
        );
    }
}
