//! The provider as a whole: what it lists, exports, and needs.

use std::process::Command;

use crate::workshop::{Ours, Server, Stock, Workshop, fetch, text};

#[test]
fn the_command_lists_the_provider_and_what_it_offers() {
    let workshop = Workshop::new("");
    let listed = text(&workshop.openssl(Ours, "list -providers -verbose"));
    assert!(listed.contains("name: Slipstream"), "{listed}");
    assert!(listed.contains("build info: RSA "), "{listed}");
    assert!(
        listed.contains("lane-operations: unsigned integer"),
        "{listed}"
    );
    for operation in [
        "-key-managers",
        "-signature-algorithms",
        "-asymcipher-algorithms",
    ] {
        let listed = text(&workshop.openssl(Ours, &format!("list {operation}")));
        assert!(listed.contains("@ slipstream"), "{operation}: {listed}");
    }
}

#[test]
fn a_wrong_configuration_is_reported_and_leaves_everything_to_openssl() {
    let workshop = Workshop::new("flush = sometimes");
    let listed = text(&workshop.openssl(Ours, "list -providers -verbose"));
    assert!(
        listed.contains("unknown value of flush: sometimes"),
        "{listed}"
    );
    workshop.certificate(Ours, 2048);
}

#[test]
fn the_module_exports_its_entry_point_and_needs_no_libcrypto() {
    let module = std::env::current_exe()
        .expect("a path")
        .with_file_name("libslipstream.so");
    let readelf = |option| {
        let output = Command::new("readelf")
            .args(["--wide", option])
            .arg(&module)
            .output();
        text(&output.expect("readelf").stdout)
    };
    let dynamic = readelf("--dynamic");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(
        !dynamic.contains("libcrypto") && !dynamic.contains("libssl"),
        "{dynamic}"
    );
    let symbols = readelf("--dyn-syms");
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains("GLOBAL") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(exported, ["OSSL_provider_init"]);
}

#[test]
#[ignore = "needs an openssl command of version 4, named by the variable OPENSSL_4"]
fn openssl_4_loads_the_module() {
    let command = std::env::var("OPENSSL_4").expect("the variable OPENSSL_4");
    let workshop = Workshop::new("lanes = portable\nflush = always");
    let run = |words: &str| {
        let mut command = workshop.command(&command, Ours);
        let output = command
            .args(words.split_whitespace())
            .output()
            .expect("openssl 4");
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(run("version").starts_with("OpenSSL 4"));
    let listed = run("list -providers -verbose");
    // A static command that does not export its symbols has no libcrypto for us.
    let offers = listed.contains("RSA and curves in lanes (portable)");
    assert!(
        offers || listed.contains("libcrypto is linked statically"),
        "{listed}"
    );
    assert_eq!(
        run("list -signature-algorithms").contains("@ slipstream"),
        offers
    );
    run("genpkey -quiet -algorithm RSA -out key.pem");
    run("pkey -in key.pem -pubout -out public.pem");
    for options in [
        "",
        "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:auto",
    ] {
        run(&format!(
            "dgst -sha256 {options} -sign key.pem -out signature ours.cnf"
        ));
        let verify =
            format!("dgst -sha256 {options} -verify public.pem -signature signature ours.cnf");
        run(&verify);
        workshop.openssl(Stock, &verify);
    }
    run("speed -seconds 1 -async_jobs 8 rsa2048");
    for algorithm in [
        "X25519",
        "EC -pkeyopt group:P-256",
        "EC -pkeyopt group:P-384",
    ] {
        run(&format!(
            "genpkey -quiet -algorithm {algorithm} -out key.pem"
        ));
        run("pkey -in key.pem -pubout -out public.pem");
        run("pkey -in key.pem -check -noout");
        let derive = "pkeyutl -derive -inkey key.pem -peerkey public.pem -out";
        run(&format!("{derive} ours"));
        workshop.openssl(Stock, &format!("{derive} stock"));
        assert_eq!(workshop.read("ours"), workshop.read("stock"), "{algorithm}");
    }
    for (key, mode) in [("P-256", ""), ("P-256", "-async"), ("P-384", "-async")] {
        let make =
            "req -x509 -nodes -keyout key.pem -out certificate.pem -subj /CN=localhost -days 1";
        run(&format!(
            "{make} -newkey ec -pkeyopt ec_paramgen_curve:{key}"
        ));
        let server = Server::start_with(&workshop, &command, Ours, mode);
        for group in ["X25519", "P-256", "P-384", "P-521"] {
            let page = fetch(
                &workshop,
                &server.address,
                &format!("-tls1_3 -groups {group}"),
            );
            assert!(page.contains("HTTP/1.0 200 ok"), "{mode} {key} {group}");
        }
    }
}
