//! From which length on the caller saves time when an engine compresses a chunk. The library is not
//! asked, since it has a threshold of its own.

use serde::Serialize;
use slipstream_compress::Method;
use slipstream_testbed::cleanup::check_interrupted;

use super::configuration::Configuration;
use super::offload::Line;
use super::{Experiment, Measured, repeat, software};
use crate::Error;
use crate::statistics::Spread;

/// The shortest content that is looked at.
const SHORTEST: usize = 512;
/// The longest, which is one chunk.
const LONGEST: usize = 64 << 10;

/// CPU time that the caller spends on short content.
#[derive(Debug, Clone, Serialize)]
pub struct Threshold {
    /// The smallest length from which on the engine is cheaper; `None` if it never is.
    pub bytes: Option<usize>,
    /// The measurements.
    pub points: Vec<Point>,
}

/// CPU time that the caller spends on content of one length.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The length in bytes.
    pub bytes: usize,
    /// CPU time of the caller that compresses it in place, in microseconds.
    pub in_place_us: Spread,
    /// CPU time of the caller that hands it to the engine, in microseconds.
    pub engine_us: Spread,
    /// In place / engine: above 1, the engine saves time.
    pub ratio: Spread,
}

/// Measures it with the beginning of the longest page; `None` if that is too short.
pub(super) fn measure(
    experiment: &Experiment,
    line: &mut Line,
) -> Result<Option<Threshold>, Error> {
    let longest = experiment
        .contents
        .iter()
        .max_by_key(|page| page.bytes.len());
    let Some(content) = longest.and_then(|page| page.bytes.get(..LONGEST)) else {
        return Ok(None);
    };
    let mut points = Vec::new();
    for bytes in lengths() {
        check_interrupted()?;
        points.extend(measure_point(experiment, line, &content[..bytes])?);
    }
    Ok(Some(Threshold {
        bytes: smallest(&points),
        points,
    }))
}

/// Powers of two, and halfway between them.
fn lengths() -> impl Iterator<Item = usize> {
    (0..)
        .map(|step| {
            let power = SHORTEST << (step / 2);
            power + power / 2 * (step % 2)
        })
        .take_while(|&length| length <= LONGEST)
}

fn measure_point(
    experiment: &Experiment,
    line: &mut Line,
    content: &[u8],
) -> Result<Option<Point>, Error> {
    let (method, window) = (Method::DEFAULT, experiment.window);
    let mut compressor = software::Compressor::new(Configuration::Chunks(method, content.len()));
    let cpu_us = |measured: Measured| measured.cpu.as_secs_f64() * 1e6 / measured.pages as f64;
    let mut pairs = Vec::new();
    for _ in 0..experiment.rounds {
        let in_place = repeat(window, || compressor.compress(content).map(|_| ()))?;
        let engine = line.hand_over(method, content, experiment.concurrency, window)?;
        pairs.push((cpu_us(in_place), cpu_us(engine)));
    }
    let in_place_us = Spread::of(pairs.iter().map(|pair| pair.0));
    let engine_us = Spread::of(pairs.iter().map(|pair| pair.1));
    let ratio = Spread::of_ratios(pairs);
    let point = |((in_place_us, engine_us), ratio)| Point {
        bytes: content.len(),
        in_place_us,
        engine_us,
        ratio,
    };
    Ok(in_place_us.zip(engine_us).zip(ratio).map(point))
}

/// The smallest length from which on the engine is always cheaper.
fn smallest(points: &[Point]) -> Option<usize> {
    let saves = |point: &&Point| point.ratio.median > 1.0;
    let last = points.iter().rev().take_while(saves).last();
    last.map(|point| point.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_grow_by_half_powers() {
        let lengths: Vec<usize> = lengths().collect();
        assert_eq!(lengths[..5], [512, 768, 1024, 1536, 2048]);
        assert_eq!(lengths.last(), Some(&LONGEST));
    }

    #[test]
    fn the_threshold_is_where_the_engine_begins_to_win_for_good() {
        let points = |ratios: &[f64]| -> Vec<Point> {
            let spread = |value| Spread::of([value]).unwrap();
            let point = |(index, &ratio)| Point {
                bytes: 1_usize << index,
                in_place_us: spread(ratio),
                engine_us: spread(1.0),
                ratio: spread(ratio),
            };
            ratios.iter().enumerate().map(point).collect()
        };
        assert_eq!(smallest(&points(&[0.5, 1.2, 0.9, 1.1, 3.0])), Some(8));
        assert_eq!(smallest(&points(&[1.5, 2.0])), Some(1));
        assert_eq!(smallest(&points(&[1.5, 0.9])), None);
        assert_eq!(smallest(&[]), None);
    }
}
