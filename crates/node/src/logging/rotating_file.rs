//! A log file that is put aside when it is long.
//!
//! `console.log` becomes `console.log.1`, that becomes `console.log.2`, and so on; the oldest are removed. A
//! log that cannot be put aside is written on: lines matter more than its length.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// See the module's description.
pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// Files put aside that are kept.
    files_max: u64,
}

impl RotatingFile {
    /// Opens a file to append to, and creates it and its directory where they are not there.
    pub(super) fn open(path: &Path, bytes_max: u64, files_max: u64) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max,
            files_max,
        })
    }

    fn put_aside(&mut self) -> io::Result<()> {
        if self.files_max == 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
            return Ok(());
        }
        for number in (1..self.files_max).rev() {
            let (from, to) = (self.aside(number), self.aside(number + 1));
            if from.exists() {
                std::fs::rename(from, to)?;
            }
        }
        std::fs::rename(&self.path, self.aside(1))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }

    fn aside(&self, number: u64) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for RotatingFile {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            let _written_on_if_it_cannot_be = self.put_aside();
        }
        let written = self.file.write(line)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_put_aside_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log/console.log");
        let mut file = RotatingFile::open(&path, 20, 2).unwrap();
        for number in 0..8 {
            let line = format!("line {number}\n");
            file.write_all(line.as_bytes()).unwrap();
        }
        drop(file);
        let text = |name: &str| std::fs::read_to_string(directory.path().join("log").join(name));
        assert_eq!(text("console.log").unwrap(), "line 6\nline 7\n");
        assert_eq!(text("console.log.1").unwrap(), "line 4\nline 5\n");
        assert_eq!(text("console.log.2").unwrap(), "line 2\nline 3\n");
        assert!(text("console.log.3").is_err());
        // A file that is opened again counts its old bytes.
        let mut file = RotatingFile::open(&path, 20, 2).unwrap();
        file.write_all(b"line 8\n").unwrap();
        assert_eq!(text("console.log").unwrap(), "line 8\n");
    }
}
