//! The builds of nginx that everything is tested with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use slipstream_testbed::nginx::Binary;

/// A build of nginx, with a module that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The distribution's own: Debian 12 has 1.22.
    Distribution,
    /// 1.28 as published by nginx, which `make test` builds.
    Published,
}

impl Build {
    /// The executable.
    ///
    /// # Panics
    /// If it is missing.
    pub fn executable(self) -> PathBuf {
        self.binary().path.clone()
    }

    /// The module that `make test` has built for it.
    ///
    /// # Panics
    /// If it is missing.
    pub fn module(self) -> PathBuf {
        built(&self.binary().version, "ngx_slipstream_module.so")
    }

    /// Returns true if this nginx was configured with `argument`.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn has(self, argument: &str) -> bool {
        let output = Command::new(self.executable()).arg("-V").output();
        let output = output.expect("nginx can be run").stderr;
        String::from_utf8_lossy(&output)
            .split_whitespace()
            .any(|word| word == argument)
    }

    /// The dynamic module that has the block `name`; `None` if this nginx has it built in.
    pub fn dynamic(self, name: &str) -> Option<PathBuf> {
        match self {
            Build::Distribution => Some(Path::new(MODULES).join(format!("ngx_{name}_module.so"))),
            Build::Published => None,
        }
    }

    /// The source tree that the module was built against, with nginx's headers.
    ///
    /// # Panics
    /// If it is missing.
    pub fn tree(self) -> PathBuf {
        built(&self.binary().version, "tree")
    }

    /// The parameter of `listen` or the directive that switches HTTP/2 on, whichever this version
    /// knows.
    pub fn http2(self) -> (&'static str, &'static str) {
        match self {
            Build::Distribution => (" http2", ""),
            Build::Published => ("", "http2 on;"),
        }
    }

    fn binary(self) -> &'static Binary {
        static DISTRIBUTION: OnceLock<Binary> = OnceLock::new();
        static PUBLISHED: OnceLock<Binary> = OnceLock::new();
        let find = |path: Option<&Path>| {
            Binary::find(path).unwrap_or_else(|error| panic!("{error}: run `make test`"))
        };
        match self {
            Build::Distribution => DISTRIBUTION.get_or_init(|| find(None)),
            Build::Published => {
                PUBLISHED.get_or_init(|| find(Some(&built("1.28.3", "objs/nginx"))))
            }
        }
    }
}

/// The folder in which Debian's packages put modules of nginx.
const MODULES: &str = "/usr/lib/nginx/modules";

/// A file that `make test` puts below `target/nginx/VERSION/`.
fn built(version: &str, file: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/nginx")
        .join(version)
        .join(file);
    path.canonicalize()
        .unwrap_or_else(|error| panic!("{} is missing ({error}): run `make test`", path.display()))
}
