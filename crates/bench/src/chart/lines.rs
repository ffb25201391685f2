//! Lines over a horizontal axis of powers of two.

use plotters::prelude::*;

use super::{
    Area, Axis, Drawn, FONT, HEADROOM, HEIGHT, Rgb, Series, TEXT_SIZE, WIDTH, one_two_five,
    prepare, rounded, series_of, steps,
};
use crate::Error;

/// A plot of panels side by side with the same series and the same horizontal axis, which is
/// logarithmic.
#[derive(Debug, Clone)]
pub struct Lines {
    title: String,
    label: String,
    series: Vec<Series>,
    panels: Vec<Panel>,
}

/// One panel of a plot: a quantity.
#[derive(Debug, Clone)]
pub struct Panel {
    label: String,
    /// True if the vertical axis is logarithmic too, as for values that differ by orders of
    /// magnitude.
    is_logarithmic: bool,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    series: usize,
    at: f64,
    value: f64,
}

impl Panel {
    /// A panel without points, with a label for its vertical axis.
    pub fn new(label: &str, is_logarithmic: bool) -> Panel {
        Panel {
            label: label.to_owned(),
            is_logarithmic,
            points: Vec::new(),
        }
    }

    /// The place of a value on the vertical axis.
    fn height(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true => value.log10(),
            false => value,
        }
    }
}

impl Lines {
    /// A plot without points. The horizontal axis has the `label`.
    pub fn new(title: &str, label: &str, panels: impl IntoIterator<Item = Panel>) -> Lines {
        Lines {
            title: title.to_owned(),
            label: label.to_owned(),
            series: Vec::new(),
            panels: panels.into_iter().collect(),
        }
    }

    /// Adds a series to the legend, unless it is there.
    pub fn add_series(&mut self, name: &str, color: Rgb) {
        series_of(&mut self.series, name, |_| color);
    }

    /// Adds a point to a panel and a series that was added before. A value that is not above 0
    /// is left out.
    ///
    /// # Panics
    /// If there is no such panel or series.
    pub fn add(&mut self, panel: usize, series: &str, at: f64, value: Option<f64>) {
        let known = self.series.iter().position(|known| known.name == series);
        let series = known.expect("a series is added before its points");
        if let Some(value) = value.filter(|value| *value > 0.0) {
            self.panels[panel].points.push(Point { series, at, value });
        }
    }

    /// The plot, as the text of an SVG file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it cannot be drawn.
    pub fn draw(&self) -> Result<String, Error> {
        let mut text = String::new();
        match self.draw_to(&mut text) {
            Ok(()) => Ok(text),
            Err(error) => Err(Error::Unsupported(format!(
                "cannot draw \"{}\": {error}",
                self.title
            ))),
        }
    }

    fn draw_to(&self, text: &mut String) -> Drawn {
        let root = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
        let area = prepare(&root, &self.title, &self.series)?;
        for (panel, area) in self
            .panels
            .iter()
            .zip(area.split_evenly((1, self.panels.len())))
        {
            self.draw_panel(&area, panel)?;
        }
        root.present()?;
        Ok(())
    }

    fn draw_panel(&self, area: &Area<'_>, panel: &Panel) -> Drawn {
        let points = |series: usize| -> Vec<(f64, f64)> {
            panel
                .points
                .iter()
                .filter(|point| point.series == series)
                .map(|point| (point.at.log2(), panel.height(point.value)))
                .collect()
        };
        let all: Vec<(f64, f64)> = (0..self.series.len()).flat_map(points).collect();
        let lowest = all
            .iter()
            .map(|point| point.1)
            .fold(f64::INFINITY, f64::min);
        let highest = all
            .iter()
            .map(|point| point.1)
            .fold(f64::NEG_INFINITY, f64::max);
        let heights = match (all.is_empty(), panel.is_logarithmic) {
            (true, _) => 0.0..1.0,
            (false, true) => (lowest - 0.1)..(highest + 0.1),
            (false, false) => 0.0..highest * HEADROOM,
        };
        let last = all.iter().map(|point| point.0).fold(1.0, f64::max);
        let powers: Vec<f64> = (0..=last as u32).map(f64::from).collect();
        let marks = if panel.is_logarithmic {
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
        // An axis has the logarithm, and its labels the value.
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, TEXT_SIZE))
            .x_desc(self.label.as_str())
            .y_desc(panel.label.as_str())
            .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
            .y_label_formatter(&|mark| match panel.is_logarithmic {
                true => format!("{}", rounded(10f64.powf(*mark))),
                false => format!("{mark:.0}"),
            })
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let color = series.color;
            let points = points(index);
            chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
            let dot = |point| Circle::new(point, 4, color.filled());
            chart.draw_series(points.into_iter().map(dot))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;

    #[test]
    fn panels_have_their_labels_and_need_no_values() {
        let panels = [Panel::new("per second", false), Panel::new("ms", true)];
        let mut lines = Lines::new("A title", "connections", panels);
        lines.add_series("SW", BLACK);
        for value in [None, Some(0.0), Some(f64::NAN)] {
            lines.add(0, "SW", 1.0, value);
        }
        let svg = lines.draw().unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        lines.add(0, "SW", 1.0, Some(1000.0));
        lines.add(1, "SW", 64.0, Some(10.0));
        let texts = texts(&lines.draw().unwrap());
        for text in [
            "A title",
            "connections",
            "per second",
            "ms",
            "SW",
            "64",
            "10",
        ] {
            assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
        }
    }
}
