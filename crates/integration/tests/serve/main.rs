//! `slipstream serve` with real clients and real servers behind it.

mod abuse;
mod behind;
mod clients;
mod front;
mod handshakes;
mod lifecycle;
mod limits;
mod memory;
mod site;
