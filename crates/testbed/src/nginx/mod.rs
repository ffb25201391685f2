//! nginx: found, configured, started, measured and stopped.

mod binary;
mod configuration;
mod module;
mod server;

pub use binary::Binary;
pub(crate) use binary::last_lines;
pub use configuration::{Configuration, Listener};
pub use configuration::{quote, write_suite};
pub use module::{INSTALLED_MODULE, MODULE_FILE, find_module, module_candidates};
pub use server::{Server, ServerOptions};
