//! Shared code of the integration tests: servers that are started, watched and stopped, keys and
//! certificates, clients, and the module's own figures.
//!
//! A test starts [`Nginx`] with a [`Configuration`], talks to it with a [`Client`] or a program of
//! somebody else's ([`programs`]), and compares [`Metrics`] before and after: whatever is tested,
//! lanes must have done the work. When the server is dropped at the end of a test that has not
//! failed, it is checked: nothing is in flight, no operation was orphaned, the error log holds
//! nothing alarming, and it exits in order. What a test provokes it has to announce
//! ([`Nginx::expect_log`], [`Nginx::expect_orphans`]).
//!
//! Every test runs with both [`Build`]s of nginx:
//!
//! ```ignore
//! each_build!(a_page_is_served);
//!
//! fn a_page_is_served(build: Build) {
//!     let authority = Authority::new();
//!     let address = unused_address();
//!     let nginx = Nginx::start(build, &Configuration::new().server(
//!         format!("{address} ssl"),
//!         &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
//!         "location / { return 200 served; }",
//!     ));
//!     let response = Client::new(address, &Offer::tls13()).get("/").unwrap();
//!     assert_eq!(response.text(), "served");
//!     assert_eq!(nginx.settled().lane_operations(), 1);
//! }
//! ```

pub mod abuse;
mod begun;
mod bodies;
mod build;
mod client;
mod configuration;
mod credentials;
mod decoding;
mod engine;
mod haproxy;
mod http;
mod http2;
mod log;
pub mod memcheck;
mod metrics;
mod nginx;
mod origin;
mod plain;
mod port;
pub mod process;
pub mod programs;
mod random;
mod responder;
pub mod server;
pub mod socket;
pub mod sockets;
mod terminator;
mod visitors;
mod wait;

pub use begun::{Begun, InFlight, Stopped};
pub use bodies::Content;
pub use build::Build;
pub use client::{Client, ClientError, Connection, EarlyConnection, Offer, Session, concurrently};
pub use configuration::{Configuration, Lanes, server_block};
pub use credentials::{Authority, Credentials, KeyType};
pub use decoding::{Inflater, decode, decode_zstd};
pub use engine::{Engine, executable as command};
pub use haproxy::{Haproxy, HaproxyConfiguration};
pub use http::Response;
pub use http2::Http2;
pub use metrics::Metrics;
pub use nginx::Nginx;
pub use origin::Origin;
pub use plain::{Incoming, Request};
pub use port::unused_address;
pub use random::Random;
pub use responder::Responder;
pub use server::Server;
pub use terminator::{Terminator, TerminatorConfiguration};
pub use visitors::{Visitors, Visits};
pub use wait::{PATIENCE, eventually};

/// Makes a test of every named function for each [`Build`] of nginx, which the function takes as
/// its argument.
#[macro_export]
macro_rules! each_build {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn distribution() {
                super::$test($crate::Build::Distribution);
            }

            #[test]
            fn published() {
                super::$test($crate::Build::Published);
            }
        }
    )*};
}
