//! The configurations that are compared, and their directives.

use std::path::Path;

use slipstream_testbed::nginx::quote;

use crate::Error;

/// A configuration of nginx: its compression, and its TLS operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// Its compression.
    pub compression: Compression,
    /// True if private-key operations and key exchanges are accelerated too.
    pub accelerates_tls: bool,
}

/// A way in which nginx compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// SW: nginx's own gzip filter and the system's zlib.
    Stock,
    /// Our filter without a device.
    Software,
    /// The paper's QAT: one chunk at a time, for which the worker waits.
    Straight,
    /// The paper's QWEB(C): chunks accumulate, the worker waits for all of them together.
    Pipelined,
    /// Ours: the worker does not wait.
    Asynchronous,
    /// Ours, and the default: as asynchronous, and the worker compresses what the device has no
    /// room for.
    Failover,
}

impl Compression {
    /// All, in the paper's order, ours last.
    pub const ALL: [Compression; 6] = [
        Compression::Stock,
        Compression::Software,
        Compression::Straight,
        Compression::Pipelined,
        Compression::Asynchronous,
        Compression::Failover,
    ];

    /// Returns true if there is an engine.
    pub fn offloads(self) -> bool {
        !matches!(self, Compression::Stock | Compression::Software)
    }

    /// Its directives in the http block. The paper's configurations offload everything: they
    /// have no threshold below which software compresses.
    pub fn directives(self) -> &'static str {
        match self {
            Compression::Stock => "gzip on; gzip_comp_level 1; gzip_types text/plain;",
            Compression::Software => {
                "slipstream_gzip on; slipstream_gzip_comp_level 1; slipstream_gzip_types text/plain; \
                 slipstream_gzip_offload software;"
            }
            Compression::Straight => {
                "slipstream_gzip on; slipstream_gzip_comp_level 1; slipstream_gzip_types text/plain; \
                 slipstream_gzip_offload device; slipstream_gzip_mode pipelined; \
                 slipstream_gzip_stream_size 64k; slipstream_gzip_chunk_size 64k; slipstream_gzip_sw_threshold 0;"
            }
            Compression::Pipelined => {
                "slipstream_gzip on; slipstream_gzip_comp_level 1; slipstream_gzip_types text/plain; \
                 slipstream_gzip_offload device; slipstream_gzip_mode pipelined; \
                 slipstream_gzip_stream_size 256k; slipstream_gzip_chunk_size 64k; slipstream_gzip_sw_threshold 0;"
            }
            Compression::Asynchronous => {
                "slipstream_gzip on; slipstream_gzip_comp_level 1; slipstream_gzip_types text/plain; \
                 slipstream_gzip_offload device; slipstream_gzip_mode asynchronous; \
                 slipstream_gzip_stream_size 256k; slipstream_gzip_chunk_size 64k;"
            }
            Compression::Failover => {
                "slipstream_gzip on; slipstream_gzip_comp_level 1; slipstream_gzip_types text/plain;"
            }
        }
    }
}

impl Configuration {
    /// All: every compression with OpenSSL's TLS, then those of ours with accelerated TLS.
    pub const ALL: [Configuration; 11] = [
        with_openssl(Compression::Stock),
        with_openssl(Compression::Software),
        with_openssl(Compression::Straight),
        with_openssl(Compression::Pipelined),
        with_openssl(Compression::Asynchronous),
        with_openssl(Compression::Failover),
        accelerated(Compression::Software),
        accelerated(Compression::Straight),
        accelerated(Compression::Pipelined),
        accelerated(Compression::Asynchronous),
        accelerated(Compression::Failover),
    ];

    /// The configuration that the others are compared with.
    pub const BASELINE: Configuration = with_openssl(Compression::Stock);

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match (self.compression, self.accelerates_tls) {
            (Compression::Stock, _) => "sw",
            (Compression::Software, false) => "software",
            (Compression::Straight, false) => "straight",
            (Compression::Pipelined, false) => "pipelined",
            (Compression::Asynchronous, false) => "asynchronous",
            (Compression::Failover, false) => "failover",
            (Compression::Software, true) => "software+tls",
            (Compression::Straight, true) => "straight+tls",
            (Compression::Pipelined, true) => "pipelined+tls",
            (Compression::Asynchronous, true) => "asynchronous+tls",
            (Compression::Failover, true) => "failover+tls",
        }
    }

    /// The configuration of this name.
    pub fn find(name: &str) -> Option<Configuration> {
        Configuration::ALL
            .into_iter()
            .find(|configuration| configuration.name() == name)
    }

    /// A description in one line.
    pub fn description(self) -> &'static str {
        match (self.compression, self.accelerates_tls) {
            (Compression::Stock, _) => "nginx's gzip filter, zlib level 1 (the paper's SW)",
            (Compression::Software, false) => "our filter without a device",
            (Compression::Straight, false) => {
                "one chunk of 64k at a time, for which the worker waits (QAT)"
            }
            (Compression::Pipelined, false) => {
                "up to 256k in chunks of 64k, the worker waits for all (QWEB)"
            }
            (Compression::Asynchronous, false) => "the same, and the worker does not wait",
            (Compression::Failover, false) => {
                "the default: the worker compresses too when the device is busy"
            }
            (Compression::Software, true) => "as software, and TLS in lanes of the worker's core",
            (_, true) => "as without +tls, and TLS operations at the same engine",
        }
    }

    /// Returns true if it needs our module.
    pub fn needs_module(self) -> bool {
        self.compression != Compression::Stock
    }

    /// Its directives in the main context, with the engine at `socket`.
    ///
    /// # Errors
    /// [`Error::Testbed`] when nginx would not read the path of the socket as it is.
    pub fn block(self, socket: Option<&Path>) -> Result<String, Error> {
        Ok(match socket {
            Some(socket) => format!(
                "slipstream {{ device {}; }}",
                quote(Path::new(&format!("unix:{}", socket.display())))?
            ),
            None => String::new(),
        })
    }

    /// Its directives in the http block.
    pub fn directives(self) -> String {
        match self.accelerates_tls {
            true => format!("slipstream on; {}", self.compression.directives()),
            false => self.compression.directives().to_owned(),
        }
    }
}

const fn with_openssl(compression: Compression) -> Configuration {
    Configuration {
        compression,
        accelerates_tls: false,
    }
}

const fn accelerated(compression: Compression) -> Configuration {
    Configuration {
        compression,
        accelerates_tls: true,
    }
}

/// The transport of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP over connections that stay.
    Plain,
    /// HTTPS over connections that stay: TLS 1.3.
    Kept,
    /// HTTPS with a new connection, and a full handshake, for each request.
    New,
}

impl Transport {
    /// All.
    pub const ALL: [Transport; 3] = [Transport::Plain, Transport::Kept, Transport::New];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Plain => "off",
            Transport::Kept => "on",
            Transport::New => "new",
        }
    }

    /// The transport of this name.
    pub fn find(name: &str) -> Option<Transport> {
        Transport::ALL
            .into_iter()
            .find(|transport| transport.name() == name)
    }

    /// A description in one line.
    pub fn description(self) -> &'static str {
        match self {
            Transport::Plain => "no TLS, connections are kept",
            Transport::Kept => "TLS 1.3, connections are kept",
            Transport::New => "TLS 1.3, a new connection and a full handshake for each request",
        }
    }

    /// Returns true if there is TLS.
    pub fn is_encrypted(self) -> bool {
        self != Transport::Plain
    }

    /// The configurations that make sense with it.
    pub fn configurations(self) -> impl Iterator<Item = Configuration> {
        Configuration::ALL
            .into_iter()
            .filter(move |configuration| self.is_encrypted() || !configuration.accelerates_tls)
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
        for transport in Transport::ALL {
            assert_eq!(Transport::find(transport.name()), Some(transport));
        }
        assert_eq!(Configuration::find("sw+tls"), None);
    }

    #[test]
    fn tls_is_accelerated_only_where_there_is_tls() {
        let count = |transport: Transport| transport.configurations().count();
        assert_eq!(Transport::ALL.map(count), [6, 11, 11]);
    }

    #[test]
    fn a_block_names_the_device() {
        let socket = Path::new("/tmp/s/engine.sock");
        let block = Configuration::BASELINE.block(Some(socket)).unwrap();
        assert_eq!(block, "slipstream { device \"unix:/tmp/s/engine.sock\"; }");
        assert_eq!(Configuration::BASELINE.block(None).unwrap(), "");
        let hostile = Path::new("/tmp/$pid");
        assert!(Configuration::BASELINE.block(Some(hostile)).is_err());
    }
}
