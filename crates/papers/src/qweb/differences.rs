//! Differences from the paper.

/// In all figures.
pub(super) const SETTING: &[&str] = &[
    "The accelerator is an engine in software. It compresses with vector instructions and shares a core with the load \
     generator: where the two together take most of that core (the columns \"engine\" and \"load\"), they are the \
     limit and not the server. The paper has a card with several engines of its own in the chipset.",
    "Since the engine is no faster than a core, offloading gains the time of that other core; \"software\" gains the \
     difference between zlib and our library.",
    "A worker that waits for the engine (straight, pipelined) polls it without sleeping, so its share of its core says less \
     than the paper's CPU utilization: time spent waiting is in it, and in the CPU time per request.",
    "There is one worker with a core to itself. The paper has one in figure 11, two to twenty in figure 12, and eight, two of \
     which share a physical core as its hyper-threads, in figures 13 and 14.",
    "The pages are chapters of the Debian Reference, cut to the lengths of the paper's news pages; the text is of Debian's \
     policy manuals and has the length of the paper's, from the Calgary Corpus.",
    "The clients are one process over loopback with 64 connections; the paper's are 400 of ab on another machine.",
    "In figure 14 the paper's card encrypts too (AES128-SHA). Here private-key operations and key exchanges are accelerated \
     (+tls), and the worker encrypts with AES-GCM, in instructions of its CPU. With connections that are kept there is \
     nothing to accelerate but the first handshake of each.",
];

/// A remark on the transport that the paper does not have.
pub(super) const NEW_CONNECTIONS: &str = "Not in the paper: with a handshake for each request, \
    what +tls accelerates is a part of every response.";
