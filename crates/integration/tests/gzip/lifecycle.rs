//! Reloads, upgrades and the end, while responses are compressed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use slipstream_integration::process::{is_running, quit};
use slipstream_integration::{
    Authority, Build, Configuration, Content, Engine, KeyType, Lanes, Nginx, decode, each_build,
    eventually, programs, unused_address,
};

use crate::readers::{Page, Readers};
use crate::site::{Place, Site, defaults};

each_build!(
    many_reloads_under_load,
    an_upgrade_under_load,
    what_has_begun_is_completed_before_the_end,
    many_streams_over_tls,
);

const LENGTH: usize = 500_000;

fn many_reloads_under_load(build: Build) {
    const RELOADS: usize = 15;
    let engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(build, Some(&engine), defaults());
    let nginx = Nginx::start(build, &configuration);
    let readers = Readers::start(&pages(&site), 1);
    for _ in 0..RELOADS {
        readers.wait_for(1);
        nginx.signal(Signal::HUP);
        thread::sleep(Duration::from_millis(100));
    }
    readers.wait_for(20);
    readers.stop();
    eventually("old workers exit", || nginx.workers().len() == 1);
    eventually("old workers are forgotten", || {
        engine.figure("/instances") == 1
    });
    nginx.settled();
}

fn an_upgrade_under_load(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(build, Some(&engine), defaults());
    let mut nginx = Nginx::start(build, &configuration.daemon());
    let readers = Readers::start(&pages(&site), 1);
    readers.wait_for(20);
    let old = nginx.upgrade();
    readers.wait_for(20);
    quit(old);
    eventually("the old master exits", || !is_running(old));
    readers.wait_for(20);
    readers.stop();
    nginx.settled();
}

fn what_has_begun_is_completed_before_the_end(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let length = 4_000_000;
    let path = site.file(Content::Random, length);
    // They are read one after the other.
    let directives = format!("{} send_timeout 3600s;", defaults());
    let configuration = site.configuration(build, Some(&engine), &directives);
    let mut nginx = Nginx::start(build, &configuration);
    let begun: Vec<_> = Place::ALL
        .into_iter()
        .flat_map(|place| ["gzip", "zstd"].map(|coding| (place, coding)))
        .map(|(place, coding)| site.get(place, &path).accepting(coding).open().unwrap())
        .collect();
    nginx.signal(Signal::QUIT);
    eventually("the worker is told", || {
        nginx.log_lines_with("gracefully shutting down") > 0
    });
    let content = Content::Random.bytes(length);
    for incoming in begun {
        assert!(decode(&incoming.rest().unwrap()) == content);
    }
    nginx.wait_for_exit();
}

/// The filter, the engine for both kinds of work, and handshakes that pause, all at once.
fn many_streams_over_tls(build: Build) {
    let engine = Engine::start(&[]);
    let authority = Authority::new();
    let address = unused_address();
    let site = Site::new();
    let path = site.file(Content::Html, LENGTH);
    let (parameter, directive) = build.http2();
    let configuration = Configuration::new()
        .lanes(Lanes::ForcedWith(engine.directive()))
        .http(defaults())
        .server(
            format!("{address} ssl{parameter}"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!("{directive} {}", site.locations()),
        );
    let nginx = Nginx::start(build, &configuration);
    for coding in ["gzip", "zstd"] {
        let url = format!("https://{address}{path}");
        let header = format!("accept-encoding: {coding}");
        let arguments = ["-n", "640", "-c", "8", "-m", "32", "-H", &header, &url];
        let output = programs::run("h2load", arguments).expect_success();
        let succeeded = "640 total, 640 started, 640 done, 640 succeeded, 0 failed, 0 errored";
        assert!(output.contains(succeeded), "{output}");
        assert!(output.contains("status codes: 640 2xx"), "{output}");
    }
    assert!(engine.figure("/compressed_chunks") > 0);
    assert!(engine.figure("/batches") > 0);
    nginx.settled();
}

fn pages(site: &Site) -> Vec<Page> {
    let content = Arc::new(Content::Html.bytes(LENGTH));
    let file = site.file(Content::Html, LENGTH);
    let upstream = format!("/chunked/html/{LENGTH}");
    Place::ALL
        .into_iter()
        .flat_map(|place| [(place, &file), (place, &upstream)])
        .enumerate()
        .map(|(number, (place, path))| Page {
            address: site.address(place),
            path: path.clone(),
            coding: ["gzip", "zstd"][number / 2 % 2],
            content: content.clone(),
        })
        .collect()
}
