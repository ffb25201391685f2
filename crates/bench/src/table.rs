//! Spreads as the cells of a table, and what a paper says beside them.

use std::fmt;

use crate::statistics::Spread;

/// The median, or a dash where nothing was measured.
pub(crate) fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.median),
    )
}

/// A share in per cent, or a dash where there was nothing to share.
pub(crate) fn percentage(share: Option<Spread>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |share| format!("{:.1}%", share.median * 100.0),
    )
}

/// The range of a ratio, or a dash where nothing was measured.
pub(crate) fn range(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.2}..{:.2}", spread.min, spread.max),
    )
}

/// What a paper says, beside what was measured here.
pub(crate) struct BesidePaper {
    /// What it is about, in columns.
    pub(crate) subject: String,
    pub(crate) here: Spread,
    pub(crate) paper: &'static str,
    /// Where it stands.
    pub(crate) source: &'static str,
}

/// Writes a line for each claim under a heading; nothing at all if there are none.
pub(crate) fn write_beside_paper(
    formatter: &mut fmt::Formatter<'_>,
    claims: impl Iterator<Item = BesidePaper>,
) -> fmt::Result {
    for (index, claim) in claims.enumerate() {
        if index == 0 {
            writeln!(formatter, "\nBeside the paper:")?;
        }
        writeln!(
            formatter,
            "{} here {:>6}   paper {} ({})",
            claim.subject,
            median(Some(claim.here), 2),
            claim.paper,
            claim.source,
        )?;
    }
    Ok(())
}
