//! The build tool that the Makefile calls: `cargo run -p slipstream-xtask -- TASK`.

mod build;
mod deb;
mod documents;
mod harness;
mod install;
mod matrix;
mod nginx;
mod packages;
mod process;
mod root;
mod structure;
mod test;

use anyhow::{Result, bail};

const USAGE: &str = "\
tasks:
  packages        install the Debian packages that building needs
  build           build the command, the loadable provider and the module for Debian's nginx
  demo [ARGS]     build, then run `slipstream demo ARGS`
  test            build for both nginx versions, run all tests, list all failures
  matrix NAMES    build and test on other releases of Debian, such as trixie and unstable
  lint            formatting, clippy, documents, and the direction of dependencies
  check-docs      links, tables and pages of the documents
  install         copy what was built to where Debian keeps such things (DESTDIR is honoured)
  uninstall       remove it again
  deb [RELEASE]   build Debian packages, for this machine's release or for another one
  deb-test [RELEASE]       install, upgrade, remove and purge them in a root file system
  deb-reproduce [RELEASE]  build them once more, and compare the bytes
  container-test  build container images from the packages for Debian 13, and run them
  package         what debian/rules calls: put what packages consist of into target/package";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match task.as_str() {
        "packages" => packages::install(packages::BUILD),
        "build" => {
            packages::install(packages::BUILD)?;
            build::product().map(drop)
        }
        "demo" => {
            packages::install(packages::BUILD)?;
            packages::install(packages::DEMO)?;
            build::product()?;
            build::run_command(["demo".to_owned()].into_iter().chain(rest))
        }
        "test" => {
            packages::install(packages::BUILD)?;
            packages::install(packages::DEMO)?;
            packages::install(packages::TEST)?;
            test::all(&rest)
        }
        "matrix" => matrix::run(&rest),
        "matrix-enter" => matrix::enter(&rest),
        "lint" => {
            documents::check(build::root())?;
            structure::check()?;
            packages::install(packages::BUILD)?;
            build::lint()
        }
        "check-docs" => documents::check(build::root()),
        "install" => install::install(),
        "uninstall" => install::uninstall(),
        "deb" => deb::build(rest.first().map(String::as_str)),
        "deb-test" => deb::test(rest.first().map(String::as_str)),
        "deb-reproduce" => deb::reproduce(rest.first().map(String::as_str)),
        "container-test" => deb::test_containers(),
        "package" => deb::stage(),
        _ => bail!("unknown task \"{task}\"\n{USAGE}"),
    }
}
