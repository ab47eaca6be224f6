//! The lines of a file as keys, distributed one by one to all workers.
//!
//! basho_bench drops the last byte of every line, even of a last line without a newline. Here only
//! newlines are dropped.

use std::io::{BufRead, BufReader, Seek};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// A file whose lines are shared by all workers.
#[derive(Debug)]
pub(super) struct LineFile {
    reader: Mutex<BufReader<std::fs::File>>,
    repeat: bool,
}

impl LineFile {
    pub(super) fn open(path: &Path, repeat: bool) -> std::io::Result<Self> {
        let file = std::fs::File::open(path)?;
        Ok(Self {
            reader: Mutex::new(BufReader::new(file)),
            repeat,
        })
    }

    /// The next line; `None` at the end of the file unless it repeats, and on a read error.
    pub(super) fn next(&self) -> Option<Bytes> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            if !self.repeat {
                return None;
            }
            reader.rewind().ok()?;
            if reader.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Some(Bytes::from(line))
    }
}
