//! Figures of processes by their names, as they are published and as status pages have them.

use std::collections::BTreeMap;

use slipstream_metrics::published::Published;

/// Numbers of operations by the place that computed them.
pub(super) struct Places {
    pub(super) lanes: u64,
    pub(super) at_once: u64,
    pub(super) device: u64,
    pub(super) software: u64,
}

impl Places {
    /// The number of all operations.
    pub(super) fn all(&self) -> u64 {
        self.lanes + self.at_once + self.device + self.software
    }
}

/// Figures by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Figures(pub(super) BTreeMap<String, u64>);

impl Figures {
    /// Reads them from a page in the text format of Prometheus, whose names begin with `slipstream_`.
    pub(super) fn of_page(page: &str) -> Self {
        let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
        let samples = samples.filter_map(|(series, value)| {
            let name = series.strip_prefix("slipstream_")?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Self(samples.collect())
    }

    /// The figures of all of these processes together.
    pub(super) fn of_all(processes: &[Published]) -> Self {
        let mut sum = BTreeMap::new();
        for (name, value) in processes.iter().flat_map(|process| &process.figures) {
            *sum.entry(name.clone()).or_default() += value;
        }
        Self(sum)
    }

    /// Returns the difference to `before`.
    pub(super) fn since(&self, before: &Figures) -> Self {
        let difference = |(name, value): (&String, &u64)| {
            let before = before.0.get(name).copied().unwrap_or(0);
            (name.clone(), value.saturating_sub(before))
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// Returns true if nothing was computed and no handshake completed.
    pub(super) fn is_quiet(&self) -> bool {
        let compressed =
            self.sum("compressed_chunks_total") + self.sum("compressed_responses_total");
        self.operations().all() + self.sum("handshakes_total") + compressed == 0
    }

    /// The sum of all figures of a name, whatever their labels.
    pub(super) fn sum(&self, name: &str) -> u64 {
        self.of(name).map(|(_, value)| value).sum()
    }

    /// The figures of a name, with their labels.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let from = self.0.range(name.to_owned()..);
        let same = from.take_while(move |(known, _)| known.starts_with(name));
        same.filter_map(move |(known, value)| {
            let labels = &known[name.len()..];
            let is_whole = labels.is_empty() || labels.starts_with('{');
            is_whole.then_some((labels, *value))
        })
    }

    /// The figures of a name that are not 0, by the value of their label.
    pub(super) fn by_label(&self, name: &str) -> BTreeMap<String, u64> {
        let value_of = |labels: &str| Some(labels.split('"').nth(1)?.to_owned());
        self.of(name)
            .filter(|(_, count)| *count > 0)
            .filter_map(|(labels, count)| Some((value_of(labels)?, count)))
            .collect()
    }

    /// Returns the figures with these names that are not 0.
    pub(super) fn nonzero(&self, names: &[&str]) -> BTreeMap<String, u64> {
        let found = names
            .iter()
            .filter_map(|name| Some((*name, *self.0.get(*name)?)));
        let found = found.filter(|(_, count)| *count > 0);
        found
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    /// All operations, since the process was started or between two looks.
    pub(super) fn operations(&self) -> Places {
        let lanes = match self
            .0
            .keys()
            .any(|name| name.starts_with("lane_operations_total"))
        {
            true => self.sum("lane_operations_total"),
            // An engine counts batches only.
            false => (1..)
                .zip(self.fill())
                .map(|(size, count)| size * count)
                .sum(),
        };
        Places {
            lanes,
            at_once: self.sum("at_once_operations_total"),
            device: self.sum("device_operations_total"),
            software: self.sum("software_operations_total"),
        }
    }

    /// Batches by size, from 1 on.
    pub(super) fn fill(&self) -> Vec<u64> {
        let name = |lanes: usize| format!("batches_by_fill_total{{lanes=\"{lanes}\"}}");
        let counts = (1..).map_while(|lanes| self.0.get(&name(lanes)).copied());
        counts.collect()
    }
}
