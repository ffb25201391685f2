//! The paper's figures that are measured: which loads, which configurations.

use slipstream_bench::load::Behaviour;
use slipstream_testbed::suite::Suite;

use super::Configuration;

/// A figure of the paper. Figure 10, bulk transfer, is left out: records are not offloaded here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Figure 7: full handshakes of TLS 1.2.
    FullHandshakes,
    /// Figure 8: full handshakes of TLS 1.3.
    FullHandshakesTls13,
    /// Figure 9: resumption in TLS 1.2.
    Resumption,
    /// Figure 11: response time against concurrency.
    ResponseTime,
    /// Figure 12: polling threads against heuristic polling.
    Polling,
}

/// A load that all configurations of a figure get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// Share of handshakes that resume a session, in per cent.
    pub resumed_percent: u8,
}

/// The concurrencies of figures 11 and 12.
const CONCURRENCIES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

impl Figure {
    /// All, in the paper's order.
    pub const ALL: [Figure; 5] = [
        Figure::FullHandshakes,
        Figure::FullHandshakesTls13,
        Figure::Resumption,
        Figure::ResponseTime,
        Figure::Polling,
    ];

    /// Its number in the paper.
    pub fn number(self) -> u8 {
        match self {
            Figure::FullHandshakes => 7,
            Figure::FullHandshakesTls13 => 8,
            Figure::Resumption => 9,
            Figure::ResponseTime => 11,
            Figure::Polling => 12,
        }
    }

    /// The figure of this number.
    pub fn find(number: u8) -> Option<Figure> {
        Figure::ALL
            .into_iter()
            .find(|figure| figure.number() == number)
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Figure::FullHandshakes => "Full handshakes, TLS 1.2",
            Figure::FullHandshakesTls13 => "Full handshakes, TLS 1.3 with ECDHE-RSA",
            Figure::Resumption => "Session resumption, TLS 1.2 with ECDHE-RSA",
            Figure::ResponseTime => "Response time against concurrency, TLS-RSA",
            Figure::Polling => "Polling thread against heuristic polling, TLS-RSA",
        }
    }

    /// The configurations in it; ours are added where the paper compares all of its own.
    pub fn configurations(self) -> &'static [Configuration] {
        match self {
            Figure::FullHandshakes | Figure::FullHandshakesTls13 | Figure::Resumption => &[
                Configuration::Software,
                Configuration::Straight,
                Configuration::Asynchronous,
                Configuration::Heuristic,
                Configuration::Qtls,
                Configuration::Idle,
                Configuration::Hybrid,
            ],
            Figure::ResponseTime => &[
                Configuration::Software,
                Configuration::Straight,
                Configuration::Asynchronous,
                Configuration::Qtls,
            ],
            Figure::Polling => &[
                Configuration::Heuristic,
                Configuration::Asynchronous,
                Configuration::AsynchronousSlow,
            ],
        }
    }

    /// The configuration that the others are compared with: SW, or heuristic polling where SW takes
    /// no part.
    pub fn baseline(self) -> Configuration {
        self.configurations()[0]
    }

    /// Its loads. The figures that are not about concurrency have `concurrency` connections.
    pub fn cases(self, concurrency: usize) -> Vec<Case> {
        let full = |suite| Case {
            suite,
            concurrency,
            resumed_percent: 0,
        };
        match self {
            Figure::FullHandshakes => [
                "tls12-rsakx",
                "tls12-ecdhe-rsa-p256",
                "tls12-ecdhe-ecdsa-p256",
                "tls12-ecdhe-ecdsa-p384",
            ]
            .map(full)
            .to_vec(),
            Figure::FullHandshakesTls13 => vec![full("tls13-rsa2048-p256")],
            Figure::Resumption => [0, 90, 100]
                .map(|resumed_percent| Case {
                    resumed_percent,
                    ..full("tls12-ecdhe-rsa-p256")
                })
                .to_vec(),
            Figure::ResponseTime | Figure::Polling => CONCURRENCIES
                .map(|concurrency| Case {
                    concurrency,
                    ..full("tls12-rsakx")
                })
                .to_vec(),
        }
    }

    /// The behaviour of a connection after its handshake. Response times are those of a small page,
    /// which the paper's `ab` asks for (section 5.5); its `s_time` closes.
    pub fn behaviour(self) -> Behaviour {
        match self {
            Figure::ResponseTime => Behaviour::Request,
            _ => Behaviour::Close,
        }
    }

    /// Returns true if its horizontal axis is concurrency.
    pub fn is_over_concurrency(self) -> bool {
        matches!(self, Figure::ResponseTime | Figure::Polling)
    }
}

impl Case {
    /// The suite of this name.
    ///
    /// # Panics
    /// When there is none: the names of [`Figure::cases`] are all known.
    pub fn suite(&self) -> &'static Suite {
        Suite::find(self.suite).expect("figures name suites that exist")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_found_by_its_number_and_names_suites_that_exist() {
        for figure in Figure::ALL {
            assert_eq!(Figure::find(figure.number()), Some(figure));
            for case in figure.cases(64) {
                assert_eq!(case.suite().name, case.suite);
            }
        }
        assert_eq!(Figure::find(10), None);
    }
}
