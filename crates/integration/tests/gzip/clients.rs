//! Clients of others, each with decoders of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use slipstream_integration::{
    Authority, Build, Content, Engine, KeyType, Nginx, Request, decode, each_build, eventually,
    programs, unused_address,
};
use slipstream_testbed::scratch::ScratchDirectory;

use crate::site::{Place, Site, defaults};

each_build!(curl, python, go, java);

const LENGTH: usize = 1_000_000;
/// Number of pages that clients in other languages fetch.
const PAGES: usize = 16;
/// The last line of the page.
const END: &str = "<p id=\"end\">this is the end 7f3a91</p>";

fn curl(build: Build) {
    let server = Server::start(build);
    for coding in ["gzip", "zstd"] {
        for place in Place::ALL {
            let mut command = Command::new("curl");
            command.args(["-sS", "--fail", "--compressed"]);
            command.args(["-H", &format!("Accept-Encoding: {coding}")]);
            command.args(["-w", "%header{content-encoding}"]);
            command.arg(server.url(place));
            let output = programs::finish(&mut command, b"").expect_success();
            let page = String::from_utf8_lossy(&server.page).into_owned();
            assert!(output == page + coding, "{coding} {place:?}");
        }
    }
}

fn python(build: Build) {
    run_everywhere(build, Command::new("python3").arg(source("client.py")));
}

fn go(build: Build) {
    if programs::is_installed("go") {
        let scratch = ScratchDirectory::new().unwrap();
        let mut client = programs::built_with_go(&source("go/main.go"), &scratch);
        run_everywhere(build, &mut client);
    }
}

fn java(build: Build) {
    if programs::is_installed("java") {
        run_everywhere(build, Command::new("java").arg(source("Client.java")));
    }
}

/// Chromium shows the same page whether it was compressed or not. It accepts zstd over TLS and from
/// its own machine, and takes chunks of a device, which are frames that follow each other.
#[test]
fn chromium() {
    if !programs::is_installed("chromium") {
        return;
    }
    let server = Server::start(Build::Distribution);
    let plain = server.dump(&format!("http://{}/plain/page", server.tls.plain));
    assert!(plain.contains(END), "{}", tail(&plain));
    let secure = server.tls.secure;
    for (coding, path) in [("gzip", "/gzip/page"), ("zstd", "/files/page")] {
        let page = server.dump(&format!("https://{secure}{path}"));
        assert!(page == plain, "{coding}: {}", tail(&page));
        let line = format!("{coding} {path}");
        eventually("nginx logs the request", || {
            server.nginx_log().contains(&line)
        });
    }
    let request = Request::get(server.tls.plain, "/files/page").accepting("zstd");
    let magic = 0xfd2f_b528_u32.to_le_bytes();
    // On a busy machine the device may be taken out for a while.
    eventually("chunks of a device are frames", || {
        let response = request.fetch().unwrap();
        assert!(decode(&response) == server.page);
        let frames = response.body.windows(4).filter(|&word| word == magic);
        frames.count() > 10
    });
}

/// Runs a client of tests/gzip/clients, which all take the same arguments.
fn run_everywhere(build: Build, client: &mut Command) {
    let server = Server::start(build);
    let program: Vec<_> = std::iter::once(client.get_program())
        .chain(client.get_args())
        .map(ToOwned::to_owned)
        .collect();
    let checksum = crc32fast::hash(&server.page);
    for place in [Place::Software, Place::Device] {
        // One that waits for ever is a failure.
        let mut command = Command::new("timeout");
        command.arg("600").args(&program);
        command.args([server.url(place), PAGES.to_string()]);
        let output = programs::finish(&mut command, b"").expect_success();
        let expected = format!("{PAGES} pages of {} {checksum:08x}", server.page.len());
        assert_eq!(output.trim(), expected, "{place:?}");
    }
    assert!(server.engine.figure("/compressed_chunks") > 0);
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/gzip/clients")
        .join(file)
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(200);
    text.get(start..).unwrap_or(text)
}

struct Server {
    site: Site,
    engine: Engine,
    page: Vec<u8>,
    tls: Tls,
    _nginx: Nginx,
}

/// A server with both kinds of port, which compresses at the device and writes down what it has
/// done.
struct Tls {
    plain: SocketAddr,
    secure: SocketAddr,
    _authority: Authority,
}

impl Server {
    fn start(build: Build) -> Self {
        let engine = Engine::start(&[]);
        let site = Site::new();
        let page = [&Content::Html.bytes(LENGTH)[..], END.as_bytes()].concat();
        site.write("page", &page);
        let authority = Authority::new();
        let (plain, secure) = (unused_address(), unused_address());
        let configuration = site
            .configuration(build, Some(&engine), defaults())
            .http("log_format coding '$sent_http_content_encoding $uri';")
            .server(
                format!("{secure} ssl"),
                &[&authority.issue(KeyType::EcdsaP256, &["localhost"])],
                format!(
                    "listen {plain}; slipstream_gzip_offload device;
                     slipstream_gzip_codings zstd gzip; access_log {}/codings coding;
                     location /plain/ {{
                         slipstream_gzip off; alias {0}/; types {{}} default_type text/html;
                     }}
                     location /gzip/ {{
                         slipstream_gzip_codings gzip; alias {0}/; types {{}} default_type text/html;
                     }}
                     {1}",
                    site.folder().display(),
                    site.locations()
                ),
            );
        Self {
            _nginx: Nginx::start(build, &configuration),
            tls: Tls {
                plain,
                secure,
                _authority: authority,
            },
            site,
            engine,
            page,
        }
    }

    fn url(&self, place: Place) -> String {
        format!("http://{}/files/page", self.site.address(place))
    }

    fn nginx_log(&self) -> String {
        std::fs::read_to_string(self.site.folder().join("codings")).unwrap()
    }

    /// Returns the page as Chromium renders it.
    fn dump(&self, url: &str) -> String {
        let profile = ScratchDirectory::new().unwrap();
        let mut command = Command::new("timeout");
        command.args(["600", "chromium", "--headless", "--no-sandbox"]);
        command.args([
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // The certificate is the test's own.
            "--ignore-certificate-errors",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg("--dump-dom").arg(url);
        programs::finish(&mut command, b"").expect_success()
    }
}
