//! The paper's statements about its figures, in words or numbers. Values that would have to be read
//! off a plot are left out.

use slipstream_bench::transfers::{Compression, Configuration, Transport};

/// A statement of the paper about a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The transport.
    pub transport: Transport,
    /// The name of the page.
    pub page: &'static str,
    /// The configuration.
    pub configuration: Configuration,
    /// The quantity.
    pub measure: Measure,
    /// The paper's value.
    pub paper: &'static str,
    /// The place in the paper.
    pub source: &'static str,
}

/// A quantity of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Responses per second, times those of `sw`.
    Responses,
    /// The length of a response, times that of `sw`.
    Size,
    /// The share of its core that the worker takes.
    ServerShare,
}

impl Measure {
    /// The meaning of a value of it.
    pub fn description(self) -> &'static str {
        match self {
            Measure::Responses => "requests/s, times sw",
            Measure::Size => "size, times sw",
            Measure::ServerShare => "share of the worker's core",
        }
    }
}

const fn plain(
    page: &'static str,
    compression: Compression,
    measure: Measure,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        transport: Transport::Plain,
        page,
        configuration: Configuration {
            compression,
            accelerates_tls: false,
        },
        measure,
        paper,
        source,
    }
}

const fn encrypted(
    page: &'static str,
    compression: Compression,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        transport: Transport::Kept,
        page,
        configuration: Configuration {
            compression,
            accelerates_tls: true,
        },
        measure: Measure::Responses,
        paper,
        source,
    }
}

const PIPELINED: Compression = Compression::Pipelined;
const STRAIGHT: Compression = Compression::Straight;
const FIGURE_14: &str = "section 5.4, figure 14: all five pages, encryption offloaded too";

/// The paper's statements, in its order.
pub const CLAIMS: &[Claim] = &[
    plain(
        "text",
        STRAIGHT,
        Measure::Responses,
        "1.7",
        "section 5.3.1, figure 11a: 183 and 107 requests/s, with chunks of 32 KB",
    ),
    plain(
        "text",
        STRAIGHT,
        Measure::ServerShare,
        "0.48",
        "section 5.3.1, figure 11a, with chunks of 32 KB",
    ),
    plain(
        "text",
        PIPELINED,
        Measure::Size,
        "1.04",
        "section 5.3.1: ratios of 2.46 (sw) and 2.37",
    ),
    plain(
        "text",
        PIPELINED,
        Measure::Responses,
        "4",
        "section 5.3.1, figure 12",
    ),
    plain(
        "abc",
        PIPELINED,
        Measure::Responses,
        "1",
        "section 5.3.2, figure 13a: no advantage",
    ),
    plain(
        "abc",
        PIPELINED,
        Measure::ServerShare,
        "0.948",
        "section 5.3.2, figure 13c",
    ),
    plain(
        "cnn",
        PIPELINED,
        Measure::Responses,
        "3.5",
        "section 5.3.2, figure 13a: 10,000 requests in 66.5 s and 237.3 s",
    ),
    plain(
        "cnn",
        PIPELINED,
        Measure::ServerShare,
        "0.817",
        "section 5.3.2, figure 13c",
    ),
    encrypted("abc", PIPELINED, "above 5", FIGURE_14),
    encrypted("cnn", STRAIGHT, "2", FIGURE_14),
    encrypted("cnn", PIPELINED, "above 5", FIGURE_14),
];
