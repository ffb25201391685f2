//! Groups of bars, each with the range over the rounds.

use plotters::prelude::*;

use super::{
    Axis, Drawn, FONT, HEADROOM, HEIGHT, Rgb, Series, TEXT_SIZE, WIDTH, prepare, series_of,
};
use crate::Error;
use crate::statistics::Spread;

/// Room between groups, as a share of a group's width.
const GAP: f64 = 0.2;

/// A plot with a group of bars for each case, and in each group a bar for each series.
#[derive(Debug, Clone)]
pub struct Bars {
    title: String,
    label: String,
    digits: usize,
    groups: Vec<String>,
    series: Vec<Series>,
    bars: Vec<Bar>,
}

/// The value of a series in a group.
#[derive(Debug, Clone, Copy)]
struct Bar {
    group: usize,
    series: usize,
    value: Spread,
}

impl Bars {
    /// A plot without bars. The vertical axis has the `label`, and its numbers have `digits` behind
    /// the point.
    pub fn new(title: &str, label: &str, digits: usize) -> Self {
        Self {
            title: title.to_owned(),
            label: label.to_owned(),
            digits,
            groups: Vec::new(),
            series: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Adds a bar to the group and the series of these names, which are added if they are new;
    /// `color` is called with the place of a new series.
    pub fn add(
        &mut self,
        group: &str,
        series: &str,
        color: impl FnOnce(usize) -> Rgb,
        value: Spread,
    ) {
        let known = self.groups.iter().position(|known| known == group);
        let group = known.unwrap_or_else(|| {
            self.groups.push(group.to_owned());
            self.groups.len() - 1
        });
        let series = series_of(&mut self.series, series, color);
        self.bars.push(Bar {
            group,
            series,
            value,
        });
    }

    /// Returns true if there are no bars.
    pub fn is_empty(&self) -> bool {
        self.bars.is_empty()
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
        let centers: Vec<f64> = (0..self.groups.len())
            .map(|group| group as f64 + 0.5)
            .collect();
        let root = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
        let area = prepare(&root, &self.title, &self.series)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(
                Axis::new(0.0..self.groups.len() as f64, centers),
                0.0..self.highest() * HEADROOM,
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, TEXT_SIZE))
            .y_desc(self.label.as_str())
            .y_label_formatter(&|value| format!("{value:.*}", self.digits))
            .x_label_formatter(&|center| self.groups[*center as usize].clone())
            .draw()?;
        let width = (1.0 - GAP) / self.series.len() as f64;
        for bar in &self.bars {
            let left = bar.group as f64 + GAP / 2.0 + bar.series as f64 * width;
            let middle = left + width * 0.46;
            let place = [(left, 0.0), (left + width * 0.92, bar.value.median)];
            let color = self.series[bar.series].color;
            chart.draw_series([Rectangle::new(place, color.filled())])?;
            chart.draw_series([PathElement::new(
                [(middle, bar.value.min), (middle, bar.value.max)],
                BLACK,
            )])?;
        }
        root.present()?;
        Ok(())
    }

    fn highest(&self) -> f64 {
        // An axis needs some height even if nothing was measured.
        let highest = self
            .bars
            .iter()
            .map(|bar| bar.value.max)
            .fold(0.0, f64::max);
        if highest > 0.0 { highest } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;

    #[test]
    fn a_plot_has_its_groups_and_series_and_needs_no_values() {
        let title = "Requests <per> second";
        let mut bars = Bars::new(title, "requests", 1);
        let empty = bars.draw().unwrap();
        assert!(bars.is_empty());
        let value = |value| Spread::of([value, value + 1.0]).unwrap();
        bars.add("abc", "sw", |_| BLACK, value(1.0));
        bars.add("cnn", "sw", |_| BLACK, value(3.0));
        assert_eq!((bars.bars[1].group, bars.bars[1].series), (1, 0));
        let drawn = bars.draw().unwrap();
        for (svg, expected) in [
            (&empty, &[title, "requests"][..]),
            (&drawn, &[title, "requests", "abc", "cnn", "sw"]),
        ] {
            for text in expected {
                assert!(texts(svg).iter().any(|found| found == text), "{text}");
            }
        }
        let rectangles = |svg: &str| svg.matches("<rect").count();
        // Two bars and an entry of the legend.
        assert_eq!(rectangles(&drawn), rectangles(&empty) + 3);
    }
}
