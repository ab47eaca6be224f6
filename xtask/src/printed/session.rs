//! The directory of one document and the server for its lines.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::document::{Mark, Printed};
use crate::run::Run;

/// The time limit for a line, and for a server until it serves; far more than necessary.
const WITHIN: Duration = Duration::from_secs(60);

/// The ports of a server without settings, which the documents name.
const PORTS: [u16; 3] = [8087, 8098, 8099];

/// Text in front of every line: makes `curl` fail if the server answers with an error.
const PROLOGUE: &str = "curl() { command curl --fail --silent --show-error \"$@\"; }\n";

/// A document whose lines are run.
pub(crate) struct Session {
    directory: PathBuf,
    path: std::ffi::OsString,
    server: Option<Child>,
}

impl Session {
    /// An empty directory for a document.
    pub(crate) fn begin(run: &Run<'_>, document: &str) -> anyhow::Result<Self> {
        let name = document.replace(['/', '.'], "-");
        let directory = run.workspace.clean_scratch(&format!("printed/{name}"))?;
        let programs = run.workspace.clean_scratch("printed/programs")?;
        symlink(run.binary.path(), programs.join("kvorum")).context("linking the server")?;
        let root = run.workspace.root();
        symlink(root.join("bench"), directory.join("bench")).context("linking bench/")?;
        symlink(root, directory.join("tree")).context("linking the tree")?;
        let mut paths = vec![programs];
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        paths.extend(std::env::split_paths(&inherited));
        Ok(Self {
            directory,
            path: std::env::join_paths(paths)?,
            server: None,
        })
    }

    /// Runs a line, or starts a server with it.
    pub(crate) fn take(&mut self, line: &Printed) -> anyhow::Result<()> {
        match &line.mark {
            Ok(Mark::Run(replacements)) => self.run(&line.replaced(replacements)),
            Ok(Mark::Serve(replacements)) => self.serve(&line.replaced(replacements)),
            _ => Ok(()),
        }
    }

    fn run(&self, text: &str) -> anyhow::Result<()> {
        let mut child = self.shell(&format!("{PROLOGUE}{text}\n"))?;
        let deadline = Instant::now() + WITHIN;
        loop {
            if child.try_wait()?.is_some() {
                break;
            }
            if Instant::now() > deadline {
                child.kill()?;
                bail!("it has not ended within {} s", WITHIN.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let status = child.wait()?;
        let said = || {
            let said = std::fs::read_to_string(self.directory.join("said")).unwrap_or_default();
            said.chars().take(2_000).collect::<String>()
        };
        ensure!(status.success(), "it ended with {status}:\n{}", said());
        Ok(())
    }

    /// Starts a server in place of the last one.
    pub(crate) fn serve(&mut self, text: &str) -> anyhow::Result<()> {
        self.end_server();
        for port in PORTS {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
                format!("port {port} is in use; the documents' lines need the ports that they name")
            })?;
        }
        let mut server = self.shell(&format!("exec {text}\n"))?;
        let deadline = Instant::now() + WITHIN;
        while !is_serving() {
            if let Some(status) = server.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not serve");
            thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Starts a shell whose output goes to a file, so that no process waits for a reader.
    fn shell(&self, script: &str) -> anyhow::Result<Child> {
        let said = std::fs::File::create(self.directory.join("said"))?;
        Command::new("sh")
            .args(["-c", script])
            .current_dir(&self.directory)
            .env("PATH", &self.path)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .context("starting a shell")
    }

    fn end_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            // The server may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// True if a server answers, with all of its stores open.
fn is_serving() -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORTS[1]))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_server();
    }
}
