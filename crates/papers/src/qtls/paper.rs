//! The paper's statements about its figures, in words or numbers. Values that would have to be read
//! off a plot are left out.

use super::{Configuration, Figure};

/// A statement of the paper about two configurations.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The figure it belongs to.
    pub figure: Figure,
    /// The suite's name here.
    pub suite: &'static str,
    /// The concurrency it is about, where that is the subject.
    pub concurrency: Option<usize>,
    /// Share of handshakes that resume a session, in per cent.
    pub resumed_percent: u8,
    /// The configuration.
    pub configuration: Configuration,
    /// The configuration that it is compared with.
    pub against: Configuration,
    /// The quantity.
    pub measure: Measure,
    /// The paper's value; above 1 the configuration is better.
    pub paper: &'static str,
    /// The place in the paper, and its words.
    pub source: &'static str,
}

/// A quantity of two configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Handshakes per second.
    Handshakes,
    /// The mean time of a handshake or a response, as how many times shorter it is.
    MeanTime,
}

impl Claim {
    /// Its load, in a few words.
    pub(super) fn load(&self) -> String {
        match (self.figure, self.concurrency) {
            (_, Some(1)) => "1 connection".to_owned(),
            (_, Some(concurrency)) => format!("{concurrency} connections"),
            (Figure::Resumption, None) => format!("{}% resumed", self.resumed_percent),
            (_, None) => self.suite.to_owned(),
        }
    }
}

impl Measure {
    /// The meaning of a ratio of it.
    pub fn description(self) -> &'static str {
        match self {
            Measure::Handshakes => "handshakes/s, times",
            Measure::MeanTime => "mean time, times shorter",
        }
    }
}

const RSA: &str = "tls12-rsakx";
const ECDHE_RSA: &str = "tls12-ecdhe-rsa-p256";
const ECDSA_P256: &str = "tls12-ecdhe-ecdsa-p256";
const ECDSA_P384: &str = "tls12-ecdhe-ecdsa-p384";

/// A claim about handshakes per second of full handshakes.
const fn full(
    suite: &'static str,
    configuration: Configuration,
    against: Configuration,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        figure: Figure::FullHandshakes,
        suite,
        concurrency: None,
        resumed_percent: 0,
        configuration,
        against,
        measure: Measure::Handshakes,
        paper,
        source,
    }
}

const fn resumed(
    resumed_percent: u8,
    configuration: Configuration,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        figure: Figure::Resumption,
        resumed_percent,
        ..full(
            ECDHE_RSA,
            configuration,
            Configuration::Software,
            paper,
            source,
        )
    }
}

const fn response(
    concurrency: usize,
    configuration: Configuration,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        figure: Figure::ResponseTime,
        concurrency: Some(concurrency),
        measure: Measure::MeanTime,
        ..full(RSA, configuration, Configuration::Software, paper, source)
    }
}

const fn polling(
    concurrency: usize,
    configuration: Configuration,
    measure: Measure,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim {
        figure: Figure::Polling,
        concurrency: Some(concurrency),
        measure,
        ..full(RSA, configuration, Configuration::Heuristic, paper, source)
    }
}

/// The statements of sections 5.2, 5.3, 5.5 and 5.6.
pub const CLAIMS: &[Claim] = &[
    full(
        RSA,
        Configuration::Straight,
        Configuration::Software,
        "2",
        "5.2, figure 7a, 8 workers: a factor of two over 4.3K CPS",
    ),
    full(
        RSA,
        Configuration::Asynchronous,
        Configuration::Software,
        "7",
        "5.2, figure 7a, 8 workers: 29.5K CPS",
    ),
    full(
        RSA,
        Configuration::Heuristic,
        Configuration::Software,
        "8.3",
        "5.2, figure 7a, 8 workers: 35.8K against 4.3K CPS",
    ),
    full(
        RSA,
        Configuration::Heuristic,
        Configuration::Asynchronous,
        "1.20",
        "5.2, figure 7a, 8 workers: an additional 20%",
    ),
    full(
        RSA,
        Configuration::Qtls,
        Configuration::Heuristic,
        "1.08",
        "5.2, figure 7a, 8 workers: a further 8%",
    ),
    full(
        RSA,
        Configuration::Qtls,
        Configuration::Software,
        "9",
        "5.2, figure 7a, 8 workers: 38.8K CPS",
    ),
    full(
        ECDHE_RSA,
        Configuration::Straight,
        Configuration::Software,
        "1.0",
        "5.2, figure 7b: no improvement",
    ),
    full(
        ECDHE_RSA,
        Configuration::Asynchronous,
        Configuration::Software,
        "> 4",
        "5.2, figure 7b: more than four",
    ),
    full(
        ECDHE_RSA,
        Configuration::Heuristic,
        Configuration::Asynchronous,
        "1.20",
        "5.2, figure 7b: additional 20%",
    ),
    full(
        ECDHE_RSA,
        Configuration::Qtls,
        Configuration::Heuristic,
        "1.06",
        "5.2, figure 7b: additional 6%",
    ),
    full(
        ECDHE_RSA,
        Configuration::Qtls,
        Configuration::Software,
        "5.5",
        "5.2, figure 7b: 5.5x",
    ),
    full(
        ECDSA_P256,
        Configuration::Straight,
        Configuration::Software,
        "< 1",
        "5.2, figure 7c, 4 workers: SW outperforms it significantly",
    ),
    full(
        ECDSA_P256,
        Configuration::Qtls,
        Configuration::Software,
        "> 1.7",
        "5.2, figure 7c, 4 workers: more than 70%",
    ),
    full(
        ECDSA_P384,
        Configuration::Qtls,
        Configuration::Software,
        "14",
        "5.2, figure 7c, 4 workers: 14x",
    ),
    Claim {
        figure: Figure::FullHandshakesTls13,
        ..full(
            "tls13-rsa2048-p256",
            Configuration::Qtls,
            Configuration::Software,
            "3.5",
            "5.2, figure 8: 3.5x",
        )
    },
    resumed(
        0,
        Configuration::Qtls,
        "5.5",
        "5.3: between 1.3x and 5.5x, more with more full handshakes",
    ),
    resumed(
        90,
        Configuration::Qtls,
        "> 2",
        "5.3, figure 9b: more than 2x",
    ),
    resumed(
        100,
        Configuration::Straight,
        "< 1",
        "5.3, figure 9a: obviously lower",
    ),
    resumed(
        100,
        Configuration::Qtls,
        "1.3 to 1.4",
        "5.3, figure 9a: 30% to 40%",
    ),
    response(
        1,
        Configuration::Straight,
        "> 1, the first of four",
        "5.5, figure 11: the lowest latency",
    ),
    response(
        1,
        Configuration::Qtls,
        "> 1, the second",
        "5.5, figure 11: the second smallest",
    ),
    response(
        1,
        Configuration::Asynchronous,
        "> 1, the third",
        "5.5, figure 11: longer than QTLS, SW has the highest",
    ),
    response(
        64,
        Configuration::Asynchronous,
        "about 4",
        "5.5, figure 11: about 75% less",
    ),
    response(
        64,
        Configuration::Qtls,
        "nearly 6.7",
        "5.5, figure 11: nearly 85% less",
    ),
    polling(
        64,
        Configuration::Asynchronous,
        Measure::Handshakes,
        "about 0.8",
        "5.6, figure 12: about 20% gap",
    ),
    polling(
        1,
        Configuration::AsynchronousSlow,
        Measure::Handshakes,
        "< 1",
        "5.6, figure 12: lowers the throughput dramatically when there are few clients",
    ),
    polling(
        1,
        Configuration::AsynchronousSlow,
        Measure::MeanTime,
        "< 1",
        "5.6, figure 12: a high latency when there are few clients",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_about_what_their_figure_measures() {
        for claim in CLAIMS {
            let configurations = claim.figure.configurations();
            assert!(configurations.contains(&claim.configuration), "{claim:?}");
            assert!(configurations.contains(&claim.against), "{claim:?}");
            assert!(
                claim.figure.cases(64).iter().any(|case| {
                    case.suite == claim.suite
                        && case.resumed_percent == claim.resumed_percent
                        && claim
                            .concurrency
                            .is_none_or(|number| number == case.concurrency)
                }),
                "{claim:?}"
            );
        }
    }
}
