//! Table 2 of the paper.

use serde::Serialize;

/// The paper's results with a version of Squid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Version {
    /// The version.
    pub squid: &'static str,
    /// Connections per second of Squid with OpenSSL in software.
    pub connections_per_s: f64,
    /// CPU in per cent. The paper does not define it further.
    pub cpu_percent: f64,
    /// Connections per second with the card.
    pub accelerated_connections_per_s: f64,
    /// CPU in per cent with the card.
    pub accelerated_cpu_percent: f64,
}

/// The four rows of table 2.
pub const PAPER: [Version; 2] = [
    Version {
        squid: "2.6.9",
        connections_per_s: 354.0,
        cpu_percent: 35.0,
        accelerated_connections_per_s: 1276.0,
        accelerated_cpu_percent: 17.0,
    },
    Version {
        squid: "3.5.13",
        connections_per_s: 298.0,
        cpu_percent: 40.0,
        accelerated_connections_per_s: 1176.0,
        accelerated_cpu_percent: 25.0,
    },
];

impl Version {
    /// Connections per second, accelerated / not.
    pub fn connections_ratio(&self) -> f64 {
        self.accelerated_connections_per_s / self.connections_per_s
    }

    /// CPU per connection, not accelerated / accelerated. It does not depend on the definition of
    /// the percentage.
    pub fn cpu_ratio(&self) -> f64 {
        let plain = self.cpu_percent / self.connections_per_s;
        plain / (self.accelerated_cpu_percent / self.accelerated_connections_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_are_those_that_the_paper_speaks_of() {
        let rounded = |ratio: f64| (ratio * 10.0).round() / 10.0;
        assert_eq!(
            PAPER.map(|version| rounded(version.connections_ratio())),
            [3.6, 3.9]
        );
        assert_eq!(
            PAPER.map(|version| rounded(version.cpu_ratio())),
            [7.4, 6.3]
        );
    }
}
