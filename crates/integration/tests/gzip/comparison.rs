//! The same requests to a server with nginx's own `gzip` and to one with `slipstream_gzip`, with
//! the same directives: the same status, the same headers, the same content.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use slipstream_integration::{
    Build, Configuration, Content, Nginx, Request, Response, decode, each_build, unused_address,
};

use crate::site::Site;

each_build!(
    files_and_requests,
    directives,
    proxied_responses,
    statuses_and_errors,
    pages_made_of_others,
    files_that_are_compressed_already,
);

const LENGTH: usize = 5_000;

fn files_and_requests(build: Build) {
    let pair = Pair::start(build, "location /files/ { alias FOLDER; GZIP_vary on; }");
    let path = pair.site.file(Content::Html, LENGTH);
    pair.site.file(Content::Html, 0);
    pair.site.file(Content::Html, 19);
    pair.site.file(Content::Html, 20);
    let whole = pair.expect_same(&path, &[("Accept-Encoding", "gzip")], |request| request);
    assert_eq!(whole.header("Content-Encoding"), Some("gzip"));
    assert_eq!(whole.header("Vary"), Some("Accept-Encoding"));
    assert_eq!(whole.header("Accept-Ranges"), None);
    let weak = whole.header("ETag").unwrap().to_owned();
    assert!(weak.starts_with("W/\""), "{weak}");
    let strong = weak.trim_start_matches("W/").to_owned();
    let modified = whole.header("Last-Modified").unwrap().to_owned();

    for accepted in [
        "gzip, deflate, br",
        "deflate, gzip;q=1.0, *;q=0.5",
        "gzip;q=0.5",
        "gzip;q=0.001",
        "gzip;q=0",
        "gzip; q=0.0",
        "GZIP",
        "deflate, br",
        "identity",
        "",
    ] {
        for method in ["GET", "HEAD"] {
            let headers = [("Accept-Encoding", accepted)];
            pair.expect_same(&path, &headers, |request| request.method(method));
        }
    }
    for (name, value) in [
        ("If-None-Match", &weak),
        ("If-None-Match", &strong),
        ("If-Match", &strong),
        ("If-Modified-Since", &modified),
        ("If-Unmodified-Since", &modified),
        ("Range", &"bytes=100-199".to_owned()),
        ("Range", &"bytes=9000-".to_owned()),
    ] {
        for accepted in ["gzip", "br"] {
            let headers = [("Accept-Encoding", accepted), (name, value.as_str())];
            pair.expect_same(&path, &headers, |request| request);
        }
    }
    let not_modified = [("Accept-Encoding", "gzip"), ("If-None-Match", &weak)];
    assert_eq!(
        pair.expect_same(&path, &not_modified, |request| request)
            .status,
        304
    );
    pair.expect_same(&path, &[], |request| request);
    for version in ["1.0", "1.1"] {
        let headers = [("Accept-Encoding", "gzip")];
        pair.expect_same(&path, &headers, |request| request.version(version));
    }
    for length in [0, 19, 20] {
        let headers = [("Accept-Encoding", "gzip")];
        pair.expect_same(&format!("/files/html/{length}"), &headers, |request| {
            request
        });
    }
}

fn directives(build: Build) {
    let pair = Pair::start(
        build,
        "location /off/ { GZIP off; alias FOLDER; }
         location /old/ { GZIP_http_version 1.0; alias FOLDER; }
         location /minimum/ { GZIP_min_length 1000; alias FOLDER; }
         location /css/ { GZIP_types text/css application/json; default_type text/css; alias FOLDER; }
         location /plain/ { GZIP_types text/css; default_type text/plain; alias FOLDER; }
         location /all/ { GZIP_types *; default_type font/woff2; alias FOLDER; }
         location /vary/ { GZIP_vary on; default_type text/css; alias FOLDER; }
         location /disable/ { GZIP_disable \"Bad.*Browser\" old; alias FOLDER; }
         location /msie6/ { GZIP_disable msie6; alias FOLDER; }
         location /buffers/ { GZIP_buffers 4 4k; alias FOLDER; }
         location /conditional/ { if ($arg_plain) { GZIP off; } alias FOLDER; }",
    );
    for length in [999, 1000, LENGTH, 200_000] {
        pair.site.file(Content::Html, length);
    }
    for location in [
        "off", "old", "minimum", "css", "plain", "all", "vary", "disable", "msie6", "buffers",
    ] {
        for length in [999, 1000, LENGTH, 200_000] {
            let path = format!("/{location}/html/{length}");
            pair.expect_same(&path, &[("Accept-Encoding", "gzip")], |request| request);
        }
        let path = format!("/{location}/html/{LENGTH}");
        pair.expect_same(&path, &[], |request| request);
        for version in ["1.0", "1.1"] {
            let headers = [("Accept-Encoding", "gzip")];
            pair.expect_same(&path, &headers, |request| request.version(version));
        }
        for agent in [
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
            "Mozilla/4.0 (compatible; MSIE 5.5)",
            "A Bad Old Browser",
            "very old",
            "good",
        ] {
            let headers = [("Accept-Encoding", "gzip"), ("User-Agent", agent)];
            pair.expect_same(&path, &headers, |request| request);
        }
    }
    for query in ["", "?plain=1"] {
        let path = format!("/conditional/html/{LENGTH}{query}");
        pair.expect_same(&path, &[("Accept-Encoding", "gzip")], |request| request);
    }
}

fn proxied_responses(build: Build) {
    const CONDITIONS: [&str; 10] = [
        "off",
        "expired",
        "no-cache",
        "no-store",
        "private",
        "no_last_modified",
        "no_etag",
        "auth",
        "any",
        "expired no-cache private auth",
    ];
    let locations: String = CONDITIONS
        .iter()
        .enumerate()
        .map(|(number, condition)| {
            format!("location /{number}/ {{ GZIP_proxied {condition}; proxy_pass ORIGIN; }}\n")
        })
        .collect();
    let pair = Pair::start(build, &locations);
    for number in 0..CONDITIONS.len() {
        for query in [
            "",
            "Expires=Thu,+01+Jan+1970+00:00:01+GMT",
            "Expires=Thu,+01+Jan+2037+00:00:01+GMT",
            "Cache-Control=no-cache",
            "Cache-Control=no-store",
            "Cache-Control=private,+max-age=5",
            "Cache-Control=max-age=5",
            "Last-Modified=Thu,+01+Jan+1970+00:00:01+GMT",
            "ETag=\"abc\"",
            "ETag=W/\"abc\"&Accept-Ranges=bytes",
            "Content-Encoding=br",
            "Content-Encoding=identity",
            "Vary=Accept-Language",
        ] {
            for (framing, length) in [("length", 10), ("length", LENGTH), ("chunked", LENGTH)] {
                let path = format!("/{number}/{framing}/html/{length}?{query}");
                let proxied = [("Accept-Encoding", "gzip"), ("Via", "1.1 proxy")];
                pair.expect_same(&path, &proxied, |request| request);
                let authorized = [&proxied[..], &[("Authorization", "Basic YTpi")]].concat();
                pair.expect_same(&path, &authorized, |request| request);
                pair.expect_same(&path, &proxied[..1], |request| request);
            }
        }
    }
}

fn statuses_and_errors(build: Build) {
    let pair = Pair::start(
        build,
        "error_page 403 404 500 /files/html/5000;
         location /files/ { alias FOLDER; }
         location /missing { root /nonexistent; }
         location /204 { return 204; }
         location /302 { return 302 /elsewhere; }
         location /403 { return 403; }
         location /410 { return 410; }
         location /500 { return 500; }
         location /text { default_type text/html; return 200 'A text that is long enough to be compressed'; }
         location /empty { default_type text/html; return 200 ''; }",
    );
    pair.site.file(Content::Html, LENGTH);
    for path in [
        "/missing", "/204", "/302", "/403", "/410", "/500", "/text", "/empty", "/files/",
    ] {
        for method in ["GET", "HEAD"] {
            let headers = [("Accept-Encoding", "gzip")];
            pair.expect_same(path, &headers, |request| request.method(method));
        }
    }
    let missing = pair.expect_same("/missing", &[("Accept-Encoding", "gzip")], |request| {
        request
    });
    let actual = (missing.status, missing.header("Content-Encoding"));
    assert_eq!(actual, (404, Some("gzip")));
}

fn pages_made_of_others(build: Build) {
    let pair = Pair::start(
        build,
        "location /files/ { alias FOLDER; ssi on; }
         location /upstream/ { proxy_pass ORIGIN; }",
    );
    let parts: String = [
        pair.site.file(Content::Html, LENGTH),
        pair.site.file(Content::Html, 200_000),
        format!("/upstream/chunked/html/{LENGTH}"),
        format!("/upstream/length/random/{LENGTH}"),
        "/missing".to_owned(),
    ]
    .iter()
    .map(|path| format!("<p>before</p><!--#include virtual=\"{path}\" --><p>behind</p>\n"))
    .collect();
    pair.site.write("page.html", parts.as_bytes());
    for accepted in ["gzip", "br"] {
        let headers = [("Accept-Encoding", accepted)];
        let page = pair.expect_same("/files/page.html", &headers, |request| request);
        assert!(decode(&page).len() > 210_000);
    }
}

fn files_that_are_compressed_already(build: Build) {
    let mut locations = "location /files/ { alias FOLDER; gzip_static on; }".to_owned();
    if !has(build, "http_gzip_static_module") {
        locations = locations.replace("gzip_static on;", "");
    }
    let pair = Pair::start(build, &locations);
    let path = pair.site.file(Content::Html, LENGTH);
    let file = pair.site.folder().join(format!("html/{LENGTH}"));
    assert!(
        Command::new("gzip")
            .arg("-kn")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    for headers in [&[("Accept-Encoding", "gzip")][..], &[]] {
        let response = pair.expect_same(&path, headers, |request| request);
        assert!(decode(&response) == Content::Html.bytes(LENGTH));
    }
}

/// Returns true if nginx was configured with a module.
pub(crate) fn has(build: Build, module: &str) -> bool {
    let output = Command::new(build.executable()).arg("-V").output().unwrap();
    let found = String::from_utf8_lossy(&output.stderr).contains(module);
    if !found {
        eprintln!("skipped for {build:?}: nginx was built without {module}");
    }
    found
}

/// Two servers with the same locations.
struct Pair {
    site: Site,
    stock: SocketAddr,
    own: SocketAddr,
    _nginx: Nginx,
}

impl Pair {
    /// `GZIP` stands for `gzip` or `slipstream_gzip`, `FOLDER` for the files, `ORIGIN` for the
    /// upstream server.
    fn start(build: Build, locations: &str) -> Self {
        let site = Site::new();
        let (stock, own) = (unused_address(), unused_address());
        let locations = locations
            .replace("FOLDER", &format!("{}/", site.folder().display()))
            .replace("ORIGIN", &format!("http://{}/", site.origin.address()));
        let server = |prefix: &str| {
            let text = format!("GZIP on; types {{}} default_type text/html; {locations}");
            text.replace("GZIP", prefix)
        };
        let configuration = Configuration::new()
            .slipstream(None)
            .http("server_tokens off; port_in_redirect off; proxy_http_version 1.1;")
            .server(stock, &[], server("gzip"))
            .server(own, &[], server("slipstream_gzip"));
        Self {
            site,
            stock,
            own,
            _nginx: Nginx::start(build, &configuration),
        }
    }

    /// Sends the same request to both; returns what ours has answered.
    fn expect_same(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        with: impl Fn(Request) -> Request,
    ) -> Response {
        let [stock, own] = [self.stock, self.own].map(|address| {
            let request = Request::get(address, path);
            let request = headers.iter().fold(request, |request, (name, value)| {
                request.header(name, value)
            });
            let request = with(request);
            request
                .fetch()
                .unwrap_or_else(|error| panic!("{request:?}: {error}"))
        });
        assert_eq!(own.status, stock.status, "{path} {headers:?}");
        assert_eq!(
            comparable(&own),
            comparable(&stock),
            "{path} {headers:?} {}",
            own.status
        );
        if !path.contains("Content-Encoding=") && !own.body.is_empty() {
            assert!(decode(&own) == decode(&stock), "{path} {headers:?}");
        }
        assert_eq!(own.body.is_empty(), stock.body.is_empty());
        own
    }
}

/// All headers but the date, whatever their order.
fn comparable(response: &Response) -> BTreeSet<(String, String)> {
    let headers = response.all_headers().iter().cloned();
    headers.filter(|(name, _)| name != "Date").collect()
}
