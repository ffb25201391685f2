//! The table at the end.

use std::fmt;

use super::root::Root;
use crate::harness::Outcome;

/// The results of all releases.
#[derive(Default)]
pub(super) struct Report {
    releases: Vec<[String; 6]>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// The results of one part for one release.
pub(super) struct Row {
    release: String,
    part: String,
    outcome: Outcome,
    error: Option<String>,
}

impl Row {
    /// A step before the tests has failed, so none was run.
    pub(super) fn failed(release: &str, step: &str, error: &anyhow::Error) -> Self {
        Self {
            release: release.to_owned(),
            part: step.to_owned(),
            outcome: Outcome::default(),
            error: Some(format!("{error:#}")),
        }
    }

    /// The tests of a part were run.
    pub(super) fn of_part(
        release: &str,
        part: &str,
        outcome: Outcome,
        error: Option<anyhow::Error>,
    ) -> Self {
        Self {
            release: release.to_owned(),
            part: part.to_owned(),
            outcome,
            error: error.map(|error| format!("{error:#}")),
        }
    }

    fn has_failed(&self) -> bool {
        self.error.is_some() || !self.outcome.failed.is_empty()
    }
}

impl Report {
    /// Adds the versions of the servers of a release.
    pub(super) fn versions(&mut self, release: &str, root: &Root) {
        let version = |package| root.version(package).unwrap_or_else(|| "-".to_owned());
        let packages = ["nginx", "openssl", "haproxy", "squid-openssl", "varnish"];
        let [nginx, openssl, haproxy, squid, varnish] = packages.map(version);
        let release = release.to_owned();
        self.releases
            .push([release, nginx, openssl, haproxy, squid, varnish]);
    }

    /// Adds an OpenSSL that comes with no server.
    #[cfg(feature = "openssl-source")]
    pub(super) fn openssl(&mut self, name: &str, version: &str) {
        let none = || "-".to_owned();
        let version = version.to_owned();
        self.releases
            .push([name.to_owned(), none(), version, none(), none(), none()]);
    }

    /// Adds a line below the table.
    pub(super) fn note(&mut self, release: &str, note: &str) {
        self.notes.push(format!("{release}: {note}"));
    }

    /// Adds the results of a part.
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns the number of parts that have failed.
    pub(super) fn failures(&self) -> usize {
        self.rows.iter().filter(|row| row.has_failed()).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["release", "nginx", "OpenSSL", "HAProxy", "Squid", "Varnish"];
        let heading = heading.map(str::to_owned);
        for [release, nginx, openssl, haproxy, squid, varnish] in
            std::iter::once(&heading).chain(&self.releases)
        {
            writeln!(
                f,
                "{release:<13}{nginx:<10}{openssl:<10}{haproxy:<10}{squid:<10}{varnish}"
            )?;
        }
        writeln!(
            f,
            "\n{:<13}{:<20}{:>8}{:>8}{:>14}{:>10}",
            "release", "part", "passed", "failed", "with skips", "left out"
        )?;
        for row in &self.rows {
            let Outcome {
                passed,
                failed,
                left_out,
                skipped,
            } = &row.outcome;
            let tests_with_skips = distinct_tests(skipped);
            let (release, part, failed) = (&row.release, &row.part, failed.len());
            write!(
                f,
                "{release:<13}{part:<20}{passed:>8}{failed:>8}{tests_with_skips:>14}{left_out:>10}"
            )?;
            match &row.error {
                Some(error) => writeln!(f, "  {error}")?,
                None => writeln!(f)?,
            }
        }
        writeln!(
            f,
            "\nleft out of releases: tests of the published nginx, and those that are ignored"
        )?;
        for note in &self.notes {
            writeln!(f, "left out, {note}")?;
        }
        for row in &self.rows {
            for skip in &row.outcome.skipped {
                writeln!(f, "skipped in part, {} {} {skip}", row.release, row.part)?;
            }
        }
        for row in &self.rows {
            for test in &row.outcome.failed {
                writeln!(f, "FAILED {} {} {test}", row.release, row.part)?;
            }
        }
        Ok(())
    }
}

/// Counts the tests that have skipped something: one may skip several things.
fn distinct_tests(skipped: &[String]) -> usize {
    let mut names: Vec<&str> = skipped
        .iter()
        .filter_map(|skip| skip.split(": ").next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_and_every_skip_is_in_the_table() {
        let mut report = Report::default();
        let outcome = Outcome {
            passed: 7,
            failed: vec!["device::bad".to_owned()],
            left_out: 3,
            skipped: vec!["a::b: no go".to_owned(), "a::b: no java".to_owned()],
        };
        report.add(Row::of_part("trixie", "integration", outcome, None));
        report.add(Row::failed("sid", "build", &anyhow::anyhow!("no compiler")));
        report.add(Row::of_part("sid", "cli", Outcome::default(), None));
        report.note("sid", "there is no varnish");
        let table = report.to_string();
        for line in [
            "trixie       integration                7       1             1         3",
            "sid          build                      0       0             0         0  no compiler",
            "left out, sid: there is no varnish",
            "skipped in part, trixie integration a::b: no java",
            "FAILED trixie integration device::bad",
        ] {
            assert!(table.lines().any(|found| found == line), "{line}\n{table}");
        }
        assert_eq!(report.failures(), 2);
    }
}
