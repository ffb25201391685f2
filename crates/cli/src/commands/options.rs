//! Options that several commands share.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use slipstream_bench::Error;
use slipstream_bench::pages::{PAGES, Page};
use slipstream_bench::processor::usable_cores;
use slipstream_bench::suite::{SUITES, Suite};

/// The longest measurement that makes sense, in seconds.
const LONGEST: f64 = 3600.0;

/// Parses the name of a suite, and lists all in the help with what they stand for.
pub fn suite() -> impl TypedValueParser<Value = &'static Suite> {
    let names = SUITES
        .iter()
        .map(|suite| PossibleValue::new(suite.name).help(suite.description));
    PossibleValuesParser::new(names)
        .map(|name| Suite::find(&name).expect("clap has found it among the names"))
}

/// Parses the name of a page.
pub fn page() -> impl TypedValueParser<Value = &'static Page> {
    let names =
        PAGES.map(|page| PossibleValue::new(page.name).help(format!("{} bytes", page.length)));
    PossibleValuesParser::new(names)
        .map(|name| Page::find(&name).expect("clap has found it among the names"))
}

/// The pages that were asked for, or all.
pub fn pages(chosen: &[&'static Page]) -> Vec<&'static Page> {
    match chosen {
        [] => PAGES.iter().collect(),
        chosen => chosen.to_vec(),
    }
}

/// Parses a number that must not be 0.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a number".to_owned()),
    }
}

/// Parses a duration in seconds.
pub fn seconds(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => {
            Ok(std::time::Duration::from_secs_f64(seconds))
        }
        Ok(_) => Err(format!("must be above 0 and at most {LONGEST}")),
        Err(_) => Err("not a number".to_owned()),
    }
}

/// Parses a duration of at most a second: a number and `us` or `ms`.
pub fn short_time(text: &str) -> Result<std::time::Duration, String> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = text.strip_suffix(unit).unwrap_or(text).parse::<u64>();
    let microseconds = match (number, unit) {
        (Ok(number), "us") => Some(number),
        (Ok(number), "ms") => number.checked_mul(1000),
        (Ok(0), "") => Some(0),
        _ => return Err("must be a number and us or ms, such as 100us".to_owned()),
    };
    match microseconds {
        Some(number) if number <= 1_000_000 => Ok(std::time::Duration::from_micros(number)),
        _ => Err("must be at most 1000ms".to_owned()),
    }
}

/// For an experiment of `total` measurements: hands each to `print`, after how many are done and `total`.
pub fn counted<R>(total: usize, print: impl Fn(usize, usize, &R)) -> impl FnMut(&R) {
    let mut done = 0;
    move |row| {
        done += 1;
        print(done, total, row);
    }
}

/// The cores of server and load: those asked for, else the first two that this process may use. On a machine with a
/// single core both share it, which is said on standard error because it spoils the figures.
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
        assert!(seconds("0").is_err());
        assert!(seconds("-1").is_err());
        assert!(seconds("nan").is_err());
        assert!(seconds("1e9").is_err());
        assert_eq!(seconds("0.5").unwrap().as_millis(), 500);
        for text in [
            "",
            "5",
            "us",
            "-1us",
            "1s",
            "1.5ms",
            "1001ms",
            "18446744073709551615ms",
        ] {
            assert!(short_time(text).is_err(), "{text}");
        }
        assert_eq!(short_time("100us").unwrap().as_micros(), 100);
        assert_eq!(short_time("2ms").unwrap().as_micros(), 2000);
        assert_eq!(short_time("0").unwrap().as_micros(), 0);
        assert!(positive("0").is_err());
        assert!(positive("x").is_err());
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
