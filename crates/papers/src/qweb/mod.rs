//! The experiments of "QWEB: High-Performance Event-Driven Web Architecture with QAT Acceleration"
//! about compressed responses (sections 5.3 and 5.4, figures 12 to 14), with an engine in software
//! instead of its card.
//!
//! The measurements are those of `slipstream_bench::transfers`, with pages of the paper's lengths.
//! There is one worker: how throughput grows with their number, the horizontal axis of figure 12,
//! is not measured. The lengths of stream and chunk of figure 11 are those of `slipstream bench
//! compress --engine`.

mod differences;
mod paper;
mod report;

pub use paper::{CLAIMS, Claim, Measure};
pub use report::{Outcome, write_report};
