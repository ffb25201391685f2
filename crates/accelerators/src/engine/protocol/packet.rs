//! The numbers and texts that a packet consists of.

use slipstream_keys::Handle;
use zeroize::Zeroizing;

use super::layout::Layout;
use super::message::{MESSAGE_BYTES, Malformed};
use super::policy::Policy;

/// Writes a packet; it may hold secrets.
pub(super) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    pub(super) fn new() -> Self {
        // Enough for every message, since a vector that grows leaves copies of secrets behind.
        Self(Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES)))
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).expect("no message is that long");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn handle(&mut self, handle: Handle) {
        self.bytes(&handle.0.to_le_bytes());
    }

    pub(super) fn into_packet(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

/// Reads a packet from its beginning to its end.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(packet: &'a [u8]) -> Self {
        Self(packet)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    pub(super) fn layout(&mut self) -> Result<Layout, Malformed> {
        let rings = Layout::new(self.size()?).ok_or(Malformed("a ring of that many slots"))?;
        let (count, content_bytes) = (self.size()?, self.size()?);
        let layout = rings.with_buffers(count, content_bytes);
        // Each layout has one encoding only.
        layout
            .filter(|layout| layout.content_bytes() == content_bytes)
            .ok_or(Malformed("buffers of that number or length"))
    }

    fn size(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed("a number of that size"))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.take(2)?.try_into().expect("two bytes");
        self.take(usize::from(u16::from_le_bytes(length)))
    }

    pub(super) fn handle(&mut self) -> Result<Handle, Malformed> {
        let handle = self.bytes()?.try_into();
        let handle = handle.map_err(|_| Malformed("length of a handle"))?;
        Ok(Handle(u64::from_le_bytes(handle)))
    }

    pub(super) fn policy(&mut self) -> Result<Policy, Malformed> {
        Policy::from_byte(self.byte()?).ok_or(Malformed("unknown use of a key"))
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed("too long")),
        }
    }
}
