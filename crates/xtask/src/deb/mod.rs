//! Debian packages.

mod bom;
mod notices;
mod stage;

pub(crate) use stage::stage;
