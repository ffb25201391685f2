//! Output that waits: for what is in front of it, for as much as nginx sends at once, for a client
//! that does not read.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use slipstream_integration::process::anonymous_memory;
use slipstream_integration::{
    Build, Content, Engine, Lanes, Nginx, Origin, PATIENCE, Request, concurrently, decode,
    each_build, eventually, unused_address,
};

use crate::readers::{Page, Readers};
use crate::site::{Place, Site, defaults, small};
use crate::slow::wait_for_rest;

each_build!(
    a_flush_that_cannot_be_sent_leaves_the_response_whole,
    buffers_smaller_than_what_nginx_postpones,
    a_client_that_does_not_read_events_costs_little,
    workers_that_wait_for_interrupts_serve_every_load,
);

/// The body ends with the connection.
const EVENTS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";

/// nginx flushes the header of an unbuffered response before there is any content. This one waits
/// behind a header that no socket takes at once.
fn a_flush_that_cannot_be_sent_leaves_the_response_whole(build: Build) {
    const EVENTS: usize = 400;
    const EVENT_BYTES: usize = 50;
    let content = Content::Random.bytes(EVENTS * EVENT_BYTES);
    let (begin, begun): (Sender<()>, Receiver<()>) = channel();
    let (end, ended): (Sender<()>, Receiver<()>) = channel();
    let begun = Mutex::new(begun);
    let events = content.clone();
    let site = Site::with(Origin::with(move |_, stream| {
        stream.write_all(EVENTS_HEAD)?;
        if begun.lock().unwrap().recv().is_ok() {
            for event in events.chunks(EVENT_BYTES) {
                stream.write_all(event)?;
            }
            // The test may have failed meanwhile.
            let _ = end.send(());
        }
        Ok(())
    }));
    let address = unused_address();
    let configuration = site.configuration(build, None, &small()).server(
        format!("{address} sndbuf=64k"),
        &[],
        format!(
            "{} proxy_buffering off; {}",
            long_header(),
            site.locations()
        ),
    );
    let nginx = Nginx::start(build, &configuration);
    for coding in ["gzip", "zstd"] {
        let request = Request::get(address, "/").accepting(coding);
        let mut stream = send_deaf(&request);
        // nginx sends what it can of the header, and flushes, before it looks for content.
        stream.peek(&mut [0]).unwrap();
        begin.send(()).unwrap();
        ended.recv_timeout(PATIENCE).unwrap();
        wait_for_rest(nginx.workers()[0]);
        let response = request.receive(&mut stream).unwrap().rest().unwrap();
        assert_eq!(response.header("Content-Encoding"), Some(coding));
        assert!(decode(&response) == content, "{coding}");
    }
    nginx.settled();
}

/// About a megabyte.
fn long_header() -> String {
    // nginx takes no longer parameters.
    let value = "x".repeat(4_000);
    format!("add_header X-Filler {value};\n").repeat(250)
}

fn buffers_smaller_than_what_nginx_postpones(build: Build) {
    for directives in [
        "slipstream_gzip_buffers 1 1k;",
        "slipstream_gzip_buffers 4 8k; postpone_output 64k;",
    ] {
        let directives = format!("{} {directives}", defaults());
        let engine = Engine::start(&[]);
        for engine in [None, Some(&engine)] {
            let site = Site::new();
            let nginx = Nginx::start(build, &site.configuration(build, engine, &directives));
            for place in Place::ALL {
                for content in [Content::Random, Content::Html] {
                    for coding in ["gzip", "zstd"] {
                        check_in_time(&site, place, content, coding);
                    }
                }
            }
            nginx.settled();
        }
        assert!(engine.figure("/compressed_chunks") > 0);
    }
}

/// Complains if nothing comes for much longer than anything takes on a busy machine, yet less than
/// nginx waits for a client.
fn check_in_time(site: &Site, place: Place, content: Content, coding: &str) {
    const LENGTH: usize = 1_000_000;
    const SILENCE: Duration = Duration::from_secs(40);
    let what = format!("{place:?} {content:?} {coding}");
    let path = site.file(content, LENGTH);
    let request = site.get(place, &path).accepting(coding);
    let mut stream = request.send().unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let incoming = request.receive(&mut stream);
    let response = incoming.and_then(|incoming| incoming.rest());
    let response = response.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(response.header("Content-Encoding"), Some(coding), "{what}");
    assert!(decode(&response) == content.bytes(LENGTH), "{what}");
}

fn a_client_that_does_not_read_events_costs_little(build: Build) {
    const CLIENTS: usize = 20;
    const EVENTS: usize = 20_000;
    const EVENT_BYTES: usize = 50;
    const MOST_BYTES: u64 = 512 << 10;
    let content = Content::Random.bytes(EVENTS * EVENT_BYTES);
    let written = Arc::new(AtomicUsize::new(0));
    let site = Site::with(Origin::with({
        let (events, written) = (content.clone(), written.clone());
        move |_, stream| {
            stream.write_all(EVENTS_HEAD)?;
            for event in events.chunks(EVENT_BYTES) {
                stream.write_all(event)?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }));
    // However fast events come, nginx passes on few together.
    let directives = format!(
        "{} proxy_buffering off; proxy_buffer_size 128; send_timeout 3600s;",
        defaults()
    );
    let engine = Engine::start(&[]);
    let configuration = site.configuration(build, Some(&engine), &directives);
    for (place, coding) in [Place::Software, Place::Failover]
        .into_iter()
        .flat_map(|place| ["gzip", "zstd"].map(|coding| (place, coding)))
    {
        // What others before have given back would not be seen to be taken.
        let nginx = Nginx::start(build, &configuration);
        let worker = nginx.workers()[0];
        let request = site.get(place, "/").accepting(coding);
        assert!(decode(&request.fetch().unwrap()) == content);
        let before = anonymous_memory(worker);
        written.store(0, Ordering::Relaxed);
        let streams: Vec<_> = (0..CLIENTS).map(|_| send_deaf(&request)).collect();
        wait_until_blocked(&written, CLIENTS * 1_000, worker);
        let grown = anonymous_memory(worker).saturating_sub(before);
        let each = grown / CLIENTS as u64;
        eprintln!("{place:?} {coding}: {each} bytes for each client");
        assert!(each < MOST_BYTES, "{place:?} {coding}: {each} bytes");
        concurrently(CLIENTS, |client| {
            let mut stream = streams[client].try_clone().unwrap();
            // What is read fast is also sent fast.
            set_socket_recv_buffer_size(&stream, content.len()).unwrap();
            let response = request.receive(&mut stream).unwrap().rest().unwrap();
            assert!(decode(&response) == content, "{place:?} {coding}");
        });
        nginx.settled();
    }
}

/// Waits until this many events have gone to nginx, no more do, and the worker waits for clients.
fn wait_until_blocked(written: &AtomicUsize, least: usize, worker: u32) {
    let mut before = 0;
    eventually("upstream servers have to wait", || {
        wait_for_rest(worker);
        let now = written.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now >= least
    });
}

/// The client of a request that is not going to read for a while.
fn send_deaf(request: &Request) -> TcpStream {
    const RECEIVE_BUFFER: usize = 16 << 10;
    let stream = request.send().unwrap();
    // The kernel is not to take much either.
    set_socket_recv_buffer_size(&stream, RECEIVE_BUFFER).unwrap();
    stream
}

fn workers_that_wait_for_interrupts_serve_every_load(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let block = format!("{} poll interrupt;", engine.directive());
    let configuration = site
        .configuration(build, Some(&engine), &small())
        .lanes(Lanes::ForcedWith(block));
    let nginx = Nginx::start(build, &configuration);
    // Alone there is nothing else that wakes a worker.
    for page in pages(&site) {
        let readers = Readers::start(std::slice::from_ref(&page), 1);
        readers.wait_for(2);
        readers.stop();
    }
    let readers = Readers::start(&pages(&site), 1);
    readers.wait_for(300);
    readers.stop();
    assert!(engine.figure("/compressed_chunks") > 100);
    nginx.settled();
}

/// Short and long, files and others, in both codings.
fn pages(site: &Site) -> Vec<Page> {
    let mut pages = Vec::new();
    for place in [Place::Failover, Place::Device, Place::Pipelined] {
        for (content, length) in [
            (Content::Html, 100),
            (Content::Html, 40_000),
            (Content::Random, 500_000),
        ] {
            let bytes = Arc::new(content.bytes(length));
            let from_upstream = format!("/chunked/{}/{length}", content.name());
            for (path, coding) in [
                (site.file(content, length), "gzip"),
                (from_upstream, "zstd"),
            ] {
                pages.push(Page {
                    address: site.address(place),
                    path,
                    coding,
                    content: bytes.clone(),
                });
            }
        }
    }
    pages
}
