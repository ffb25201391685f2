//! Responses that are compressed, in software and over a device, by a real nginx for real clients.

mod aborts;
mod bodies;
mod buffers;
mod clients;
mod comparison;
mod device;
mod directives;
mod flushing;
mod lifecycle;
mod memory;
mod negotiation;
mod neighbours;
mod readers;
mod site;
mod slow;
