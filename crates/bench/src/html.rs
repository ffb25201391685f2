//! What the reports have in common.

use std::fmt::{self, Write as _};

/// The style sheet of a report.
pub(crate) const STYLE: &str = "body{font:15px/1.45 sans-serif;color:#1a1a1a;background:#fff;max-width:62em;margin:2em auto;\
    padding:0 1em}h1,h2,h3{line-height:1.2}h2{margin-top:2.2em;border-bottom:1px solid #ccc}table{border-collapse:\
    collapse;margin:1em 0;font-size:14px}th,td{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left}\
    td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}\
    .source{color:#555}summary{cursor:pointer}";

/// Text as it stands in a page.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Appends formatted text.
pub(crate) fn append(page: &mut String, arguments: fmt::Arguments<'_>) {
    page.write_fmt(arguments)
        .expect("writing to a String cannot fail");
}
