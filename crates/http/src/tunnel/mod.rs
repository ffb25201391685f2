//! Tunnels: bytes in both directions, until both have ended.

mod direction;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::counters::Counters;
use direction::Direction;

/// Traffic of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from the client.
    pub received: u64,
    /// Bytes sent to the client.
    pub sent: u64,
    /// True if the client has ended in order, and the backend has been told after the last byte.
    pub has_client_ended: bool,
}

/// Forwards bytes between `client` and `backend`. When one side ends, the other is told, and may go
/// on. Returns when both have ended, when one fails, when no byte has been moved for `idle_timeout`,
/// or when one side has taken no byte of those for it for so long. Updates `traffic` and `counters` continuously, so that both are right if this
/// future is dropped. The backend is sent `header` first, if possible together with the first bytes
/// of the client. The header is not counted.
pub async fn run<C, B>(
    client: &mut C,
    backend: &mut B,
    header: Option<Vec<u8>>,
    idle_timeout: Duration,
    counters: &Counters,
    traffic: &mut Traffic,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut to_backend = Direction::new(header);
    let mut to_client = Direction::new(None);
    let mut last_progress = Instant::now();
    let mut blocked = [None; 2];
    let mut timer = pin!(sleep_until(last_progress + idle_timeout));
    poll_fn(|context| {
        // An error in one direction ends both, since the other side must not take it for an orderly
        // end.
        let up = to_backend.poll(context, client, backend);
        let down = to_client.poll(context, backend, client);
        traffic.has_client_ended = to_backend.has_ended();
        let (received, sent) = (to_backend.take_count(), to_client.take_count());
        if received + sent > 0 {
            last_progress = Instant::now();
            traffic.received += received;
            traffic.sent += sent;
            counters.received_bytes.add(received);
            counters.sent_bytes.add(sent);
        }
        let directions = [(&to_backend, received), (&to_client, sent)];
        for (since, (direction, moved)) in blocked.iter_mut().zip(directions) {
            *since = match direction.is_blocked() {
                false => None,
                true if moved > 0 => Some(Instant::now()),
                true => since.or_else(|| Some(Instant::now())),
            };
        }
        match (up, down) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            _ => {}
        }
        let oldest = blocked.iter().flatten().min().unwrap_or(&last_progress);
        let since = last_progress.min(*oldest);
        poll_idle(context, timer.as_mut(), since + idle_timeout)
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
        let counters = Counters::default();
        let mut traffic = Traffic::default();
        let timeout = Duration::from_secs(60);
        let tunnel = run(
            &mut client_side,
            &mut backend_side,
            None,
            timeout,
            &counters,
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
        assert_eq!(counters.received_bytes.get(), 100_000);
        assert_eq!(counters.sent_bytes.get(), 200_000);
    }

    #[tokio::test]
    async fn a_tunnel_ends_whose_client_takes_nothing_although_it_sends() {
        let (client, mut client_side) = duplex(64);
        let (mut backend_side, backend) = duplex(64);
        let (_unread, mut client) = tokio::io::split(client);
        let (mut received, mut backend) = tokio::io::split(backend);
        let sends = tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        tokio::spawn(async move { tokio::io::copy(&mut received, &mut tokio::io::sink()).await });
        tokio::spawn(async move { while backend.write_all(&[0; 1024]).await.is_ok() {} });
        let mut traffic = Traffic::default();
        let counters = Counters::default();
        let tunnel = run(
            &mut client_side,
            &mut backend_side,
            None,
            Duration::from_secs(2),
            &counters,
            &mut traffic,
        );
        let ended = tokio::time::timeout(Duration::from_secs(60), tunnel).await;
        ended.expect("the client takes nothing");
        drop((client_side, backend_side));
        sends.await.unwrap();
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
            &Counters::default(),
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
