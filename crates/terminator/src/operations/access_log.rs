//! The access log.

mod line;
mod writer;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use self::writer::{Message, Writer};
use crate::configuration;

/// Entries that may wait for the disk, in all: some megabytes, and what a busy server logs in a fraction of a second.
const WAITING: usize = 8192;

/// Lines that were not written since the process began, in any log.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// A log that many threads write; a clone is another handle to it. Lines are written by a thread of its own, so that no event loop
/// waits for a disk. The thread ends when there is no handle any more, and what was written before is in the file.
#[derive(Clone, Debug)]
pub struct AccessLog {
    messages: SyncSender<Message>,
}

/// How many lines have been dropped since the process began: a disk did not take them, or not in time.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A request, or a connection whose bytes were passed on.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it began.
    pub time: SystemTime,
    /// Who asked.
    pub client: IpAddr,
    /// The request; `None` for a connection.
    pub request: Option<Request>,
    /// Bytes of content sent to the client.
    pub sent_bytes: u64,
    /// Bytes of content read from the client.
    pub received_bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// Such as `TLSv1.3`.
    pub tls_version: &'static str,
    /// Such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// The name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// The backend that answered.
    pub backend: Option<String>,
}

/// A request of HTTP and its response. Texts are as the client sent them; whoever writes them escapes them.
#[derive(Clone, Debug)]
pub struct Request {
    /// What was asked; `None` if it could not be read, or was not complete in time.
    pub line: Option<RequestLine>,
    /// The status of the response.
    pub status: u16,
    /// The header of that name.
    pub referer: Option<String>,
    /// The header of that name.
    pub user_agent: Option<String>,
    /// The header of that name, or `:authority`.
    pub host: Option<String>,
}

/// The first line of a request.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Such as `HTTP/2.0`.
    pub version: &'static str,
}

impl AccessLog {
    /// Opens the log.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(log: &configuration::AccessLog) -> io::Result<Self> {
        let writer = Writer::open(log)?;
        let (messages, received) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self { messages })
    }

    /// Has the file opened anew, after it has been renamed. May wait for the disk: not for event loops.
    pub fn reopen(&self) {
        // The thread ends no sooner than this handle.
        let _ = self.messages.send(Message::Reopen);
    }

    /// Writes `entry`, soon. Never blocks: what a disk cannot take in time is dropped and counted.
    pub fn write(&self, entry: Entry) {
        if self
            .messages
            .try_send(Message::Entry(Box::new(entry)))
            .is_err()
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what has been written so far is in the file.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.messages.send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv();
        }
    }
}
