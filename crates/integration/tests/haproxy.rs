//! The loadable provider in HAProxy, which runs its handshakes in OpenSSL's own asynchronous jobs.

use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{
    Authority, Begun, Client, Haproxy, HaproxyConfiguration, KeyType, Offer, Stopped, eventually,
};

#[test]
fn exp() {
    let authority = Authority::new();
    for key in [2048, 4096] {
        let haproxy = Haproxy::start(
            &HaproxyConfiguration::with_provider("lanes = auto\nflush = always"),
            &authority.issue(KeyType::Rsa(key), &["localhost"]),
        );
        let client = Client::new(haproxy.address(), &Offer::tls13());
        println!("{}", client.get("/").unwrap().text());
        let p = |what: &str| {
            println!(
                "{what}: lanes {} fds {} eventfds {} mem {} KiB",
                haproxy.lane_operations(),
                descriptors(haproxy.worker()),
                haproxy.event_descriptors(),
                anonymous_memory(haproxy.worker()) / 1024
            )
        };
        p("start");
        for round in 0..8 {
            for _ in 0..8 {
                let stopped = Stopped::new(vec![haproxy.worker()]);
                let begun: Vec<_> = (0..64).map(|_| Begun::new(&client).unwrap()).collect();
                drop(stopped);
                let before = haproxy.event_descriptors();
                eventually("paused", || haproxy.event_descriptors() > before);
                begun.into_iter().for_each(|b| b.reset().unwrap());
                eventually("gone", || haproxy.event_descriptors() == 0);
            }
            p(&format!("round {round}"));
        }
        println!("{}", client.get("/").unwrap().text());
    }
}
