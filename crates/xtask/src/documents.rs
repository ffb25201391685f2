//! Checks of the documents, without a network: links, anchors, the book's summary, tables, and the
//! shape of the reference. The integration tests load every configuration in the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

mod markdown;

use markdown::Page;

/// Documents beside those of the book.
const DOCUMENTS: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

/// The sources of the book.
const BOOK: &str = "docs/src";

/// The book's table of contents.
const SUMMARY: &str = "SUMMARY.md";

/// Pages of the book whose entries have a syntax, a default and a context.
const ENTRIES: [&str; 4] = [
    "reference/nginx.md",
    "reference/research.md",
    "reference/serve.md",
    "reference/openssl.md",
];

/// Sources that may name documents.
const SOURCES: [&str; 4] = ["crates", "fuzz", "examples", "Makefile"];

/// Checks the documents of the repository at `root`, and prints every problem.
///
/// # Errors
/// If there is a problem, or a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<()> {
    let book = files(&root.join(BOOK), &|path| has_extension(path, "md"))?;
    let mut pages = BTreeMap::new();
    for path in DOCUMENTS
        .iter()
        .map(|name| root.join(name))
        .chain(book.iter().cloned())
    {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        pages.insert(path, Page::parse(&text));
    }

    let mut problems = Vec::new();
    for (path, page) in &pages {
        let shown = relative(root, path).display().to_string();
        let of_page = page
            .tables()
            .into_iter()
            .chain(links(root, path, page, &pages));
        problems.extend(of_page.map(|(line, text)| format!("{shown}:{line}: {text}")));
    }
    for name in ENTRIES {
        let path = root.join(BOOK).join(name);
        let page = pages
            .get(&path)
            .with_context(|| format!("there is no {BOOK}/{name}"))?;
        let entries = page.entries().into_iter();
        problems.extend(entries.map(|(line, text)| format!("{BOOK}/{name}:{line}: {text}")));
    }
    problems.extend(summary(root, &book, &pages)?);
    problems.extend(names_in_sources(root)?);

    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => bail!("problems in documents: {count}"),
    }
}

/// Links of a page that lead nowhere, by line.
fn links(
    root: &Path,
    path: &Path,
    page: &Page,
    pages: &BTreeMap<PathBuf, Page>,
) -> Vec<(usize, String)> {
    let folder = path.parent().unwrap_or(root);
    let mut problems = Vec::new();
    for (line, link) in page.links() {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = match link.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor)),
            None => (link.as_str(), None),
        };
        let target = match file {
            "" => path.to_owned(),
            _ => normal(&folder.join(file)),
        };
        if !target.starts_with(root) || !target.exists() {
            problems.push((*line, format!("{link}: there is no such file")));
            continue;
        }
        let Some(anchor) = anchor else { continue };
        match pages.get(&target) {
            Some(page) if page.anchors().contains(anchor) => {}
            Some(_) => problems.push((*line, format!("{link}: there is no such heading"))),
            None => problems.push((*line, format!("{link}: the anchor cannot be checked"))),
        }
    }
    problems
}

/// Pages of the book that its summary lacks, or names twice.
fn summary(root: &Path, book: &[PathBuf], pages: &BTreeMap<PathBuf, Page>) -> Result<Vec<String>> {
    let folder = root.join(BOOK);
    let path = folder.join(SUMMARY);
    let summary = pages
        .get(&path)
        .with_context(|| format!("there is no {BOOK}/{SUMMARY}"))?;
    let mut listed = BTreeSet::new();
    let mut problems = Vec::new();
    for (line, link) in summary.links() {
        if !listed.insert(normal(&folder.join(link))) {
            problems.push(format!("{BOOK}/{SUMMARY}:{line}: {link} is listed twice"));
        }
    }
    let missing = book
        .iter()
        .filter(|page| **page != path && !listed.contains(*page));
    problems.extend(missing.map(|page| {
        let page = relative(root, page);
        format!("{BOOK}/{SUMMARY}: {} is not listed", page.display())
    }));
    Ok(problems)
}

/// Documents that sources name though they do not exist.
fn names_in_sources(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for source in SOURCES {
        for path in files(&root.join(source), &|_| true)? {
            // Test data may be anything.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            for (index, line) in text.lines().enumerate() {
                for name in document_names(line) {
                    if !root.join(name).exists() {
                        let shown = relative(root, &path).display();
                        let line = index + 1;
                        problems.push(format!("{shown}:{line}: there is no {name}"));
                    }
                }
            }
        }
    }
    Ok(problems)
}

/// The documents that a line of a source names by their path from the root.
fn document_names(line: &str) -> impl Iterator<Item = &str> {
    const FOLDER: &str = "docs/";
    line.match_indices(FOLDER).filter_map(|(start, _)| {
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
        if line[..start].ends_with(is_part) {
            return None;
        }
        let rest = &line[start..];
        let name = &rest[..rest
            .find(|character| !is_part(character))
            .unwrap_or(rest.len())];
        let name = name.trim_end_matches('.');
        (name.ends_with(".md") || name.ends_with(".svg")).then_some(name)
    })
}

/// The files at and below `path` that `is_wanted` accepts, in order. Build outputs are left out.
fn files(path: &Path, is_wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(path) = folders.pop() {
        if path.is_file() {
            if is_wanted(&path) {
                found.push(path);
            }
            continue;
        }
        let entries =
            fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let entry = entry?.path();
            if !entry.is_dir() || entry.file_name().is_none_or(|name| name != "target") {
                folders.push(entry);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn relative<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// `path` without `.` and `..`, by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_of_this_repository_are_in_order() {
        check(crate::build::root()).unwrap();
    }

    #[test]
    fn paths_are_made_normal() {
        assert_eq!(normal(Path::new("/a/b/../c/./d")), Path::new("/a/c/d"));
    }

    #[test]
    fn documents_are_found_in_sources() {
        // Put together, since this file is a source too.
        let name = ["docs", "none.md"].join("/");
        let line = format!("/// See `{name}`, https://example.org/{name} and ({name}).");
        let found: Vec<&str> = document_names(&line).collect();
        assert_eq!(found, [&name, &name]);
        assert_eq!(document_names("docs/internals/protocol.txt").count(), 0);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let root = crate::build::root();
        let path = root.join("README.md");
        let text = "# Head\n[a](#head) [b](#none)\n[c](NONE.md) [d](https://example.org/none)\n\
                    [e](CHANGELOG.md)";
        let page = Page::parse(text);
        let pages = BTreeMap::from([(path.clone(), Page::parse(text))]);
        let lines: Vec<usize> = links(root, &path, &page, &pages)
            .into_iter()
            .map(|(line, _)| line)
            .collect();
        assert_eq!(lines, [2, 3]);
    }
}
