//! One module per paper: the options of its command, and the lines that it prints.

pub mod qtls;
pub mod qweb;
pub mod squid;
