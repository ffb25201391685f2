//! The harness notices what it is there to notice, and leaves nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, Signal, kill_process};
use slipstream_integration::process::is_running;
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, each_build, eventually,
    unused_address,
};

each_build!(
    a_stock_nginx_serves_reloads_and_upgrades,
    a_dead_worker_fails_the_test,
    a_failed_test_leaves_neither_processes_nor_files,
    a_refused_configuration_says_why,
);

fn a_stock_nginx_serves_reloads_and_upgrades(build: Build) {
    let authority = Authority::new();
    let address = unused_address();
    let page = |text: &str| {
        Configuration::stock().daemon().workers(2).server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!("location / {{ return 200 {text}; }}"),
        )
    };
    let client = Client::new(address, &Offer::tls13());
    let fetch = || client.get("/").unwrap().text().to_owned();

    let mut nginx = Nginx::start(build, &page("first"));
    assert_eq!(nginx.workers().len(), 2);
    assert_eq!(fetch(), "first");

    let old = nginx.reload(&page("second"));
    eventually("old workers exit", || {
        !old.iter().any(|&worker| is_running(worker))
    });
    assert_eq!(fetch(), "second");

    let old_master = nginx.upgrade();
    assert_ne!(nginx.master(), old_master);
    kill_process(pid(old_master), Signal::QUIT).unwrap();
    eventually("the old master exits", || !is_running(old_master));
    assert_eq!(fetch(), "second");
}

fn a_dead_worker_fails_the_test(build: Build) {
    let nginx = Nginx::start(build, &Configuration::stock());
    let worker = nginx.workers()[0];
    kill_process(pid(worker), Signal::SEGV).unwrap();
    eventually("nginx replaces the worker", || {
        let workers = nginx.workers();
        workers.len() == 1 && workers[0] != worker
    });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(nginx))).is_err());
}

fn a_failed_test_leaves_neither_processes_nor_files(build: Build) {
    let mut processes = Vec::new();
    let mut directory = None;
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let nginx = Nginx::start(build, &Configuration::stock().daemon().workers(2));
        processes.extend(nginx.workers());
        processes.push(nginx.master());
        directory = Some(nginx.directory().to_owned());
        panic!("on purpose");
    }));
    assert!(failed.is_err());
    assert_eq!(processes.len(), 3);
    eventually("all of nginx is gone", || {
        !processes.iter().any(|&process| is_running(process))
    });
    assert!(!directory.unwrap().exists());
}

fn a_refused_configuration_says_why(build: Build) {
    let broken = Configuration::stock().http("no_such_directive on;");
    let (accepted, messages) = Nginx::test(build, &broken);
    assert!(!accepted);
    assert!(
        messages.contains("unknown directive \"no_such_directive\""),
        "{messages}"
    );
    let refused = catch_unwind(|| drop(Nginx::start(build, &broken))).unwrap_err();
    let message = refused.downcast_ref::<String>().unwrap();
    assert!(message.contains("no_such_directive"), "{message}");

    let (accepted, messages) = Nginx::test(build, &Configuration::stock());
    assert!(accepted, "{messages}");
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}
