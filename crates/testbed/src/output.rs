//! Results on standard output and in files: JSON for programs, text for people.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::Error;

/// Writes `value` as JSON to the file `json`, if there is one, and as text to standard output. If
/// `json` is `-`, standard output gets the JSON alone.
///
/// # Errors
/// [`Error::Io`] if the file or standard output cannot be written.
pub fn write(json: Option<&Path>, value: &(impl Display + Serialize)) -> Result<(), Error> {
    if let Some(path) = json {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(io::Error::from)
            .map_err(Error::io("cannot encode the result"))?;
        text.push('\n');
        if path == Path::new("-") {
            return print(&text);
        }
        fs::write(path, text).map_err(Error::file("write", path))?;
    }
    print(value)
}

/// Prints `text` as it is. A reader that closes its end early, as `head` does, is no error.
///
/// # Errors
/// [`Error::Io`] if standard output cannot be written.
pub fn print(text: &(impl Display + ?Sized)) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::io("cannot write to standard output")),
    }
}
