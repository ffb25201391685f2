//! Hundreds of clients that read slowly: no response takes more memory than it may.

use std::io::Read;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use slipstream_integration::process::anonymous_memory;
use slipstream_integration::{
    Build, Content, Engine, Incoming, Nginx, Request, concurrently, decode, each_build, eventually,
};
use slipstream_testbed::process::process_cpu_time;

use crate::site::{Place, Site, defaults};

each_build!(memory_of_a_response_is_bounded);

const LENGTH: usize = 3_000_000;
const CHUNK_BYTES: u64 = 64 << 10;
const STREAM_BYTES: u64 = 256 << 10;
/// The stream, a chunk that is being filled and one that is being sent, and all else: what nginx
/// reads files into (`output_buffers`), connection and request.
const MOST_BYTES: u64 = STREAM_BYTES + 2 * CHUNK_BYTES + (64 << 10);

fn memory_of_a_response_is_bounded(build: Build) {
    let clients = match build {
        Build::Distribution => 500,
        // What differs between versions of nginx shows with fewer.
        Build::Published => 100,
    };
    let engine = Engine::start(&[]);
    for (place, coding) in [Place::Software, Place::Failover]
        .into_iter()
        .flat_map(|place| ["gzip", "zstd"].map(|coding| (place, coding)))
    {
        let site = Site::new();
        let path = site.file(Content::Random, LENGTH);
        let directives = format!(
            "{} slipstream_gzip_chunk_size {CHUNK_BYTES};
             slipstream_gzip_stream_size {STREAM_BYTES}; send_timeout 3600s;",
            defaults()
        );
        let configuration = site.configuration(build, Some(&engine), &directives);
        let nginx = Nginx::start(build, &configuration);
        let worker = nginx.workers()[0];
        let request = site.get(place, &path).accepting(coding);
        request.fetch().unwrap();
        let before = anonymous_memory(worker);
        let mut responses: Vec<_> = (0..clients).map(|_| Slow::begin(&request)).collect();
        let mut most = 0;
        for _ in 0..3 {
            responses.iter_mut().for_each(Slow::read_a_little);
            wait_for_rest(worker);
            most = most.max(anonymous_memory(worker));
        }
        let each = most.saturating_sub(before) / clients as u64;
        eprintln!("{place:?} {coding}: {each} bytes for each response");
        assert!(
            each < MOST_BYTES,
            "{place:?} {coding}: {each} bytes for each of {clients} responses"
        );
        finish(responses);
        nginx.settled();
    }
    assert!(engine.figure("/compressed_chunks") > 100);
}

/// A response of which little is read at a time.
struct Slow {
    incoming: Incoming,
    body: Vec<u8>,
}

impl Slow {
    fn begin(request: &Request) -> Self {
        const RECEIVE_BUFFER: usize = 64 << 10;
        let mut stream = request.send().unwrap();
        // The kernel is not to take all of it.
        set_socket_recv_buffer_size(&stream, RECEIVE_BUFFER).unwrap();
        Self {
            incoming: request.receive(&mut stream).unwrap(),
            body: Vec::new(),
        }
    }

    fn read_a_little(&mut self) {
        let mut bytes = vec![0; 16 << 10];
        let read = self.incoming.read(&mut bytes).unwrap();
        self.body.extend_from_slice(&bytes[..read]);
    }
}

/// Waits until the worker waits for clients.
pub(crate) fn wait_for_rest(worker: u32) {
    const WATCHED: Duration = Duration::from_millis(50);
    eventually("the worker waits for clients", || {
        let before = process_cpu_time(worker).unwrap();
        thread::sleep(WATCHED);
        process_cpu_time(worker).unwrap() - before < WATCHED / 10
    });
}

fn finish(responses: Vec<Slow>) {
    let content = Content::Random.bytes(LENGTH);
    let responses = Mutex::new(responses);
    concurrently(8, |_| {
        loop {
            let Some(slow) = responses.lock().unwrap().pop() else {
                break;
            };
            // What is read fast is also sent fast.
            set_socket_recv_buffer_size(slow.incoming.socket(), LENGTH).unwrap();
            let mut response = slow.incoming.rest().unwrap();
            response.body.splice(..0, slow.body);
            assert!(decode(&response) == content);
        }
    });
}
