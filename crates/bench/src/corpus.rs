//! The pages that are compressed: of the lengths that the paper has, and of real documents.
//!
//! The paper's are front pages of five news sites, and a text of the Calgary Corpus, cut to length.
//! Front pages are not ours to pass on; the chapters of the Debian Reference are about as rich in
//! markup and compress about as well. They are fetched from Debian.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Serialize;

use crate::Error;
use crate::zlib;

/// A page: its length, and the kind of documents that it is cut from.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// Its name in the QWEB paper.
    pub name: &'static str,
    /// Its length in bytes.
    pub length: usize,
    /// The kind of documents that it is made of.
    pub kind: Kind,
}

/// A kind of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTML.
    Html,
    /// Plain text.
    Text,
}

/// The pages of the paper: those of table 3, and the text of figures 11 and 12.
pub const PAGES: [Page; 6] = [
    html("abc", 5_000),
    html("shine", 49_842),
    html("statesman", 145_047),
    html("india", 269_914),
    html("cnn", 1_127_194),
    Page {
        name: "text",
        length: 512 * 1024,
        kind: Kind::Text,
    },
];

const fn html(name: &'static str, length: usize) -> Page {
    Page {
        name,
        length,
        kind: Kind::Html,
    }
}

/// Debian's packages, where they have their documents, and with which names these begin.
const PACKAGES: [Package; 2] = [
    Package {
        name: "debian-reference-en",
        directory: "usr/share/debian-reference",
        prefix: "ch",
        extension: "html",
    },
    Package {
        name: "debian-policy",
        directory: "usr/share/doc/debian-policy",
        prefix: "",
        extension: "txt.gz",
    },
];

struct Package {
    name: &'static str,
    directory: &'static str,
    prefix: &'static str,
    extension: &'static str,
}

/// Documents that are lists of the words in others: they repeat themselves far more than pages do.
const INDICES: [&str; 6] = ["genindex", "index", "contents", "search", "toc", "sitemap"];

impl Page {
    /// The page of this name.
    pub fn find(name: &str) -> Option<&'static Page> {
        PAGES.iter().find(|page| page.name == name)
    }

    /// The name of its file on a server.
    pub fn file_name(&self) -> String {
        match self.kind {
            Kind::Html => format!("{}.html", self.name),
            Kind::Text => format!("{}.txt", self.name),
        }
    }
}

impl Kind {
    fn description(self) -> &'static str {
        match self {
            Kind::Html => "HTML",
            Kind::Text => "plain text",
        }
    }
}

/// A page with its content.
#[derive(Debug, Clone)]
pub struct Content {
    /// The page.
    pub page: &'static Page,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The documents that pages were made of, for the record.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// The origin of the documents: names of packages with their versions, or a directory.
    pub origin: String,
    /// The compression of each page by zlib at level 1.
    pub pages: Vec<Compressibility>,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "Pages from {}:", self.origin)?;
        for page in &self.pages {
            writeln!(
                formatter,
                "  {:<10} {:>9} bytes, {:.2}:1 at zlib level 1",
                page.page, page.bytes, page.zlib_1_ratio
            )?;
        }
        Ok(())
    }
}

/// The compression of a page by zlib.
#[derive(Debug, Clone, Serialize)]
pub struct Compressibility {
    /// The name of the page.
    pub page: &'static str,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its length divided by that of what zlib's level 1 makes of it.
    pub zlib_1_ratio: f64,
}

/// The contents of `pages`, of the documents in `directory`, or else of Debian's, which are fetched
/// if they are not there.
///
/// # Errors
/// [`Error::Corpus`] when documents cannot be fetched or are too short, with the cure;
/// [`Error::Testbed`].
pub fn load(
    pages: &[&'static Page],
    directory: Option<&Path>,
) -> Result<(Vec<Content>, Source), Error> {
    let (documents, origin) = match directory {
        Some(directory) => (
            Documents::gather(directory)?,
            directory.display().to_string(),
        ),
        None => fetch(&cache_directory()?)?,
    };
    let contents: Vec<Content> = pages
        .iter()
        .map(|&page| documents.cut(page))
        .collect::<Result<_, _>>()?;
    let compressibility = |content: &Content| {
        let mut compressed = Vec::new();
        zlib::gzip_as_nginx(&content.bytes, 1, &mut compressed)?;
        Ok(Compressibility {
            page: content.page.name,
            bytes: content.bytes.len(),
            zlib_1_ratio: content.bytes.len() as f64 / compressed.len() as f64,
        })
    };
    let pages: Result<_, Error> = contents.iter().map(compressibility).collect();
    let source = Source {
        origin,
        pages: pages?,
    };
    Ok((contents, source))
}

/// Documents, joined to one of each kind.
#[derive(Debug, Default)]
struct Documents {
    html: Vec<u8>,
    text: Vec<u8>,
}

impl Documents {
    /// All below `directory`, in the order of their paths.
    fn gather(directory: &Path) -> Result<Documents, Error> {
        let mut paths = Vec::new();
        find(directory, &mut paths)?;
        paths.sort();
        let mut documents = Documents::default();
        for path in paths {
            documents.add(&path)?;
        }
        Ok(documents)
    }

    /// Adds a document if it is one.
    fn add(&mut self, path: &Path) -> Result<(), Error> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        if INDICES.contains(&stem) {
            return Ok(());
        }
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let joined = match plain.rsplit('.').next() {
            Some("html" | "htm") => &mut self.html,
            Some("txt") => &mut self.text,
            _ => return Ok(()),
        };
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        if plain == name {
            joined.extend(bytes);
        } else {
            joined.extend(zlib::gunzip(&bytes)?);
        }
        Ok(())
    }

    /// A page of the beginning.
    fn cut(&self, page: &'static Page) -> Result<Content, Error> {
        let joined = match page.kind {
            Kind::Html => &self.html,
            Kind::Text => &self.text,
        };
        match joined.get(..page.length) {
            Some(bytes) => Ok(Content {
                page,
                bytes: bytes.to_vec(),
            }),
            None => Err(Error::Corpus(format!(
                "the page {} needs {} bytes of {}, and there are {}; name a directory with more with --corpus, or \
                 leave it out with --page",
                page.name,
                page.length,
                page.kind.description(),
                joined.len()
            ))),
        }
    }
}

/// All files below a directory. Links are left out: packages have the same document under several
/// paths.
fn find(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = || Error::file("read", directory);
    for entry in fs::read_dir(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let kind = entry.file_type().map_err(failed())?;
        if kind.is_dir() {
            find(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// Debian's documents and the versions of their packages, which are kept in `cache`.
fn fetch(cache: &Path) -> Result<(Documents, String), Error> {
    fs::create_dir_all(cache).map_err(Error::file("create", cache))?;
    let mut documents = Documents::default();
    let mut origin = Vec::new();
    for package in &PACKAGES {
        let directory = cache.join(package.name);
        if !directory.is_dir() {
            package.fetch(cache, &directory)?;
        }
        package.add_to(&mut documents, &directory)?;
        origin.push(package.version(&directory)?);
    }
    Ok((documents, origin.join(", ")))
}

impl Package {
    /// Downloads and unpacks the package. The directory appears when all is in it.
    fn fetch(&self, cache: &Path, directory: &Path) -> Result<(), Error> {
        let partial = tempfile::tempdir_in(cache).map_err(Error::file("write to", cache))?;
        let mut download = Command::new("apt-get");
        download.args(["-q", "download", self.name]);
        self.run(download.current_dir(partial.path()))?;
        let archive = self.archive(partial.path())?;
        let mut unpack = Command::new("dpkg");
        unpack.arg("-x").arg(archive).arg(partial.path());
        self.run(&mut unpack)?;
        match fs::rename(partial.path(), directory) {
            // Somebody else has fetched it at the same time.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            renamed => renamed.map_err(Error::file("write", directory)),
        }
    }

    fn run(&self, command: &mut Command) -> Result<Output, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |reason: &dyn std::fmt::Display| {
            Error::Corpus(format!(
                "cannot fetch Debian's package {} for the pages: {name}: {reason}; run `apt-get update` first, or name \
                 a directory with at least 1.2 MB of *.html and 0.6 MB of *.txt with --corpus",
                self.name
            ))
        };
        let output = command.output().map_err(|error| failed(&error))?;
        if output.status.success() {
            return Ok(output);
        }
        Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// The package's file, which is kept since its name has the version.
    fn archive(&self, directory: &Path) -> Result<PathBuf, Error> {
        let mut entries = fs::read_dir(directory)
            .map_err(Error::file("read", directory))?
            .flatten()
            .map(|entry| entry.path());
        entries
            .find(|path| path.extension() == Some(OsStr::new("deb")))
            .ok_or_else(|| {
                Error::Corpus(format!(
                    "no package {} in {}; remove this directory, and it will be fetched again",
                    self.name,
                    directory.display()
                ))
            })
    }

    fn version(&self, directory: &Path) -> Result<String, Error> {
        let archive = self.archive(directory)?;
        let stem = archive.file_stem().unwrap_or_default().to_string_lossy();
        // NAME_VERSION_ARCHITECTURE, in which apt writes a colon of the version as %3a.
        let mut fields = stem.split('_');
        let (name, version) = (fields.next(), fields.next());
        Ok(format!(
            "{} {}",
            name.unwrap_or_default(),
            version.unwrap_or_default().replace("%3a", ":")
        ))
    }

    fn add_to(&self, documents: &mut Documents, directory: &Path) -> Result<(), Error> {
        let mut paths = Vec::new();
        find(&directory.join(self.directory), &mut paths)?;
        paths.retain(|path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.starts_with(self.prefix) && name.ends_with(self.extension)
        });
        // The longest of the plain texts first: the others are short or written to another pattern.
        paths.sort_by_key(|path| match self.extension {
            "html" => (0, path.clone()),
            _ => {
                let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
                (u64::MAX - length, path.clone())
            }
        });
        for path in paths {
            documents.add(&path)?;
        }
        Ok(())
    }
}

/// The folder for pages among the user's caches (XDG Base Directory Specification).
fn cache_directory() -> Result<PathBuf, Error> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))
        .map(|caches| caches.join("slipstream/pages"))
        .ok_or_else(|| {
            Error::Corpus(
                "neither XDG_CACHE_HOME nor HOME is set, so that there is no place for pages; name a directory with \
                 documents with --corpus"
                    .to_owned(),
            )
        })
}

#[cfg(test)]
mod tests {
    use slipstream_testbed::scratch::ScratchDirectory;

    use super::*;

    #[test]
    fn pages_are_of_the_papers_lengths() {
        let lengths = PAGES.map(|page| page.length);
        assert_eq!(
            lengths,
            [5000, 49_842, 145_047, 269_914, 1_127_194, 524_288]
        );
        for page in &PAGES {
            assert_eq!(Page::find(page.name), Some(page));
        }
    }

    #[test]
    fn documents_are_joined_in_order_without_indices_and_links() {
        let scratch = ScratchDirectory::new().unwrap();
        fs::create_dir(scratch.file("b")).unwrap();
        fs::write(scratch.file("b/one.html"), "<p>second</p>").unwrap();
        fs::write(scratch.file("a.html"), "<p>first</p>").unwrap();
        fs::write(scratch.file("genindex.html"), "words").unwrap();
        fs::write(scratch.file("style.css"), "p {}").unwrap();
        fs::write(scratch.file("c.txt"), "plain ").unwrap();
        let mut compressed = Vec::new();
        zlib::gzip_as_nginx(b"text", 1, &mut compressed).unwrap();
        fs::write(scratch.file("d.txt.gz"), compressed).unwrap();
        std::os::unix::fs::symlink(scratch.file("a.html"), scratch.file("z.html")).unwrap();
        let documents = Documents::gather(scratch.path()).unwrap();
        assert_eq!(documents.html, b"<p>first</p><p>second</p>");
        assert_eq!(documents.text, b"plain text");
    }

    #[test]
    fn a_page_has_its_length_or_there_is_an_error_with_the_cure() {
        let page = Page::find("abc").unwrap();
        let mut documents = Documents {
            html: b"<p>some</p>".repeat(500),
            text: Vec::new(),
        };
        let content = documents.cut(page).unwrap();
        assert_eq!(content.bytes, documents.html[..5000]);
        documents.html.truncate(4999);
        let message = documents.cut(page).unwrap_err().to_string();
        assert!(message.contains("there are 4999"), "{message}");
        assert!(message.contains("--corpus"), "{message}");
    }

    #[test]
    fn a_package_that_does_not_exist_is_an_error_with_the_cure() {
        let scratch = ScratchDirectory::new().unwrap();
        let package = Package {
            name: "no-such-package-at-all",
            directory: "usr",
            prefix: "",
            extension: "html",
        };
        let error = package
            .fetch(scratch.path(), &scratch.file("there"))
            .unwrap_err();
        let message = error.to_string();
        assert!(message.contains("no-such-package-at-all"), "{message}");
        assert!(message.contains("--corpus"), "{message}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
