//! Plots as SVG: what the experiments' figures have in common.

mod axis;
mod bars;

use plotters::coord::Shift;
use plotters::prelude::*;

pub(crate) use axis::{Axis, one_two_five, rounded, steps};
pub(crate) use bars::{Bar, Bars};

pub(crate) const WIDTH: u32 = 960;
pub(crate) const HEIGHT: u32 = 420;
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const TEXT_SIZE: u32 = 13;
/// How much higher an axis is than what it shows.
pub(crate) const HEADROOM: f64 = 1.08;
/// What the legend takes of the width.
const LEGEND_WIDTH: u32 = 140;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What a plot compares, in the order of its legend.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) color: RGBColor,
}

/// Fills the background, writes title and legend, and leaves the rest.
pub(crate) fn prepare<'a>(
    root: &Area<'a>,
    title: &str,
    shown: &[Series],
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let area = root.titled(title, (FONT, 18))?;
    let (plot, legend) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
    let mut top = 20;
    for series in shown {
        let place = [(0, top), (14, top + 14)];
        legend.draw(&Rectangle::new(place, series.color.filled()))?;
        let name = series.name.as_str();
        legend.draw(&Text::new(name, (20, top), (FONT, TEXT_SIZE)))?;
        top += 24;
    }
    Ok(plot)
}

#[cfg(test)]
pub(crate) mod tests {
    /// The texts of a plot, which has to be well formed.
    pub(crate) fn texts(svg: &str) -> Vec<String> {
        roxmltree::Document::parse(svg)
            .unwrap()
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .filter_map(|node| node.text().map(|text| text.trim().to_owned()))
            .collect()
    }
}
