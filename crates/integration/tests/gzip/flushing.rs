//! Bytes that an upstream server sends before it waits reach the client before more is sent.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use slipstream_integration::{Build, Engine, Inflater, Nginx, Origin, each_build};

use crate::site::{Place, Site, small};

each_build!(every_event_arrives_before_the_next, curl_prints_every_event);

const EVENTS: usize = 20;

/// Longer than chunks and streams, and shorter ones.
fn event(number: usize) -> Vec<u8> {
    let filler = match number % 4 {
        0 => 150_000,
        1 => 10,
        2 => 1_000,
        _ => 20_000,
    };
    let text: String = (0..filler / 8)
        .map(|word| format!("{:07} ", (word * 7919 + number) % 9_999_991))
        .collect();
    format!("id: {number}\ndata: {text}\n\n").into_bytes()
}

/// An upstream server that sends an event when it is told to.
struct Events {
    site: Site,
    next: Sender<usize>,
}

impl Events {
    fn new(is_length_known: bool) -> Self {
        let (next, told): (Sender<usize>, Receiver<usize>) = channel();
        let told = Mutex::new(told);
        let length: usize = (0..EVENTS).map(|number| event(number).len()).sum();
        let origin = Origin::with(move |_, stream| {
            let framing = match is_length_known {
                true => format!("Content-Length: {length}"),
                false => "Transfer-Encoding: chunked".to_owned(),
            };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream";
            stream.write_all(format!("{head}\r\n{framing}\r\n\r\n").as_bytes())?;
            let told = told.lock().unwrap();
            while let Ok(number) = told.recv() {
                if number == EVENTS {
                    break;
                }
                let event = event(number);
                if is_length_known {
                    stream.write_all(&event)?;
                    continue;
                }
                stream.write_all(format!("{:x}\r\n", event.len()).as_bytes())?;
                stream.write_all(&event)?;
                stream.write_all(b"\r\n")?;
            }
            match is_length_known {
                true => Ok(()),
                false => stream.write_all(b"0\r\n\r\n"),
            }
        });
        Self {
            site: Site::with(origin),
            next,
        }
    }

    fn start(&self, build: Build, engine: &Engine) -> Nginx {
        let directives = format!(
            "{} slipstream_gzip_types text/event-stream; proxy_buffering off;
             proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;",
            small()
        );
        let configuration = self.site.configuration(build, Some(engine), &directives);
        Nginx::start(build, &configuration)
    }

    /// Has each event sent when the one before has been received with `receive`, which takes as
    /// many bytes as it is to return.
    fn expect_in_turn(&self, mut receive: impl FnMut(usize) -> Vec<u8>) {
        for number in 0..EVENTS {
            self.next.send(number).unwrap();
            let expected = event(number);
            assert!(receive(expected.len()) == expected, "event {number}");
        }
        self.next.send(EVENTS).unwrap();
    }
}

/// A device has a part only in responses that are known to be long: others are flushed before they
/// have become so.
fn every_event_arrives_before_the_next(build: Build) {
    let engine = Engine::start(&[]);
    let events = Events::new(true);
    let nginx = events.start(build, &engine);
    for place in Place::ALL {
        let request = events.site.get(place, "/").accepting("gzip");
        let mut incoming = request.open().unwrap();
        assert_eq!(incoming.head.header("Content-Encoding"), Some("gzip"));
        let mut inflater = Inflater::new();
        let mut content = Vec::new();
        let mut bytes = vec![0; 64 << 10];
        events.expect_in_turn(|length| {
            while content.len() < length {
                // It waits in vain, until its time is over, if what is missing has not been
                // flushed.
                let read = incoming.read(&mut bytes).unwrap();
                assert!(read > 0, "{place:?}: the response has ended");
                inflater.push(&bytes[..read], &mut content).unwrap();
            }
            content.drain(..length).collect()
        });
        let mut rest = Vec::new();
        incoming.read_to_end(&mut rest).unwrap();
        inflater.push(&rest, &mut content).unwrap();
        assert!(inflater.is_complete() && content.is_empty(), "{place:?}");
    }
    assert!(engine.figure("/compressed_chunks") > 0);
    nginx.settled();
}

fn curl_prints_every_event(build: Build) {
    let engine = Engine::start(&[]);
    let events = Events::new(false);
    let nginx = events.start(build, &engine);
    for place in [Place::Software, Place::Failover, Place::Device] {
        // curl offers zstd only beside gzip.
        let mut curl = Command::new("curl")
            .args(["-sS", "--fail", "--no-buffer", "--compressed", "-m", "600"])
            .args(["-H", "Accept-Encoding: zstd"])
            .arg(format!("http://{}/", events.site.address(place)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = curl.stdout.take().unwrap();
        events.expect_in_turn(|length| {
            let mut bytes = vec![0; length];
            output.read_exact(&mut bytes).unwrap();
            bytes
        });
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty() && curl.wait().unwrap().success());
    }
    nginx.settled();
}
