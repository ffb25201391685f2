//! Differences from nginx's own `gzip`: the choice of a coding, and responses that are left alone.

use std::fs;

use slipstream_integration::{
    Build, Content, Nginx, Request, Response, decode, each_build, eventually, unused_address,
};

use crate::site::{Place, Site, defaults};

each_build!(
    the_best_coding_is_chosen,
    what_must_not_be_transformed_is_not,
    one_filter_or_the_other,
    the_ratio_is_logged,
);

const LENGTH: usize = 50_000;

fn the_best_coding_is_chosen(build: Build) {
    let gzip_first = "gzip zstd";
    let zstd_first = "zstd gzip";
    for (codings, accepted, chosen) in [
        ("gzip", "gzip, zstd", Some("gzip")),
        ("gzip", "zstd", None),
        ("zstd", "gzip", None),
        ("zstd", "gzip, zstd", Some("zstd")),
        (gzip_first, "zstd, gzip", Some("gzip")),
        (zstd_first, "gzip, zstd", Some("zstd")),
        (zstd_first, "gzip, deflate, br, zstd", Some("zstd")),
        (zstd_first, "gzip", Some("gzip")),
        (gzip_first, "gzip;q=0.5, zstd", Some("zstd")),
        (gzip_first, "gzip;q=0, zstd", Some("zstd")),
        (zstd_first, "gzip;q=0.9, zstd;q=0.8", Some("gzip")),
        (gzip_first, "*", Some("gzip")),
        (zstd_first, "*", Some("zstd")),
        (zstd_first, "zstd;q=0, *", Some("gzip")),
        (gzip_first, "*;q=0", None),
        (gzip_first, "gzip;q=0.5, identity", None),
        (gzip_first, "gzip, identity;q=0.5", Some("gzip")),
        (gzip_first, "identity;q=0, gzip;q=0.1", Some("gzip")),
        (gzip_first, "x-gzip", Some("gzip")),
        (gzip_first, "GZip", Some("gzip")),
        (gzip_first, "gzipped, zstandard", None),
        (gzip_first, "br, deflate", None),
        (gzip_first, "", None),
    ] {
        // One after the other, since a configuration holds for all.
        let server = Server::start(build, &format!("slipstream_gzip_codings {codings};"));
        let response = server.get(accepted);
        assert_eq!(
            response.header("Content-Encoding"),
            chosen,
            "{codings}: {accepted}"
        );
        assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
        assert!(decode(&response) == Content::Html.bytes(LENGTH));
    }
}

fn what_must_not_be_transformed_is_not(build: Build) {
    let server = Server::start(build, "slipstream_gzip_proxied any;");
    for (query, is_encoded) in [
        ("Cache-Control=no-transform", false),
        ("Cache-Control=public,+no-transform,+max-age=60", false),
        ("Cache-Control=No-Transform", false),
        ("Cache-Control=max-age=60", true),
        ("Cache-Control=max-age=60&Cache-Control=no-transform", false),
        ("X=no-transform", true),
    ] {
        for framing in ["length", "chunked"] {
            let path = format!("/{framing}/html/{LENGTH}?{query}");
            let request = server.site.get(Place::Software, &path);
            let response = request.accepting("gzip").fetch().unwrap();
            let encoding = response.header("Content-Encoding");
            assert_eq!(encoding.is_some(), is_encoded, "{query}");
            assert!(decode(&response) == Content::Html.bytes(LENGTH), "{query}");
        }
    }
    let path = format!("/length/html/{LENGTH}?Content-Encoding=br");
    let request = server.site.get(Place::Software, &path);
    let response = request.accepting("gzip").fetch().unwrap();
    let encodings: Vec<_> = response.headers("Content-Encoding").collect();
    assert_eq!(encodings, ["br"]);
    assert!(response.body == Content::Html.bytes(LENGTH));
}

/// The filter that is switched on compresses, and leaves alone what the other has compressed.
fn one_filter_or_the_other(build: Build) {
    for (directives, is_encoded) in [
        ("gzip on; slipstream_gzip on;", true),
        ("gzip on; slipstream_gzip off;", true),
        ("gzip off; slipstream_gzip on;", true),
        ("gzip off; slipstream_gzip off;", false),
    ] {
        let server = Server::start_with(build, &format!("gzip_vary on; {directives}"));
        let response = server.get("gzip");
        let encodings: Vec<_> = response.headers("Content-Encoding").collect();
        let expected: &[&str] = if is_encoded { &["gzip"] } else { &[] };
        assert_eq!(encodings, expected, "{directives}");
        assert!(
            decode(&response) == Content::Html.bytes(LENGTH),
            "{directives}"
        );
    }
}

fn the_ratio_is_logged(build: Build) {
    let site = Site::new();
    let address = unused_address();
    let log = site.folder().join("ratios");
    let configuration = site
        .configuration(build, None, defaults())
        .http("log_format ratio $slipstream_gzip_ratio;")
        .server(
            address,
            &[],
            format!("access_log {} ratio; {}", log.display(), site.locations()),
        );
    let nginx = Nginx::start(build, &configuration);
    let path = site.file(Content::Html, LENGTH);
    let mut ratios = Vec::new();
    for accepted in ["gzip", "zstd", "br"] {
        let request = Request::get(address, &path).accepting(accepted);
        let response = request.fetch().unwrap();
        let ratio = LENGTH as f64 / response.body.len() as f64;
        ratios.push((accepted != "br").then_some(ratio));
    }
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    eventually("all requests are logged", || lines().lines().count() == 3);
    for (line, ratio) in lines().lines().zip(ratios) {
        let Some(ratio) = ratio else {
            assert_eq!(line, "-");
            continue;
        };
        let logged: f64 = line.parse().unwrap();
        assert!((logged - ratio).abs() < 0.011, "{line} {ratio}");
        assert_eq!(line.split('.').nth(1).map(str::len), Some(2), "{line}");
    }
    nginx.settled();
}

struct Server {
    site: Site,
    _nginx: Nginx,
}

impl Server {
    fn start(build: Build, directives: &str) -> Self {
        let on = "slipstream_gzip on; slipstream_gzip_vary on;";
        Self::start_with(build, &format!("{on} {directives}"))
    }

    fn start_with(build: Build, directives: &str) -> Self {
        let site = Site::new();
        let configuration = site.configuration(build, None, directives);
        Self {
            site,
            _nginx: Nginx::start(build, &configuration),
        }
    }

    fn get(&self, accepted: &str) -> Response {
        let path = self.site.file(Content::Html, LENGTH);
        let request = self.site.get(Place::Software, &path);
        request.accepting(accepted).fetch().unwrap()
    }
}
