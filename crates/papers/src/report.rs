//! The files of a report: rows, plots, and a page that has both.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipstream_bench::report;
use slipstream_bench::table::Table;
use slipstream_testbed::machine::Machine;

use crate::Error;

/// A report on an experiment.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its title.
    pub title: &'static str,
    /// The paper, and the way in which its ratios are set beside ours.
    pub introduction: &'static str,
    /// Facts about the machine and the measurement.
    pub facts: Vec<(&'static str, String)>,
    /// Differences from the paper that hold throughout.
    pub differences: Vec<&'static str>,
    /// Its parts.
    pub sections: Vec<Section>,
}

/// A part of a report.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Plots: the name of the file, and the text of the SVG.
    pub plots: Vec<(String, String)>,
    /// Tables. One without rows is left out.
    pub tables: Vec<Table>,
    /// Paragraphs: the name of the subject, which may be empty, and the text.
    pub paragraphs: Vec<(&'static str, String)>,
    /// All measurements, which a reader has to unfold.
    pub measurements: Option<Table>,
}

/// The facts that every report has.
pub fn facts(machine: &Machine, rounds: usize, errors: u64) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("CPU", machine.cpu.clone()),
        ("features", machine.features.join(" ")),
        ("logical CPUs", machine.logical_cpus.to_string()),
        ("kernel", machine.kernel.clone()),
    ];
    facts.extend(machine.nginx.clone().map(|nginx| ("server", nginx)));
    facts.push(("rounds", rounds.to_string()));
    facts.push(("failed connections", errors.to_string()));
    facts
}

impl Report {
    /// Writes `rows.json` with all of `outcome`, a file for each plot, and `report.html` into
    /// `directory`, which is made if it is not there. Returns the files that were written.
    ///
    /// # Errors
    /// [`Error::Testbed`] when a file cannot be written.
    pub fn write(&self, outcome: &impl Serialize, directory: &Path) -> Result<Vec<PathBuf>, Error> {
        let plots = self.sections.iter().flat_map(|section| &section.plots);
        let page = ("report.html".to_owned(), self.html());
        report::write(outcome, plots.cloned().chain([page]), directory)
    }

    /// The page, which is well-formed XML too.
    fn html(&self) -> String {
        let mut page = String::new();
        let title = escape(self.title);
        append(
            &mut page,
            format_args!(
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{title}</title>\n\
                 <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n<h2>Machine</h2>\n<table>\n",
                escape(self.introduction)
            ),
        );
        for (name, value) in &self.facts {
            append(
                &mut page,
                format_args!("<tr><th>{name}</th><td>{}</td></tr>\n", escape(value)),
            );
        }
        page.push_str("</table>\n<h2>Differences from the paper</h2>\n<ul>\n");
        for sentence in &self.differences {
            append(&mut page, format_args!("<li>{}</li>\n", escape(sentence)));
        }
        page.push_str("</ul>\n");
        for section in &self.sections {
            section.write(&mut page);
        }
        page.push_str("</body>\n</html>\n");
        page
    }
}

impl Section {
    fn write(&self, page: &mut String) {
        append(page, format_args!("<h2>{}</h2>\n", escape(&self.heading)));
        for (_, plot) in &self.plots {
            page.push_str(plot);
        }
        for table in self.tables.iter().filter(|table| !table.rows().is_empty()) {
            write_table(page, table);
        }
        for (name, text) in &self.paragraphs {
            let name = match *name {
                "" => String::new(),
                name => format!("<strong>{}.</strong> ", escape(name)),
            };
            append(page, format_args!("<p>{name}{}</p>\n", escape(text)));
        }
        if let Some(measurements) = &self.measurements {
            page.push_str("<details>\n<summary>All measurements</summary>\n");
            write_table(page, measurements);
            page.push_str("</details>\n");
        }
    }
}

fn write_table(page: &mut String, table: &Table) {
    let class = |is_number| match is_number {
        true => " class=\"number\"",
        false => "",
    };
    page.push_str("<table>\n<tr>");
    for column in table.columns() {
        let (class, heading) = (class(column.is_number), escape(&column.heading));
        append(page, format_args!("<th{class}>{heading}</th>"));
    }
    page.push_str("</tr>\n");
    for row in table.rows() {
        page.push_str("<tr>");
        for (column, cell) in table.columns().iter().zip(row) {
            let (class, cell) = (class(column.is_number), escape(cell));
            append(page, format_args!("<td{class}>{cell}</td>"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

const STYLE: &str = "body{font:15px/1.45 sans-serif;color:#1a1a1a;background:#fff;max-width:62em;margin:2em auto;\
    padding:0 1em}h1,h2,h3{line-height:1.2}h2{margin-top:2.2em;border-bottom:1px solid #ccc}table{border-collapse:\
    collapse;margin:1em 0;font-size:14px}th,td{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left}\
    td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}\
    summary{cursor:pointer}";

/// Text with the characters escaped that HTML gives a meaning to.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn append(page: &mut String, arguments: fmt::Arguments<'_>) {
    page.write_fmt(arguments)
        .expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_bench::table::{number, text};
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::*;
    use crate::testing::plots_of;

    #[test]
    fn a_report_is_a_page_rows_and_plots_and_what_it_holds_is_escaped() {
        let mut table = Table::new([text("a < b"), number("c")]);
        table.add(["<x>".to_owned(), "1 & 2".to_owned()]);
        let report = Report {
            title: "A & B",
            introduction: "An <introduction>.",
            facts: vec![("CPU", "A <fast> & new CPU".to_owned())],
            differences: vec!["1 < 2"],
            sections: vec![Section {
                heading: "Figure <1>".to_owned(),
                plots: vec![("figure-1.svg".to_owned(), "<svg/>".to_owned())],
                tables: vec![table.clone(), Table::new([text("empty")])],
                paragraphs: vec![("QTLS", "a > b".to_owned()), ("", "alone".to_owned())],
                measurements: Some(table),
            }],
        };
        let scratch = ScratchDirectory::new().unwrap();
        let directory = scratch.file("results");
        let written = report.write(&["row"], &directory).unwrap();
        assert_eq!(written.len(), 3);
        let html = fs::read_to_string(directory.join("report.html")).unwrap();
        assert_eq!(plots_of(&html), 1);
        for expected in [
            "<h1>A &amp; B</h1>",
            "A &lt;fast&gt; &amp; new CPU",
            "<li>1 &lt; 2</li>",
            "<th>a &lt; b</th><th class=\"number\">c</th>",
            "<td>&lt;x&gt;</td><td class=\"number\">1 &amp; 2</td>",
            "<p><strong>QTLS.</strong> a &gt; b</p>",
            "<p>alone</p>",
        ] {
            assert!(html.contains(expected), "{expected}");
        }
        assert!(!html.contains("empty"));
    }
}
