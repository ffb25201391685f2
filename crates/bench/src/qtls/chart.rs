//! The figures as SVG.

use plotters::prelude::*;

use super::{Comparison, Configuration, Figure, Outcome};
use crate::Error;
use crate::chart::{
    Area, Axis, Bar, Bars, Drawn, FONT, HEADROOM, HEIGHT, Series, TEXT_SIZE, WIDTH, one_two_five,
    prepare, rounded, steps,
};

/// The plot of a figure, as the text of an SVG file.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot be drawn.
pub(super) fn draw(outcome: &Outcome, figure: Figure) -> Result<String, Error> {
    let lines: Vec<&Comparison> = outcome.of(figure).collect();
    if !figure.is_over_concurrency() {
        return bars(figure, &lines).draw();
    }
    let mut text = String::new();
    match draw_over_concurrency(&mut text, figure, &lines) {
        Ok(()) => Ok(text),
        Err(error) => Err(Error::Unsupported(format!(
            "cannot draw figure {}: {error}",
            figure.number()
        ))),
    }
}

/// A group of bars for each case: handshakes per second, with the range over the rounds.
fn bars(figure: Figure, lines: &[&Comparison]) -> Bars {
    let mut groups: Vec<String> = Vec::new();
    for line in lines {
        let group = group_name(figure, line);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let shown = shown(lines);
    let bars = lines.iter().filter_map(|line| {
        let name = group_name(figure, line);
        let configuration = Configuration::find(line.configuration)?;
        Some(Bar {
            group: groups.iter().position(|group| *group == name)?,
            series: shown.iter().position(|&other| other == configuration)?,
            value: line.handshakes_per_s?,
        })
    });
    Bars {
        bars: bars.collect(),
        title: title(figure),
        label: "handshakes per second",
        digits: 0,
        series: series(&shown),
        groups,
    }
}

/// Two plots against concurrency: times of figure 11, throughput and time of figure 12.
fn draw_over_concurrency(text: &mut String, figure: Figure, lines: &[&Comparison]) -> Drawn {
    let panels: [Panel; 2] = match figure {
        Figure::ResponseTime => [MEAN_RESPONSE, MEDIAN_RESPONSE],
        _ => [THROUGHPUT, MEAN_HANDSHAKE],
    };
    let shown = shown(lines);
    let root = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    let area = prepare(&root, &title(figure), &series(&shown))?;
    for (panel, area) in panels.iter().zip(area.split_evenly((1, 2))) {
        draw_panel(&area, panel, lines, &shown)?;
    }
    root.present()?;
    Ok(())
}

/// A quantity against concurrency.
struct Panel {
    label: &'static str,
    value: fn(&Comparison) -> Option<f64>,
    /// Times of one client and of many differ by orders of magnitude.
    logarithmic: bool,
}

const MEAN_RESPONSE: Panel = Panel {
    label: "mean response time (ms)",
    value: |line| line.mean_us.map(|time| time.median / 1e3),
    logarithmic: true,
};
const MEDIAN_RESPONSE: Panel = Panel {
    label: "median response time (ms)",
    value: |line| line.p50_us.map(|time| time.median / 1e3),
    logarithmic: true,
};
const THROUGHPUT: Panel = Panel {
    label: "handshakes per second",
    value: |line| line.handshakes_per_s.map(|rate| rate.median),
    logarithmic: false,
};
const MEAN_HANDSHAKE: Panel = Panel {
    label: "mean handshake time (ms)",
    value: |line| line.mean_us.map(|time| time.median / 1e3),
    logarithmic: true,
};

fn draw_panel(
    area: &Area<'_>,
    panel: &Panel,
    lines: &[&Comparison],
    shown: &[Configuration],
) -> Drawn {
    // The axis has the logarithm, and its labels what it is of.
    let height = |value: f64| {
        if panel.logarithmic {
            value.log10()
        } else {
            value
        }
    };
    let points = |configuration: Configuration| -> Vec<(f64, f64)> {
        lines
            .iter()
            .filter(|line| line.configuration == configuration.name())
            .filter_map(|line| {
                let value = (panel.value)(line).filter(|value| *value > 0.0)?;
                Some(((line.concurrency as f64).log2(), height(value)))
            })
            .collect()
    };
    let all: Vec<(f64, f64)> = shown.iter().flat_map(|&shown| points(shown)).collect();
    let lowest = all
        .iter()
        .map(|point| point.1)
        .fold(f64::INFINITY, f64::min);
    let highest = all
        .iter()
        .map(|point| point.1)
        .fold(f64::NEG_INFINITY, f64::max);
    let heights = match (all.is_empty(), panel.logarithmic) {
        (true, _) => 0.0..1.0,
        (false, true) => (lowest - 0.1)..(highest + 0.1),
        (false, false) => 0.0..highest * HEADROOM,
    };
    let last = all.iter().map(|point| point.0).fold(1.0, f64::max);
    let powers: Vec<f64> = (0..=last as u32).map(f64::from).collect();
    let marks = if panel.logarithmic {
        one_two_five(&heights)
    } else {
        steps(heights.end)
    };
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(
            Axis::new(-0.2..last + 0.2, powers),
            Axis::new(heights, marks),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style((FONT, TEXT_SIZE))
        .x_desc("concurrent connections")
        .y_desc(panel.label)
        .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
        .y_label_formatter(&|mark| match panel.logarithmic {
            true => format!("{}", rounded(10f64.powf(*mark))),
            false => format!("{mark:.0}"),
        })
        .draw()?;
    for &configuration in shown {
        let color = color(configuration);
        let points = points(configuration);
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
        let dot = |point| Circle::new(point, 4, color.filled());
        chart.draw_series(points.into_iter().map(dot))?;
    }
    Ok(())
}

fn title(figure: Figure) -> String {
    format!("Figure {}: {}", figure.number(), figure.title())
}

fn series(shown: &[Configuration]) -> Vec<Series> {
    let series = |&configuration: &Configuration| Series {
        name: configuration.name().to_owned(),
        color: color(configuration),
    };
    shown.iter().map(series).collect()
}

/// The configurations that are drawn, in the paper's order.
fn shown(lines: &[&Comparison]) -> Vec<Configuration> {
    Configuration::ALL
        .into_iter()
        .filter(|shown| lines.iter().any(|line| line.configuration == shown.name()))
        .collect()
}

fn group_name(figure: Figure, line: &Comparison) -> String {
    match figure {
        Figure::Resumption => format!("{}% resumed", line.resumed_percent),
        _ => line.suite.to_owned(),
    }
}

/// The palette of Okabe and Ito, which those who see some colours alike can tell apart.
fn color(configuration: Configuration) -> RGBColor {
    match configuration {
        Configuration::Software => RGBColor(130, 130, 130),
        Configuration::Straight => RGBColor(230, 159, 0),
        Configuration::Asynchronous => RGBColor(86, 180, 233),
        Configuration::AsynchronousSlow => RGBColor(0, 0, 0),
        Configuration::Heuristic => RGBColor(0, 158, 115),
        Configuration::Qtls => RGBColor(0, 114, 178),
        Configuration::Idle => RGBColor(213, 94, 0),
        Configuration::Hybrid => RGBColor(204, 121, 167),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::super::summary::tests::{everything, row};
    use super::*;
    use crate::chart::tests::texts;
    use crate::machine::Machine;

    #[test]
    fn every_figure_is_well_formed_with_axes_and_a_legend() {
        let outcome = everything();
        for figure in Figure::ALL {
            let texts = texts(&draw(&outcome, figure).unwrap());
            let expect = |text: &str| {
                assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
            };
            for configuration in figure.configurations() {
                expect(configuration.name());
            }
            match figure {
                Figure::ResponseTime => expect("median response time (ms)"),
                Figure::Polling => expect("mean handshake time (ms)"),
                _ => expect("handshakes per second"),
            }
            if figure.is_over_concurrency() {
                expect("concurrent connections");
                expect("64");
            }
        }
        let resumption = draw(&outcome, Figure::Resumption).unwrap();
        assert!(texts(&resumption).contains(&"90% resumed".to_owned()));
    }

    #[test]
    fn what_was_not_measured_leaves_a_plot_without_it() {
        for figure in Figure::ALL {
            let case = figure.cases(64)[0];
            let mut row = row(figure, case, figure.baseline(), 1, 0.0);
            row.mean_us = f64::NAN;
            row.p50_us = f64::NAN;
            let outcome = Outcome::new(Machine::describe(None), Device::Lanes, vec![row]);
            let svg = draw(&outcome, figure).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            texts(&svg);
        }
    }
}
