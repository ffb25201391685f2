//! Makes what configurations name: certificates, an engine, folders. A configuration of a document
//! names files of somebody's server; here it gets those of the test, and the context that a
//! fragment of a file stands in.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slipstream_integration::programs::{Finished, finish, run};
use slipstream_integration::{
    Authority, Build, Credentials, Engine, KeyType, command, eventually, unused_address,
};

/// The socket that documents name.
const ENGINE: &str = "/run/slipstream/engine.sock";

/// The folder of logs that documents name.
const LOGS: &str = "/var/log/slipstream";

/// A port that only root may listen at, and one for everybody.
const PORTS: [&str; 2] = [":443\"", ":44443\""];

/// Everything that a configuration can name.
pub(crate) struct Stage {
    authority: Authority,
    credentials: Credentials,
    engine: Engine,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let authority = Authority::new();
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        let files = [&credentials.certificate_file, &credentials.key_file];
        let pem = files.map(|file| fs::read(file).expect("a file of the authority's"));
        authority.write("both.pem", &pem.concat());
        let provider = command().with_file_name("libslipstream.so");
        symlink(provider, authority.directory().join("slipstream.so")).expect("a link of our own");
        // A published nginx opens its logs below the prefix.
        fs::create_dir(authority.directory().join("logs")).expect("a folder of our own");
        Self {
            authority,
            credentials,
            engine: Engine::start(&[]),
        }
    }

    /// Runs `nginx -t` on a configuration: of a whole file, or of what stands in http or in a
    /// server.
    pub(crate) fn nginx(&self, build: Build, text: &str) -> Result<(), String> {
        let text = self.nginx_text(text);
        first_success(
            [
                text.clone(),
                format!("http {{\n{text}}}\n"),
                format!("http {{\nserver {{\n{text}}}\n}}\n"),
            ]
            .map(|text| self.nginx_file(build, &text)),
        )
    }

    /// Runs `nginx -t` on a whole file that lacks only what is the test's own.
    pub(crate) fn nginx_file(&self, build: Build, text: &str) -> Finished {
        let folder = self.authority.directory().display();
        let module = build.module();
        let mut whole = format!(
            "load_module \"{}\";\npid \"{folder}/pid\";\nerror_log stderr;\n",
            module.display()
        );
        if let Some(stream) = build
            .dynamic("stream")
            .filter(|_| text.contains("stream {"))
        {
            whole += &format!("load_module \"{}\";\n", stream.display());
        }
        // Debian's own folders belong to root.
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = kinds.map(|kind| format!("{kind}_temp_path \"{folder}/{kind}\";\n"));
        whole += &text.replacen("http {", &format!("http {{\n{}", paths.concat()), 1);
        if !text.contains("events {") {
            whole += "events { }\n";
        }
        let file = self.authority.write("nginx.conf", whole.as_bytes());
        let mut nginx = Command::new(build.executable());
        nginx.args(["-t", "-p"]).arg(self.authority.directory());
        finish(nginx.arg("-c").arg(file), b"")
    }

    fn nginx_text(&self, text: &str) -> String {
        let mut prepared = String::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let value = match words[..] {
                // The module is the one that was built for this nginx.
                ["load_module", ..] => continue,
                ["listen", value, ..] => Some((value, unused_address().to_string())),
                ["ssl_certificate", value] => Some((value, self.certificate().to_owned())),
                ["ssl_certificate_key", value] => Some((value, self.key().to_owned())),
                _ => None,
            };
            match value {
                Some((old, new)) => {
                    prepared += &line.replacen(old.trim_end_matches(';'), &new, 1);
                }
                None => prepared += line,
            }
            prepared.push('\n');
        }
        prepared.replace(ENGINE, &self.socket())
    }

    /// Runs `slipstream serve --check` on a configuration: of a whole file, of sections that need a
    /// listener, or of keys of a listener.
    pub(crate) fn serve(&self, text: &str) -> Result<(), String> {
        let text = self.serve_text(text);
        let listener = format!(
            "[[listener]]\nlisten = \"127.0.0.1:44444\"\n\
             certificates = {{ certificate = {:?}, key = {:?} }}\n",
            self.certificate(),
            self.key()
        );
        first_success(
            [
                text.clone(),
                format!("{text}{listener}backends = \"127.0.0.1:8080\"\n"),
                format!("{listener}{text}"),
            ]
            .map(|text| self.serve_file(&text)),
        )
    }

    /// Runs `slipstream serve --check` on a whole file.
    pub(crate) fn serve_file(&self, text: &str) -> Finished {
        let file = self.authority.write("serve.toml", text.as_bytes());
        let mut serve = Command::new(command());
        finish(serve.args(["serve", "--check", "--config"]).arg(file), b"")
    }

    fn serve_text(&self, text: &str) -> String {
        let folder = self.authority.directory().display().to_string();
        let user = run("id", ["-un"]).expect_success();
        let mut text = text.replace(LOGS, &folder).replace(PORTS[0], PORTS[1]);
        for (key, value) in [
            ("certificate", self.certificate()),
            ("key", self.key()),
            ("socket", &self.socket()),
            ("root", &folder),
            ("user", user.trim()),
        ] {
            text = with_value(&text, key, value);
        }
        text
    }

    /// Runs `haproxy -c` on a configuration.
    pub(crate) fn haproxy(&self, text: &str) -> Result<(), String> {
        let folder = self.authority.directory();
        let mut prepared = String::new();
        for line in text.lines() {
            if line.trim() == "ssl-provider slipstream" {
                prepared += &format!("ssl-provider-path {}\n", folder.display());
            }
            match line.split_once(" crt ") {
                Some((before, _)) => {
                    prepared += &format!("{before} crt {}\n", folder.join("both.pem").display());
                }
                None => prepared += &format!("{line}\n"),
            }
        }
        let file = self.authority.write("haproxy.cfg", prepared.as_bytes());
        let mut haproxy = Command::new("haproxy");
        first_success([finish(haproxy.args(["-c", "-f"]).arg(file), b"")])
    }

    /// Has programs of OpenSSL read a configuration: both providers must be loaded, and, if the
    /// file activates them, a handshake must succeed. A fragment stands in Debian's openssl.cnf.
    pub(crate) fn openssl(&self, text: &str) -> Result<(), String> {
        let text = match text.contains("openssl_conf") {
            true => text.to_owned(),
            false => format!("openssl_conf = openssl_init\n{text}"),
        };
        let file = self.authority.write("openssl.cnf", text.as_bytes());
        let is_activated = text.contains("activate");

        let mut list = self.openssl_command(&file, &["list", "-providers"]);
        if !is_activated {
            // As the program does for which the file is meant.
            list.args(["-provider", "slipstream", "-provider", "default"]);
        }
        let listed = finish(&mut list, b"");
        for provider in ["default", "slipstream"] {
            if !listed.output.lines().any(|line| line.trim() == provider) {
                return Err(format!("{provider} is not loaded: {listed:?}"));
            }
        }
        if !is_activated {
            return Ok(());
        }
        let mut digest = self.openssl_command(&file, &["dgst", "-sha256"]);
        first_success([finish(&mut digest, b"")])?;
        self.handshake(&file)
    }

    /// Completes a handshake between OpenSSL's server and client, both with the configuration.
    fn handshake(&self, file: &Path) -> Result<(), String> {
        let address: SocketAddr = unused_address();
        let at = address.to_string();
        let mut server = self
            .openssl_command(file, &["s_server", "-www", "-accept", &at])
            .args(["-cert", self.certificate(), "-key", self.key()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl can be run");
        let mut client = self.openssl_command(file, &["s_client", "-connect", &at]);
        client.arg("-CAfile").arg(self.authority.certificate_file());
        let mut last = None;
        eventually("the server answers, or has ended", || {
            let finished = finish(&mut client, b"");
            let has_ended = server.try_wait().expect("a child").is_some();
            let answers = !finished.errors.contains("Connection refused");
            last = Some(finished);
            answers || has_ended
        });
        server.kill().expect("a child can be killed");
        server.wait().expect("a child can be waited for");
        let last = last.expect("it has been run");
        match last.output.contains("Verify return code: 0 (ok)") {
            true => Ok(()),
            false => Err(format!("{last:?}")),
        }
    }

    fn openssl_command(&self, file: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("openssl");
        command
            .args(arguments)
            .env("OPENSSL_CONF", file)
            .env("OPENSSL_MODULES", self.authority.directory());
        command
    }

    pub(crate) fn socket(&self) -> String {
        text(&self.engine.socket()).to_owned()
    }

    fn certificate(&self) -> &str {
        text(&self.credentials.certificate_file)
    }

    fn key(&self) -> &str {
        text(&self.credentials.key_file)
    }
}

/// The text with this value for every `key = "value"`.
fn with_value(text: &str, key: &str, value: &str) -> String {
    let start = format!("{key} = \"");
    let mut changed = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&start) {
        changed += before;
        changed += &start;
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let (old, after) = after.split_once('"').expect("a value in quotes");
        changed += if before.ends_with(is_word) {
            old
        } else {
            value
        };
        changed.push('"');
        rest = after;
    }
    changed + rest
}

/// Succeeds if one of the programs has; otherwise says what each has said.
fn first_success<const N: usize>(finished: [Finished; N]) -> Result<(), String> {
    if finished.iter().any(|finished| finished.success) {
        return Ok(());
    }
    let said = finished.map(|finished| format!("{}{}", finished.output, finished.errors));
    Err(said.join("\nor, in another context:\n"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// The source files of a crate of this workspace.
pub(crate) fn sources(of: &str) -> Vec<PathBuf> {
    let mut folders = vec![crate::pages::root().join("crates").join(of).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry of a folder").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}
