//! Stands in for igzip where it is not built in.

use std::ops::RangeInclusive;

use crate::stream::{Flush, Progress};

pub(super) const LEVELS: RangeInclusive<u8> = 1..=3;

pub(super) fn is_available() -> bool {
    false
}

pub(super) struct Igzip;

impl Igzip {
    pub fn new(_level: u8) -> Self {
        Self
    }

    pub fn set_level(&mut self, _level: u8) {
        absent()
    }

    pub fn encode_chunk(&mut self, _content: &[u8], _is_last: bool, _output: &mut Vec<u8>) -> bool {
        absent()
    }

    pub fn begin(&mut self) {
        absent()
    }

    pub fn encode(
        &mut self,
        _content: &mut &[u8],
        _flush: Flush,
        _output: &mut Vec<u8>,
    ) -> Progress {
        absent()
    }

    pub fn memory(&self) -> usize {
        absent()
    }
}

fn absent() -> ! {
    unreachable!("igzip is not built in")
}
