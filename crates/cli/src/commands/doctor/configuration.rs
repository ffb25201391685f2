//! The lines of an operator's nginx configuration that a trial has in common with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use glob::Pattern;
use slipstream_testbed::credentials::key_type_of;
use slipstream_testbed::nginx::Binary;
use slipstream_testbed::suite::KeyType;

/// Directives of TLS that mean the same in a server of the trial. Those that name certificates,
/// keys, clients or answers of a certificate authority are the operator's own.
const SHARED: [&str; 11] = [
    "slipstream",
    "ssl_protocols",
    "ssl_ciphers",
    "ssl_prefer_server_ciphers",
    "ssl_ecdh_curve",
    "ssl_conf_command",
    "ssl_session_cache",
    "ssl_session_tickets",
    "ssl_session_timeout",
    "ssl_early_data",
    "ssl_buffer_size",
];

/// The lines, as they stand in the configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// The `slipstream { ... }` block.
    pub(super) main: Vec<String>,
    /// The lines of the http block.
    pub(super) http: Vec<String>,
    /// The servers with TLS. Servers that have nothing different are one.
    pub(super) servers: Vec<Server>,
    /// The addresses of these, each once.
    pub(super) listeners: Vec<Listener>,
}

/// An address with TLS, on which this machine can be reached from itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// The name of the first server there, for SNI.
    pub(super) name: String,
}

/// A server with TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// The first of its names, or its place among the servers.
    pub(super) name: String,
    /// The name that a client asks for.
    host: String,
    pub(super) lines: Vec<String>,
    /// The types of its keys, as far as they are known.
    pub(super) keys: Vec<KeyType>,
}

impl Lines {
    /// Asks nginx for its whole configuration, and takes the lines from it.
    ///
    /// # Errors
    /// If nginx refuses the configuration, or if this program cannot read it.
    pub(super) fn read(nginx: &Binary, file: Option<&Path>) -> anyhow::Result<Lines> {
        let mut command = Command::new(&nginx.path);
        command.args(["-T", "-q"]);
        if let Some(file) = file {
            command.arg("-c").arg(std::path::absolute(file)?);
        }
        let output = command
            .output()
            .with_context(|| format!("cannot run {}", nginx.path.display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            let reason = message.lines().find(|line| line.contains("[emerg]"));
            let reason = reason.or(message.lines().last());
            bail!("nginx -T fails: {}", reason.unwrap_or("without a message"));
        }
        Lines::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Returns true if `slipstream on` stands anywhere.
    pub(super) fn enable(&self) -> bool {
        let servers = self.servers.iter().flat_map(|server| &server.lines);
        self.http.iter().chain(servers).any(|line| is_on(line))
    }

    fn parse(dump: &str) -> anyhow::Result<Lines> {
        let files = split(dump)?;
        let mut lines = Lines::default();
        for directive in expand(&files, 0, &mut vec![0])? {
            match directive.name() {
                "slipstream" => lines.main.push(directive.text()),
                "http" => lines.read_http(&directive),
                _ => {}
            }
        }
        Ok(lines)
    }

    fn read_http(&mut self, http: &Directive) {
        let mut inherited = Vec::new();
        for directive in http.block.iter().flatten() {
            match directive.name() {
                "ssl_certificate" => inherited.push(directive.value()),
                name if SHARED.contains(&name) => self.http.push(directive.text()),
                _ => {}
            }
        }
        let servers = http.block.iter().flatten();
        for (number, server) in servers.filter(|one| one.name() == "server").enumerate() {
            let Some((server, addresses)) = Server::read(server, number + 1, &inherited) else {
                continue;
            };
            for address in addresses {
                let name = server.host.clone();
                if !self.listeners.iter().any(|known| known.address == address) {
                    self.listeners.push(Listener { address, name });
                }
            }
            if !self.servers.iter().any(|other| other.is_like(&server)) {
                self.servers.push(server);
            }
        }
    }
}

impl Server {
    /// The server and its addresses with TLS. `None` if it has no TLS over TCP.
    fn read(
        server: &Directive,
        number: usize,
        inherited: &[&str],
    ) -> Option<(Server, Vec<SocketAddr>)> {
        let directives = || server.block.iter().flatten();
        let named = |name| directives().filter(move |one: &&Directive| one.name() == name);
        // Before nginx 1.25.1 there was a directive for it, too.
        let all_are_tls = named("ssl").any(|one| one.value() == "on");
        let is_tls =
            |one: &&Directive| all_are_tls || one.words[1..].iter().any(|word| word == "ssl");
        let with_tls: Vec<&Directive> = named("listen").filter(is_tls).collect();
        if with_tls.is_empty() && !all_are_tls {
            return None;
        }
        let addresses = with_tls.iter().filter_map(|one| address(one.value()));
        let mut certificates: Vec<&str> = named("ssl_certificate").map(Directive::value).collect();
        if certificates.is_empty() {
            certificates = inherited.to_vec();
        }
        let mut keys: Vec<KeyType> = Vec::new();
        for key in certificates
            .iter()
            .filter_map(|file| key_type_of(Path::new(file)))
        {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let name = named("server_name")
            .map(Directive::value)
            .find(|name| !name.is_empty());
        let addresses = addresses.collect();
        let mut hosts = named("server_name").flat_map(|one| &one.words[1..]);
        let host = hosts
            .find(|name| is_host(name))
            .map_or("localhost", |name| name);
        let server = Server {
            host: host.to_owned(),
            name: name.map_or_else(|| format!("server {number}"), str::to_owned),
            lines: directives()
                .filter(|one| SHARED.contains(&one.name()))
                .map(Directive::text)
                .collect(),
            keys,
        };
        Some((server, addresses))
    }

    fn is_like(&self, other: &Server) -> bool {
        self.lines == other.lines && self.keys == other.keys
    }
}

/// Returns true for a name that can stand in a ClientHello; patterns and addresses cannot.
fn is_host(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    name.bytes().all(is_part) && name.parse::<IpAddr>().is_err()
}

/// The address of a `listen` directive; any address of the machine is that of loopback. `None` for
/// sockets that are not TCP's, and for names.
fn address(value: &str) -> Option<SocketAddr> {
    const USUAL: u16 = 80;
    let of = |ip: &str| -> Option<IpAddr> {
        match ip {
            "*" | "0.0.0.0" | "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
            "[::]" => Some(Ipv6Addr::LOCALHOST.into()),
            _ => ip.trim_matches(['[', ']']).parse().ok(),
        }
    };
    if let Ok(port) = value.parse() {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    if let Some(ip) = of(value) {
        return Some((ip, USUAL).into());
    }
    let (ip, port) = value.rsplit_once(':')?;
    Some((of(ip)?, port.parse().ok()?).into())
}

/// Returns true if `line` is `slipstream on`.
pub(super) fn is_on(line: &str) -> bool {
    line == "slipstream on;"
}

/// A directive: its words as they are written, quotes included, and its block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directive {
    words: Vec<String>,
    block: Option<Vec<Directive>>,
}

impl Directive {
    fn name(&self) -> &str {
        &self.words[0]
    }

    /// The first value, without quotes.
    fn value(&self) -> &str {
        let word = self.words.get(1).map_or("", String::as_str);
        word.trim_matches(['"', '\''])
    }

    fn text(&self) -> String {
        let words = self.words.join(" ");
        match &self.block {
            None => format!("{words};"),
            Some(block) => {
                let inner: Vec<String> = block.iter().map(Directive::text).collect();
                format!("{words} {{ {} }}", inner.join(" "))
            }
        }
    }
}

/// A file in the output of `nginx -T`.
struct File {
    path: PathBuf,
    directives: Vec<Directive>,
}

/// The files in the output of `nginx -T`, the main one first.
fn split(dump: &str) -> anyhow::Result<Vec<File>> {
    const MARK: &str = "# configuration file ";
    let mut texts: Vec<(PathBuf, String)> = Vec::new();
    for line in dump.lines() {
        let path = line
            .strip_prefix(MARK)
            .and_then(|rest| rest.strip_suffix(':'));
        match (path, texts.last_mut()) {
            (Some(path), _) => texts.push((path.into(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    if texts.is_empty() {
        bail!("nginx -T has printed no configuration");
    }
    let files = texts.into_iter().map(|(path, text)| {
        let mut words = Words { rest: &text };
        let directives =
            read_block(&mut words).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(File { path, directives })
    });
    files.collect()
}

/// The directives of a file, with those of the files that it includes in their places.
fn expand(files: &[File], file: usize, open: &mut Vec<usize>) -> anyhow::Result<Vec<Directive>> {
    expand_block(files, &files[file].directives, open)
}

fn expand_block(
    files: &[File],
    block: &[Directive],
    open: &mut Vec<usize>,
) -> anyhow::Result<Vec<Directive>> {
    let mut expanded = Vec::new();
    for directive in block {
        if directive.name() == "include" {
            for file in included(files, directive.value())? {
                if open.contains(&file) {
                    bail!("{} includes itself", files[file].path.display());
                }
                open.push(file);
                expanded.extend(expand(files, file, open)?);
                open.pop();
            }
            continue;
        }
        let block = match &directive.block {
            Some(block) => Some(expand_block(files, block, open)?),
            None => None,
        };
        expanded.push(Directive {
            words: directive.words.clone(),
            block,
        });
    }
    Ok(expanded)
}

/// The places of the files that `pattern` matches. It is relative to the main file's folder.
fn included(files: &[File], pattern: &str) -> anyhow::Result<Vec<usize>> {
    let folder = files[0].path.parent().unwrap_or(Path::new("/"));
    let path = folder.join(pattern);
    let pattern = Pattern::new(&path.to_string_lossy())
        .with_context(|| format!("cannot read the pattern {}", path.display()))?;
    let places = files.iter().enumerate();
    let matching = places.filter(|(_, file)| pattern.matches_path(&file.path));
    Ok(matching.map(|(place, _)| place).collect())
}

/// Reads directives to the end of a block, or of the file.
fn read_block(words: &mut Words<'_>) -> anyhow::Result<Vec<Directive>> {
    let mut directives = Vec::new();
    let mut current: Vec<String> = Vec::new();
    while let Some(token) = words.next()? {
        match token {
            Token::Word(word) => current.push(word.to_owned()),
            Token::End if current.is_empty() => bail!("unexpected \";\""),
            Token::End => directives.push(Directive {
                words: std::mem::take(&mut current),
                block: None,
            }),
            Token::Open if current.is_empty() => bail!("unexpected \"{{\""),
            Token::Open => {
                let name = std::mem::take(&mut current);
                // Code in another language, which has braces and quotes of its own.
                if name[0].ends_with("_by_lua_block") || name[0].ends_with("_by_njs_block") {
                    words.skip_code();
                    continue;
                }
                directives.push(Directive {
                    words: name,
                    block: Some(read_block(words)?),
                });
            }
            Token::Close => break,
        }
    }
    match current.first() {
        None => Ok(directives),
        Some(name) => bail!("\"{name}\" is not terminated by \";\""),
    }
}

enum Token<'a> {
    Word(&'a str),
    End,
    Open,
    Close,
}

/// The tokens of a configuration, by the rules of `ngx_conf_read_token`.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> anyhow::Result<Option<Token<'a>>> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |both| both.1),
                None => break,
            }
        }
        let token = match self.rest.chars().next() {
            None => return Ok(None),
            Some(';') => Token::End,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some(quote @ ('"' | '\'')) => return self.quoted(quote).map(Some),
            Some(_) => return Ok(Some(Token::Word(self.bare()))),
        };
        self.rest = &self.rest[1..];
        Ok(Some(token))
    }

    fn quoted(&mut self, quote: char) -> anyhow::Result<Token<'a>> {
        let mut is_escaped = false;
        for (place, character) in self.rest.char_indices().skip(1) {
            if character == quote && !is_escaped {
                let (word, rest) = self.rest.split_at(place + 1);
                self.rest = rest;
                return Ok(Token::Word(word));
            }
            is_escaped = character == '\\' && !is_escaped;
        }
        bail!("a string has no end")
    }

    /// A word without quotes. `${` begins a variable, not a block.
    fn bare(&mut self) -> &'a str {
        let mut previous = ' ';
        let mut is_variable = false;
        let end = self.rest.char_indices().find(|&(_, character)| {
            let ends = match character {
                '{' if previous == '$' => {
                    is_variable = true;
                    false
                }
                '}' if is_variable => {
                    is_variable = false;
                    false
                }
                ';' | '{' => previous != '\\',
                other => other.is_ascii_whitespace() && previous != '\\',
            };
            previous = character;
            ends
        });
        let end = end.map_or(self.rest.len(), |(place, _)| place);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Skips to behind the brace that closes a block of code.
    fn skip_code(&mut self) {
        let mut depth = 1;
        let end = self.rest.char_indices().find(|&(_, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        self.rest = end.map_or("", |(place, _)| &self.rest[place + 1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = r#"# configuration file /etc/nginx/nginx.conf:
user www-data;
include /etc/nginx/modules-enabled/*.conf;
slipstream { device unix:/run/a.sock; # the engine
    ahead 128; }
http {
    ssl_protocols TLSv1.2 TLSv1.3;
    log_format main '$remote_addr "$request" {x;y}';
    map $uri $a { "~^/x{2}" 1; default ${b}c; }
    slipstream on;
    include sites-enabled/*;
}

# configuration file /etc/nginx/modules-enabled/50.conf:
load_module modules/x.so;

# configuration file /etc/nginx/sites-enabled/a:
server {
    listen 443 ssl; listen 80;
    server_name "a.example" b.example;
    ssl_certificate /nowhere/a.pem;
    ssl_ecdh_curve X25519:prime256v1;
    location / { content_by_lua_block { local a = "}" .. { 1 }[1] } }
}
server { listen 8443 ssl; ssl_ecdh_curve X25519:prime256v1; }
server { listen 80; ssl_ciphers never; }
server { listen 444 ssl; slipstream off; }
"#;

    #[test]
    fn lines_are_taken_with_their_contexts_through_includes() {
        // The quote in the code is not Lua's brace: it is balanced as nginx sees it.
        let dump = DUMP.replace("local a = \"}\" .. { 1 }[1]", "local a = { 1 }");
        let lines = Lines::parse(&dump).unwrap();
        assert_eq!(
            lines.main,
            ["slipstream { device unix:/run/a.sock; ahead 128; }"]
        );
        assert_eq!(
            lines.http,
            ["ssl_protocols TLSv1.2 TLSv1.3;", "slipstream on;"]
        );
        let servers: Vec<(&str, &[String])> = lines
            .servers
            .iter()
            .map(|server| (&*server.name, &*server.lines))
            .collect();
        assert_eq!(servers.len(), 2, "{servers:?}");
        assert_eq!(servers[0].0, "a.example");
        assert_eq!(servers[0].1, ["ssl_ecdh_curve X25519:prime256v1;"]);
        assert_eq!(servers[1].0, "server 4");
        assert_eq!(servers[1].1, ["slipstream off;"]);
        assert!(lines.enable());
        let listeners: Vec<(u16, &str)> = lines
            .listeners
            .iter()
            .map(|one| (one.address.port(), &*one.name))
            .collect();
        assert_eq!(
            listeners,
            [(443, "b.example"), (8443, "localhost"), (444, "localhost")]
        );
    }

    #[test]
    fn addresses_are_those_to_connect_to() {
        for (value, expected) in [
            ("443", Some("127.0.0.1:443")),
            ("*:443", Some("127.0.0.1:443")),
            ("10.1.2.3:8443", Some("10.1.2.3:8443")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("[::]:443", Some("[::1]:443")),
            ("[::1]:443", Some("[::1]:443")),
            ("localhost:443", Some("127.0.0.1:443")),
            ("unix:/run/a.sock", None),
            ("other.example:443", None),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(address(value), expected, "{value}");
        }
    }

    #[test]
    fn what_nginx_would_not_have_printed_is_refused() {
        for (text, reason) in [
            ("", "no configuration"),
            ("# configuration file /a:\nhttp {", "nothing"),
            ("# configuration file /a:\n;", "unexpected \";\""),
            ("# configuration file /a:\n{ }", "unexpected \"{\""),
            ("# configuration file /a:\na 'b", "has no end"),
            ("# configuration file /a:\na b", "not terminated"),
            ("# configuration file /a:\ninclude /a;", "includes itself"),
        ] {
            match Lines::parse(text) {
                Ok(lines) => assert_eq!((lines, reason), (Lines::default(), "nothing"), "{text}"),
                Err(error) => assert!(format!("{error:#}").contains(reason), "{error:#}"),
            }
        }
    }
}
