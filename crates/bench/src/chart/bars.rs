//! Groups of bars, each with the range over the rounds.

use plotters::prelude::*;

use super::{Axis, Drawn, FONT, HEADROOM, HEIGHT, Series, TEXT_SIZE, WIDTH, prepare};
use crate::Error;
use crate::statistics::Spread;

/// What bars of a group leave free between groups, of a group's width.
const GAP: f64 = 0.2;

/// A group of bars for each case, and in each group one for each series.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// Above the plot.
    pub(crate) title: String,
    /// What the vertical axis has.
    pub(crate) label: &'static str,
    /// How many digits its numbers have behind the point.
    pub(crate) digits: usize,
    /// The names below the groups.
    pub(crate) groups: Vec<String>,
    /// What is compared.
    pub(crate) series: Vec<Series>,
    /// The values that there are.
    pub(crate) bars: Vec<Bar>,
}

/// The value of a series in a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    /// The position of the group.
    pub(crate) group: usize,
    /// The position of the series.
    pub(crate) series: usize,
    /// How high it is.
    pub(crate) value: Spread,
}

impl Bars {
    /// One without bars. Numbers have `digits` behind the point.
    pub(crate) fn new(title: &str, label: &'static str, digits: usize) -> Self {
        Self {
            title: title.to_owned(),
            label,
            digits,
            groups: Vec::new(),
            series: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Adds a bar to the group and the series of these names, which are added if they are new; `color` is asked for the place of a
    /// new series.
    pub(crate) fn add(
        &mut self,
        group: &str,
        series: &str,
        color: impl FnOnce(usize) -> RGBColor,
        value: Spread,
    ) {
        let known = self.groups.iter().position(|known| known == group);
        let group = known.unwrap_or_else(|| {
            self.groups.push(group.to_owned());
            self.groups.len() - 1
        });
        let known = self.series.iter().position(|known| known.name == series);
        let series = known.unwrap_or_else(|| {
            self.series.push(Series {
                name: series.to_owned(),
                color: color(self.series.len()),
            });
            self.series.len() - 1
        });
        self.bars.push(Bar {
            group,
            series,
            value,
        });
    }

    /// The plot, as the text of an SVG file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it cannot be drawn.
    pub(crate) fn draw(&self) -> Result<String, Error> {
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
            .y_desc(self.label)
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
        let mut bars = Bars {
            groups: vec!["abc".to_owned(), "cnn".to_owned()],
            series: vec![Series {
                name: "sw".to_owned(),
                color: RGBColor(130, 130, 130),
            }],
            ..Bars::new("Requests <per> second", "requests", 1)
        };
        let empty = bars.draw().unwrap();
        for text in ["Requests <per> second", "requests", "abc", "cnn", "sw"] {
            assert!(texts(&empty).iter().any(|found| found == text), "{text}");
        }
        bars.add("cnn", "sw", |_| BLACK, Spread::of([3.0, 4.0]).unwrap());
        assert_eq!((bars.bars[0].group, bars.bars[0].series), (1, 0));
        let drawn = bars.draw().unwrap();
        let rectangles = |svg: &str| svg.matches("<rect").count();
        assert_eq!(rectangles(&drawn), rectangles(&empty) + 1);
    }
}
