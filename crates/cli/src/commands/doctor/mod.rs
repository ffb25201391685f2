//! `slipstream doctor`.

mod configuration;
mod figures;
mod findings;
mod host;
mod running;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rustix::process::{Resource, geteuid, getrlimit};
use slipstream_accelerators::lanes::Backend;
use slipstream_compress::Method;
use slipstream_testbed::machine::{Machine, openssl_version_number};
use slipstream_testbed::nginx::{Binary, find_module};
use slipstream_testbed::output::write;

use self::configuration::Lines;
use self::findings::{Check, Findings};

/// Show what this machine offers, what is missing, and what to do about it
///
/// Checks the CPU, OpenSSL, the provider, and the limits of this shell. If nginx runs with the
/// module, makes handshakes with each of its TLS listeners, and says from the workers' own figures
/// which of their operations were accelerated, or that none was.
///
/// Else starts nginx with the module under a prefix of its own, with throw-away certificates, on
/// loopback, with the `slipstream` and `ssl_*` lines of your configuration, and makes handshakes
/// with that. Your own nginx is not touched. Changes nothing.
///
/// Exits with 0 if everything is there and 1 if something is missing; notes do not count as
/// missing.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream doctor
  slipstream doctor --conf /etc/nginx/edge.conf
  slipstream doctor --trial
  slipstream doctor --nginx /usr/local/sbin/nginx --module ./ngx_slipstream_module.so
  slipstream doctor --json -")]
pub struct Doctor {
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed
    /// one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// nginx's configuration, from which `slipstream` and `ssl_*` lines are taken [default: that
    /// of nginx]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Try an nginx of its own even if one runs
    #[arg(long)]
    trial: bool,
    /// Write the findings to this file as JSON (- for standard output, without the list)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Doctor {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let nginx = Binary::find(self.nginx.as_deref());
        let machine = Machine::describe(nginx.as_ref().ok());
        let mut checks = vec![
            host::cpu(&machine),
            host::lanes(Backend::detect()),
            host::compression(Method::DEFAULT.implementation()),
            host::openssl(openssl_version_number(), machine.openssl),
        ];
        match &nginx {
            Ok(nginx) => {
                checks.push(check_nginx(nginx));
                checks.extend(self.check_module(nginx));
            }
            Err(error) => checks.push(Check::missing(
                "nginx",
                error.to_string(),
                "apt-get install nginx, or name it with --nginx",
            )),
        }
        checks.push(host::provider());
        checks.push(host::descriptors(getrlimit(Resource::Nofile).current));
        checks.push(host::locked_memory(getrlimit(Resource::Memlock).current));

        let findings = Findings { machine, checks };
        write(self.json.as_deref(), &findings)?;
        Ok(findings.exit_code())
    }

    fn check_module(&self, nginx: &Binary) -> Vec<Check> {
        let (lines, mut checks) = match Lines::read(nginx, self.conf.as_deref()) {
            Ok(lines) => (lines, Vec::new()),
            Err(error) => {
                let found = format!("{error:#}; what is tried has defaults only");
                let check = match geteuid().is_root() {
                    true => Check::missing("nginx.conf", found, "mend what `nginx -t` reports"),
                    false => Check::note("nginx.conf", found, "run this as root"),
                };
                (Lines::default(), vec![check])
            }
        };
        if !self.trial && running::is_there() {
            checks.extend(running::run(&lines));
            return checks;
        }
        let module = match find_module(nginx, self.module.as_deref()) {
            Ok(path) => path,
            Err(error) => {
                checks.push(Check::missing(
                    "module",
                    error.to_string(),
                    "make build (and make install), or name it with --module",
                ));
                return checks;
            }
        };
        checks.extend(trial::run(nginx, &module, &lines));
        checks
    }
}

fn check_nginx(nginx: &Binary) -> Check {
    const NAME: &str = "nginx";
    let detail = format!(
        "{} {} with {}",
        nginx.path.display(),
        nginx.version,
        nginx.openssl.as_deref().unwrap_or("no TLS library")
    );
    // Without --with-compat a module's signature has to name each of nginx's own options.
    for option in ["--with-http_ssl_module", "--with-compat"] {
        if !nginx.was_built_with(option) {
            return Check::missing(
                NAME,
                format!("{detail} was built without {option}"),
                "use the distribution's nginx (apt-get install nginx)",
            );
        }
    }
    Check::ok(NAME, detail)
}

#[cfg(test)]
mod tests {
    use super::findings::Status;
    use super::*;

    #[test]
    fn an_nginx_that_takes_no_modules_is_found_out() {
        let nginx = |arguments: &str| Binary {
            path: PathBuf::from("/usr/sbin/nginx"),
            version: "1.22.1".to_owned(),
            openssl: None,
            configure_arguments: arguments.to_owned(),
        };
        let both = "--with-compat --with-http_ssl_module";
        assert_eq!(check_nginx(&nginx(both)).status, Status::Ok);
        assert_eq!(check_nginx(&nginx("--with-compat")).status, Status::Missing);
        assert_eq!(
            check_nginx(&nginx("--with-http_ssl_module")).status,
            Status::Missing
        );
    }
}
