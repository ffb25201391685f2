//! Format of a line.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use super::{Entry, Request, RequestLine};
use crate::settings::LogFormat;

/// Formats entries as lines.
pub(super) struct Formatter {
    format: LogFormat,
    /// The last second, and its text in the combined format: consecutive lines often share it.
    second: (i64, String),
}

impl Formatter {
    pub(super) fn new(format: LogFormat) -> Self {
        Self {
            format,
            second: (i64::MIN, String::new()),
        }
    }

    /// Appends the line of `entry`, including the line feed.
    pub(super) fn append(&mut self, entry: &Entry, line: &mut Vec<u8>) {
        match self.format {
            LogFormat::Combined => line.extend_from_slice(self.combined(entry).as_bytes()),
            LogFormat::Json => {
                serde_json::to_writer(&mut *line, &Object::new(entry))
                    .expect("writing to memory does not fail");
            }
        }
        line.write_all(b"\n")
            .expect("writing to memory does not fail");
    }

    /// Returns a line in nginx's `combined` format. A request that could not be read is `-`. A
    /// connection without requests has `-` as its status too.
    fn combined(&mut self, entry: &Entry) -> String {
        // nginx logs the time at which a request ended.
        let second = unix_seconds(entry.time + entry.duration);
        if self.second.0 != second {
            self.second = (second, local_time(second));
        }
        let mut line = format!("{} - - [{}] \"", entry.client, self.second.1);
        let request = entry.request.as_ref();
        match request.and_then(|request| request.line.as_ref()) {
            Some(RequestLine {
                method,
                target,
                version,
            }) => {
                escape(method, &mut line);
                line.push(' ');
                escape(target, &mut line);
                line.push(' ');
                line.push_str(version);
            }
            None => line.push('-'),
        }
        match request {
            Some(request) => write!(line, "\" {}", request.status),
            None => write!(line, "\" -"),
        }
        .expect("writing to a string does not fail");
        write!(line, " {} \"", entry.sent_bytes).expect("writing to a string does not fail");
        optional(
            request.and_then(|request| request.referer.as_deref()),
            &mut line,
        );
        line.push_str("\" \"");
        optional(
            request.and_then(|request| request.user_agent.as_deref()),
            &mut line,
        );
        line.push('"');
        line
    }
}

fn optional(text: Option<&str>, line: &mut String) {
    match text {
        Some(text) => escape(text, line),
        None => line.push('-'),
    }
}

/// Escapes as nginx does: `"`, `\` and everything but printable ASCII becomes `\xHH`. So a client
/// cannot inject lines into the log.
fn escape(text: &str, line: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                write!(line, "\\x{byte:02X}").expect("writing to a string does not fail");
            }
            _ => line.push(char::from(byte)),
        }
    }
}

/// Line of the JSON format.
#[derive(Serialize)]
struct Object<'a> {
    time: String,
    client: std::net::IpAddr,
    #[serde(flatten)]
    request: Option<RequestObject<'a>>,
    sent_bytes: u64,
    received_bytes: u64,
    duration: f64,
    tls_version: &'a str,
    cipher_suite: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<&'a str>,
}

#[derive(Serialize)]
struct RequestObject<'a> {
    #[serde(flatten)]
    line: Option<LineObject<'a>>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
}

#[derive(Serialize)]
struct LineObject<'a> {
    method: &'a str,
    target: &'a str,
    version: &'a str,
}

impl<'a> Object<'a> {
    fn new(entry: &'a Entry) -> Self {
        Self {
            time: universal_time(entry.time),
            client: entry.client,
            request: entry.request.as_ref().map(RequestObject::new),
            sent_bytes: entry.sent_bytes,
            received_bytes: entry.received_bytes,
            // Microseconds: more digits are noise.
            duration: entry.duration.as_micros() as f64 / 1e6,
            tls_version: entry.tls_version,
            cipher_suite: &entry.cipher_suite,
            server_name: entry.server_name.as_deref(),
            backend: entry.backend.as_deref(),
        }
    }
}

impl<'a> RequestObject<'a> {
    fn new(request: &'a Request) -> Self {
        Self {
            line: request.line.as_ref().map(|line| LineObject {
                method: &line.method,
                target: &line.target,
                version: line.version,
            }),
            status: request.status,
            referer: request.referer.as_deref(),
            user_agent: request.user_agent.as_deref(),
            host: request.host.as_deref(),
        }
    }
}

fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => seconds(since),
        // The clock was never set.
        Err(error) => -seconds(error.duration()),
    }
}

/// Formats as `2026-01-31T12:00:00.123Z`.
fn universal_time(time: SystemTime) -> String {
    let milliseconds = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_millis()).unwrap_or(i128::MAX),
        Err(_) => 0,
    };
    OffsetDateTime::from_unix_timestamp_nanos(milliseconds.saturating_mul(1_000_000))
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| "-".to_owned())
}

/// Formats as `31/Jan/2026:13:00:00 +0100`.
fn local_time(second: i64) -> String {
    let format = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    OffsetDateTime::from_unix_timestamp(second)
        .ok()
        .and_then(|time| time.checked_to_offset(local_offset(second)))
        .and_then(|time| time.format(format).ok())
        .unwrap_or_else(|| "-".to_owned())
}

/// Returns the local offset from UTC. The function of the `time` crate refuses to answer in a
/// multi-threaded process.
fn local_offset(second: i64) -> UtcOffset {
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are to memory of their types. The function reads the environment, which
    // nothing in this process changes.
    let found = unsafe { libc::localtime_r(&raw const second, broken_down.as_mut_ptr()) };
    if found.is_null() {
        return UtcOffset::UTC;
    }
    // SAFETY: a result other than null means that the value has been written.
    let offset = unsafe { broken_down.assume_init() }.tm_gmtoff;
    i32::try_from(offset)
        .ok()
        .and_then(|offset| UtcOffset::from_whole_seconds(offset).ok())
        .unwrap_or(UtcOffset::UTC)
}

/// Entry for tests.
#[cfg(test)]
pub(super) fn example() -> Entry {
    Entry {
        time: UNIX_EPOCH + Duration::from_millis(1_769_860_799_500),
        client: "192.0.2.7".parse().expect("an address"),
        request: Some(Request {
            line: Some(RequestLine {
                method: "GET".to_owned(),
                target: "/index.html?a=b".to_owned(),
                version: "HTTP/2.0",
            }),
            status: 200,
            referer: None,
            user_agent: Some("curl/7.88.1".to_owned()),
            host: Some("example.org".to_owned()),
        }),
        sent_bytes: 612,
        received_bytes: 0,
        duration: Duration::from_micros(500_250),
        tls_version: "TLSv1.3",
        cipher_suite: "TLS_AES_256_GCM_SHA384".to_owned(),
        server_name: Some("example.org".to_owned()),
        backend: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat, entry: &Entry) -> String {
        let mut line = Vec::new();
        Formatter::new(format).append(entry, &mut line);
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line: {line}");
        line.trim_end().to_owned()
    }

    #[test]
    fn combined_is_that_of_nginx() {
        let expected = format!(
            "192.0.2.7 - - [{}] \"GET /index.html?a=b HTTP/2.0\" 200 612 \"-\" \"curl/7.88.1\"",
            local_time(1_769_860_800)
        );
        assert_eq!(line(LogFormat::Combined, &example()), expected);
        // Elsewhere the text depends on the time zone of the machine.
        if local_offset(1_769_860_800) == UtcOffset::UTC {
            assert_eq!(local_time(1_769_860_800), "31/Jan/2026:12:00:00 +0000");
        }
    }

    #[test]
    fn a_connection_without_requests_has_a_line() {
        let entry = Entry {
            request: None,
            ..example()
        };
        let line = line(LogFormat::Combined, &entry);
        assert!(line.ends_with("] \"-\" - 612 \"-\" \"-\""), "{line}");
    }

    #[test]
    fn a_request_that_could_not_be_read_has_a_status() {
        let mut entry = example();
        let request = entry.request.as_mut().unwrap();
        (request.line, request.status, request.user_agent) = (None, 400, None);
        let combined = line(LogFormat::Combined, &entry);
        assert!(
            combined.ends_with("] \"-\" 400 612 \"-\" \"-\""),
            "{combined}"
        );
        let object: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, &entry)).unwrap();
        assert_eq!(
            (&object["status"], object.get("method")),
            (&400.into(), None)
        );
    }

    fn hostile() -> Entry {
        let mut entry = example();
        let request = entry.request.as_mut().unwrap();
        request.line.as_mut().unwrap().target = "/\"\\\r\n\0\x7f\u{e4}".to_owned();
        request.user_agent = Some("x\" 200 0\n192.0.2.8 - - \x1b[2J".to_owned());
        entry.server_name = Some("a\"b\n\u{2028}".to_owned());
        entry
    }

    #[test]
    fn hostile_bytes_are_escaped() {
        let line = line(LogFormat::Combined, &hostile());
        assert!(
            line.contains(r#""GET /\x22\x5C\x0D\x0A\x00\x7F\xC3\xA4 HTTP/2.0""#),
            "{line}"
        );
        assert!(
            line.ends_with(r#""x\x22 200 0\x0A192.0.2.8 - - \x1B[2J""#),
            "{line}"
        );
    }

    #[test]
    fn json_can_be_read_again() {
        let object: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, &example())).unwrap();
        let expected = serde_json::json!({
            "time": "2026-01-31T11:59:59.5Z",
            "client": "192.0.2.7",
            "method": "GET",
            "target": "/index.html?a=b",
            "version": "HTTP/2.0",
            "status": 200,
            "user_agent": "curl/7.88.1",
            "host": "example.org",
            "sent_bytes": 612,
            "received_bytes": 0,
            "duration": 0.50025,
            "tls_version": "TLSv1.3",
            "cipher_suite": "TLS_AES_256_GCM_SHA384",
            "server_name": "example.org",
        });
        assert_eq!(object, expected);

        let hostile = hostile();
        let object: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, &hostile)).unwrap();
        let line = hostile.request.unwrap().line.unwrap();
        assert_eq!(object["target"], line.target);
    }
}
