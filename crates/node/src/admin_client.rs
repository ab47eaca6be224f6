//! Asking a running node over its admin socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail};
use kvorum_settings::Settings;

use crate::data_directory::admin_socket;
use kvorum_admin::{AdminReply, AdminRequest, LINE_BYTES_MAX};

/// Sends a request to the node that runs on this configuration's data directory.
pub(crate) fn ask(settings: &Settings, request: &AdminRequest) -> anyhow::Result<AdminReply> {
    ask_at(&settings.node.data_dir, request)
}

/// Sends a request to the node that runs on a data directory.
pub(crate) fn ask_at(data_dir: &Path, request: &AdminRequest) -> anyhow::Result<AdminReply> {
    let path = admin_socket(data_dir);
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            bail!(
                "no node is running on the data directory {} (no process listens on {})",
                data_dir.display(),
                path.display()
            )
        }
        Err(error) => {
            return Err(error).with_context(|| format!("connect to {}", path.display()));
        }
    };
    writeln!(stream, "{}", request.encode())?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX as u64)).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the node ended the connection without an answer: it may be stopping, ask again");
    }
    AdminReply::decode(&line).context("the node's reply has an unexpected form")
}
