//! A log file that is rotated when it is long.
//!
//! `console.log` becomes `console.log.1`, that becomes `console.log.2`, and so on; the oldest are
//! removed. If a rotation fails, the present file grows further: lines matter more than its length.
//! So the new file is created first, as `console.log.next`. If that fails (the directory is not
//! writable), no older file is touched, and the next attempt follows after as many bytes again.
//!
//! A file that another program has moved or removed is created again with the next line.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// See the module's description.
pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The length at which it is rotated.
    full_at: u64,
    bytes_max: u64,
    /// Rotated files that are kept.
    files_max: u64,
}

impl RotatingFile {
    /// Opens a file to append to, and creates it and its directory if they are missing.
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
            full_at: bytes_max,
            bytes_max,
            files_max,
        })
    }

    /// Begins a new file. The present one and the older ones move by one place.
    fn put_aside(&mut self) -> io::Result<()> {
        if self.files_max == 0 {
            self.file.set_len(0)?;
            self.begun(0);
            return Ok(());
        }
        let next = self.aside("next");
        let file = append(&next)?;
        if let Err(error) = self.move_on(&next) {
            let _still_empty = std::fs::remove_file(&next);
            return Err(error);
        }
        self.file = file;
        self.begun(0);
        Ok(())
    }

    /// Moves every file by one place, and `next` to the place of the present one.
    fn move_on(&self, next: &Path) -> io::Result<()> {
        for number in (1..self.files_max).rev() {
            move_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        move_if_there(&self.path, &self.aside(1))?;
        std::fs::rename(next, &self.path)
    }

    /// Creates the file again if it is no longer in its place.
    fn create_if_missing(&mut self) {
        if self.path.exists() {
            return;
        }
        let created = append(&self.path);
        // While a new file cannot be created, lines still go to the moved file.
        if let Ok(file) = created {
            self.file = file;
            self.begun(0);
        }
    }

    fn begun(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.full_at = self.bytes_max;
    }

    fn aside(&self, suffix: impl Display) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{suffix}"));
        name.into()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn move_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

impl Write for RotatingFile {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.create_if_missing();
        let is_full = self.bytes > 0 && self.bytes + line.len() as u64 > self.full_at;
        if is_full && self.put_aside().is_err() {
            self.full_at = self.bytes + self.bytes_max;
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

    fn file(directory: &Path, bytes_max: u64, files_max: u64) -> RotatingFile {
        RotatingFile::open(&directory.join("console.log"), bytes_max, files_max).unwrap()
    }

    fn lines(file: &mut RotatingFile, numbers: std::ops::Range<u32>) {
        for number in numbers {
            file.write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
    }

    /// Regression: after a failed creation, the file had been renamed, and each further line
    /// shifted the older files again until none was left.
    #[test]
    fn a_file_that_cannot_be_created_costs_no_older_line_and_is_tried_again_later() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
        let mut log = file(directory.path(), 20, 3);
        lines(&mut log, 0..6);
        // No user can open a directory in its place as a file.
        std::fs::create_dir(at("console.log.next")).unwrap();
        lines(&mut log, 6..9);
        assert_eq!(
            text("console.log"),
            "line 4\nline 5\nline 6\nline 7\nline 8\n"
        );
        assert_eq!(text("console.log.1"), "line 2\nline 3\n");
        assert_eq!(text("console.log.2"), "line 0\nline 1\n");
        std::fs::remove_dir(at("console.log.next")).unwrap();
        lines(&mut log, 9..11);
        assert_eq!(text("console.log"), "line 10\n");
        assert!(text("console.log.1").ends_with("line 8\nline 9\n"));
        assert_eq!(text("console.log.3"), "line 0\nline 1\n");
    }

    #[test]
    fn older_files_that_cannot_be_moved_do_not_stop_the_lines() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut log = file(directory.path(), 20, 3);
        std::fs::create_dir_all(at("console.log.1/taken")).unwrap();
        lines(&mut log, 0..5);
        let text = std::fs::read_to_string(at("console.log")).unwrap();
        assert!(text.ends_with("line 4\n"), "{text}");
        assert!(!at("console.log.next").exists());
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_anew() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut log = file(directory.path(), 1_000, 3);
        lines(&mut log, 0..2);
        std::fs::rename(at("console.log"), at("taken")).unwrap();
        lines(&mut log, 2..3);
        assert_eq!(
            std::fs::read_to_string(at("console.log")).unwrap(),
            "line 2\n"
        );
    }
}
