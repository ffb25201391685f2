//! Checks of the files, users and addresses that a configuration names.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

use super::{
    AccessLog, Address, Configuration, Engine, Group, Listener, LogTarget, Service, Upstream,
};
use crate::operations::privileges::{User, may_bind};

mod certificates;

/// Problems of a configuration. Each entry is one line that names the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Findings {
    /// Problems that make the configuration unusable.
    pub errors: Vec<String>,
    /// Problems that the configuration can be used with, but would surprise.
    pub warnings: Vec<String>,
}

/// Returns all problems of `configuration`: unreadable files, certificates without their key,
/// missing users and the like.
pub fn problems(configuration: &Configuration) -> Vec<String> {
    let Findings { errors, warnings } = findings(configuration, None);
    [errors, warnings].concat()
}

/// Returns the same, with errors and warnings apart. If this process is already `serving` a
/// configuration, checks for the user and for bound addresses are left out: the user has been
/// changed, and the addresses are bound.
pub fn findings(configuration: &Configuration, serving: Option<&Configuration>) -> Findings {
    let mut findings = Findings::default();
    findings.check_addresses(configuration, serving);
    let user = match serving {
        None => findings.check_user(configuration.user.as_deref()),
        Some(_) => None,
    };
    if let Some(engine) = &configuration.engine {
        findings.check_engine(engine);
    }
    if let Some(log) = &configuration.access_log {
        findings.check_log(log);
    }
    for listener in &configuration.listeners {
        findings.check_listener(listener, user.as_ref());
    }
    findings
}

impl Findings {
    fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    fn warning(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    fn check_addresses(&mut self, configuration: &Configuration, serving: Option<&Configuration>) {
        let bound: HashSet<SocketAddr> = serving.into_iter().flat_map(addresses).collect();
        // Sockets bound by systemd need no privilege.
        let is_activated = std::env::var_os("LISTEN_FDS").is_some();
        let mut seen = HashSet::new();
        for address in addresses(configuration) {
            if !seen.insert(address) {
                self.error(format!(
                    "{address} has two listeners: remove one of the two"
                ));
            } else if !bound.contains(&address) && !is_activated && !may_bind(address.port()) {
                self.error(format!(
                    "{address}: this user may not listen at ports below 1024: start as root with `user`, by a .socket unit of \
                     systemd, or with the capability CAP_NET_BIND_SERVICE"
                ));
            }
        }
    }

    fn check_user(&mut self, name: Option<&str>) -> Option<User> {
        let user = match User::find(name?) {
            Ok(user) => user,
            Err(error) => {
                self.error(error.to_string());
                return None;
            }
        };
        let may_change =
            || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID));
        if user.id() != geteuid().as_raw() && !may_change() {
            self.error(format!(
                "only root may become user \"{}\": start as root, or remove the user",
                name.unwrap_or_default()
            ));
        }
        Some(user)
    }

    fn check_engine(&mut self, engine: &Engine) {
        let is_socket = fs::metadata(&engine.socket).is_ok_and(|file| file.file_type().is_socket());
        if is_socket {
            return;
        }
        let socket = engine.socket.display();
        let text = format!(
            "{socket}: there is no engine: start one with `systemctl start slipstream-engine`"
        );
        if engine.isolate_keys {
            self.error(text);
        } else {
            self.warning(format!(
                "{text}; until then private keys are used in software"
            ));
        }
    }

    fn check_log(&mut self, log: &AccessLog) {
        let LogTarget::File(path) = &log.target else {
            return;
        };
        let (place, cure) = match (path.exists(), path.parent()) {
            (true, _) => (path.as_path(), "chown"),
            (false, Some(folder)) if folder != Path::new("") => (folder, "mkdir"),
            (false, _) => (Path::new("."), "mkdir"),
        };
        if path.is_dir() {
            self.error(format!(
                "{}: is a folder: name a file in it",
                path.display()
            ));
        } else if let Err(error) = access(place, Access::WRITE_OK) {
            let place = place.display();
            self.error(format!(
                "{place}: the access log cannot be written there ({error}): `{cure} {place}`"
            ));
        }
    }

    fn check_listener(&mut self, listener: &Listener, user: Option<&User>) {
        let at = listener.addresses.first();
        let at = at.map_or_else(String::new, SocketAddr::to_string);
        if listener.tls12 && !listener.tls13 && listener.groups == [Group::X25519MlKem768] {
            self.error(format!(
                "{at}: X25519MLKEM768 needs TLS 1.3: add \"X25519\" to groups, or \"1.3\" to versions"
            ));
        }
        for files in &listener.certificates {
            self.check_certificate(files, user);
        }
        if let Some(clients) = &listener.client_certificates {
            self.check_authorities(&clients.authorities);
        }
        match &listener.service {
            Service::Files(root) => self.check_root(root),
            Service::Tcp(upstream) | Service::Http(upstream) => self.check_upstream(upstream),
        }
    }

    fn check_root(&mut self, root: &Path) {
        let shown = root.display();
        if !root.is_dir() {
            self.error(format!(
                "{shown}: is not a folder: `mkdir {shown}`, or change root"
            ));
        } else if let Err(error) = access(root, Access::READ_OK | Access::EXEC_OK) {
            self.error(format!(
                "{shown}: cannot be served ({error}): `chmod o+rx {shown}`"
            ));
        }
    }

    fn check_upstream(&mut self, upstream: &Upstream) {
        if let Some(authorities) = &upstream.authorities {
            self.check_authorities(authorities);
        }
        for backend in &upstream.backends {
            let Address::Unix(path) = &backend.address else {
                continue;
            };
            if !fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
                let path = path.display();
                self.warning(format!(
                    "{path}: there is no socket: start the backend, or change the path"
                ));
            }
        }
    }

    /// Warns about a key that everybody can read, and about one that `user` could not read again at
    /// the next reload.
    fn check_key_rights(&mut self, key: &Path, user: Option<&User>) {
        let Ok(metadata) = fs::metadata(key) else {
            return;
        };
        let shown = key.display();
        if metadata.mode() & 0o006 != 0 {
            self.warning(format!(
                "{shown}: every user can read this private key: `chmod o-rw {shown}`"
            ));
        } else if user.is_some_and(|user| !user.may_read(&metadata)) {
            self.warning(format!(
                "{shown}: the configured user cannot read this private key, so it cannot be read again by a reload: \
                 `chgrp` it to a group of the user, and `chmod g+r {shown}`"
            ));
        }
    }
}

fn addresses(configuration: &Configuration) -> impl Iterator<Item = SocketAddr> {
    let listeners = configuration.listeners.iter();
    listeners
        .flat_map(|listener| listener.addresses.iter().copied())
        .chain(configuration.metrics)
}
