//! `slipstream_gzip`: compression of responses in parallel pipelines (Li et al., "QWEB", 2020,
//! sections 3.3 and 4.2).
//!
//! [`filter`] comes one place before nginx's own gzip filter, so that a response is not compressed
//! twice. [`eligibility`] decides which responses are compressed. The sessions of
//! `slipstream_compress` compress them, and may have chunks in flight at the device. [`jobs`] finds
//! the request of a session when the device has answered.

mod configuration;
mod directives;
mod eligibility;
mod filter;
mod headers;
mod jobs;
mod needs;
mod output;
mod request;
mod variable;

pub(crate) use configuration::{create_location, create_main, merge_location, needs};
pub(crate) use directives::COMMANDS;
pub(crate) use filter::{install, resume};
pub(crate) use jobs::{begin_turn, make_context};
pub(crate) use needs::Needs;
pub(crate) use variable::add as add_variables;
