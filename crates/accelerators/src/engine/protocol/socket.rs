//! Packets and descriptors over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use arrayvec::ArrayVec;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use zeroize::Zeroizing;

use super::message::MESSAGE_BYTES;

/// The descriptors that come with a message: at most three.
pub type Descriptors = ArrayVec<OwnedFd, 3>;

/// A message with its descriptors.
pub struct Packet {
    bytes: Zeroizing<Vec<u8>>,
    /// The descriptors.
    pub descriptors: Descriptors,
}

impl Packet {
    /// The message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes a socket for packets that does not block.
///
/// # Errors
/// If the system has no descriptor for it.
pub fn new() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(socket)
}

/// Connects to the engine that listens at `path`.
///
/// # Errors
/// If no engine listens there, if it is too busy to accept, or if this user may not connect.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = new()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends a whole message.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the other side does not read, and other errors of sending.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let pushed = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(pushed, "at most three descriptors");
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Receives a message; `None` if the other side has closed the connection.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if there is none, [`io::ErrorKind::InvalidData`] if it is too
/// long, and other errors of receiving.
pub fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    let mut bytes = Zeroizing::new(vec![0; MESSAGE_BYTES + 1]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Descriptors::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            // The kernel has cut them to the room for them. Any more are closed here.
            descriptors.extend(received.take(3));
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.bytes > MESSAGE_BYTES || received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message that is too long",
        ));
    }
    bytes.truncate(received.bytes);
    Ok(Some(Packet { bytes, descriptors }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair of sockets")
    }

    #[test]
    fn a_message_comes_with_its_descriptors() {
        let (ours, theirs) = pair();
        send(&ours, b"hello", &[ours.as_fd(), theirs.as_fd()]).expect("room");
        let packet = receive(&theirs)
            .expect("a message")
            .expect("an open socket");
        assert_eq!(
            (packet.bytes(), packet.descriptors.len()),
            (&b"hello"[..], 2)
        );
        let refused = receive(&theirs).err().expect("nothing is there");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(packet);
        drop(ours);
        assert!(receive(&theirs).expect("the end").is_none());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (ours, theirs) = pair();
        send(&ours, &[1; MESSAGE_BYTES + 7], &[]).expect("room");
        let refused = receive(&theirs).err().expect("too long");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        send(&ours, &[1; MESSAGE_BYTES], &[]).expect("room");
        let packet = receive(&theirs)
            .expect("a message")
            .expect("an open socket");
        assert_eq!(packet.bytes().len(), MESSAGE_BYTES);
    }
}
