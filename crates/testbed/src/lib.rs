//! Servers on this machine for benches and tests: nginx, its peers and the engine are found,
//! configured, started, measured and stopped.
//!
//! - [`nginx`], [`peers`], [`engine`], [`origin`]: the servers. A server is stopped when its value
//!   is dropped.
//! - [`server`]: a server process of any kind, and the CPU time of it and its descendants.
//! - [`credentials`], [`suite`]: throw-away keys and certificates, and the kinds of TLS handshake
//!   that a port can be restricted to.
//! - [`scratch`], [`port`], [`program`]: directories, ports and executables.
//! - [`probe`], [`status`]: handshakes with a server, and the module's own figures about them.
//! - [`processor`], [`process`], [`machine`]: processor cores, facts about processes, and a
//!   description of the machine.
//! - [`cleanup`], [`child`]: nothing that was started outlives this program.
//!
//! It neither measures nor asserts: `slipstream-bench` measures, and the assertions of tests are in
//! `slipstream-integration`.

pub mod child;
pub mod cleanup;
pub mod credentials;
pub mod engine;
pub mod error;
pub mod machine;
pub mod nginx;
pub mod origin;
pub mod output;
pub mod peers;
pub mod port;
pub mod probe;
pub mod process;
pub mod processor;
pub mod program;
pub mod scratch;
pub mod server;
pub mod status;
pub mod suite;

pub use error::Error;
