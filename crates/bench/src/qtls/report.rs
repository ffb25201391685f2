//! The report: rows, plots, and a page that sets our ratios beside the paper's.

use std::path::{Path, PathBuf};

use super::{CLAIMS, Claim, Configuration, Device, Figure, Outcome, chart, explanation};
use crate::html::{STYLE, append, escape};
use crate::table::{median, percentage, range};
use crate::{Error, report};

/// Writes `rows.json`, a `figure-N.svg` for each figure and `report.html` into `directory`, which is made if it is not
/// there. Returns what was written.
///
/// # Errors
/// [`Error::Io`] when something cannot be written, [`Error::Unsupported`] when a plot cannot be drawn.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut plots = Vec::new();
    for figure in outcome.figures() {
        plots.push((figure, chart::draw(outcome, figure)?));
    }
    let mut files = Vec::new();
    for (figure, plot) in &plots {
        files.push((format!("figure-{}.svg", figure.number()), plot.clone()));
    }
    files.push(("report.html".to_owned(), page(outcome, &plots)));
    report::write(outcome, files, directory)
}

/// The page, which is well-formed XML too.
fn page(outcome: &Outcome, plots: &[(Figure, String)]) -> String {
    let mut page = String::new();
    append(
        &mut page,
        format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>The experiments of QTLS with \
             Slipstream</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>The experiments of QTLS with Slipstream</h1>\n"
        ),
    );
    page.push_str(
        "<p>Xiaokang Hu et al.: QTLS: High-Performance TLS Asynchronous Offload Framework with Intel QuickAssist Technology, \
         PPoPP 2019, section 5. Figure 10, bulk transfer, is not part of this. All ratios are medians over rounds in which \
         the configurations were measured in turn; above 1 the configuration is better.</p>\n",
    );
    write_machine(&mut page, outcome);
    write_setting(&mut page, outcome);
    for (figure, plot) in plots {
        append(
            &mut page,
            format_args!("<h2>Figure {}: {}</h2>\n", figure.number(), figure.title()),
        );
        page.push_str(plot);
        write_claims(&mut page, outcome, *figure);
        write_explanations(&mut page, outcome, *figure);
        write_measurements(&mut page, outcome, *figure);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn write_machine(page: &mut String, outcome: &Outcome) {
    let machine = &outcome.machine;
    let rounds = outcome.rows.iter().map(|row| row.round).max().unwrap_or(0);
    let errors = outcome.errors().to_string();
    page.push_str("<h2>Machine</h2>\n<table>\n");
    for (name, value) in [
        ("CPU", machine.cpu.as_str()),
        ("features", &machine.features.join(" ")),
        ("logical CPUs", &machine.logical_cpus.to_string()),
        ("kernel", &machine.kernel),
        ("server", machine.nginx.as_deref().unwrap_or("unknown")),
        ("device", device_description(outcome)),
        ("rounds", &rounds.to_string()),
        ("failed connections", &errors),
    ] {
        append(
            page,
            format_args!("<tr><th>{name}</th><td>{}</td></tr>\n", escape(value)),
        );
    }
    page.push_str("</table>\n");
}

fn device_description(outcome: &Outcome) -> &'static str {
    Device::find(outcome.device).map_or(outcome.device, Device::description)
}

fn write_setting(page: &mut String, outcome: &Outcome) {
    page.push_str("<h2>What differs from the paper throughout</h2>\n<ul>\n");
    for sentence in explanation::SETTING
        .iter()
        .copied()
        .chain(explanation::of_device(outcome.device).iter().copied())
    {
        append(page, format_args!("<li>{}</li>\n", escape(sentence)));
    }
    page.push_str("</ul>\n<table>\n<tr><th>configuration</th><th>nginx.conf</th></tr>\n");
    let device = Device::find(outcome.device).unwrap_or(Device::Lanes);
    let socket = (device != Device::Lanes).then_some(Path::new("/engine.sock"));
    for configuration in Configuration::ALL {
        let block = configuration.block(device, socket).ok().flatten();
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td><code>{}</code></td></tr>\n",
                configuration.name(),
                escape(block.as_deref().unwrap_or("(no module)")),
            ),
        );
    }
    page.push_str("</table>\n");
}

/// Our ratios beside the paper's.
fn write_claims(page: &mut String, outcome: &Outcome, figure: Figure) {
    page.push_str(
        "<table>\n<tr><th>load</th><th>compared</th><th>what</th><th class=\"number\">here</th>\
         <th class=\"number\">range</th><th class=\"number\">paper</th><th>source</th></tr>\n",
    );
    for claim in claims(figure) {
        let ratio = outcome.measured(claim);
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td>{} / {}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"source\">{}</td></tr>\n",
                claim.load(),
                claim.configuration.name(),
                claim.against.name(),
                claim.measure.description(),
                median(ratio, 2),
                range(ratio),
                escape(claim.paper),
                escape(claim.source),
            ),
        );
    }
    page.push_str("</table>\n");
}

/// A paragraph for each configuration that was measured: our numbers, the paper's, and why they differ.
fn write_explanations(page: &mut String, outcome: &Outcome, figure: Figure) {
    for &configuration in figure.configurations() {
        let measured = outcome
            .of(figure)
            .any(|line| line.configuration == configuration.name());
        let reason = explanation::of(figure, configuration).filter(|_| measured);
        let Some(reason) = reason else { continue };
        let numbers: Vec<String> = claims(figure)
            .filter(|claim| claim.configuration == configuration)
            .filter_map(|claim| {
                Some(format!(
                    "{} times {} here, {} in the paper ({})",
                    median(Some(outcome.measured(claim)?), 2),
                    claim.against.name(),
                    claim.paper,
                    claim.load(),
                ))
            })
            .collect();
        let numbers = match &numbers[..] {
            [] => String::new(),
            numbers => format!("{}. ", numbers.join("; ")),
        };
        append(
            page,
            format_args!(
                "<p><strong>{}.</strong> {}{}</p>\n",
                configuration.name(),
                escape(&numbers),
                escape(reason)
            ),
        );
    }
}

fn write_measurements(page: &mut String, outcome: &Outcome, figure: Figure) {
    append(
        page,
        format_args!(
            "<details>\n<summary>All measurements</summary>\n<table>\n<tr><th>suite</th><th class=\"number\">resumed</th>\
             <th class=\"number\">connections</th><th>configuration</th><th class=\"number\">handshakes/s</th>\
             <th class=\"number\">worker CPU (µs)</th><th class=\"number\">offloaded</th><th class=\"number\">load core</th><th class=\"number\">mean (µs)</th><th class=\"number\">median (µs)</th>\
             <th class=\"number\">handshakes × {}</th><th class=\"number\">range</th>\
             <th class=\"number\">mean time, times shorter</th></tr>\n",
            figure.baseline().name()
        ),
    );
    for line in outcome.of(figure) {
        append(
            page,
            format_args!(
                "<tr><td>{}</td><td class=\"number\">{}%</td><td class=\"number\">{}</td><td>{}</td>",
                line.suite, line.resumed_percent, line.concurrency, line.configuration
            ),
        );
        for number in [
            median(line.handshakes_per_s, 0),
            median(line.server_cpu_us, 1),
            percentage(line.offloaded_share),
            percentage(line.load_core_share),
            median(line.mean_us, 0),
            median(line.p50_us, 0),
            median(line.handshakes_ratio, 2),
            range(line.handshakes_ratio),
            median(line.mean_ratio, 2),
        ] {
            append(page, format_args!("<td class=\"number\">{number}</td>"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n</details>\n");
}

fn claims(figure: Figure) -> impl Iterator<Item = &'static Claim> {
    CLAIMS.iter().filter(move |claim| claim.figure == figure)
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
        assert_eq!(written.len(), 2 + Figure::ALL.len());

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
        assert_eq!(count("svg"), Figure::ALL.len());
        assert_eq!(count("script"), 0);
        for attribute in ["src=", "href=", "url("] {
            assert!(!html.contains(attribute), "{attribute}");
        }
        assert!(html.contains("A &lt;fast&gt; &amp; new CPU"));
        for claim in CLAIMS {
            assert!(html.contains(&escape(claim.source)), "{claim:?}");
        }
        // QTLS is five times SW in these rows.
        assert!(html.contains("5.00 times SW here, 9 in the paper (tls12-rsakx)"));

        let rows = fs::read_to_string(directory.join("rows.json")).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        let plot = fs::read_to_string(directory.join("figure-11.svg")).unwrap();
        assert!(roxmltree::Document::parse(&plot).is_ok());
    }
}
