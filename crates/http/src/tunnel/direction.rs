//! One direction of a tunnel.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Size of one TLS record.
const BUFFER_BYTES: usize = 16 * 1024;
/// Buffers forwarded before other connections of the event loop get their turn.
const MAX_BUFFERS_PER_POLL: u32 = 16;

/// Longest time that a header waits for the first bytes, so that both can be sent together. A
/// server that receives the header alone wakes up twice. Where the client speaks first, its bytes
/// are there or about to arrive. Where the server speaks first, this time is lost once per
/// connection.
const HEADER_DELAY: Duration = Duration::from_millis(5);

thread_local! {
    /// Buffer of the event loop. Most tunnels that are polled have nothing to read, and need a
    /// buffer only for a moment.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// One direction of a tunnel.
pub struct Direction {
    /// Buffer while it holds bytes; an idle tunnel has none.
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    has_unflushed: bool,
    stage: Stage,
    /// Header that waits for the first bytes.
    header: Option<Header>,
    /// Bytes in the buffer that belong to the header, and are not counted.
    uncounted: usize,
    /// Bytes written since the last call of `take_count`.
    count: u64,
}

struct Header {
    bytes: Vec<u8>,
    /// Timer that starts if the first bytes are not there yet.
    delay: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copying,
    Ending,
    Ended,
}

impl Direction {
    /// Begins with `header`, which must be shorter than a buffer.
    pub fn new(header: Option<Vec<u8>>) -> Self {
        Self {
            buffer: None,
            start: 0,
            end: 0,
            has_unflushed: false,
            stage: Stage::Copying,
            header: header.map(|bytes| Header { bytes, delay: None }),
            uncounted: 0,
            count: 0,
        }
    }

    /// Returns the bytes written since the last call, without the header.
    pub fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }

    /// Returns true if the source has ended in order and the destination has been told.
    pub fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Returns true if the destination has to take bytes before more are read.
    pub fn is_blocked(&self) -> bool {
        self.start < self.end
    }

    /// Forwards available bytes. Ready when the source has ended and the destination has been told.
    ///
    /// # Errors
    /// Returns the error of either side.
    pub fn poll<F, T>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
    ) -> Poll<io::Result<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let mut buffers = 0;
        while self.stage == Stage::Copying {
            if self.start == self.end {
                if buffers == MAX_BUFFERS_PER_POLL {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                buffers += 1;
                match self.poll_fill(context, from)? {
                    Poll::Ready(()) => {}
                    Poll::Pending => {
                        if self.has_unflushed {
                            ready!(Pin::new(to).poll_flush(context))?;
                            self.has_unflushed = false;
                        }
                        return Poll::Pending;
                    }
                }
            }
            ready!(self.poll_drain(context, to))?;
        }
        if self.stage == Stage::Ending {
            // The buffer may hold a header if the client has ended without sending anything.
            ready!(self.poll_drain(context, to))?;
            ready!(Pin::new(to).poll_shutdown(context))?;
            self.stage = Stage::Ended;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<()>> {
        let mut bytes = self
            .buffer
            .take()
            .or_else(|| SPARE.take())
            .unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
        let header_length = self.header.as_ref().map_or(0, |header| header.bytes.len());
        let mut buffer = ReadBuf::new(&mut bytes[header_length..]);
        let outcome = Pin::new(from).poll_read(context, &mut buffer);
        (self.start, self.end) = (0, buffer.filled().len());
        if matches!(outcome, Poll::Ready(Ok(()))) && self.end == 0 {
            self.stage = Stage::Ending;
        }
        let outcome = match outcome {
            Poll::Pending => self.poll_delay(context).map(Ok),
            outcome => outcome,
        };
        if let Poll::Ready(Ok(())) = outcome
            && let Some(header) = self.header.take()
        {
            bytes[..header_length].copy_from_slice(&header.bytes);
            self.end += header_length;
            self.uncounted = header_length;
        }
        if self.end > 0 {
            self.buffer = Some(bytes);
        } else {
            SPARE.set(Some(bytes));
        }
        outcome
    }

    /// Ready when the header is to be sent alone.
    fn poll_delay(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(header) = &mut self.header else {
            return Poll::Pending;
        };
        header
            .delay
            .get_or_insert_with(|| Box::pin(sleep(HEADER_DELAY)))
            .as_mut()
            .poll(context)
    }

    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let bytes = self.buffer.as_deref().unwrap_or_default();
        while self.start < self.end {
            let written =
                ready!(Pin::new(&mut *to).poll_write(context, &bytes[self.start..self.end]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.start += written;
            let of_header = written.min(self.uncounted);
            self.uncounted -= of_header;
            self.count += (written - of_header) as u64;
            self.has_unflushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const HEADER: &[u8] = b"PROXY UNKNOWN\r\n";

    fn with_header() -> (Direction, DuplexStream, DuplexStream, Writes) {
        let (client, client_side) = duplex(64);
        let direction = Direction::new(Some(HEADER.to_vec()));
        (direction, client, client_side, Writes::default())
    }

    async fn once(direction: &mut Direction, from: &mut DuplexStream, to: &mut Writes) -> Poll<()> {
        let outcome = poll_fn(|context| Poll::Ready(direction.poll(context, from, to))).await;
        outcome.map(Result::unwrap)
    }

    #[tokio::test]
    async fn a_header_is_sent_with_the_first_bytes() {
        let (mut direction, mut client, mut client_side, mut writes) = with_header();
        assert!(
            once(&mut direction, &mut client_side, &mut writes)
                .await
                .is_pending()
        );
        client.write_all(b"hello").await.unwrap();
        assert!(
            once(&mut direction, &mut client_side, &mut writes)
                .await
                .is_pending()
        );
        client.write_all(b"more").await.unwrap();
        client.shutdown().await.unwrap();
        assert!(
            once(&mut direction, &mut client_side, &mut writes)
                .await
                .is_ready()
        );
        assert_eq!(writes.0, [[HEADER, b"hello"].concat(), b"more".to_vec()]);
        assert_eq!(direction.take_count(), 9);
        assert!(direction.has_ended());
    }

    #[tokio::test]
    async fn a_header_waits_for_no_client_that_is_silent_or_has_ended() {
        let (mut direction, mut client, mut client_side, mut writes) = with_header();
        while writes.0.is_empty() {
            assert!(
                once(&mut direction, &mut client_side, &mut writes)
                    .await
                    .is_pending()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(writes.0, [HEADER]);
        client.shutdown().await.unwrap();
        assert!(
            once(&mut direction, &mut client_side, &mut writes)
                .await
                .is_ready()
        );
        assert_eq!(writes.0, [HEADER]);

        let (mut direction, mut client, mut client_side, mut writes) = with_header();
        client.shutdown().await.unwrap();
        assert!(
            once(&mut direction, &mut client_side, &mut writes)
                .await
                .is_ready()
        );
        assert_eq!(writes.0, [HEADER]);
        assert_eq!(direction.take_count(), 0);
    }

    #[tokio::test]
    async fn a_header_that_does_not_fit_is_sent_to_its_end() {
        let (mut direction, mut client, mut client_side, _) = with_header();
        let (mut backend_side, mut backend) = duplex(4);
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        let (sent, read) = tokio::join!(
            poll_fn(|context| direction.poll(context, &mut client_side, &mut backend_side)),
            backend.read_to_end(&mut received),
        );
        sent.unwrap();
        read.unwrap();
        assert_eq!(received, HEADER);
        assert_eq!(direction.take_count(), 0);
    }

    /// Takes everything, and keeps the bytes of each write apart.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
