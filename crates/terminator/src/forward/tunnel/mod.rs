//! Bytes in both directions, until both have ended.

mod direction;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::operations::metrics::Metrics;
use direction::Direction;

/// What went through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from the client.
    pub received: u64,
    /// Bytes sent to the client.
    pub sent: u64,
    /// The client has ended in order, and the backend has been told so after all that it sent.
    pub has_client_ended: bool,
}

/// Passes bytes on between `client` and `backend`. When one side has sent all it has, the other one is told, and may go on.
/// Ends when both have, when one fails, or when nothing has moved for `idle_timeout`. Counts into `traffic` and `metrics` as it goes,
/// so that both are right if this future is dropped. The backend is sent `header` first, which is not counted: together with what the
/// client says first, if that does not keep it waiting.
pub async fn run<C, B>(
    client: &mut C,
    backend: &mut B,
    header: Option<Vec<u8>>,
    idle_timeout: Duration,
    metrics: &Metrics,
    traffic: &mut Traffic,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut upwards = Direction::new(header);
    let mut downwards = Direction::new(None);
    let mut last_progress = Instant::now();
    let mut timer = pin!(sleep_until(last_progress + idle_timeout));
    poll_fn(|context| {
        // An error in one direction ends both: what is lost is lost, and the other side must not take it for the end.
        let up = upwards.poll(context, client, backend);
        let down = downwards.poll(context, backend, client);
        traffic.has_client_ended = upwards.has_ended();
        let (received, sent) = (upwards.take_count(), downwards.take_count());
        if received + sent > 0 {
            last_progress = Instant::now();
            traffic.received += received;
            traffic.sent += sent;
            metrics.received_bytes.add(received);
            metrics.sent_bytes.add(sent);
        }
        match (up, down) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            _ => {}
        }
        poll_idle(context, timer.as_mut(), last_progress + idle_timeout)
    })
    .await;
}

/// Ready when `deadline` has passed. The timer is moved only when it fires, not with each byte.
fn poll_idle(context: &mut Context<'_>, mut timer: Pin<&mut Sleep>, deadline: Instant) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(context));
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn each_direction_ends_on_its_own() {
        let (mut client, mut client_side) = duplex(64);
        let (mut backend_side, mut backend) = duplex(64);
        let metrics = Metrics::default();
        let mut traffic = Traffic::default();
        let timeout = Duration::from_secs(60);
        let tunnel = run(
            &mut client_side,
            &mut backend_side,
            None,
            timeout,
            &metrics,
            &mut traffic,
        );
        let request = vec![7; 100_000];
        let answer = vec![9; 200_000];
        let client = async {
            client.write_all(&request).await.unwrap();
            client.shutdown().await.unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, answer);
        };
        let backend = async {
            let mut received = Vec::new();
            backend.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, request);
            backend.write_all(&answer).await.unwrap();
            backend.shutdown().await.unwrap();
        };
        tokio::join!(tunnel, client, backend);
        let expected = Traffic {
            received: 100_000,
            sent: 200_000,
            has_client_ended: true,
        };
        assert_eq!(traffic, expected);
        assert_eq!(metrics.received_bytes.get(), 100_000);
        assert_eq!(metrics.sent_bytes.get(), 200_000);
    }

    #[tokio::test]
    async fn a_tunnel_that_nothing_moves_through_ends() {
        let (mut client, mut client_side) = duplex(64);
        let (mut backend_side, _backend) = duplex(64);
        client.write_all(b"hello").await.unwrap();
        let mut traffic = Traffic::default();
        run(
            &mut client_side,
            &mut backend_side,
            None,
            Duration::from_millis(20),
            &Metrics::default(),
            &mut traffic,
        )
        .await;
        let expected = Traffic {
            received: 5,
            sent: 0,
            has_client_ended: false,
        };
        assert_eq!(traffic, expected);
    }
}
