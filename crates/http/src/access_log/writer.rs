//! Thread that writes the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use super::line::Formatter;
use super::{DROPPED, Entry};
use crate::settings::{AccessLog, LogTarget};

/// Size of the buffer after which it is written, even if more lines wait.
const BUFFER_BYTES: usize = 64 * 1024;

/// Message to the thread.
#[derive(Debug)]
pub(super) enum Message {
    Entry(Box<Entry>),
    Reopen,
    /// Asks for everything before this message to be written, and for an answer then.
    Flush(SyncSender<()>),
}

/// The file, and the lines that have not been written to it.
pub(super) struct Writer {
    target: LogTarget,
    /// `None` means standard output.
    file: Option<File>,
    formatter: Formatter,
    buffer: Vec<u8>,
    /// Number of lines in the buffer.
    lines: u64,
    /// True if the last write failed and the failure has been reported.
    has_failed: bool,
}

impl Writer {
    pub(super) fn open(log: &AccessLog) -> io::Result<Self> {
        Ok(Self {
            file: open(&log.target)?,
            target: log.target.clone(),
            formatter: Formatter::new(log.format),
            buffer: Vec::new(),
            lines: 0,
            has_failed: false,
        })
    }

    /// Writes entries until the last handle is dropped. Waiting entries are written together; none
    /// waits for more to come.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            self.take(message);
            while self.buffer.len() < BUFFER_BYTES {
                match messages.try_recv() {
                    Ok(message) => self.take(message),
                    Err(_) => break,
                }
            }
            self.write();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Entry(entry) => {
                self.formatter.append(&entry, &mut self.buffer);
                self.lines += 1;
            }
            Message::Reopen => {
                self.write();
                match open(&self.target) {
                    Ok(file) => self.file = file,
                    Err(error) => {
                        eprintln!("slipstream serve: {error}; the old file stays in use")
                    }
                }
            }
            Message::Flush(done) => {
                self.write();
                // The caller may have given up.
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.buffer),
            None => {
                let mut output = io::stdout().lock();
                output.write_all(&self.buffer).and_then(|()| output.flush())
            }
        };
        if let Err(error) = &written {
            DROPPED.fetch_add(self.lines, Ordering::Relaxed);
            if !self.has_failed {
                eprintln!(
                    "slipstream serve: the access log cannot be written, lines are lost: {error}"
                );
            }
        }
        self.has_failed = written.is_err();
        self.buffer.clear();
        self.lines = 0;
    }
}

fn open(target: &LogTarget) -> io::Result<Option<File>> {
    match target {
        LogTarget::StandardOutput => Ok(None),
        LogTarget::File(path) => open_file(path).map(Some).map_err(|error| {
            let text = format!(
                "the access log {} cannot be opened: {error}",
                path.display()
            );
            io::Error::new(error.kind(), text)
        }),
    }
}

/// The log names visitors, so it is not readable for everybody.
fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;

    use super::super::line::example;
    use super::super::{AccessLog as Log, dropped};
    use super::*;
    use crate::settings::LogFormat;

    fn log(path: &Path) -> AccessLog {
        AccessLog {
            target: LogTarget::File(path.to_owned()),
            format: LogFormat::Combined,
        }
    }

    fn lines(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn lines_are_in_the_file_after_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let handle = Log::open(&log(&path)).unwrap();
        for _ in 0..3 {
            handle.clone().write(example());
        }
        handle.flush();
        assert_eq!(lines(&path), 3);

        let renamed = folder.path().join("access.log.1");
        fs::rename(&path, &renamed).unwrap();
        handle.write(example());
        handle.reopen();
        handle.write(example());
        handle.flush();
        assert_eq!((lines(&renamed), lines(&path)), (4, 1));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/access.log");
        let error = Log::open(&log(&path)).unwrap_err();
        assert!(error.to_string().contains("absent/access.log"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_is_written_on() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let handle = Log::open(&log(&inside.join("access.log"))).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&inside, &moved).unwrap();
        handle.reopen();
        handle.write(example());
        handle.flush();
        assert_eq!(lines(&moved.join("access.log")), 1);
    }

    #[test]
    fn lines_that_nobody_takes_are_dropped_and_counted() {
        // Nobody receives, as if the disk blocked.
        let (messages, _received) = sync_channel(2);
        let handle = Log { messages };
        let before = dropped();
        for _ in 0..5 {
            handle.write(example());
        }
        assert!(dropped() >= before + 3);
    }

    #[test]
    fn lines_that_the_disk_refuses_are_counted() {
        let handle = Log::open(&log(Path::new("/dev/full"))).unwrap();
        let before = dropped();
        handle.write(example());
        handle.flush();
        assert!(dropped() > before);
    }
}
