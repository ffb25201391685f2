//! Options that several commands share.

use std::fmt;
use std::time::Duration;

/// The reason why the value of an option is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidValue {
    /// It is not a number.
    NotANumber,
    /// It is 0.
    Zero,
    /// It has no unit of time, or another one than us and ms.
    NotATime,
    /// It is longer than a second.
    TooLong,
    /// It is not a number of seconds from 0.1 to 3600.
    NotSeconds,
}

/// Parses a number that must not be 0.
///
/// # Errors
/// [`InvalidValue::NotANumber`] and [`InvalidValue::Zero`].
pub fn positive(text: &str) -> Result<usize, InvalidValue> {
    match text.parse() {
        Ok(0) => Err(InvalidValue::Zero),
        Ok(number) => Ok(number),
        Err(_) => Err(InvalidValue::NotANumber),
    }
}

/// Parses a duration of at most a second: a number and `us` or `ms`.
///
/// # Errors
/// [`InvalidValue::NotATime`] and [`InvalidValue::TooLong`].
pub fn short_time(text: &str) -> Result<Duration, InvalidValue> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = text.strip_suffix(unit).unwrap_or(text).parse::<u64>();
    let microseconds = match (number, unit) {
        (Ok(number), "us") => Some(number),
        (Ok(number), "ms") => number.checked_mul(1000),
        (Ok(0), "") => Some(0),
        _ => return Err(InvalidValue::NotATime),
    };
    match microseconds {
        Some(number) if number <= 1_000_000 => Ok(Duration::from_micros(number)),
        _ => Err(InvalidValue::TooLong),
    }
}

/// Parses an interval: seconds, from 0.1 to 3600.
///
/// # Errors
/// [`InvalidValue::NotSeconds`].
pub fn seconds(text: &str) -> Result<Duration, InvalidValue> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|it| (0.1..=3600.0).contains(it));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or(InvalidValue::NotSeconds)
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            InvalidValue::NotANumber => "not a number",
            InvalidValue::Zero => "must be at least 1",
            InvalidValue::NotATime => "must be a number and us or ms, such as 100us",
            InvalidValue::TooLong => "must be at most 1000ms",
            InvalidValue::NotSeconds => "must be a number of seconds from 0.1 to 3600",
        })
    }
}

impl std::error::Error for InvalidValue {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
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
        for text in ["", "0", "0.05", "3601", "1s", "nan", "-1"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(seconds("0.5").unwrap().as_millis(), 500);
        assert!(positive("0").is_err());
        assert!(positive("x").is_err());
    }
}
