//! Options and output that the commands of benches share.

pub mod experiment;
pub mod options;
pub mod output;
pub mod transfers;
