//! Compression beside nginx's other ways to read, to make, to change and to send a response.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use slipstream_integration::{
    Build, Content, Engine, Nginx, PATIENCE, Request, concurrently, each_build, unused_address,
};

use crate::site::{Place, Site, check, small};

each_build!(
    files_that_are_copied_read_by_threads_and_past_the_cache_of_the_system,
    responses_sent_slowly,
    responses_from_a_cache,
    responses_made_of_slices,
    responses_that_are_changed,
    requests_that_are_mirrored,
    responses_of_fastcgi,
);

const LENGTH: usize = 700_000;

fn files_that_are_copied_read_by_threads_and_past_the_cache_of_the_system(build: Build) {
    let tested = Tested::new();
    let folder = tested.site.folder().display().to_string();
    let running = tested.start(
        build,
        "",
        &format!(
            "location /threads/ {{ alias {folder}/; aio threads; output_buffers 2 16k; }}
             location /copied/ {{ alias {folder}/; sendfile on; }}
             location /sendfile/ {{ alias {folder}/; aio threads; sendfile on; }}
             location /direct/ {{ alias {folder}/; aio threads; directio 4k; }}"
        ),
    );
    for location in ["threads", "copied", "sendfile", "direct"] {
        running.expect(location, &tested.content);
    }
}

fn responses_sent_slowly(build: Build) {
    let tested = Tested::new();
    let folder = tested.site.folder().display();
    let directives = format!("location /limited/ {{ alias {folder}/; limit_rate 500k; }}");
    let running = tested.start(build, "", &directives);
    running.expect("limited", &tested.content);
}

fn responses_from_a_cache(build: Build) {
    let tested = Tested::new();
    let cache = tested.site.folder().join("cache");
    let upstream = tested.site.address(Place::Software);
    let running = tested.start(
        build,
        &format!(
            "proxy_cache_path {} keys_zone=pages:1m use_temp_path=off;",
            cache.display()
        ),
        &format!(
            "location /cached/ {{
                 proxy_cache pages;
                 proxy_cache_valid 200 1h;
                 proxy_cache_lock on;
                 proxy_set_header Accept-Encoding \"\";
                 add_header X-Cache $upstream_cache_status;
                 proxy_pass http://{upstream}/files/;
             }}"
        ),
    );
    for _ in 0..2 {
        running.expect("cached", &tested.content);
    }
    let again = Request::get(running.addresses[0], &running.path("cached")).accepting("gzip");
    let again = again.fetch().unwrap();
    assert_eq!(again.header("X-Cache"), Some("HIT"));
    assert_eq!(again.header("Content-Encoding"), Some("gzip"));
}

/// The response comes from subrequests for parts, one after the other.
fn responses_made_of_slices(build: Build) {
    let tested = Tested::new();
    let upstream = tested.site.address(Place::Software);
    let running = tested.start(
        build,
        "",
        &format!(
            "location /sliced/ {{
                 slice 64k;
                 proxy_http_version 1.1;
                 proxy_set_header Range $slice_range;
                 proxy_set_header Accept-Encoding \"\";
                 proxy_pass http://{upstream}/files/;
             }}"
        ),
    );
    running.expect("sliced", &tested.content);
}

fn responses_that_are_changed(build: Build) {
    let tested = Tested::new();
    let folder = tested.site.folder().display();
    let running = tested.start(
        build,
        "",
        &format!(
            "location /changed/ {{
                 alias {folder}/;
                 sub_filter \"<p>\" \"<p class=changed>\";
                 sub_filter_once off;
             }}"
        ),
    );
    let content = String::from_utf8(tested.content.clone()).unwrap();
    let changed = content.replace("<p>", "<p class=changed>");
    assert_ne!(changed, content);
    running.expect("changed", changed.as_bytes());
}

fn requests_that_are_mirrored(build: Build) {
    let tested = Tested::new();
    let folder = tested.site.folder().display();
    let origin = tested.site.origin.address();
    let running = tested.start(
        build,
        "",
        &format!(
            "location /mirrored/ {{ alias {folder}/; mirror /mirror; }}
             location = /mirror {{ internal; proxy_pass http://{origin}/close/html/300000; }}"
        ),
    );
    running.expect("mirrored", &tested.content);
}

fn responses_of_fastcgi(build: Build) {
    let tested = Tested::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let responder = listener.local_addr().unwrap();
    let content = tested.content.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let content = content.clone();
            // A client that leaves is no error of the responder.
            thread::spawn(move || drop(answer(stream, &content)));
        }
    });
    let running = tested.start(
        build,
        "",
        &format!(
            "location /fastcgi/ {{ fastcgi_pass {responder}; }}
             location /unbuffered/ {{ fastcgi_pass {responder}; fastcgi_buffering off; }}"
        ),
    );
    running.expect("fastcgi", &tested.content);
    // What is flushed early is compressed as one stream, in the worker.
    running.expect_content("unbuffered", &tested.content);
}

/// Answers one request as a responder of FastCGI 1.0 (its specification, section 6.2).
fn answer(mut stream: TcpStream, content: &[u8]) -> io::Result<()> {
    const STDIN: u8 = 5;
    const STDOUT: u8 = 6;
    const END_REQUEST: u8 = 3;
    // A length that is no multiple of anything.
    const PIECE_BYTES: usize = 30_011;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header)?;
        let length = u16::from_be_bytes([header[4], header[5]]);
        let mut rest = vec![0; usize::from(length) + usize::from(header[6])];
        stream.read_exact(&mut rest)?;
        if header[1] == STDIN && length == 0 {
            break;
        }
    }
    let mut send = |kind, bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).expect("a piece is shorter than a record");
        let [high, low] = length.to_be_bytes();
        stream.write_all(&[1, kind, 0, 1, high, low, 0, 0])?;
        stream.write_all(bytes)
    };
    send(STDOUT, b"Content-Type: text/html\r\n\r\n")?;
    for piece in content.chunks(PIECE_BYTES) {
        send(STDOUT, piece)?;
    }
    send(STDOUT, b"")?;
    send(END_REQUEST, &[0; 8])
}

/// A page, and an engine that compresses it.
struct Tested {
    site: Site,
    engine: Engine,
    content: Vec<u8>,
}

/// nginx with a server for each place, which all have the same locations.
struct Running<'a> {
    tested: &'a Tested,
    nginx: Nginx,
    addresses: Vec<SocketAddr>,
}

impl Tested {
    fn new() -> Self {
        let site = Site::new();
        site.file(Content::Html, LENGTH);
        Self {
            site,
            engine: Engine::start(&[]),
            content: Content::Html.bytes(LENGTH),
        }
    }

    fn start(&self, build: Build, http: &str, locations: &str) -> Running<'_> {
        let directives = format!("{} default_type text/html; types {{ }} {http}", small());
        let mut configuration = self
            .site
            .configuration(build, Some(&self.engine), &directives);
        let addresses: Vec<SocketAddr> = Place::ALL.map(|_| unused_address()).into();
        for (address, place) in addresses.iter().zip(Place::ALL) {
            let directives = format!("{} {locations}", place.directives());
            configuration = configuration.server(address, &[], directives);
        }
        Running {
            tested: self,
            nginx: Nginx::start(build, &configuration),
            addresses,
        }
    }
}

impl Running<'_> {
    fn path(&self, location: &str) -> String {
        format!("/{location}/html/{LENGTH}")
    }

    /// As [`Running::expect_content`], and the engine has compressed chunks of it.
    fn expect(&self, location: &str, content: &[u8]) {
        let chunks = || self.tested.engine.figure("/compressed_chunks");
        let before = chunks();
        self.expect_content(location, content);
        assert!(chunks() > before, "{location}");
    }

    /// Every place sends the content, in both codings, some at a time.
    fn expect_content(&self, location: &str, content: &[u8]) {
        let path = self.path(location);
        let complaints: Vec<String> = concurrently(2 * self.addresses.len(), |number| {
            let coding = ["gzip", "zstd"][number % 2];
            let request = Request::get(self.addresses[number / 2], &path);
            let place = Place::ALL[number / 2];
            let complaint = check(&request, coding, content).err();
            complaint.map(|complaint| format!("{location} {place:?} {coding}: {complaint}"))
        })
        .into_iter()
        .flatten()
        .collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        self.nginx.settled();
    }
}
