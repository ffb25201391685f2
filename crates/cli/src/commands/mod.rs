//! One module per command: its options and what it prints.

pub mod bench_compress;
pub mod bench_handshake;
pub mod bench_kernels;
pub mod bench_load;
pub mod bench_pages;
pub mod demo;
pub mod doctor;
pub mod engine;
mod figures;
pub mod manual;
mod options;
pub mod serve;
pub mod status;
