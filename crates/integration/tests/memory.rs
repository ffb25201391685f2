//! Everything under valgrind's memcheck: handshakes of all kinds, aborted ones, reloads.
//!
//! Lanes are portable there, since valgrind does not know AVX-512. Fibers make their stacks known
//! to it.

use std::collections::BTreeSet;

use slipstream_integration::abuse::Abuse;
use slipstream_integration::memcheck::{Memcheck, MemoryError};
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Lanes, Offer, Random, concurrently,
    eventually, unused_address,
};

#[test]
fn the_module_adds_no_error_to_those_of_a_stock_nginx() {
    let stock = errors(false);
    let added: Vec<_> = errors(true)
        .into_iter()
        .filter(|error| !stock.contains(error) && !happens_once(error))
        .collect();
    assert!(added.is_empty(), "{added:#?}");
}

/// Returns true if OpenSSL has allocated the memory for a provider or for the algorithms of one. It
/// holds that as long as the process lives, so it is lost at its end. It is allocated when nginx
/// starts; reloads and handshakes begin elsewhere.
fn happens_once(error: &MemoryError) -> bool {
    let start = ["ngx_init_cycle", "main"];
    let is_for_a_provider = |function: &String| {
        function.starts_with("OSSL_PROVIDER")
            || function.starts_with("EVP_") && function.ends_with("_fetch")
            || function == "SSL_CTX_new_ex"
    };
    error.kind == "Leak_DefinitelyLost"
        && error.stack.iter().any(is_for_a_provider)
        && error.stack.iter().rev().take(2).rev().eq(start)
}

fn errors(module: bool) -> BTreeSet<MemoryError> {
    let authority = Authority::new();
    let address = unused_address();
    let base = if module {
        Configuration::new().lanes(Lanes::Block("lanes portable; flush 1;".to_owned()))
    } else {
        Configuration::stock()
    };
    let configuration = base.server(
        format!("{address} ssl"),
        &[
            &authority.issue(KeyType::Rsa(2048), &["localhost"]),
            &authority.issue(KeyType::EcdsaP256, &["localhost"]),
        ],
        "ssl_early_data on; ssl_verify_client optional_no_ca; location / { return 200 served; }",
    );
    let mut nginx = Memcheck::start(Build::Distribution, &configuration);
    let rsa = "RSA-PSS+SHA256:RSA+SHA256";
    let offers = [
        Offer::tls13().signature_algorithms(rsa),
        Offer::tls12().signature_algorithms(rsa),
        Offer::rsa_key_exchange(),
        Offer::tls13(),
    ];
    let own = authority.issue(KeyType::EcdsaP256, &["client"]);
    // Each has its own sessions.
    let clients: Vec<_> = offers
        .iter()
        .cycle()
        .take(2 * offers.len())
        .map(|offer| Client::new(address, &offer.clone().credentials(&own)))
        .collect();
    let mut random = Random::of_this_run();
    for _ in 0..2 {
        serve(&clients);
        misbehave(&clients, &mut random);
        nginx.reload(&configuration);
    }
    serve(&clients);
    if module {
        eventually("nothing is in flight", || {
            let metrics = nginx.metrics();
            metrics.in_flight() == 0 && metrics.fibers() == 0
        });
        assert!(nginx.metrics().lane_operations() > 30);
    }
    nginx.finish()
}

fn serve(clients: &[Client]) {
    concurrently(clients.len(), |number| {
        let client = &clients[number];
        for _ in 0..2 {
            assert_eq!(client.get("/").unwrap().status, 200);
        }
        let mut resumed = client.session().connect().unwrap();
        assert!(resumed.is_resumed());
        assert_eq!(resumed.get("/").unwrap().status, 200);
    });
}

fn misbehave(clients: &[Client], random: &mut Random) {
    let randoms = Abuse::ALL.map(|_| random.split());
    concurrently(Abuse::ALL.len(), |number| {
        let mut random = randoms[number].clone();
        let client = &clients[random.below(clients.len())];
        Abuse::ALL[number].commit(client, &mut random).unwrap();
    });
}
