//! Spreads as the cells of a table.

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
