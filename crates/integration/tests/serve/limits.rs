//! Clients that are refused, and clients that take too long.

use std::io::{Read, Write};
use std::net::TcpStream;

use slipstream_integration::{Begun, KeyType, Offer, PATIENCE, eventually};

use crate::abuse::expect_rest;
use crate::site::Site;

#[test]
fn connections_beyond_the_limit_are_refused() {
    let site = Site::http(&[KeyType::EcdsaP256], "[limits]\nconnections = 3");
    let client = site.client(&Offer::tls13());
    let mut open: Vec<_> = (0..3).map(|_| client.connect().unwrap()).collect();
    assert!(client.connect().is_err());
    assert!(
        site.terminator
            .metric("slipstream_serve_refused_connections_total", "connections")
            >= 1
    );
    assert_eq!(open.pop().unwrap().get("/").unwrap().text(), "served");
    // There is room for another one.
    eventually("there is room", || client.get("/").is_ok());
    drop(open);
}

#[test]
fn an_address_that_comes_too_often_is_refused() {
    // Slower than any machine: forty of them would have to take forty seconds to be let in.
    let site = Site::http(
        &[KeyType::EcdsaP256],
        "[limits]\nconnections_per_second = 1",
    );
    let client = site.client(&Offer::tls13());
    let served = (0..40).filter(|_| client.get("/").is_ok()).count();
    assert!((2..40).contains(&served), "{served}");
    assert!(
        site.terminator
            .metric("slipstream_serve_refused_connections_total", "rate")
            > 0
    );
    eventually("time passes", || client.get("/").is_ok());
}

#[test]
fn handshakes_that_do_not_go_on_keep_nobody_waiting() {
    let site = Site::http(
        &[KeyType::EcdsaP256],
        "[limits]\nhandshakes = 1\nhandshake_timeout = \"1h\"",
    );
    let client = site.client(&Offer::tls13());
    let hello = slipstream_integration::abuse::client_hello(&client);
    let halves: Vec<TcpStream> = (0..8)
        .map(|number| {
            let mut half = TcpStream::connect(site.address).unwrap();
            half.write_all(&hello[..number * hello.len() / 8]).unwrap();
            half
        })
        .collect();
    let begun: Vec<Begun> = (0..8).map(|_| Begun::new(&client).unwrap()).collect();
    for begun in &begun {
        // Who has an answer has had a place.
        let _ = begun.socket().peek(&mut [0]);
    }
    assert_eq!(client.get("/").unwrap().text(), "served");
    drop((begun, halves));
    expect_rest(&site);
}

#[test]
fn a_slow_handshake_ends() {
    let site = Site::http(
        &[KeyType::EcdsaP256],
        "[limits]\nhandshake_timeout = \"500ms\"",
    );
    let mut silent = TcpStream::connect(site.address).unwrap();
    expect_end(&mut silent);
    let hello = slipstream_integration::abuse::client_hello(&site.client(&Offer::tls13()));
    let mut half = TcpStream::connect(site.address).unwrap();
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    expect_end(&mut half);
    // A connection is closed before it is counted.
    eventually("both are counted", || {
        site.terminator
            .metric("slipstream_serve_failed_handshakes_total", "timed_out")
            == 2
    });
    expect_rest(&site);
}

#[test]
fn idle_connections_and_slow_headers_end() {
    let site = Site::http(
        &[KeyType::EcdsaP256],
        "[limits]\nidle_timeout = \"500ms\"\nheader_timeout = \"500ms\"",
    );
    let client = site.client(&Offer::tls13());
    let idle = client.connect().unwrap();
    let mut asked = None;
    // On a busy machine its time may be over before it has asked.
    eventually("one asks in time", || {
        let mut connection = client.connect().unwrap();
        let is_served = connection.get("/").is_ok();
        asked = Some(connection);
        is_served
    });
    let mut slow = client.connect().unwrap();
    slow.send(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    expect_rest(&site);
    drop((idle, asked, slow));
}

fn expect_end(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}
