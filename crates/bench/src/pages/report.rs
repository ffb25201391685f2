//! The report: rows, plots, and a page that sets our ratios beside the paper's.

use std::path::{Path, PathBuf};

use super::chart::{self, Plot};
use super::{CLAIMS, Configuration, Outcome, Transport, explanation};
use crate::html::{STYLE, append, escape};
use crate::table::{median, percentage, range};
use crate::{Error, report};

/// Writes `rows.json`, plots and `report.html` into `directory`, which is made if it is not there. Returns what was written.
///
/// # Errors
/// [`Error::Io`] when something cannot be written, [`Error::Unsupported`] when a plot cannot be drawn.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut plots = Vec::new();
    for transport in outcome.transports() {
        for plot in Plot::ALL {
            let name = format!("{}-tls-{}.svg", plot.name(), transport.name());
            plots.push((transport, name, chart::draw(outcome, transport, plot)?));
        }
    }
    let mut files = Vec::new();
    for (_, name, plot) in &plots {
        files.push((name.clone(), plot.clone()));
    }
    files.push(("report.html".to_owned(), page(outcome, &plots)));
    report::write(outcome, files, directory)
}

/// The page, which is well-formed XML too.
fn page(outcome: &Outcome, plots: &[(Transport, String, String)]) -> String {
    let mut page = String::new();
    append(
        &mut page,
        format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>The compression experiments of \
             QWEB with Slipstream</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>The compression experiments of \
             QWEB with Slipstream</h1>\n"
        ),
    );
    page.push_str(
        "<p>Jian Li et al.: QWEB: High-Performance Event-Driven Web Architecture with QAT Acceleration, \
         sections 5.3 and 5.4. All ratios are medians over rounds in which the configurations were measured in turn, \
         against sw, a stock nginx with zlib at level 1.</p>\n",
    );
    write_machine(&mut page, outcome);
    write_pages(&mut page, outcome);
    write_setting(&mut page, outcome);
    write_claims(&mut page, outcome);
    for transport in outcome.transports() {
        append(
            &mut page,
            format_args!(
                "<h2>tls {}: {}</h2>\n",
                transport.name(),
                transport.description()
            ),
        );
        if transport == Transport::New {
            append(
                &mut page,
                format_args!("<p>{}</p>\n", escape(explanation::NEW_CONNECTIONS)),
            );
        }
        for (_, _, plot) in plots.iter().filter(|(of, _, _)| *of == transport) {
            page.push_str(plot);
        }
        write_measurements(&mut page, outcome, transport);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn write_machine(page: &mut String, outcome: &Outcome) {
    let machine = &outcome.machine;
    let rounds = outcome.rows.iter().map(|row| row.round).max().unwrap_or(0);
    page.push_str("<h2>Machine</h2>\n<table>\n");
    for (name, value) in [
        ("CPU", machine.cpu.as_str()),
        ("features", &machine.features.join(" ")),
        ("logical CPUs", &machine.logical_cpus.to_string()),
        ("kernel", &machine.kernel),
        ("server", machine.nginx.as_deref().unwrap_or("unknown")),
        ("rounds", &rounds.to_string()),
        ("failed connections", &outcome.errors().to_string()),
    ] {
        append(
            page,
            format_args!("<tr><th>{name}</th><td>{}</td></tr>\n", escape(value)),
        );
    }
    page.push_str("</table>\n");
}

fn write_pages(page: &mut String, outcome: &Outcome) {
    append(
        page,
        format_args!(
            "<h2>Pages</h2>\n<p>From {}.</p>\n<table>\n<tr><th>page</th><th class=\"number\">bytes</th>\
             <th class=\"number\">ratio at zlib level 1</th></tr>\n",
            escape(&outcome.source.origin)
        ),
    );
    for line in &outcome.source.pages {
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{:.2}</td></tr>\n",
                line.page, line.bytes, line.zlib_1_ratio
            ),
        );
    }
    page.push_str("</table>\n");
}

fn write_setting(page: &mut String, outcome: &Outcome) {
    page.push_str("<h2>What differs from the paper throughout</h2>\n<ul>\n");
    for sentence in explanation::SETTING {
        append(page, format_args!("<li>{}</li>\n", escape(sentence)));
    }
    page.push_str("</ul>\n<table>\n<tr><th>configuration</th><th></th><th>nginx.conf</th></tr>\n");
    let measured = |configuration: &Configuration| {
        let name = configuration.name();
        outcome.rows.iter().any(|row| row.configuration == name)
    };
    for configuration in Configuration::ALL.into_iter().filter(measured) {
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td><code>{}</code></td></tr>\n",
                configuration.name(),
                escape(configuration.description()),
                escape(&configuration.directives()),
            ),
        );
    }
    page.push_str("</table>\n");
}

/// Our values beside the paper's.
fn write_claims(page: &mut String, outcome: &Outcome) {
    page.push_str(
        "<h2>Beside the paper</h2>\n<table>\n<tr><th>tls</th><th>page</th><th>configuration</th><th>what</th>\
         <th class=\"number\">here</th><th class=\"number\">range</th><th class=\"number\">paper</th>\
         <th>source</th></tr>\n",
    );
    for claim in CLAIMS {
        let value = outcome.measured(claim);
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"source\">{}</td></tr>\n",
                claim.transport.name(),
                claim.page,
                claim.configuration.name(),
                claim.measure.description(),
                median(value, 2),
                range(value),
                escape(claim.paper),
                escape(claim.source),
            ),
        );
    }
    page.push_str("</table>\n");
}

fn write_measurements(page: &mut String, outcome: &Outcome, transport: Transport) {
    page.push_str("<details>\n<summary>All measurements</summary>\n<table>\n<tr><th>page</th><th>configuration</th>");
    for heading in [
        "requests/s",
        "10,000 requests (s)",
        "worker CPU (µs)",
        "ratio",
        "median (µs)",
        "worker",
        "engine",
        "load",
        "chunks offloaded",
        "requests × sw",
        "range",
        "CPU, times less than sw",
        "size × sw",
    ] {
        append(page, format_args!("<th class=\"number\">{heading}</th>"));
    }
    page.push_str("</tr>\n");
    for line in outcome.of(transport) {
        append(
            page,
            format_args!("<tr><td>{}</td><td>{}</td>", line.page, line.configuration),
        );
        for number in [
            median(line.responses_per_s, 0),
            median(line.completion_s, 1),
            median(line.server_cpu_us, 0),
            median(line.compression_ratio, 2),
            median(line.p50_us, 0),
            percentage(line.server_share),
            percentage(line.engine_share),
            percentage(line.client_share),
            percentage(line.offloaded_share),
            median(line.responses_ratio, 2),
            range(line.responses_ratio),
            median(line.cpu_ratio, 2),
            median(line.size_ratio, 2),
        ] {
            append(page, format_args!("<td class=\"number\">{number}</td>"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n</details>\n");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::summary::tests::everything;
    use super::*;
    use crate::scratch::ScratchDirectory;

    #[test]
    fn the_report_is_well_formed_complete_and_needs_nothing_else() {
        let mut outcome = everything();
        outcome.machine.cpu = "A <fast> & new CPU".to_owned();
        let scratch = ScratchDirectory::new().unwrap();
        let directory = scratch.file("results");
        let written = write(&outcome, &directory).unwrap();
        let plots = Transport::ALL.len() * Plot::ALL.len();
        assert_eq!(written.len(), 2 + plots);

        let html = fs::read_to_string(directory.join("report.html")).unwrap();
        let options = roxmltree::ParsingOptions {
            allow_dtd: true,
            ..Default::default()
        };
        let page = roxmltree::Document::parse_with_options(&html, options).unwrap();
        let count = |name| {
            page.descendants()
                .filter(|node| node.tag_name().name() == name)
                .count()
        };
        assert_eq!(count("svg"), plots);
        assert_eq!(count("script"), 0);
        for attribute in ["src=", "href=", "url("] {
            assert!(!html.contains(attribute), "{attribute}");
        }
        assert!(html.contains("A &lt;fast&gt; &amp; new CPU"));
        assert!(html.contains("a &lt;test&gt;"));
        for claim in CLAIMS {
            assert!(html.contains(&escape(claim.source)), "{claim:?}");
        }
        let rows = fs::read_to_string(directory.join("rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        let plot = fs::read_to_string(directory.join("requests-tls-new.svg")).unwrap();
        assert!(roxmltree::Document::parse(&plot).is_ok());
    }
}
