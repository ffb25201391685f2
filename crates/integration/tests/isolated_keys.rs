//! `keys isolated`: the engine holds the private keys, and workers do not have them.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;
use slipstream_integration::process::{memory, quit};
use slipstream_integration::{
    Authority, Build, Client, Configuration, Credentials, Engine, KeyType, Lanes, Nginx, Offer,
    Visitors, each_build, eventually, unused_address,
};

each_build!(
    a_workers_memory_does_not_hold_the_keys,
    reloads_and_an_upgrade_under_load,
    keys_that_have_been_shared_cannot_be_isolated,
    the_block_may_come_last,
    a_refused_configuration_changes_nothing,
    the_engine_is_started_again,
    without_an_engine_nginx_does_not_start,
    a_reload_without_an_engine_is_refused,
    a_key_that_cannot_be_held_is_refused,
);

fn a_workers_memory_does_not_hold_the_keys(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration(&engine, "isolated"));
    let isolated = nginx.workers();
    // It has used the keys, and been started by a master that has reloaded.
    for _ in 0..2 {
        site.expect_service();
        for &worker in &nginx.workers() {
            assert_eq!(site.found_in(worker), [] as [&str; 0], "worker {worker}");
        }
        nginx.reload(&site.configuration(&engine, "isolated"));
        eventually("old workers exit", || {
            nginx.workers().len() == isolated.len()
        });
    }
    // What is looked for would be found.
    nginx.reload(&site.configuration(&engine, "shared"));
    site.expect_service();
    eventually("old workers exit", || {
        nginx.workers().len() == isolated.len()
    });
    let found = site.found_in(nginx.workers()[0]);
    for (name, _) in site.secrets() {
        assert!(found.contains(&name), "{name} is nowhere, only {found:?}");
    }
}

fn reloads_and_an_upgrade_under_load(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(&engine, "isolated").daemon();
    let mut nginx = Nginx::start(build, &configuration);
    let visitors = site.visitors();
    for _ in 0..3 {
        visitors.wait_for(20);
        nginx.reload(&configuration);
    }
    visitors.wait_for(20);
    let old = nginx.upgrade();
    visitors.wait_for(20);
    quit(old);
    visitors.wait_for(20);
    eventually("the keys of old configurations are gone", || {
        engine.figure("/sessions") == 1
    });
    assert_eq!(engine.figure("/keys"), site.credentials.len() as u64);
    nginx.reload(&site.configuration(&engine, "shared").daemon());
    visitors.wait_for(20);
    visitors.stop().expect_all_served();
    nginx.settled();
}

/// A master that has had the keys in use itself does not promise that its workers will not find
/// them.
fn keys_that_have_been_shared_cannot_be_isolated(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration(&engine, "shared"));
    expect_refusal(
        &nginx,
        &site.configuration(&engine, "isolated"),
        "restart it",
    );
    site.expect_service();
}

/// Wherever the block stands: it is read before or after the servers.
fn the_block_may_come_last(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(&engine, "isolated").block_last();
    let nginx = Nginx::start(build, &configuration);
    site.expect_service();
    assert_eq!(site.found_in(nginx.workers()[0]), [] as [&str; 0]);
}

/// A configuration that was refused for something else leaves nothing behind.
fn a_refused_configuration_changes_nothing(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let isolated = site.configuration(&engine, "isolated");
    let mut nginx = Nginx::start(build, &isolated);
    let elsewhere = isolated.clone().http("access_log /nowhere/at/all;");
    expect_refusal(&nginx, &elsewhere, "/nowhere/at/all");
    site.expect_service();
    nginx.reload(&site.configuration(&engine, "shared"));
    eventually("old workers exit", || nginx.workers().len() == 2);
    site.expect_service();
}

/// nginx goes on with the old configuration, and the old workers.
fn expect_refusal(nginx: &Nginx, configuration: &Configuration, reason: &str) {
    nginx.expect_log(reason);
    let workers = nginx.workers();
    nginx.write_only(configuration);
    nginx.signal(Signal::HUP);
    eventually("the configuration is refused", || {
        nginx.log_lines_with(reason) > 0
    });
    assert_eq!(nginx.workers(), workers);
}

/// The keys are gone with the engine, and come back with a reload.
fn the_engine_is_started_again(build: Build) {
    let mut engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(&engine, "isolated");
    let mut nginx = Nginx::start(build, &configuration);
    nginx.expect_log("SSL_do_handshake() failed");
    site.expect_service();
    engine.kill();
    for client in site.clients() {
        client.get("/").expect_err("nobody has the key");
    }
    engine.restart();
    nginx.reload(&configuration);
    eventually("old workers exit", || nginx.workers().len() == 2);
    site.expect_service();
    nginx.settled();
}

fn without_an_engine_nginx_does_not_start(build: Build) {
    let engine = Engine::absent(&[]);
    let site = Site::new();
    let message = Nginx::refused(build, &site.configuration(&engine, "isolated"));
    let socket = engine.socket();
    let wanted = format!("no engine at {} to hold the keys", socket.display());
    assert!(message.contains(&wanted), "{message}");
    assert!(message.contains("start it"), "{message}");
}

fn a_reload_without_an_engine_is_refused(build: Build) {
    let mut engine = Engine::start(&[]);
    let site = Site::new();
    let isolated = site.configuration(&engine, "isolated");
    let mut nginx = Nginx::start(build, &isolated);
    engine.kill();
    expect_refusal(&nginx, &isolated, "no engine at");
    engine.restart();
    nginx.reload(&isolated);
    eventually("old workers exit", || nginx.workers().len() == 2);
    site.expect_service();
}

fn a_key_that_cannot_be_held_is_refused(build: Build) {
    let engine = Engine::start(&[]);
    let mut site = Site::new();
    site.credentials = vec![site.authority.issue(KeyType::RsaPss2048, &["localhost"])];
    let message = Nginx::refused(build, &site.configuration(&engine, "isolated"));
    assert!(
        message.contains("a kind that no device holds") && message.contains("P-256"),
        "{message}"
    );
}

struct Site {
    authority: Authority,
    credentials: Vec<Credentials>,
    address: SocketAddr,
}

impl Site {
    fn new() -> Self {
        let authority = Authority::new();
        let mut types = vec![KeyType::Rsa(2048)];
        // Without IFMA there are lanes for RSA only.
        let has_curves = std::arch::is_x86_feature_detected!("avx512ifma")
            || !std::arch::is_x86_feature_detected!("avx512f");
        if has_curves {
            types.push(KeyType::EcdsaP256);
        }
        let credentials = types
            .into_iter()
            .map(|key| authority.issue(key, &["localhost"]))
            .collect();
        Self {
            authority,
            credentials,
            address: unused_address(),
        }
    }

    fn configuration(&self, engine: &Engine, keys: &str) -> Configuration {
        let block = format!("{} keys {keys};", engine.directive());
        let credentials: Vec<&Credentials> = self.credentials.iter().collect();
        Configuration::new()
            .lanes(Lanes::ForcedWith(block))
            .workers(2)
            .server(
                format!("{} ssl", self.address),
                &credentials,
                "ssl_ciphers ALL; location / { return 200 served; }",
            )
    }

    fn clients(&self) -> Vec<Client> {
        let offers = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()];
        offers
            .into_iter()
            .map(|offer| {
                let offer = offer.name("localhost").roots(self.authority.certificate());
                Client::new(self.address, &offer)
            })
            .collect()
    }

    fn visitors(&self) -> Visitors {
        Visitors::start(&self.clients(), 4)
    }

    fn expect_service(&self) {
        for client in self.clients() {
            assert_eq!(client.get("/").unwrap().text(), "served");
        }
    }

    /// The private numbers, big-endian, and the files.
    fn secrets(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut secrets = Vec::new();
        for credentials in &self.credentials {
            if let Ok(key) = credentials.key.rsa() {
                let number = |number: Option<&openssl::bn::BigNumRef>| number.unwrap().to_vec();
                secrets.extend([
                    ("p", number(key.p())),
                    ("q", number(key.q())),
                    ("dP", number(key.dmp1())),
                    ("dQ", number(key.dmq1())),
                    ("d", key.d().to_vec()),
                ]);
            } else {
                let key = credentials.key.ec_key().unwrap();
                secrets.push(("scalar", key.private_key().to_vec()));
            }
        }
        secrets
    }

    /// Returns the names of the secrets of which the memory of a process holds sixteen bytes, in
    /// whatever form.
    fn found_in(&self, process: u32) -> Vec<&'static str> {
        let memory = memory(process);
        let mut windows: Vec<(&'static str, [u8; 16])> = Vec::new();
        for (name, secret) in self.secrets() {
            let reversed: Vec<u8> = secret.iter().rev().copied().collect();
            for form in [secret, reversed] {
                windows.extend(
                    form.windows(16)
                        .map(|window| (name, window.try_into().unwrap())),
                );
            }
        }
        for credentials in &self.credentials {
            let text = fs::read_to_string(&credentials.key_file).unwrap();
            let windows_of = private_text(&text, &self.secrets());
            windows.extend(windows_of.into_iter().map(|window| ("file", window)));
        }
        let present: HashSet<[u8; 16]> = {
            let wanted: HashSet<[u8; 16]> = windows.iter().map(|(_, window)| *window).collect();
            let all = memory
                .windows(16)
                .map(|window| <[u8; 16]>::try_from(window).unwrap());
            all.filter(|window| wanted.contains(window)).collect()
        };
        let mut names: Vec<&'static str> = windows
            .into_iter()
            .filter(|(_, window)| present.contains(window))
            .map(|(name, _)| name)
            .collect();
        names.dedup();
        names
    }
}

/// Returns every sixteen characters of a key in PEM that stand for nothing but bytes of a secret:
/// the rest of it is public.
fn private_text(pem: &str, secrets: &[(&'static str, Vec<u8>)]) -> Vec<[u8; 16]> {
    const IN_A_LINE: usize = 64;
    let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let text = lines.concat();
    let der = openssl::base64::decode_block(&text).expect("base64");
    let mut windows = Vec::new();
    for (_, secret) in secrets {
        let Some(start) = der.windows(secret.len()).position(|bytes| bytes == secret) else {
            continue;
        };
        let first = (start * 8).div_ceil(6);
        let end = (start + secret.len()) * 8 / 6;
        let is_in_a_line = |at: &usize| at % IN_A_LINE + 16 <= IN_A_LINE;
        windows.extend(
            (first..=end - 16)
                .filter(is_in_a_line)
                .map(|at| <[u8; 16]>::try_from(&text.as_bytes()[at..at + 16]).expect("sixteen")),
        );
    }
    assert!(!windows.is_empty(), "no secret in the file of a key");
    windows
}
