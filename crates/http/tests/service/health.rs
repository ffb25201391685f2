//! Health checks and load balancing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slipstream_http::settings::{Balance, Health, Service as Settings};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::support::*;

#[tokio::test]
async fn a_backend_that_says_so_is_down_until_it_is_well() {
    let is_up = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_up);
    let backend = backend(move |mut stream| {
        let says = Arc::clone(&says);
        async move {
            while let Some((head, _)) = read_message(&mut stream).await {
                let status = match head.starts_with("GET /health ") && !says.load(Ordering::Relaxed)
                {
                    true => "500 Ill",
                    false => "200 OK",
                };
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.health = Some(Health {
        interval: Duration::from_millis(5),
        path: Some("/health".to_owned()),
    });
    let site = Site::new(Settings::Http(settings.clone()));
    let watched = Arc::clone(&site.upstreams);
    let watch = tokio::spawn(async move { watched.watch_health().await });
    let until = async |well: bool| {
        while site.upstreams.status()[0].is_up != well {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until(false).await;
    let seen = ask(&mut site.connect(), GET).await;
    assert!(seen.starts_with("HTTP/1.1 503"), "{seen}");

    let service = Settings::Http(settings.clone());
    let reloaded = upstreams(&service, Some(&site.upstreams));
    assert!(!reloaded.status()[0].is_up);

    is_up.store(true, Ordering::Relaxed);
    until(true).await;
    let seen = ask(&mut site.connect(), GET).await;
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");

    is_up.store(false, Ordering::Relaxed);
    until(false).await;
    watch.abort();
    // Without checks nothing would ever mark the backend as up again.
    settings.health = None;
    let service = Settings::Http(settings);
    let reloaded = upstreams(&service, Some(&site.upstreams));
    let status = &reloaded.status()[0];
    assert!(status.is_up);
    assert_eq!(status.total, 1);
}

#[tokio::test]
async fn a_backend_that_refuses_is_down() {
    let mut settings = upstream(&[refusing().await]);
    settings.health = Some(Health {
        interval: Duration::from_millis(1),
        path: None,
    });
    let site = Site::new(Settings::Tcp(settings));
    tokio::select! {
        () = site.upstreams.watch_health() => unreachable!("it watches for ever"),
        () = async {
            while site.upstreams.status()[0].is_up {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
}

#[tokio::test]
async fn a_backend_that_does_not_answer_is_down_though_responses_may_take_long() {
    let backend = backend(|stream| async move {
        let _stream = stream;
        std::future::pending().await
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.response_timeout = Duration::from_secs(3600);
    settings.health = Some(Health {
        interval: Duration::from_millis(1),
        path: Some("/health".to_owned()),
    });
    let site = Site::new(Settings::Http(settings));
    tokio::select! {
        () = site.upstreams.watch_health() => unreachable!("it watches for ever"),
        () = tokio::time::sleep(Duration::from_secs(300)) => panic!("it is still waited for"),
        () = async {
            while site.upstreams.status()[0].is_up {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
}

#[tokio::test]
async fn the_backend_with_the_fewest_connections_is_taken() {
    let hold = || {
        backend(|stream| async move {
            let _stream = stream;
            std::future::pending().await
        })
    };
    let (first, second) = (hold().await, hold().await);
    for (balance, expected) in [
        (Balance::LeastConnections, [3, 1]),
        (Balance::RoundRobin, [2, 2]),
    ] {
        let mut settings = upstream(&[first.address, second.address]);
        settings.balance = balance;
        let site = Site::new(Settings::Tcp(settings));
        let total = || -> u64 { site.upstreams.status().iter().map(|it| it.total).sum() };
        let open = async || {
            let before = total();
            let client = site.connect_as(connection());
            while total() == before {
                tokio::task::yield_now().await;
            }
            client
        };
        let close = async |client: (DuplexStream, JoinHandle<()>)| {
            client.1.abort();
            client.1.await.unwrap_err();
        };
        let first = open().await;
        let _second = open().await;
        // Round robin would select the first and the second backend next.
        close(first).await;
        close(open().await).await;
        let _last = open().await;
        let totals: Vec<u64> = site.upstreams.status().iter().map(|it| it.total).collect();
        assert_eq!(totals, expected);
    }
}
