//! The texts: pages, their fenced blocks, their sections and the entries of the reference.

use std::fs;
use std::path::{Path, PathBuf};

/// A configuration, and where it stands.
pub(crate) struct Block {
    pub(crate) place: String,
    pub(crate) text: String,
}

/// An entry of the reference: a heading of the third level, and the values of its list.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Without the backquotes around it; `None` if there is no default, or a text instead.
    pub(crate) default: Option<String>,
    pub(crate) context: String,
}

/// The repository's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fenced blocks of README.md and of the book that are marked as `language`.
///
/// # Panics
/// If there is none, or a page cannot be read.
pub(crate) fn blocks(language: &str) -> Vec<Block> {
    let mut pages = vec![root().join("README.md")];
    add_pages(&root().join("docs/src"), &mut pages);
    let mut blocks = Vec::new();
    for page in pages {
        let text = read(&page);
        let mut open: Option<Block> = None;
        for (index, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(mark)) if mark == language => {
                    let place = format!("{}:{}", page.display(), index + 1);
                    let text = String::new();
                    open = Some(Block { place, text });
                }
                // Of a block of another language, only the end matters.
                (None, _) => {}
            }
        }
        assert!(open.is_none(), "{}: a block has no end", page.display());
    }
    assert!(!blocks.is_empty(), "no block of {language}");
    blocks
}

/// A file of `examples`.
///
/// # Panics
/// If it cannot be read.
pub(crate) fn example(name: &str) -> Block {
    let path = root().join("examples").join(name);
    Block {
        text: read(&path),
        place: path.display().to_string(),
    }
}

/// The entries of a page of the reference.
///
/// # Panics
/// If there is none, or the page cannot be read.
pub(crate) fn entries(page: &str) -> Vec<Entry> {
    let text = reference(page);
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            entries.push(Entry {
                name: name.to_owned(),
                default: None,
                context: String::new(),
            });
        } else if let Some(entry) = entries.last_mut() {
            if let Some(value) = line.strip_prefix("- Default: `") {
                let value = value.strip_suffix('`');
                entry.default = value
                    .filter(|value| !value.contains('`'))
                    .map(str::to_owned);
            } else if let Some(context) = line.strip_prefix("- Context: ") {
                entry.context = context.to_owned();
            }
        }
    }
    assert!(!entries.is_empty(), "no entry in {page}");
    entries
}

/// The sections of a page of the reference: the headings of the second level, with the rows of the
/// tables below each, split into cells.
///
/// # Panics
/// If the page cannot be read.
pub(crate) fn tables(page: &str) -> Vec<(String, Vec<Vec<String>>)> {
    let text = reference(page);
    let mut sections: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((title.to_owned(), Vec::new()));
        } else if let (Some(row), Some((_, rows))) = (line.strip_prefix("| "), sections.last_mut())
        {
            rows.push(row.split('|').map(|cell| cell.trim().to_owned()).collect());
        }
    }
    sections
}

/// The words in backquotes of a cell.
pub(crate) fn code(cell: &str) -> Vec<String> {
    let parts = cell.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

fn reference(page: &str) -> String {
    read(&root().join("docs/src/reference").join(page))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}
