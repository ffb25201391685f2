//! Parsers and defaults of options.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::suite::{SUITES, Suite};

use crate::Error;
use crate::corpus::{PAGES, Page};

/// The longest measurement that is accepted, in seconds.
const LONGEST: f64 = 3600.0;

/// Error of the value of an option.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// It is no number.
    #[error("not a number")]
    NotANumber,
    /// It is 0.
    #[error("must be at least 1")]
    Zero,
    /// It is no length of a measurement.
    #[error("must be above 0 and at most {LONGEST}")]
    NoLength,
}

/// Parses the name of a suite. The help lists all with their descriptions.
pub fn suite() -> impl TypedValueParser<Value = &'static Suite> {
    named(SUITES, |suite| {
        (suite.name, suite.description.to_owned(), suite)
    })
}

/// Parses the name of a page.
pub fn page() -> impl TypedValueParser<Value = &'static Page> {
    named(&PAGES, |page| {
        (page.name, format!("{} bytes", page.length), page)
    })
}

/// Parses the name of one of `all`, of each of which `describe` returns name, description and
/// value. The help lists them.
pub fn named<A, V: Clone + Send + Sync + 'static>(
    all: &'static [A],
    describe: impl Fn(&'static A) -> (&'static str, String, V),
) -> impl TypedValueParser<Value = V> {
    let described: Vec<(&'static str, String, V)> = all.iter().map(describe).collect();
    let names = described
        .iter()
        .map(|(name, description, _)| PossibleValue::new(*name).help(description.clone()));
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(move |chosen| {
        let found = described.iter().find(|(name, ..)| *name == chosen);
        found.expect("clap has found it among the names").2.clone()
    })
}

/// The pages that were asked for, or all.
pub fn pages(chosen: &[&'static Page]) -> Vec<&'static Page> {
    match chosen {
        [] => PAGES.iter().collect(),
        chosen => chosen.to_vec(),
    }
}

/// Parses a number that must not be 0.
///
/// # Errors
/// If it is 0 or no number.
pub fn positive(text: &str) -> Result<usize, OptionError> {
    match text.parse() {
        Ok(0) => Err(OptionError::Zero),
        Ok(number) => Ok(number),
        Err(_) => Err(OptionError::NotANumber),
    }
}

/// Parses the length of a measurement in seconds.
///
/// # Errors
/// If it is no number, not above 0 or too long.
pub fn seconds(text: &str) -> Result<Duration, OptionError> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(OptionError::NoLength),
        Err(_) => Err(OptionError::NotANumber),
    }
}

/// For an experiment of `total` measurements: hands each to `print`, after the number of those that
/// are done and `total`.
pub fn counted<R>(total: usize, print: impl Fn(usize, usize, &R)) -> impl FnMut(&R) {
    let mut done = 0;
    move |row| {
        done += 1;
        print(done, total, row);
    }
}

/// The cores of server and load: those asked for, else the first two that this process may use. On
/// a machine with a single core both share it, and a line on standard error says so because it
/// spoils the figures.
///
/// # Errors
/// [`Error::Testbed`] when the system does not tell which cores may be used.
pub fn cores(server: Option<usize>, load: Option<usize>) -> Result<(usize, usize), Error> {
    let usable = usable_cores()?;
    let server = server.unwrap_or(usable[0]);
    let load = load
        .or_else(|| usable.iter().copied().find(|&core| core != server))
        .unwrap_or(server);
    if server == load {
        eprintln!(
            "warning: server and load share core {server}; handshakes per second and latencies mean little"
        );
    }
    Ok((server, load))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(seconds("0"), Err(OptionError::NoLength));
        assert!(seconds("-1").is_err());
        assert!(seconds("nan").is_err());
        assert!(seconds("1e9").is_err());
        assert_eq!(seconds("0.5").unwrap().as_millis(), 500);
        assert_eq!(positive("0"), Err(OptionError::Zero));
        assert_eq!(positive("x"), Err(OptionError::NotANumber));
    }

    #[test]
    fn server_and_load_get_different_cores_where_there_are_two() {
        let usable = usable_cores().unwrap();
        let (server, load) = cores(None, None).unwrap();
        assert_eq!(server == load, usable.len() == 1);
        assert_eq!(
            cores(Some(usable[0]), Some(usable[0])).unwrap(),
            (usable[0], usable[0])
        );
    }
}
