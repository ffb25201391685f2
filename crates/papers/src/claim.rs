//! Statements of a paper beside our values.

use slipstream_bench::statistics::Spread;
use slipstream_bench::table::{Table, median, number, range, text};

/// A statement of a paper, and our value for the same.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The subject, in columns.
    pub subject: Vec<String>,
    /// The quantity.
    pub quantity: &'static str,
    /// Our value; `None` if it was not measured.
    pub here: Option<Spread>,
    /// The paper's value.
    pub paper: String,
    /// The place in the paper, and its words.
    pub source: &'static str,
}

/// A table with a row for each claim. `subject` has the headings of [`Claim::subject`].
pub fn table(subject: &[&'static str], claims: impl IntoIterator<Item = Claim>) -> Table {
    let columns = subject.iter().map(|heading| text(*heading)).chain([
        text("quantity"),
        number("here"),
        number("(range)"),
        number("paper"),
        text("source"),
    ]);
    let mut table = Table::new(columns);
    for claim in claims {
        table.add(claim.subject.into_iter().chain([
            claim.quantity.to_owned(),
            median(claim.here, 2),
            range(claim.here),
            claim.paper,
            claim.source.to_owned(),
        ]));
    }
    table
}

/// The same with the claims that were measured alone.
pub fn measured_table(subject: &[&'static str], claims: impl IntoIterator<Item = Claim>) -> Table {
    table(
        subject,
        claims.into_iter().filter(|claim| claim.here.is_some()),
    )
}
