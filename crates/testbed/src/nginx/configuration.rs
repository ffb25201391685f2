//! The nginx.conf of a measured nginx: a plain one, and Slipstream's two lines.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::credentials::Credentials;
use crate::suite::{Protocol, Suite};

/// The contents of an nginx.conf. Stock and Slipstream configurations differ in
/// [`Configuration::module`] and its directives, and in nothing else.
#[derive(Debug, Clone)]
pub struct Configuration<'a> {
    /// The Slipstream module, which is then loaded and switched on; `None` for a stock nginx.
    pub module: Option<&'a Path>,
    /// Directives for the main context that belong to the module, such as a `slipstream { ... }`
    /// block.
    pub module_directives: &'a str,
    /// The directory for temporary files, the log and the pid file.
    pub directory: &'a Path,
    /// The core that the only worker is bound to.
    pub worker_core: usize,
    /// The ports.
    pub listeners: &'a [Listener<'a>],
    /// True if the master runs as root. The worker is then told to stay root, since the key and the
    /// directory are private to the user who has started it.
    pub as_root: bool,
}

/// A port and the only kind of handshake it accepts.
#[derive(Debug, Clone)]
pub struct Listener<'a> {
    /// Address and port.
    pub address: SocketAddr,
    /// Restricts protocol, cipher and group; `None` leaves TLS 1.2 and 1.3 with nginx's defaults.
    pub suite: Option<&'a Suite>,
    /// Key and certificate.
    pub credentials: &'a Credentials,
}

impl Configuration<'_> {
    /// The text of the configuration.
    ///
    /// # Errors
    /// [`Error::UnusablePath`] for a path that nginx would not read as it is.
    pub fn render(&self) -> Result<String, Error> {
        let mut text = String::new();
        self.begin(&mut text)?;
        if self.module.is_some() {
            text.push_str("    slipstream on;\n");
        }
        for listener in self.listeners {
            self.write_server(&mut text, listener)?;
        }
        text.push_str("}\n");
        Ok(text)
    }

    /// Appends the directives that do not depend on the servers, up to the beginning of the http
    /// block.
    pub fn begin(&self, text: &mut String) -> Result<(), Error> {
        self.write_main(text)?;
        text.push_str("http {\n    access_log off;\n");
        for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            let path = quote(&self.directory.join(name))?;
            append(text, format_args!("    {name}_temp_path {path};\n"));
        }
        Ok(())
    }

    fn write_main(&self, text: &mut String) -> Result<(), Error> {
        if let Some(module) = self.module {
            append(text, format_args!("load_module {};\n", quote(module)?));
            if !self.module_directives.is_empty() {
                append(text, format_args!("{}\n", self.module_directives));
            }
        }
        if self.as_root {
            text.push_str("user root root;\n");
        }
        let affinity = format!("1{}", "0".repeat(self.worker_core));
        let pid = quote(&self.directory.join("nginx.pid"))?;
        let log = quote(&self.directory.join("error.log"))?;
        append(
            text,
            format_args!(
                "daemon off;\n\
                 master_process on;\n\
                 worker_processes 1;\n\
                 worker_cpu_affinity {affinity};\n\
                 pid {pid};\n\
                 error_log {log};\n\
                 events {{\n    worker_connections 4096;\n}}\n"
            ),
        );
        Ok(())
    }

    fn write_server(&self, text: &mut String, listener: &Listener<'_>) -> Result<(), Error> {
        append(
            text,
            format_args!(
                "    server {{\n        \
                     listen {} ssl;\n        \
                     ssl_certificate {};\n        \
                     ssl_certificate_key {};\n",
                listener.address,
                quote(&listener.credentials.certificate)?,
                quote(&listener.credentials.key)?,
            ),
        );
        match listener.suite {
            Some(suite) => write_suite(text, suite),
            // nginx before 1.23.4 leaves TLS 1.3 out of its default.
            None => text.push_str("        ssl_protocols TLSv1.2 TLSv1.3;\n"),
        }
        text.push_str("        location / {\n            return 200 \"ok\\n\";\n        }\n");
        if self.module.is_some() {
            text.push_str(
                "        location = /slipstream {\n            slipstream_status;\n        }\n",
            );
        }
        text.push_str("    }\n");
        Ok(())
    }
}

/// Appends the directives that restrict a server to `suite`.
pub fn write_suite(text: &mut String, suite: &Suite) {
    let protocol = suite.protocol.nginx_name();
    append(text, format_args!("        ssl_protocols {protocol};\n"));
    // nginx passes ssl_ciphers to OpenSSL's list for TLS 1.2; in TLS 1.3 the client's only offer
    // decides.
    if suite.protocol == Protocol::Tls12 {
        let cipher = suite.cipher.name;
        append(text, format_args!("        ssl_ciphers {cipher};\n"));
    }
    if let Some(group) = suite.group {
        let group = group.name();
        append(text, format_args!("        ssl_ecdh_curve {group};\n"));
    }
}

/// A path as nginx's configuration takes it: in quotes, and free of characters that
/// nginx would interpret within them.
pub fn quote(path: &Path) -> Result<String, Error> {
    let usable = path
        .to_str()
        .filter(|path| !path.contains(['"', '\\', '$']) && !path.contains(char::is_control));
    match usable {
        Some(path) => Ok(format!("\"{path}\"")),
        None => Err(Error::UnusablePath {
            path: PathBuf::from(path),
        }),
    }
}

fn append(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(module: Option<&Path>, suite: &str) -> String {
        let credentials = Credentials {
            certificate: PathBuf::from("/tmp/s/rsa2048.crt"),
            key: PathBuf::from("/tmp/s/rsa2048.key"),
        };
        let listeners = [Listener {
            address: SocketAddr::from(([127, 0, 0, 1], 8443)),
            suite: Suite::find(suite),
            credentials: &credentials,
        }];
        Configuration {
            module,
            module_directives: "slipstream { fibers 64; }",
            directory: Path::new("/tmp/s"),
            worker_core: 3,
            listeners: &listeners,
            as_root: true,
        }
        .render()
        .unwrap()
    }

    #[test]
    fn a_server_accepts_its_suite_only() {
        let text = render(None, "tls12-ecdhe-rsa-x25519");
        for line in [
            "listen 127.0.0.1:8443 ssl;",
            "ssl_protocols TLSv1.2;",
            "ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256;",
            "ssl_ecdh_curve X25519;",
            "ssl_certificate_key \"/tmp/s/rsa2048.key\";",
            "worker_cpu_affinity 1000;",
            "user root root;",
        ] {
            assert!(
                text.lines().any(|found| found.trim() == line),
                "{line} not in:\n{text}"
            );
        }
        assert!(!render(None, "tls13-rsa2048").contains("ssl_ciphers"));
        assert!(!render(None, "tls12-rsakx").contains("ssl_ecdh_curve"));
    }

    #[test]
    fn slipstream_differs_from_stock_by_its_own_directives_only() {
        let stock = render(None, "tls13-rsa2048");
        let ours = render(Some(Path::new("/m/module.so")), "tls13-rsa2048");
        assert!(ours.starts_with("load_module \"/m/module.so\";\nslipstream { fibers 64; }\n"));
        let without_ours: String = ours
            .replace(
                "        location = /slipstream {\n            slipstream_status;\n        }\n",
                "",
            )
            .lines()
            .filter(|line| !line.contains("slipstream") && !line.contains("load_module"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(without_ours, stock);
    }

    #[test]
    fn a_path_that_nginx_would_interpret_is_refused() {
        for path in ["/tmp/a\"b", "/tmp/$pid", "/tmp/a\\b", "/tmp/a\nb"] {
            assert!(matches!(
                quote(Path::new(path)),
                Err(Error::UnusablePath { .. })
            ));
        }
        assert_eq!(quote(Path::new("/tmp/a b;{}")).unwrap(), "\"/tmp/a b;{}\"");
    }
}
