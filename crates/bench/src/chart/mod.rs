//! Plots as SVG.

mod axis;
mod bars;
mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use bars::Bars;
pub use lines::{Lines, Panel};
pub use plotters::style::RGBColor as Rgb;

use axis::{Axis, one_two_five, rounded, steps};

/// The palette of Okabe and Ito, whose colours people with any kind of colour vision can tell
/// apart. The last is for what others are compared with.
pub mod palette {
    use super::Rgb;

    /// Bluish green.
    pub const GREEN: Rgb = Rgb(0, 158, 115);
    /// Orange.
    pub const ORANGE: Rgb = Rgb(230, 159, 0);
    /// Sky blue.
    pub const SKY: Rgb = Rgb(86, 180, 233);
    /// Reddish purple.
    pub const PURPLE: Rgb = Rgb(204, 121, 167);
    /// Blue.
    pub const BLUE: Rgb = Rgb(0, 114, 178);
    /// Vermillion.
    pub const VERMILLION: Rgb = Rgb(213, 94, 0);
    /// Black.
    pub const BLACK: Rgb = Rgb(0, 0, 0);
    /// Gray.
    pub const GRAY: Rgb = Rgb(130, 130, 130);
    /// All but black.
    pub const ALL: [Rgb; 7] = [GREEN, ORANGE, SKY, PURPLE, BLUE, VERMILLION, GRAY];
}

const WIDTH: u32 = 960;
const HEIGHT: u32 = 420;
const FONT: &str = "sans-serif";
const TEXT_SIZE: u32 = 13;
/// Height of an axis, times the highest value on it.
const HEADROOM: f64 = 1.08;
/// Width of the legend.
const LEGEND_WIDTH: u32 = 140;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A series of a plot: an entry of its legend.
#[derive(Debug, Clone)]
struct Series {
    name: String,
    color: Rgb,
}

/// The position of the series of this name, which is added if it is new.
fn series_of(all: &mut Vec<Series>, name: &str, color: impl FnOnce(usize) -> Rgb) -> usize {
    let known = all.iter().position(|known| known.name == name);
    known.unwrap_or_else(|| {
        all.push(Series {
            name: name.to_owned(),
            color: color(all.len()),
        });
        all.len() - 1
    })
}

/// Fills the background, writes title and legend, and leaves the rest.
fn prepare<'a>(
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
