//! Every body arrives as it was, byte for byte.

use std::io::Read;
use std::process::Command;

use slipstream_integration::process::anonymous_memory;
use slipstream_integration::programs;
use slipstream_integration::{
    Build, Content, Engine, Http2, Inflater, Nginx, Random, Request, concurrently, decode,
    decode_zstd, each_build,
};
use slipstream_testbed::scratch::ScratchDirectory;

use crate::site::{CHUNK_BYTES, Place, STREAM_BYTES, Site, THRESHOLD_BYTES, defaults};

each_build!(
    every_length_content_source_and_place,
    every_level,
    streams_of_http2,
    curl_with_http2,
    hundreds_of_megabytes,
);

/// nginx compresses nothing that is known to be shorter.
const MIN_LENGTH: usize = 20;

const LENGTHS: [usize; 15] = [
    0,
    1,
    MIN_LENGTH - 1,
    MIN_LENGTH,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    THRESHOLD_BYTES - 1,
    THRESHOLD_BYTES,
    THRESHOLD_BYTES + 1,
    STREAM_BYTES - 1,
    STREAM_BYTES,
    STREAM_BYTES + 1,
    1_000_000,
    3_000_000,
];

#[derive(Clone, Copy, Debug)]
struct Case {
    place: Place,
    source: &'static str,
    content: Content,
    length: usize,
    coding: &'static str,
    version: &'static str,
}

fn every_length_content_source_and_place(build: Build) {
    const CLIENTS: usize = 8;
    let engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = site.start(build, &engine);
    let contents = match build {
        Build::Distribution => &Content::ALL[..],
        // What differs between versions of nginx shows with one.
        Build::Published => &[Content::Html],
    };
    let cases = cases(&site, contents);
    concurrently(CLIENTS, |client| {
        for case in cases.iter().skip(client).step_by(CLIENTS) {
            case.check(&site);
        }
    });
    assert!(engine.figure("/compressed_chunks") > 1000);
    nginx.settled();
}

fn cases(site: &Site, contents: &[Content]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &content in contents {
        for length in LENGTHS {
            site.file(content, length);
            for place in Place::ALL {
                for source in ["files", "length", "chunked", "close"] {
                    for coding in ["gzip", "zstd"] {
                        let version = if (length + place as usize).is_multiple_of(3) {
                            "1.0"
                        } else {
                            "1.1"
                        };
                        cases.push(Case {
                            place,
                            source,
                            content,
                            length,
                            coding,
                            version,
                        });
                    }
                }
            }
        }
    }
    // Long ones beside short ones.
    let mut random = Random::of_this_run();
    for place in (1..cases.len()).rev() {
        cases.swap(place, random.below(place + 1));
    }
    cases
}

impl Case {
    fn check(&self, site: &Site) {
        let path = format!("/{}/{}/{}", self.source, self.content.name(), self.length);
        let request = site.get(self.place, &path).version(self.version);
        let response = request
            .accepting(self.coding)
            .fetch()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let is_known = matches!(self.source, "files" | "length");
        let coding = (!is_known || self.length >= MIN_LENGTH).then_some(self.coding);
        let actual = (response.status, response.header("Content-Encoding"));
        assert_eq!(actual, (200, coding), "{self:?}");
        assert!(
            coding.is_none() || response.header("Content-Length").is_none(),
            "{self:?}"
        );
        assert!(
            decode(&response) == self.content.bytes(self.length),
            "{self:?}"
        );
    }
}

fn every_level(build: Build) {
    const LENGTH: usize = 400_000;
    let engine = Engine::start(&[]);
    let site = Site::new();
    let content = Content::Html.bytes(LENGTH);
    let path = site.file(Content::Html, LENGTH);
    let mut nginx = Nginx::start(build, &site.configuration(build, Some(&engine), defaults()));
    for (gzip, zstd) in [(1, 1), (2, 3), (3, 5), (4, 7), (6, 9), (9, 19)] {
        let directives = format!(
            "{} slipstream_gzip_comp_level {gzip}; slipstream_zstd_comp_level {zstd};",
            defaults()
        );
        nginx.reload(&site.configuration(build, Some(&engine), &directives));
        for place in [Place::Software, Place::Device] {
            let mut request = Vec::new();
            for coding in ["gzip", "zstd"] {
                let response = site.get(place, &path).accepting(coding).fetch().unwrap();
                assert_eq!(response.header("Content-Encoding"), Some(coding));
                assert!(decode(&response) == content, "{gzip} {zstd} {place:?}");
                request.push(response.body.len());
            }
            assert!(
                request.iter().all(|&length| length < LENGTH / 2),
                "{gzip} {zstd} {place:?}: {request:?}"
            );
        }
    }
}

fn streams_of_http2(build: Build) {
    const STREAMS: usize = 32;
    let engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = site.start(build, &engine);
    let lengths: Vec<usize> = LENGTHS.into_iter().filter(|&length| length >= 20).collect();
    concurrently(4, |client| {
        let content = Content::ALL[client];
        let mut connection = Http2::connect(site.http2()).unwrap();
        let streams: Vec<_> = (0..STREAMS)
            .map(|number| {
                let length = lengths[number % lengths.len()];
                let coding = ["gzip", "zstd"][number % 2];
                let path = match number % 3 {
                    0 => site.file(content, length),
                    1 => format!("/length/{}/{length}", content.name()),
                    _ => format!("/chunked/{}/{length}", content.name()),
                };
                let stream = connection.get(&path, coding).unwrap();
                (stream, coding, length)
            })
            .collect();
        let bodies = connection.finish().unwrap();
        for (stream, coding, length) in streams {
            let body = &bodies[&stream];
            let decoded = match coding {
                "gzip" => Inflater::member(body),
                _ => decode_zstd(body),
            };
            assert!(
                decoded.unwrap() == content.bytes(length),
                "{content:?} {length} {coding}"
            );
        }
    });
    assert!(engine.figure("/compressed_chunks") > 100);
    nginx.settled();
}

fn curl_with_http2(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = site.start(build, &engine);
    let scratch = ScratchDirectory::new().unwrap();
    let body = scratch.file("body");
    for length in [20, 10_000, 200_000, 3_000_000] {
        let path = site.file(Content::Html, length);
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "--compressed", "--http2-prior-knowledge"]);
        command.arg("-o").arg(&body);
        command.arg(format!("http://{}{path}", site.http2()));
        programs::finish(&mut command, b"").expect_success();
        let body = std::fs::read(&body).unwrap();
        assert!(body == Content::Html.bytes(length), "{length}");
    }
    nginx.settled();
}

/// As it comes, without anybody holding much of it.
fn hundreds_of_megabytes(build: Build) {
    const LENGTH: u64 = 300_000_000;
    const HELD_BYTES: u64 = 16 << 20;
    let engine = Engine::start(&[]);
    let site = Site::new();
    let directives = format!("{} proxy_max_temp_file_size 0;", defaults());
    let nginx = Nginx::start(
        build,
        &site.configuration(build, Some(&engine), &directives),
    );
    let worker = nginx.workers()[0];
    let before = anonymous_memory(worker);
    let places = match build {
        Build::Distribution => &[Place::Software, Place::Failover][..],
        Build::Published => &[Place::Device],
    };
    concurrently(places.len(), |number| {
        let request = site.get(places[number], &format!("/chunked/html/{LENGTH}"));
        let (length, checksum) = streamed(&request.accepting("gzip"));
        assert_eq!(length, LENGTH);
        let mut expected = crc32fast::Hasher::new();
        Content::Html
            .pieces(LENGTH)
            .for_each(|piece| expected.update(&piece));
        assert_eq!(checksum, expected.finalize());
    });
    // How many of thousands depends on who is faster, the engine or the worker.
    assert!(engine.figure("/compressed_chunks") > 100);
    let after = anonymous_memory(worker);
    assert!(after < before + HELD_BYTES, "{before} {after}");
    nginx.settled();
}

/// The length and the checksum of the content of a gzip member.
fn streamed(request: &Request) -> (u64, u32) {
    let mut incoming = request.open().unwrap();
    assert_eq!(incoming.head.header("Content-Encoding"), Some("gzip"));
    let mut inflater = Inflater::new();
    let mut checksum = crc32fast::Hasher::new();
    let (mut bytes, mut content, mut length) = (vec![0; 64 << 10], Vec::new(), 0);
    loop {
        let read = incoming.read(&mut bytes).unwrap();
        if read == 0 {
            break;
        }
        inflater.push(&bytes[..read], &mut content).unwrap();
        checksum.update(&content);
        length += content.len() as u64;
        content.clear();
    }
    assert!(inflater.is_complete());
    (length, checksum.finalize())
}
