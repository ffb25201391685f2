//! Summaries of the handshakes that the doctor makes, from figures.

use std::time::Duration;

use crate::commands::figures::Figures;

/// Handshakes with each port, all at once: a handshake that is alone is left to OpenSSL.
pub(super) const HANDSHAKES: usize = 32;

/// The time that figures may take to be complete.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Figures {
    /// Handshakes on fibers.
    pub(super) fn handshakes(&self) -> u64 {
        self.sum("handshakes_total")
    }

    /// Returns true if lanes or the device have computed anything.
    pub(super) fn are_accelerated(&self) -> bool {
        let operations = self.operations();
        operations.all() > operations.software
    }

    /// The numbers of handshakes and operations, in words.
    pub(super) fn describe(&self) -> String {
        let operations = self.operations();
        let in_lanes = operations.lanes + operations.at_once;
        let mut parts = vec![format!("{in_lanes} operations in lanes")];
        if operations.device > 0 {
            parts.push(format!("{} on the device", operations.device));
        }
        for (reason, count) in self.by_label("software_operations_total") {
            parts.push(format!("{count} in software ({reason})"));
        }
        format!("{} handshakes, {}", self.handshakes(), parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_published_figures_say_the_same() {
        let series = [
            ("handshakes_total", 32),
            ("lane_operations_total{operation=\"RSA-2048\"}", 30),
            ("lane_operations_total{operation=\"X25519\"}", 31),
            ("at_once_operations_total{operation=\"KEY-X25519\"}", 32),
            ("software_operations_total{reason=\"cheaper\"}", 3),
            ("batches_total", 9),
        ];
        let page: String = series
            .iter()
            .map(|(series, value)| format!("slipstream_{series} {value}\n"))
            .collect();
        let published = series.map(|(series, value)| (series.to_owned(), value));
        let figures = Figures::of_page(&page);
        assert_eq!(figures, Figures(published.into()));
        assert!(figures.are_accelerated());
        assert_eq!(
            figures.describe(),
            "32 handshakes, 93 operations in lanes, 3 in software (cheaper)"
        );
        assert!(!figures.since(&figures).are_accelerated());
    }
}
