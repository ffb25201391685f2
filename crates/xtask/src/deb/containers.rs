//! `make container-test`: both images are built from a root file system that no registry was asked
//! for, and run as another user than root, with a root file system that cannot be written to.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::client;
use crate::build::{root, target};
use crate::packages;
use crate::process::{self, output};
use crate::root::Root;

/// The release that the Containerfiles name.
const RELEASE: &str = "trixie";

/// The longest wait for a server to be healthy.
const PATIENCE: Duration = Duration::from_secs(60);

const SERVE: &str = "\
[[listener]]
listen = [\"127.0.0.1:8443\"]
certificates = [{ certificate = \"/etc/slipstream/site.pem\", key = \"/etc/slipstream/site.key\" }]
root = \"/etc/slipstream\"
";

const SITE: &str = "\
server {
    listen 127.0.0.1:8443 ssl;
    ssl_certificate /etc/nginx/conf.d/site.pem;
    ssl_certificate_key /etc/nginx/conf.d/site.key;
    location / {
        slipstream_status;
    }
}
";

/// Part of the page that each server answers with.
const SERVED: &str = "slipstream_handshakes_total";

/// Builds and runs both images.
pub(crate) fn test() -> Result<()> {
    packages::install(packages::DEB_TOOLS)?;
    packages::install(packages::CONTAINERS)?;
    let packages = target().join("deb").join(RELEASE).join("packages");
    super::built(&packages).with_context(|| format!("first: make deb RELEASE={RELEASE}"))?;
    let folder = target().join("deb/containers");
    if folder.exists() {
        process::run(Command::new("rm").arg("-rf").arg(&folder))?;
    }
    fs::create_dir_all(&folder)?;
    let images = Images { folder };
    images.make_base()?;
    images.try_one("serve", "/etc/slipstream", ("serve.toml", SERVE))?;
    images.try_one("nginx", "/etc/nginx/conf.d", ("site.conf", SITE))?;
    process::run(Command::new("rm").arg("-rf").arg(&images.folder))?;
    println!("\nboth images are healthy");
    Ok(())
}

/// Images and containers of buildah's, in a folder of this test.
struct Images {
    folder: PathBuf,
}

impl Images {
    fn buildah(&self) -> Command {
        let mut command = Command::new("buildah");
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(self.folder.join("storage"))
            .arg("--runroot")
            .arg(self.folder.join("run"));
        command
    }

    /// The image that the Containerfiles begin with, made as Debian's is.
    fn make_base(&self) -> Result<()> {
        let base = target().join("deb/roots").join(format!("{RELEASE}-base"));
        let root = Root::make(&base, RELEASE, &["ca-certificates"])?;
        let container = output(self.buildah().args(["from", "scratch"]))?;
        let container = container.trim();
        process::run(
            self.buildah()
                .args(["add", "--quiet", container])
                .arg(root.path("/"))
                .arg("/"),
        )?;
        process::run(self.buildah().args([
            "commit",
            "--quiet",
            "--rm",
            container,
            "localhost/base",
        ]))
    }

    fn try_one(&self, name: &str, inside: &str, file: (&str, &str)) -> Result<()> {
        println!("\n== the image of {name}");
        process::run(
            self.buildah()
                // As docker's format: the other one has no health checks.
                .args(["bud", "--isolation", "chroot", "--format", "docker"])
                .args([
                    "--build-arg",
                    "BASE=localhost/base",
                    "--tag",
                    name,
                    "--file",
                ])
                .arg(format!("containers/{name}/Containerfile"))
                .arg(".")
                .current_dir(root()),
        )?;
        let container = output(self.buildah().args(["from", name]))?;
        let mounted = output(self.buildah().args(["mount", container.trim()]))?;
        let image = output(self.buildah().args(["inspect", "--type", "image", name]))?;
        let image: Inspected = serde_json::from_str(&image).context("buildah inspect")?;
        let configuration = self.folder.join(name);
        write_configuration(&configuration, file)?;
        let image = image.docker.config;
        let container = Container {
            root: PathBuf::from(mounted.trim()),
            image,
            configuration,
            inside,
            log: self.folder.join(format!("{name}.log")),
        };
        let mut running = container.start()?;
        running.wait_until_healthy()?;
        running.is_not_root()?;
        running.cannot_write()?;
        let page = running.get()?;
        ensure!(
            page.contains(SERVED),
            "another page than that of the test:\n{page}"
        );
        ensure!(
            !page.contains("slipstream_handshakes_total 0\n"),
            "nginx has made no handshake on a fiber:\n{page}"
        );
        running.stop()?;
        let mut check = container.command(&container.check());
        ensure!(
            !check.stdin(Stdio::null()).status()?.success(),
            "the health check passes where no server runs"
        );
        Ok(())
    }
}

fn write_configuration(folder: &Path, (name, text): (&str, &str)) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), text)?;
    fs::write(folder.join("index.html"), SERVED)?;
    process::run(&mut client::make_certificate(
        Command::new("openssl"),
        &folder.join("site"),
    ))?;
    // Another user reads it in the container.
    process::run(Command::new("chmod").arg("-R").arg("a+rX").arg(folder))
}

/// An image, and a folder that is mounted into it.
struct Container<'a> {
    root: PathBuf,
    image: Image,
    configuration: PathBuf,
    inside: &'a str,
    log: PathBuf,
}

impl Container<'_> {
    fn start(&self) -> Result<Running<'_>> {
        let mut command = self.command(&self.image.entrypoint);
        process::show(&command);
        // A server that opens /dev/stdout may do so: container engines take care of that, too.
        let log = File::create(&self.log)?;
        log.set_permissions(Permissions::from_mode(0o666))?;
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        Ok(Running {
            container: self,
            child: command.spawn().context("bwrap")?,
        })
    }

    /// Returns a command that runs as the image's user, with a network of its own; it can write to
    /// /tmp only.
    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new("bwrap");
        command
            .arg("--ro-bind")
            .args([self.root.as_os_str(), "/".as_ref()])
            .args([
                "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp",
            ])
            .arg("--ro-bind")
            .args([self.configuration.as_os_str(), self.inside.as_ref()])
            .args([
                "--unshare-net",
                "--unshare-pid",
                "--unshare-ipc",
                "--die-with-parent",
            ])
            .args([
                "--clearenv",
                "--setenv",
                "PATH",
                "/usr/sbin:/usr/bin:/sbin:/bin",
            ])
            // What becoming another user takes.
            .args(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"])
            .args(["--cap-add", "CAP_SETPCAP"])
            .args(self.as_user())
            .args(words);
        command
    }

    fn as_user(&self) -> Vec<String> {
        let user = &self.image.user;
        let mut words = vec!["setpriv".to_owned()];
        words.extend([format!("--reuid={user}"), format!("--regid={user}")]);
        let rest = ["--init-groups", "--inh-caps=-all", "--bounding-set=-all"];
        words.extend(rest.map(str::to_owned));
        words
    }

    /// Returns the words of the health check.
    fn check(&self) -> Vec<String> {
        match &self.image.healthcheck.test[..] {
            [kind, words @ ..] if kind == "CMD" => words.to_vec(),
            [_, words @ ..] => [&["sh".to_owned(), "-c".to_owned()], words].concat(),
            [] => Vec::new(),
        }
    }
}

struct Running<'a> {
    container: &'a Container<'a>,
    child: Child,
}

impl Running<'_> {
    fn wait_until_healthy(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(&self.container.log)?;
                bail!("the server has ended: {status}\n{log}");
            }
            if self.is_healthy().unwrap_or(false) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "the server does not become healthy"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn is_healthy(&self) -> Result<bool> {
        let mut check = self.enter()?;
        check
            .args(self.container.as_user())
            .args(self.container.check());
        Ok(check.stdin(Stdio::null()).status()?.success())
    }

    fn is_not_root(&self) -> Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server()?))?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let line = line.with_context(|| format!("no {key} in the state of a process"))?;
            let values = line.split_whitespace().map(str::to_owned);
            anyhow::Ok(values.collect::<Vec<_>>())
        };
        let users = value("Uid:")?;
        ensure!(
            !users.iter().any(|user| user == "0"),
            "the server runs as root"
        );
        for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
            let rights = u64::from_str_radix(&value(set)?[0], 16)?;
            ensure!(
                rights == 0,
                "the server has rights of root: {set} {rights:x}"
            );
        }
        Ok(())
    }

    /// Not even root can, as long as it does not mount anything.
    fn cannot_write(&self) -> Result<()> {
        let tried = self.enter()?.args(["touch", "/etc/new"]).output()?;
        let said = String::from_utf8_lossy(&tried.stderr);
        ensure!(
            !tried.status.success() && said.contains("Read-only file system"),
            "the root file system can be written to: {said}"
        );
        Ok(())
    }

    fn get(&self) -> Result<String> {
        let mut command = Command::new("nsenter");
        command
            .arg("--target")
            .arg(self.inner()?)
            .args(["--net", "openssl"]);
        client::get(
            command,
            8443,
            "/",
            &self.container.configuration.join("site.pem"),
        )
    }

    fn stop(mut self) -> Result<()> {
        process::run(Command::new("kill").args(["-TERM", &self.server()?]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server has ended with {status}");
        Ok(())
    }

    /// Returns a command that runs in the container as root. It has to be given its words.
    fn enter(&self) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command
            .arg("--target")
            .arg(self.inner()?)
            .args(["--mount", "--net", "--pid"]);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(command)
    }

    /// Returns the first process in the container, which is bubblewrap's.
    fn inner(&self) -> Result<String> {
        let first = client::children(&self.child.id().to_string())?
            .into_iter()
            .next();
        first.context("the container has no process yet")
    }

    fn server(&self) -> Result<String> {
        let first = client::children(&self.inner()?)?.into_iter().next();
        first.context("the container has no server")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
struct Inspected {
    #[serde(rename = "Docker")]
    docker: Docker,
}

#[derive(Deserialize)]
struct Docker {
    config: Image,
}

/// The part of an image's configuration that says how to run it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    user: String,
    entrypoint: Vec<String>,
    healthcheck: HealthCheck,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HealthCheck {
    test: Vec<String>,
}
