//! Access log.

mod line;
mod writer;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use self::writer::{Message, Writer};
use crate::settings;

/// Most entries that wait to be written. They take some megabytes, and a busy server logs as many
/// in a fraction of a second.
const QUEUE_LENGTH: usize = 8192;

/// Lines lost since the process began, of any log.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Handle to a log that many threads write to. A thread of its own writes the lines, so that no
/// event loop waits for the disk. The thread ends with the last handle, after it has written
/// everything.
#[derive(Clone, Debug)]
pub struct AccessLog {
    messages: SyncSender<Message>,
}

/// Returns the number of lines lost since the process began, because the disk refused them or was
/// too slow.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Entry for a request, or for a connection whose bytes were forwarded.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Time of the beginning.
    pub time: SystemTime,
    /// Address of the client.
    pub client: IpAddr,
    /// The request. `None` for a connection whose bytes were forwarded.
    pub request: Option<Request>,
    /// Content bytes sent to the client.
    pub sent_bytes: u64,
    /// Content bytes read from the client.
    pub received_bytes: u64,
    /// Time from the beginning to the end.
    pub duration: Duration,
    /// Version of TLS, such as `TLSv1.3`.
    pub tls_version: &'static str,
    /// Cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Server name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// Address of the backend that answered.
    pub backend: Option<String>,
}

/// HTTP request and the status of its response. Texts are unescaped, as the client sent them.
#[derive(Clone, Debug)]
pub struct Request {
    /// Request line. `None` if the header was malformed or not complete in time.
    pub line: Option<RequestLine>,
    /// Status of the response.
    pub status: u16,
    /// Header `Referer`.
    pub referer: Option<String>,
    /// Header `User-Agent`.
    pub user_agent: Option<String>,
    /// Header `Host`, or `:authority`.
    pub host: Option<String>,
}

/// First line of a request.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// Method of the request.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Version of HTTP, such as `HTTP/2.0`.
    pub version: &'static str,
}

impl AccessLog {
    /// Opens the log and starts its thread.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub fn open(log: &settings::AccessLog) -> io::Result<Self> {
        let writer = Writer::open(log)?;
        let (messages, received) = sync_channel(QUEUE_LENGTH);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self { messages })
    }

    /// Reopens the file after it has been renamed. May block; must not be called on an event loop.
    pub fn reopen(&self) {
        // The thread outlives this handle, so the message is received.
        let _ = self.messages.send(Message::Reopen);
    }

    /// Queues `entry`. Never blocks: if the queue is full, the entry is dropped and counted.
    pub fn write(&self, entry: Entry) {
        if self
            .messages
            .try_send(Message::Entry(Box::new(entry)))
            .is_err()
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks until all entries queued so far have been written.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.messages.send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv();
        }
    }
}
