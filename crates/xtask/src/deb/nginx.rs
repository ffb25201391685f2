//! An nginx in a root file system, with a TLS listener on the loopback device.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::client;
use crate::process;
use crate::root::Root;

/// The folder for everything of this server, which is removed at its end.
const FOLDER: &str = "/srv/trial";

/// The longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Debian's configuration up to its http block, which loads the modules that are enabled.
const BEGINNING: &str = "\
user www-data;
worker_processes 1;
pid /srv/trial/pid;
error_log /srv/trial/error.log notice;
include /etc/nginx/modules-enabled/*.conf;
events {}
";

pub(super) struct Nginx<'a> {
    root: &'a Root,
    child: Child,
    port: u16,
    has_status: bool,
}

impl<'a> Nginx<'a> {
    /// Checks the configuration and starts nginx with it. `line` is a line of its http block.
    pub(super) fn start(root: &'a Root, line: &str) -> Result<Self> {
        let port = free_port()?;
        let folder = root.path(FOLDER);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut openssl = root.command_on_this_machine();
        openssl.arg("openssl");
        process::run(&mut client::make_certificate(
            openssl,
            Path::new("/srv/trial/site"),
        ))?;
        let status = match line {
            "" => "",
            _ => "location = /status { slipstream_status; }",
        };
        let configuration = format!(
            "{BEGINNING}http {{\n{line}\naccess_log off;\nserver {{\nlisten 127.0.0.1:{port} ssl;\n\
             ssl_certificate {FOLDER}/site.pem;\nssl_certificate_key {FOLDER}/site.key;\n\
             location = / {{ return 200 \"served\\n\"; }}\n{status}\n}}\n}}\n"
        );
        fs::write(folder.join("nginx.conf"), configuration)?;
        let nginx = |option: &str| {
            let mut command = root.command_on_this_machine();
            command.args(["nginx", "-c", "/srv/trial/nginx.conf", option]);
            command
        };
        process::run(&mut nginx("-t"))?;
        // The configuration of the distribution is not started: it listens on all addresses.
        process::run(root.command_on_this_machine().args(["nginx", "-t"]))?;
        let mut command = nginx("-g");
        command.arg("daemon off;").stdin(Stdio::null());
        process::show(&command);
        let mut nginx = Self {
            root,
            child: command.spawn().context("bwrap")?,
            port,
            has_status: !status.is_empty(),
        };
        nginx.wait_until_it_listens()?;
        Ok(nginx)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("nginx has ended: {status}\n{}", self.log());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "nginx does not listen\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Gets a page with Debian's openssl, which checks the certificate.
    pub(super) fn handshake(&self) -> Result<()> {
        let page = self.get("/")?;
        ensure!(
            page.contains("served"),
            "nginx has not served the page:\n{page}\n{}",
            self.log()
        );
        Ok(())
    }

    /// Returns the number of handshakes on fibers by the module's own count.
    pub(super) fn handshakes_on_fibers(&self) -> Result<u64> {
        ensure!(self.has_status, "this nginx has no status page");
        let page = self.get("/status")?;
        let lines = page.lines();
        let counts = lines.filter(|line| line.starts_with("slipstream_handshakes_total"));
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok());
        let all: Vec<u64> = counts.collect();
        ensure!(
            !all.is_empty(),
            "the status page has no count of handshakes:\n{page}"
        );
        Ok(all.iter().sum())
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut openssl = self.root.command_on_this_machine();
        openssl.arg("openssl");
        client::get(openssl, self.port, path, Path::new("/srv/trial/site.pem"))
            .with_context(|| self.log())
    }

    /// Adds a line to the http block.
    pub(super) fn add(&self, line: &str) -> Result<()> {
        let file = self.folder().join("nginx.conf");
        let text = fs::read_to_string(&file)?;
        fs::write(
            &file,
            text.replacen("http {\n", &format!("http {{\n{line}\n"), 1),
        )?;
        let mut test = self.root.command_on_this_machine();
        process::run(test.args(["nginx", "-t", "-c", "/srv/trial/nginx.conf"]))
    }

    /// Reloads the configuration, and waits until a new worker serves.
    pub(super) fn reload(&self) -> Result<()> {
        let master = self.master()?;
        let old = client::children(&master)?;
        process::run(Command::new("kill").args(["-HUP", &master]))?;
        let begun = Instant::now();
        while client::children(&master)?
            .iter()
            .any(|child| old.contains(child))
        {
            ensure!(
                begun.elapsed() < PATIENCE,
                "old workers do not end\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(
            !client::children(&master)?.is_empty(),
            "no new worker\n{}",
            self.log()
        );
        Ok(())
    }

    fn master(&self) -> Result<String> {
        let file = self.root.path("/srv/trial/pid");
        let pid = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(pid.trim().to_owned())
    }

    /// Ends nginx, removes its files, and returns its error log.
    pub(super) fn stop(mut self) -> Result<String> {
        process::run(Command::new("kill").args(["-QUIT", &self.master()?]))?;
        let status = self.child.wait()?;
        let log = self.log();
        ensure!(status.success(), "nginx has ended with {status}\n{log}");
        for severe in ["[alert]", "[crit]", "[emerg]"] {
            ensure!(
                !log.contains(severe),
                "the error log has an {severe}:\n{log}"
            );
        }
        fs::remove_dir_all(self.folder())?;
        Ok(log)
    }

    fn folder(&self) -> PathBuf {
        self.root.path(FOLDER)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
