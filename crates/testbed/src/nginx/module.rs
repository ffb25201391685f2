//! Finding the Slipstream module for a version of nginx.

use std::path::{Path, PathBuf};

use super::Binary;
use crate::Error;

/// The module's file name.
pub const MODULE_FILE: &str = "ngx_slipstream_module.so";

/// The path at which `make install` puts the module: Debian's modules path.
pub const INSTALLED_MODULE: &str = "/usr/lib/nginx/modules/ngx_slipstream_module.so";

/// The paths at which the module for `version` may be, the likeliest first: in the build tree that
/// `executable` (the `slipstream` command) lies in, `nginx/VERSION/` beside `release/`; then
/// installed.
pub fn module_candidates(version: &str, executable: Option<&Path>) -> Vec<PathBuf> {
    // target/release/slipstream, or target/release/deps/TEST.
    let build_trees = executable
        .into_iter()
        .flat_map(|executable| executable.ancestors().skip(2).take(2))
        .map(|tree| tree.join("nginx").join(version).join(MODULE_FILE));
    build_trees
        .chain([PathBuf::from(INSTALLED_MODULE)])
        .collect()
}

/// The module for `binary`: the one at `path`, or the first of the [`module_candidates`].
///
/// # Errors
/// [`Error::ModuleMissing`] if there is none.
pub fn find_module(binary: &Binary, path: Option<&Path>) -> Result<PathBuf, Error> {
    let searched = match path {
        Some(path) => vec![path.to_path_buf()],
        None => module_candidates(&binary.version, std::env::current_exe().ok().as_deref()),
    };
    let found = searched.iter().find(|path| path.is_file());
    match found.map(std::path::absolute) {
        // nginx would take a relative path as relative to its own prefix.
        Some(path) => path.map_err(Error::io("cannot read the current directory")),
        None => Err(Error::ModuleMissing {
            version: binary.version.clone(),
            searched,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_tree_comes_before_the_installed_module() {
        let candidates =
            module_candidates("1.22.1", Some(Path::new("/s/target/release/slipstream")));
        assert_eq!(
            candidates[0],
            Path::new("/s/target/nginx/1.22.1/ngx_slipstream_module.so")
        );
        assert_eq!(candidates.last().unwrap(), Path::new(INSTALLED_MODULE));
        assert_eq!(
            module_candidates("1.22.1", None),
            [Path::new(INSTALLED_MODULE)]
        );
    }

    #[test]
    fn a_missing_module_is_reported_with_the_way_to_build_it() {
        let binary = Binary {
            path: PathBuf::from("/usr/sbin/nginx"),
            version: "1.22.1".to_owned(),
            openssl: None,
            configure_arguments: String::new(),
        };
        let error = find_module(&binary, Some(Path::new("/nonexistent/module.so"))).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("/nonexistent/module.so"), "{message}");
        assert!(message.contains("make build"), "{message}");
    }
}
