//! A small text file that is read back as it was written or not at all, and kept twice.
//!
//! Both copies hold the newest content: what such a file says (who this node is, which log it follows)
//! must not be answered by the content of before because the newest copy was damaged. The copy is for
//! the day when the other cannot be read.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, DiskError, ErrorKind, read_file, replace_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

/// More than any of these files needs: a line for each partition of the largest ring.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file and its copy.
pub(crate) struct CheckedFile {
    path: PathBuf,
    copy: PathBuf,
    title: &'static str,
}

/// What is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Neither file.
    Nothing,
    /// The newest content, and a file that does not have it: missing, damaged or older.
    Content {
        sequence: u64,
        body: String,
        stale: Option<PathBuf>,
    },
    /// Files, none of which can be read.
    Damaged,
}

impl CheckedFile {
    pub(crate) fn new(directory: &Path, name: &str, title: &'static str) -> Self {
        Self {
            path: directory.join(name),
            copy: directory.join(format!("{name}.copy")),
            title,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what is there; mends the file that does not have the newest content, if it can.
    pub(crate) fn load(&self, disk: &dyn Disk) -> Result<Found, DiskError> {
        let read = |path: &PathBuf| -> Result<Option<Vec<u8>>, DiskError> {
            match read_file(disk, path, FILE_BYTES_MAX) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => match error.kind() {
                    ErrorKind::Device | ErrorKind::TooLarge => Ok(Some(Vec::new())),
                    _ => Err(error),
                },
            }
        };
        let files = [read(&self.path)?, read(&self.copy)?];
        if files == [None, None] {
            return Ok(Found::Nothing);
        }
        let contents = files.map(|file| decode(self.title, &file?));
        let newest = contents.iter().flatten().max_by_key(|it| it.0).cloned();
        let Some((sequence, body)) = newest else {
            return Ok(Found::Damaged);
        };
        let is_stale = |at: usize| contents[at].as_ref().is_none_or(|it| it.0 != sequence);
        let stale = match (is_stale(0), is_stale(1)) {
            (true, _) => Some(self.path.clone()),
            (false, true) => Some(self.copy.clone()),
            (false, false) => None,
        };
        if let Some(stale) = &stale {
            let bytes = encode(self.title, sequence, &body);
            if let Err(error) = replace_file(disk, stale, &bytes) {
                tracing::warn!(event = "copy_not_mended", error = %error);
            }
        }
        Ok(Found::Content {
            sequence,
            body,
            stale,
        })
    }

    /// Writes both files. When it fails, the newest that can be read may be this content or the one
    /// before.
    pub(crate) fn store(
        &self,
        disk: &dyn Disk,
        sequence: u64,
        body: &str,
    ) -> Result<(), DiskError> {
        let bytes = encode(self.title, sequence, body);
        replace_file(disk, &self.path, &bytes)?;
        replace_file(disk, &self.copy, &bytes)
    }
}

/// The file:
///
/// ```text
/// line 1:  TITLE, format 1, sequence S, N bytes, crc32c C\n
///            S  how often it has been written, decimal
///            N  length of the body in bytes, decimal
///            C  masked CRC-32C over line 1 up to "bytes" and the body, 8 hexadecimal digits
/// after:   the body, text, N bytes
/// ```
fn encode(title: &str, sequence: u64, body: &str) -> Vec<u8> {
    let mut file = first_line(title, sequence, body).into_bytes();
    file.extend_from_slice(body.as_bytes());
    file
}

fn first_line(title: &str, sequence: u64, body: &str) -> String {
    let covered = format!(
        "{title}, format 1, sequence {sequence}, {} bytes",
        body.len()
    );
    let checksum = checksum_append(checksum(covered.as_bytes()), body.as_bytes());
    format!("{covered}, crc32c {:08x}\n", mask_checksum(checksum))
}

/// The sequence and the body. There is one right first line for them, so comparing it whole leaves no
/// byte unchecked.
fn decode(title: &str, file: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(file).ok()?;
    let end = text.find('\n')? + 1;
    let (line, body) = text.split_at(end);
    let rest = line.strip_prefix(title)?;
    let rest = rest.strip_prefix(", format 1, sequence ")?;
    let sequence: u64 = rest.split(',').next()?.parse().ok()?;
    (line == first_line(title, sequence, body)).then(|| (sequence, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{Disk as _, MemoryDisk, OpenMode};

    use super::*;

    fn file() -> CheckedFile {
        CheckedFile::new(Path::new("d"), "card", "a title")
    }

    fn disk() -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("d")).unwrap();
        disk
    }

    fn damage(disk: &MemoryDisk, path: &Path) {
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(b"?", 3).unwrap();
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found() {
        let bytes = encode("a title", 7, "node 1\n");
        assert_eq!(decode("a title", &bytes), Some((7, "node 1\n".to_owned())));
        assert_eq!(decode("b title", &bytes), None);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(decode("a title", &flipped), None, "{at} {bit}");
            }
            assert_eq!(decode("a title", &bytes[..at]), None);
        }
    }

    #[test]
    fn either_file_serves_and_the_other_is_mended() {
        let (disk, file) = (disk(), file());
        assert_eq!(file.load(&disk).unwrap(), Found::Nothing);
        file.store(&disk, 1, "one\n").unwrap();
        for damaged in ["d/card", "d/card.copy"] {
            damage(&disk, Path::new(damaged));
            let found = |stale| Found::Content {
                sequence: 1,
                body: "one\n".to_owned(),
                stale,
            };
            assert_eq!(file.load(&disk).unwrap(), found(Some(damaged.into())));
            assert_eq!(file.load(&disk).unwrap(), found(None));
        }
        damage(&disk, Path::new("d/card"));
        damage(&disk, Path::new("d/card.copy"));
        assert_eq!(file.load(&disk).unwrap(), Found::Damaged);
    }

    #[test]
    fn a_crash_between_the_two_leaves_the_newer() {
        let (disk, file) = (disk(), file());
        file.store(&disk, 1, "one\n").unwrap();
        replace_file(&disk, file.path(), &encode("a title", 2, "two\n")).unwrap();
        let Found::Content { body, .. } = file.load(&disk).unwrap() else {
            panic!("it is there");
        };
        assert_eq!(body, "two\n");
    }
}
