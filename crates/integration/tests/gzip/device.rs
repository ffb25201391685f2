//! A device that dies or hangs while responses are in flight.

use std::sync::Arc;

use rustix::process::Signal;
use slipstream_integration::{Build, Content, Engine, Nginx, each_build, eventually};
use slipstream_testbed::processor::usable_cores;

use crate::readers::{Page, Readers};
use crate::site::{Place, Site, defaults};

each_build!(
    an_engine_that_crashes_and_comes_back,
    an_engine_that_hangs_is_taken_out_and_let_in_again,
    an_engine_that_is_not_there,
    an_engine_with_two_threads,
);

const LENGTH: usize = 2_000_000;

fn an_engine_that_crashes_and_comes_back(build: Build) {
    let mut engine = Engine::start(&[]);
    let (site, nginx) = start(build, &engine);
    let readers = Readers::start(&pages(&site), 1);
    for _ in 0..3 {
        readers.wait_for(10);
        engine.kill();
        readers.wait_for(20);
        engine.restart();
        eventually("the device is used again", || {
            engine.figure("/compressed_chunks") > 100
        });
    }
    readers.stop();
    nginx.settled();
}

fn an_engine_that_hangs_is_taken_out_and_let_in_again(build: Build) {
    let engine = Engine::start(&[]);
    let (site, nginx) = start(build, &engine);
    let readers = Readers::start(&pages(&site), 1);
    for _ in 0..2 {
        readers.wait_for(10);
        engine.signal(Signal::STOP);
        // Without waiting for the engine.
        readers.wait_for(30);
        engine.signal(Signal::CONT);
        let before = engine.figure("/compressed_chunks");
        eventually("the device is used again", || {
            engine.figure("/compressed_chunks") > before + 100
        });
    }
    readers.stop();
    nginx.settled();
}

fn an_engine_that_is_not_there(build: Build) {
    let mut engine = Engine::absent(&[]);
    let (site, nginx) = start(build, &engine);
    let readers = Readers::start(&pages(&site), 1);
    readers.wait_for(10);
    engine.restart();
    eventually("the device is used", || {
        engine.figure("/compressed_chunks") > 100
    });
    readers.stop();
    nginx.settled();
}

fn an_engine_with_two_threads(build: Build) {
    let cores = usable_cores().unwrap();
    let (first, second) = (cores[0], cores[1 % cores.len()]);
    let engine = Engine::start(&["--cores", &format!("{first},{second}")]);
    let (site, nginx) = start(build, &engine);
    let readers = Readers::start(&pages(&site), 2);
    readers.wait_for(60);
    readers.stop();
    assert!(engine.figure("/compressed_chunks") > 100);
    nginx.settled();
}

fn start(build: Build, engine: &Engine) -> (Site, Nginx) {
    let site = Site::new();
    let configuration = site.configuration(build, Some(engine), defaults());
    let nginx = Nginx::start(build, &configuration);
    (site, nginx)
}

/// Large ones that a device has a part in, in both codings.
fn pages(site: &Site) -> Vec<Page> {
    let path = site.file(Content::Html, LENGTH);
    let content = Arc::new(Content::Html.bytes(LENGTH));
    let places = [Place::Failover, Place::Device, Place::Pipelined];
    places
        .into_iter()
        .flat_map(|place| ["gzip", "zstd"].map(|coding| (place, coding)))
        .map(|(place, coding)| Page {
            address: site.address(place),
            path: path.clone(),
            coding,
            content: content.clone(),
        })
        .collect()
}
