//! Clients that leave in the middle, streams that are reset, upstream servers that die; and good
//! clients beside them.

use std::io::Read;
use std::sync::{Arc, Mutex};

use rustix::net::sockopt::set_socket_linger;
use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{
    Build, Content, Engine, Http2, Inflater, Nginx, Random, Request, concurrently, each_build,
    eventually,
};

use crate::readers::{Page, Readers};
use crate::site::{Place, Site};

each_build!(
    clients_leave_in_the_middle,
    streams_are_reset,
    upstream_servers_die
);

const LENGTH: usize = 1_000_000;
const CLIENTS: usize = 8;
/// On a connection.
const STREAMS: usize = 16;

fn clients_leave_in_the_middle(build: Build) {
    let server = Server::start(build);
    let mut random = Random::of_this_run();
    // Memory is allocated that is going to be used again.
    server.leave(400, &mut random);
    let before = server.usage();
    let readers = Readers::start(&server.pages(), 1);
    server.leave(1_000, &mut random);
    readers.wait_for(10);
    readers.stop();
    server.expect_no_growth(before);
}

fn streams_are_reset(build: Build) {
    let server = Server::start(build);
    server.crowd_of_streams();
    let mut random = Random::of_this_run();
    server.reset(20, &mut random);
    let before = server.usage();
    let readers = Readers::start(&server.pages(), 1);
    server.reset(60, &mut random);
    readers.wait_for(10);
    readers.stop();
    server.expect_no_growth(before);
}

fn upstream_servers_die(build: Build) {
    let server = Server::start(build);
    server.die(10);
    let before = server.usage();
    let readers = Readers::start(&server.pages(), 1);
    server.die(40);
    readers.wait_for(10);
    readers.stop();
    assert!(server.nginx.log_lines_with("upstream prematurely closed") > 0);
    server.expect_no_growth(before);
}

struct Server {
    site: Site,
    engine: Engine,
    nginx: Nginx,
    worker: u32,
}

/// Memory and descriptors of the worker while nobody is connected.
#[derive(Clone, Copy, Debug)]
struct Usage {
    descriptors: usize,
    memory: u64,
}

impl Server {
    fn start(build: Build) -> Self {
        let engine = Engine::start(&[]);
        let site = Site::new();
        let nginx = site.start(build, &engine);
        nginx.expect_orphans();
        let worker = nginx.workers()[0];
        let server = Self {
            site,
            engine,
            nginx,
            worker,
        };
        server.crowd();
        server
    }

    /// More responses at once than there are at any time later: what the worker keeps for the next
    /// responses depends on how many there were, and that on when the machine runs the worker and
    /// when its clients.
    fn crowd(&self) {
        const CROWD: usize = 20;
        let path = self.site.file(Content::Random, LENGTH);
        for place in Place::ALL {
            // None is read to its end. A compressor for zstd keeps more.
            let request = self.site.get(place, &path).accepting("zstd");
            let begun: Vec<_> = (0..CROWD).map(|_| request.open().unwrap()).collect();
            drop(begun);
        }
    }

    /// As [`Server::crowd`], of streams.
    fn crowd_of_streams(&self) {
        let path = self.site.file(Content::Html, LENGTH);
        // Twice as many as there are clients.
        let mut connections: Vec<_> = (0..CLIENTS)
            .map(|_| Http2::connect(self.site.http2()).unwrap())
            .collect();
        for connection in &mut connections {
            for _ in 0..STREAMS {
                connection.get(&path, "gzip").unwrap();
            }
            // The worker is at work.
            for _ in 0..STREAMS {
                connection.read_frame().unwrap();
            }
        }
    }

    /// Pages that well-behaved clients read meanwhile.
    fn pages(&self) -> Vec<Page> {
        let content = Arc::new(Content::Html.bytes(LENGTH));
        let path = self.site.file(Content::Html, LENGTH);
        Place::ALL
            .into_iter()
            .enumerate()
            .map(|(number, place)| Page {
                address: self.site.address(place),
                path: path.clone(),
                coding: ["gzip", "zstd"][number % 2],
                content: content.clone(),
            })
            .collect()
    }

    /// Has this many clients read a part of a response, and leave with a FIN or a RST.
    fn leave(&self, clients: usize, random: &mut Random) {
        let paths = [
            self.site.file(Content::Random, LENGTH),
            format!("/length/random/{LENGTH}"),
            format!("/chunked/runs/{LENGTH}"),
            format!("/close/html/{LENGTH}"),
        ];
        let randoms: Vec<_> = (0..CLIENTS).map(|_| Mutex::new(random.split())).collect();
        concurrently(CLIENTS, |client| {
            let mut random = randoms[client].lock().unwrap();
            for _ in 0..clients / CLIENTS {
                let place = random.one_of(&Place::ALL);
                let path = &paths[random.below(paths.len())];
                let coding = random.one_of(&["gzip", "zstd"]);
                let request = self.site.get(place, path).accepting(coding);
                read_some_and_leave(&request, &mut random);
            }
        });
    }

    /// Has this many connections reset some of their streams, while others are read to the end.
    fn reset(&self, connections: usize, random: &mut Random) {
        let content = Content::Html.bytes(LENGTH);
        let path = self.site.file(Content::Html, LENGTH);
        let randoms: Vec<_> = (0..CLIENTS / 2)
            .map(|_| Mutex::new(random.split()))
            .collect();
        concurrently(randoms.len(), |client| {
            let mut random = randoms[client].lock().unwrap();
            for _ in 0..connections / randoms.len() {
                let mut connection = Http2::connect(self.site.http2()).unwrap();
                let mut streams: Vec<_> = (0..STREAMS)
                    .map(|_| connection.get(&path, "gzip").unwrap())
                    .collect();
                for _ in 0..STREAMS / 2 {
                    for _ in 0..random.below(20) {
                        connection.read_frame().unwrap();
                    }
                    let stream = streams.swap_remove(random.below(streams.len()));
                    connection.reset(stream).unwrap();
                }
                // Every other client leaves the rest alone.
                if random.below(2) == 0 {
                    continue;
                }
                let bodies = connection.finish().unwrap();
                for stream in streams {
                    assert!(Inflater::member(&bodies[&stream]).unwrap() == content);
                }
            }
        });
    }

    /// Has this many responses end before all of their content has come. None must look complete.
    fn die(&self, responses: usize) {
        concurrently(CLIENTS, |client| {
            for number in 0..responses / CLIENTS + 1 {
                let place = Place::ALL[(client + number) % Place::ALL.len()];
                let request = self.site.get(place, &format!("/dying/html/{LENGTH}"));
                let response = request.accepting("gzip").fetch();
                assert!(
                    response.is_err(),
                    "{place:?}: cut off, and said to be complete"
                );
            }
        });
    }

    fn usage(&self) -> Usage {
        self.nginx.settled();
        Usage {
            descriptors: descriptors(self.worker),
            memory: anonymous_memory(self.worker),
        }
    }

    /// Nothing is in flight, connections are closed, and memory is given back but for what is kept
    /// for the next responses.
    fn expect_no_growth(&self, before: Usage) {
        const KEPT_BYTES: u64 = 4 << 20;
        eventually("connections are closed", || {
            self.usage().descriptors <= before.descriptors
        });
        let after = self.usage();
        assert!(
            after.memory <= before.memory + KEPT_BYTES,
            "{before:?} {after:?}"
        );
        assert_eq!(self.nginx.workers(), [self.worker]);
        assert!(self.engine.figure("/compressed_chunks") > 100);
    }
}

fn read_some_and_leave(request: &Request, random: &mut Random) {
    let mut stream = request.send().unwrap();
    if random.below(4) > 0 {
        let length = random.below(1 + random.clone().one_of(&[1_000, 100_000, 1_000_000]));
        let mut left = vec![0; length];
        // It may be the whole response.
        while !left.is_empty() {
            match stream.read(&mut left) {
                Ok(0) => break,
                Ok(read) => drop(left.drain(..read)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    if random.below(2) == 0 {
        // With a RST.
        set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    }
}
