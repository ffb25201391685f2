//! The figures of nginx's workers that handshakes change.

use std::collections::BTreeMap;
use std::time::Duration;

use slipstream_offload::Reason;

/// Handshakes with each port, all at once: a handshake that is alone is left to OpenSSL.
pub(super) const HANDSHAKES: usize = 32;

/// The time that figures may take to be complete.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The figures of all workers at one moment, or what has come to them between two.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) handshakes: u64,
    lanes: u64,
    device: u64,
    software: [u64; Reason::ALL.len()],
}

impl Figures {
    /// Reads them from a status page.
    pub(super) fn of_page(page: &str) -> Figures {
        let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
        let samples = samples.filter_map(|(series, value)| {
            Some((
                series.strip_prefix("slipstream_")?,
                value.trim().parse().ok()?,
            ))
        });
        samples.fold(Figures::default(), |mut figures, (series, value)| {
            figures.add(series, value);
            figures
        })
    }

    /// Reads them from published figures.
    pub(super) fn of_published(published: &BTreeMap<String, u64>) -> Figures {
        let mut figures = Figures::default();
        for (series, value) in published {
            figures.add(series, *value);
        }
        figures
    }

    /// Returns true if lanes or the device have computed anything.
    pub(super) fn are_accelerated(&self) -> bool {
        self.lanes + self.device > 0
    }

    /// Returns the difference to `before`.
    pub(super) fn since(&self, before: &Figures) -> Figures {
        let mut software = self.software;
        for (count, before) in software.iter_mut().zip(before.software) {
            *count = count.saturating_sub(before);
        }
        Figures {
            handshakes: self.handshakes.saturating_sub(before.handshakes),
            lanes: self.lanes.saturating_sub(before.lanes),
            device: self.device.saturating_sub(before.device),
            software,
        }
    }

    /// The numbers of handshakes and operations, in words.
    pub(super) fn describe(&self) -> String {
        let mut parts = vec![format!("{} operations in lanes", self.lanes)];
        if self.device > 0 {
            parts.push(format!("{} on the device", self.device));
        }
        for (reason, count) in Reason::ALL.iter().zip(self.software) {
            if count > 0 {
                parts.push(format!("{count} in software ({})", reason.name()));
            }
        }
        format!("{} handshakes, {}", self.handshakes, parts.join(", "))
    }

    fn add(&mut self, series: &str, value: u64) {
        let (family, labels) = series.split_once('{').unwrap_or((series, ""));
        match family {
            "handshakes_total" => self.handshakes += value,
            "lane_operations_total" | "at_once_operations_total" => self.lanes += value,
            "device_operations_total" => self.device += value,
            "software_operations_total" => {
                let is_labelled =
                    |reason: &Reason| labels == format!("reason=\"{}\"}}", reason.name());
                if let Some(place) = Reason::ALL.iter().position(is_labelled) {
                    self.software[place] += value;
                }
            }
            _ => {}
        }
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
        assert_eq!(figures, Figures::of_published(&published.into()));
        assert!(figures.are_accelerated());
        assert_eq!(
            figures.describe(),
            "32 handshakes, 93 operations in lanes, 3 in software (cheaper)"
        );
        assert_eq!(figures.since(&figures), Figures::default());
    }
}
