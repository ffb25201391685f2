//! Files of a directory.

use std::fs;

use slipstream_http::Service;
use slipstream_http::settings::Service as Settings;
use tokio::io::AsyncWriteExt;

use crate::support::*;

fn site() -> (tempfile::TempDir, Site) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("sub/.git")).unwrap();
    fs::create_dir_all(root.join(".well-known")).unwrap();
    fs::write(root.join("index.html"), "<p>index").unwrap();
    fs::write(root.join("sub/file.txt"), "0123456789").unwrap();
    fs::write(root.join("sub/.git/config"), "secret").unwrap();
    fs::write(root.join(".well-known/token"), "token").unwrap();
    fs::write(directory.path().join("outside"), "secret").unwrap();
    std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
    let site = Site::new(Settings::Files(root));
    (directory, site)
}

#[tokio::test]
async fn files_are_served() {
    let (_directory, site) = site();
    let mut client = site.connect();
    let file = "GET /sub/file.txt HTTP/1.1\r\nHost: a\r\n";
    let seen = ask(&mut client, GET).await;
    assert!(
        seen.contains("text/html") && seen.ends_with("<p>index"),
        "{seen}"
    );
    let whole = ask(&mut client, &format!("{file}\r\n")).await;
    assert!(
        whole.contains("text/plain") && whole.ends_with("0123456789"),
        "{whole}"
    );
    let seen = ask(&mut client, &format!("{file}Range: bytes=2-4\r\n\r\n")).await;
    assert!(
        seen.starts_with("HTTP/1.1 206") && seen.ends_with("\r\n\r\n234"),
        "{seen}"
    );
    let seen = ask(&mut client, "GET /link HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(seen.ends_with("secret"), "{seen}");
    let seen = ask(
        &mut client,
        "GET /.well-known/token HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    .await;
    assert!(seen.ends_with("token"), "{seen}");
    let (_, since) = whole.split_once("last-modified: ").unwrap();
    let since = since.split("\r\n").next().unwrap();
    client
        .write_all(format!("{file}If-Modified-Since: {since}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let head = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 304"), "{head}");
    client
        .write_all(b"HEAD /sub/file.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let head = read_head(&mut client).await.unwrap();
    assert!(head.contains("content-length: 10\r\n"), "{head}");
}

#[tokio::test]
async fn hidden_files_and_paths_outside_are_not_found() {
    let (_directory, site) = site();
    let mut client = site.connect();
    for path in [
        "/nothing",
        "/sub/file.txt/more",
        "/sub",
        "/sub/.git/config",
        "/sub/%2egit/config",
        "/sub%2f.git/config",
        "/../outside",
        "/sub/../../outside",
        "/%2e%2e/outside",
        "/..%2foutside",
        "/sub/%00",
        "/sub/%zz",
        "//index.html",
        "/.well-known/../../outside",
    ] {
        let seen = ask(
            &mut client,
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"),
        )
        .await;
        let is_refused = seen.starts_with("HTTP/1.1 404") || seen.starts_with("HTTP/1.1 307");
        assert!(is_refused && !seen.contains("secret"), "{path}: {seen}");
    }
    let seen = ask(
        &mut client,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(seen.starts_with("HTTP/1.1 405"), "{seen}");
    assert!(seen.contains("allow: GET, HEAD\r\n"), "{seen}");
}

#[test]
fn a_missing_directory_is_an_error() {
    let settings = Settings::Files("/nowhere".into());
    let upstreams = upstreams(&settings, None);
    let error = Service::new(&settings, &upstreams)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("/nowhere"), "{error}");
}
