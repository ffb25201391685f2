//! A directory in which the `openssl` command runs, with the module and without.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A directory with the module, a configuration and the files of one test.
pub struct Workshop {
    directory: TempDir,
}

/// Whose algorithms a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Ours,
    Stock,
}

pub use Provider::{Ours, Stock};

pub const BOTH: [Provider; 2] = [Ours, Stock];

impl Workshop {
    /// `lines` go into the section of the provider.
    pub fn new(lines: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let module = std::env::current_exe()
            .expect("a path")
            .with_file_name("libslipstream.so");
        std::os::unix::fs::symlink(module, directory.path().join("slipstream.so")).expect("a link");
        let configuration = |providers: &str| {
            format!(
                "openssl_conf = init\n[init]\nproviders = providers\nalg_section = algorithms\n\
                 [providers]\ndefault = activated\n{providers}\n[activated]\nactivate = 1\n\
                 [ours]\nactivate = 1\n{lines}\n\
                 [algorithms]\ndefault_properties = ?provider=slipstream\n\
                 [req]\ndistinguished_name = name\n[name]\n"
            )
        };
        let workshop = Self { directory };
        workshop.write("ours.cnf", configuration("slipstream = ours").as_bytes());
        workshop.write("stock.cnf", configuration("").as_bytes());
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).expect("a file");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    pub fn command(&self, program: impl AsRef<OsStr>, provider: Provider) -> Command {
        let mut command = Command::new(program);
        let configuration = if provider == Ours {
            "ours.cnf"
        } else {
            "stock.cnf"
        };
        command
            .current_dir(self.directory.path())
            .env("OPENSSL_CONF", self.path(configuration))
            .env("OPENSSL_MODULES", self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `openssl` with words separated by blanks.
    pub fn try_openssl(&self, provider: Provider, words: &str) -> Output {
        let mut command = self.command("openssl", provider);
        command
            .args(words.split_whitespace())
            .output()
            .expect("the openssl command")
    }

    /// The same, which must succeed; answers its output.
    pub fn openssl(&self, provider: Provider, words: &str) -> Vec<u8> {
        let output = self.try_openssl(provider, words);
        assert!(
            output.status.success(),
            "{provider:?} {words}: {}",
            text(&output.stderr)
        );
        output.stdout
    }

    /// A throw-away key with its certificate, which may issue others. OpenSSL since 3.2 asks for that
    /// to be said in it.
    pub fn certificate(&self, provider: Provider, bits: usize) {
        self.openssl(
            provider,
            &format!(
                "req -x509 -newkey rsa:{bits} -nodes -keyout key.pem -out certificate.pem \
                 -subj /CN=localhost -days 1 -sha256 -addext basicConstraints=critical,CA:TRUE"
            ),
        );
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `openssl s_server`, ended when dropped.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    pub fn start(workshop: &Workshop, options: &str) -> Self {
        Self::start_with(workshop, "openssl", Ours, options)
    }

    pub fn start_with(
        workshop: &Workshop,
        program: &str,
        provider: Provider,
        options: &str,
    ) -> Self {
        let mut process = workshop
            .command(program, provider)
            .args("s_server -accept 127.0.0.1:0 -key key.pem -cert certificate.pem -www".split(' '))
            .args(options.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
            .expect("an address");
        Self { process, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .expect("the server");
    }
}

/// Fetches the page of the server, with the certificate verified.
pub fn fetch(workshop: &Workshop, address: &str, options: &str) -> String {
    fetch_with(workshop, Stock, address, options)
}

pub fn fetch_with(workshop: &Workshop, provider: Provider, address: &str, options: &str) -> String {
    let mut client = workshop
        .command("openssl", provider)
        .args("s_client -quiet -no_ign_eof -verify_return_error -CAfile certificate.pem".split(' '))
        .args(["-ign_eof", "-connect", address])
        .args(options.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut input = client.stdin.take().expect("its input");
    input
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("a request");
    let output = client.wait_with_output().expect("an answer");
    assert!(
        output.status.success(),
        "{options}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}
