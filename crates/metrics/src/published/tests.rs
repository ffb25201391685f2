//! A file that was written can be read, and content that no program writes is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use super::*;

fn layout() -> Layout {
    Layout {
        program: "test",
        version: "1.2.3",
        counters: vec!["a_total".to_owned(), "b_total{c=\"d\"}".to_owned()],
        gauges: vec!["e".to_owned()],
        slots: 3,
    }
}

fn own() -> u32 {
    std::process::id()
}

fn publish(directory: &Path, process: u32) -> Region {
    Region::publish(directory, &layout(), Some(process), None).expect("a directory of our own")
}

fn only_file(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap();
    let file = files.next().expect("a file").unwrap().path();
    assert!(files.next().is_none());
    file
}

fn read(directory: &Path) -> Vec<Result<Published, Unreadable>> {
    let entries = list(&[directory.to_owned()]);
    entries.into_iter().map(|entry| entry.content).collect()
}

/// A process that has ended, and been waited for.
fn ended() -> (u32, Child) {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    (child.id(), child)
}

#[test]
fn figures_are_summed_and_gauges_end_with_their_writer() {
    let scratch = tempfile::tempdir().unwrap();
    let region = publish(scratch.path(), own());
    let (gone, _child) = ended();
    region.totals()[0].store(100, Ordering::Relaxed);
    for (slot, owner) in [(0, own()), (2, gone)] {
        region.owners()[slot].store(owner.into(), Ordering::Relaxed);
        for (value, figure) in (1..).zip(region.slot(slot)) {
            figure.store(value, Ordering::Relaxed);
        }
    }
    let [Ok(read)] = &read(scratch.path())[..] else {
        panic!("one file");
    };
    assert_eq!(
        (read.program.as_str(), read.version.as_str()),
        ("test", "1.2.3")
    );
    assert_eq!((read.process, read.writers), (own(), 1));
    let figures: Vec<(&str, u64)> = read
        .figures
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    assert_eq!(
        figures,
        [("a_total", 102), ("b_total{c=\"d\"}", 4), ("e", 3)]
    );
}

#[test]
fn a_note_is_read_until_it_is_taken_back() {
    let scratch = tempfile::tempdir().unwrap();
    let region = publish(scratch.path(), own());
    let note = || match &read(scratch.path())[..] {
        [Ok(read)] => read.note.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(note(), None);
    region.note("this CPU lacks \"avx512ifma\"");
    assert_eq!(note().as_deref(), Some("this CPU lacks \"avx512ifma\""));
    region.note("caf\u{e9}\u{1b}[2J");
    assert_eq!(note().as_deref(), Some("caf??[2J"));
    region.note(&"x".repeat(1000));
    assert_eq!(note().map(|note| note.len()), Some(256));
    region.note("");
    assert_eq!(note(), None);
    region.words()[HEAD].store(u64::from_ne_bytes(*b"\x1b[2J    "), Ordering::Relaxed);
    assert_eq!(
        read(scratch.path()),
        [Err(Unreadable::Malformed("its note is no text"))]
    );
}

#[test]
fn nobody_else_can_read_a_file_and_it_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let region = publish(scratch.path(), own());
    let file = only_file(scratch.path());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(region.names(own()) && !region.names(own() + 1));
    region.remove();
    assert!(
        !file.exists() && !scratch.path().exists(),
        "it was the last one"
    );
    let group = rustix::process::getgid().as_raw();
    let _region = Region::publish(scratch.path(), &layout(), None, Some(group)).unwrap();
    let mode = fs::metadata(only_file(scratch.path()))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_name_that_is_taken_is_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let taken = scratch.path().join(format!("test.{}", own()));
    let target = scratch.path().join("target");
    symlink(&target, &taken).unwrap();
    let region = publish(scratch.path(), own());
    assert!(!target.exists(), "a link was followed");
    assert_eq!(read(scratch.path()).len(), 1);
    region.remove();
    assert!(fs::symlink_metadata(&taken).is_ok());
}

#[test]
fn a_process_that_has_ended_is_left_out_and_its_file_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let (gone, _child) = ended();
    publish(scratch.path(), gone);
    assert_eq!(read(scratch.path()), []);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);

    // A number that another process has now.
    let region = publish(scratch.path(), own());
    let start = region.words()[START].load(Ordering::Relaxed);
    region.words()[START].store(start + 1, Ordering::Relaxed);
    assert_eq!(read(scratch.path()), []);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_process_that_is_being_started_or_lives_elsewhere_is_left_out_and_its_file_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let region = Region::publish(scratch.path(), &layout(), None, None).unwrap();
    assert_eq!(read(scratch.path()), []);
    region.name(own());
    assert_eq!(read(scratch.path()).len(), 1);
    region.words()[4].store(1, Ordering::Relaxed);
    assert_eq!(read(scratch.path()), []);
    assert!(only_file(scratch.path()).exists());
}

#[test]
fn another_layout_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let region = publish(scratch.path(), own());
    region.words()[1].store(LAYOUT + 1, Ordering::Relaxed);
    let [Err(error)] = &read(scratch.path())[..] else {
        panic!("it was read");
    };
    assert_eq!(
        error.to_string(),
        format!(
            "test {} runs slipstream 1.2.3, whose figures this command cannot read: use the command of that version",
            own()
        )
    );
}

#[test]
fn anonymous_memory_has_the_same_places_and_no_name() {
    let region = Region::anonymous(&layout()).unwrap();
    region.name(own());
    assert!(!region.names(own()));
    assert_eq!((region.totals().len(), region.owners().len()), (3, 3));
    region.slot(2)[2].store(7, Ordering::Relaxed);
    region.remove();
}

#[test]
fn files_that_nobody_has_written_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    publish(scratch.path(), own());
    let good = fs::read(only_file(scratch.path())).unwrap();
    assert!(parse(&good).is_ok());
    assert_eq!(
        parse(&[]),
        Err(Unreadable::Malformed("its first word differs"))
    );
    for length in 0..good.len() {
        assert!(parse(&good[..length]).is_err(), "{length} bytes");
    }
    // Each word of the head, and each of the names, with values that are too large or too small.
    for word in 0..HEAD + 4 {
        for value in [
            0,
            1,
            2,
            5,
            u64::MAX,
            u64::MAX / 8,
            1 << 24,
            1 << 32,
            0x1b5b_3331_6d0a_0000,
        ] {
            let mut bytes = good.clone();
            bytes[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
            if let Ok(read) = parse(&bytes) {
                let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
                assert!(read.figures.keys().all(|name| is_plain(name)));
                assert!(is_plain(&read.program) && is_plain(&read.version));
            }
        }
    }
}

#[test]
fn other_things_in_the_directory_do_no_harm() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("text"), "a text of somebody else").unwrap();
    fs::write(scratch.path().join("empty"), "").unwrap();
    fs::create_dir(scratch.path().join("directory")).unwrap();
    symlink("/etc/passwd", scratch.path().join("link")).unwrap();
    let fifo = Command::new("mkfifo")
        .arg(scratch.path().join("pipe"))
        .status();
    assert!(fifo.unwrap().success());
    let found = read(scratch.path());
    assert_eq!(
        found,
        [Err(Unreadable::Malformed("its first word differs"))]
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 5);
    assert_eq!(list(&[scratch.path().join("missing")]), []);
}
