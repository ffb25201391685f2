//! TOML tables with known keys, in which every mistake has a position.
//!
//! serde would need fewer lines, but its messages name neither the key of a value nor the key that
//! was probably meant, and there is no message for a value that may be a string or a list.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::FileError;
use super::values;

/// Similarity, from 0 to 1, at which an unknown key counts as misspelt.
const MIN_SIMILARITY: f64 = 0.8;

/// Mistake and its position.
#[derive(Debug)]
pub(super) struct Problem {
    position: usize,
    text: String,
}

impl Problem {
    pub(super) fn new(position: usize, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { position, text }
    }

    /// Returns the error for a file that is called `name` and has this content.
    pub(super) fn in_file(self, name: &str, content: &str) -> FileError {
        let before = content.as_bytes().iter().take(self.position);
        FileError::Invalid {
            file: name.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
            problem: self.text,
        }
    }
}

/// Table whose keys are taken out one by one.
pub(super) struct Section<'a> {
    position: usize,
    name: &'static str,
    known: &'static [&'static str],
    entries: Vec<(String, Value<'a>)>,
}

impl<'a> Section<'a> {
    /// Parses the whole file.
    pub(super) fn root(content: &'a str, known: &'static [&'static str]) -> Result<Self, Problem> {
        let table = DeTable::parse(content).map_err(|error| {
            let position = error.span().map_or(0, |span| span.start);
            Problem::new(position, error.message().replace('\n', ", "))
        })?;
        Self::new(0, "the file", table.into_inner(), known, &[])
    }

    /// Makes a section of a table. `elsewhere` are keys of the top level that are easily written
    /// into this table by mistake.
    fn new(
        position: usize,
        name: &'static str,
        table: DeTable<'a>,
        known: &'static [&'static str],
        elsewhere: &[&str],
    ) -> Result<Self, Problem> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let place = key.span().start;
            let key = key.into_inner();
            if !known.contains(&key.as_ref()) {
                let text = if elsewhere.contains(&key.as_ref()) {
                    format!(
                        "the key \"{key}\" must be at the beginning of the file, above the first [section]"
                    )
                } else {
                    unknown_key(&key, known)
                };
                entries.push((place, Err(text)));
                continue;
            }
            let value = Value::new(format!("\"{key}\""), value);
            entries.push((place, Ok((key.into_owned(), value))));
        }
        // The table is sorted by key. The first mistake in the file is reported.
        entries.sort_by_key(|(place, _)| *place);
        let entries: Result<_, Problem> = entries
            .into_iter()
            .map(|(place, entry)| entry.map_err(|text| Problem::new(place, text)))
            .collect();
        Ok(Self {
            position,
            name,
            known,
            entries: entries?,
        })
    }

    /// Takes out the value of `key` if it is there.
    pub(super) fn take(&mut self, key: &str) -> Option<Value<'a>> {
        debug_assert!(self.known.contains(&key), "{key} would be refused");
        let index = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.swap_remove(index).1)
    }

    /// Takes out the value of `key`, which must be there.
    pub(super) fn require(&mut self, key: &str, example: &str) -> Result<Value<'a>, Problem> {
        self.take(key).ok_or_else(|| {
            self.problem(format!("{} lacks \"{key}\", such as {example}", self.name))
        })
    }

    /// Takes out the value of `key` if it is there, and stores the result of `read` in `place`.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        place: &mut T,
        read: impl FnOnce(Value<'a>) -> Result<T, Problem>,
    ) -> Result<(), Problem> {
        if let Some(value) = self.take(key) {
            *place = read(value)?;
        }
        Ok(())
    }

    /// Returns a mistake of the whole table.
    pub(super) fn problem(&self, text: impl Into<String>) -> Problem {
        Problem::new(self.position, text)
    }
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    let like = known
        .iter()
        .map(|known| (strsim::jaro_winkler(key, known), known))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    let shown = key.escape_debug();
    match like {
        Some((_, like)) => format!("unknown key \"{shown}\", did you mean \"{like}\"?"),
        None => format!(
            "unknown key \"{shown}\": known here are {}",
            known.join(", ")
        ),
    }
}

/// Value, and its name in messages.
pub(super) struct Value<'a> {
    name: String,
    position: usize,
    value: DeValue<'a>,
}

impl<'a> Value<'a> {
    fn new(name: String, value: Spanned<DeValue<'a>>) -> Self {
        Self {
            name,
            position: value.span().start,
            value: value.into_inner(),
        }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns a mistake. `text` follows the name of the value.
    pub(super) fn problem(&self, text: impl Display) -> Problem {
        let shown = match &self.value {
            DeValue::String(text) => format!(" = \"{}\"", text.escape_debug()),
            DeValue::Integer(number) => format!(" = {number}"),
            _ => String::new(),
        };
        Problem::new(self.position, format!("{}{shown} {text}", self.name))
    }

    pub(super) fn text(&self, example: &str) -> Result<&str, Problem> {
        match &self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.problem(format_args!("must be in quotes, such as {example}"))),
        }
    }

    /// Applies `read` to the text of the value.
    pub(super) fn parse<T, E: Display>(
        self,
        example: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Problem> {
        read(self.text(example)?).map_err(|error| self.problem(error))
    }

    /// Returns the choice that the value names.
    pub(super) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T, Problem> {
        let text = match &self.value {
            DeValue::String(text) => text.as_ref(),
            _ => "",
        };
        let found = choices.iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<String> = choices
                .iter()
                .map(|(name, _)| format!("\"{name}\""))
                .collect();
            self.problem(format_args!("must be {}", names.join(" or ")))
        })
    }

    pub(super) fn path(self) -> Result<PathBuf, Problem> {
        self.parse("\"/etc/slipstream/file\"", |text| match text {
            "" => Err("must not be empty".to_owned()),
            // No file has such a name, and the error of the system would not name the key.
            text if text.contains('\0') => Err("must not contain a zero byte".to_owned()),
            text => Ok(PathBuf::from(text)),
        })
    }

    /// Reads a time other than 0.
    pub(super) fn duration(self) -> Result<Duration, Problem> {
        let position = self.position;
        let name = self.name.clone();
        match self.duration_or_zero()? {
            Duration::ZERO => Err(Problem::new(
                position,
                format!("{name} must be more than 0"),
            )),
            duration => Ok(duration),
        }
    }

    pub(super) fn duration_or_zero(self) -> Result<Duration, Problem> {
        self.parse("\"30s\"", values::duration)
    }

    /// Reads a number of bytes, written as a number or as `"64k"`.
    pub(super) fn size(self, least: usize, most: usize) -> Result<usize, Problem> {
        let bytes = match &self.value {
            DeValue::Integer(_) => return self.number(least, most),
            _ => values::size(self.text("\"64k\"")?).map_err(|error| self.problem(error))?,
        };
        self.within(bytes, least, most)
    }

    pub(super) fn number(self, least: usize, most: usize) -> Result<usize, Problem> {
        let number = match &self.value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match number {
            Some(number) => self.within(number, least, most),
            None => Err(self.problem(format_args!("must be a number from {least} to {most}"))),
        }
    }

    fn within(self, number: usize, least: usize, most: usize) -> Result<usize, Problem> {
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(self.problem(format_args!("must be from {least} to {most}")))
        }
    }

    pub(super) fn boolean(self) -> Result<bool, Problem> {
        match self.value {
            DeValue::Boolean(value) => Ok(value),
            _ => Err(self.problem("must be true or false")),
        }
    }

    /// Returns the entries of a list, which must not be empty.
    pub(super) fn list(self) -> Result<Vec<Value<'a>>, Problem> {
        match self.value {
            DeValue::Array(list) if list.is_empty() => Err(Problem::new(
                self.position,
                format!("{} must not be empty", self.name),
            )),
            DeValue::Array(list) => Ok(list
                .into_iter()
                .map(|entry| Value::new(self.name.clone(), entry))
                .collect()),
            _ => Err(self.problem("must be a list in [ ]")),
        }
    }

    /// Returns the entries of a list, which must not be empty, or a single value.
    pub(super) fn list_or_one(self) -> Result<Vec<Value<'a>>, Problem> {
        match self.value {
            DeValue::Array(_) => self.list(),
            _ => Ok(vec![self]),
        }
    }

    /// Returns a table that has no keys but these.
    pub(super) fn section(
        self,
        name: &'static str,
        known: &'static [&'static str],
        elsewhere: &[&str],
    ) -> Result<Section<'a>, Problem> {
        match self.value {
            DeValue::Table(table) => Section::new(self.position, name, table, known, elsewhere),
            _ => Err(self.problem(format_args!("must be a table: {name}"))),
        }
    }
}
