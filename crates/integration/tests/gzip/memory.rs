//! Compression under valgrind's memcheck: in software and over a device, to the end and not.

use std::collections::BTreeSet;

use slipstream_integration::memcheck::{Memcheck, MemoryError};
use slipstream_integration::{Build, Content, Engine, Origin, Request, decode, eventually};

use crate::site::{Place, Site, small};

#[test]
fn the_filter_adds_no_error_to_those_of_a_stock_nginx() {
    let stock = errors("gzip on; gzip_http_version 1.0;");
    let added: Vec<_> = errors(&small())
        .into_iter()
        .filter(|error| !stock.contains(error) && !happens_once(error))
        .collect();
    assert!(added.is_empty(), "{added:#?}");
}

/// Returns true if the memory is held by a worker until its end, and so is lost then.
fn happens_once(error: &MemoryError) -> bool {
    let starts = |function: &String| function.ends_with("::init_process");
    error.kind == "Leak_DefinitelyLost" && error.stack.iter().any(starts)
}

fn errors(directives: &str) -> BTreeSet<MemoryError> {
    let engine = Engine::start(&[]);
    let site = Site::with(Origin::new());
    let configuration = site.configuration(Build::Distribution, Some(&engine), directives);
    let mut nginx = Memcheck::start(Build::Distribution, &configuration);
    for _ in 0..2 {
        serve(&site);
        nginx.reload(&configuration);
    }
    serve(&site);
    eventually("nothing is in flight", || nginx.metrics().in_flight() == 0);
    nginx.finish()
}

fn serve(site: &Site) {
    for place in Place::ALL {
        for coding in ["gzip", "zstd"] {
            for length in [20, 30_000, 300_000] {
                for path in [
                    site.file(Content::Html, length),
                    format!("/chunked/random/{length}"),
                ] {
                    let content = match path.starts_with("/files") {
                        true => Content::Html,
                        false => Content::Random,
                    };
                    let request = Request::get(site.address(place), &path).accepting(coding);
                    let response = request.fetch().unwrap();
                    assert!(decode(&response) == content.bytes(length));
                    // Another leaves early.
                    drop(request.open().unwrap());
                }
            }
        }
    }
}
