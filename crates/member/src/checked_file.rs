//! A small text file that is read back as it was written or not at all, and kept twice.
//!
//! Both copies hold the newest content: what such a file says (who this node is, which log it follows)
//! must not be answered by the content of before because the newest copy was damaged. The copy is for
//! the day when the other cannot be read.
//!
//! A copy of another node's file may lie here, put back into the wrong place, and be the newer one. A body
//! says whose it is, and one that is not this node's counts as damaged.

use std::path::{Path, PathBuf};

use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, DiskError, ErrorKind, read_file, replace_file};

/// More than any of these files needs: a line for each partition of the largest ring, or a whole state of
/// a cluster with many buckets.
const FILE_BYTES_MAX: u64 = 256 << 20;

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
    /// Files, none of which holds what was written.
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
    ///
    /// # Errors
    /// If reading fails. Where a device does not give one of the files, the other one serves; where that
    /// does not either, it is an error, and not damage: the next attempt may succeed.
    pub(crate) fn load(&self, disk: &dyn Disk) -> Result<Found, DiskError> {
        self.load_own(disk, |_| true)
    }

    /// The bodies of the file and of its copy, as far as they are whole, without mending anything.
    ///
    /// # Errors
    /// If reading fails for another reason than that a file is missing or too long.
    pub(crate) fn bodies(&self, disk: &dyn Disk) -> Result<Vec<String>, DiskError> {
        let contents = self.contents(disk)?.into_iter();
        Ok(contents.map(|it| it.1).collect())
    }

    fn contents(&self, disk: &dyn Disk) -> Result<Vec<(u64, String)>, DiskError> {
        let mut contents = Vec::new();
        for path in [&self.path, &self.copy] {
            match read_file(disk, path, FILE_BYTES_MAX) {
                Ok(bytes) => contents.extend(decode(self.title, &bytes)),
                Err(error) if is_no_content(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(contents)
    }

    /// The newest whole body for which `is_own` holds, without mending anything.
    ///
    /// # Errors
    /// As [`CheckedFile::bodies`].
    pub(crate) fn newest_own(
        &self,
        disk: &dyn Disk,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, DiskError> {
        let own = self.contents(disk)?.into_iter().filter(|it| is_own(&it.1));
        let newest = own.max_by_key(|it| it.0);
        Ok(newest.map(|it| it.1))
    }

    /// As [`CheckedFile::load`], where only a body for which `is_own` holds counts.
    ///
    /// # Errors
    /// As [`CheckedFile::load`].
    pub(crate) fn load_own(
        &self,
        disk: &dyn Disk,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Found, DiskError> {
        let mut failed = None;
        let mut read = |path: &PathBuf| -> Result<Option<Vec<u8>>, DiskError> {
            match read_file(disk, path, FILE_BYTES_MAX) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) if error.kind() == ErrorKind::TooLarge => Ok(Some(Vec::new())),
                Err(error) if error.kind() == ErrorKind::Device => {
                    failed = Some(error);
                    Ok(Some(Vec::new()))
                }
                Err(error) => Err(error),
            }
        };
        let files = [read(&self.path)?, read(&self.copy)?];
        if files == [None, None] {
            return Ok(Found::Nothing);
        }
        let own = |content: &(u64, String)| is_own(&content.1);
        let contents = files.map(|file| decode(self.title, &file?).filter(own));
        let newest = contents.iter().flatten().max_by_key(|it| it.0).cloned();
        let Some((sequence, body)) = newest else {
            return failed.map_or(Ok(Found::Damaged), Err);
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

/// True where there is no file, or none that was ever written here.
fn is_no_content(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::TooLarge | ErrorKind::Device
    )
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{Disk as _, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};

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
    fn what_a_device_does_not_give_is_an_error_and_no_damage() {
        let (memory, file) = (disk(), file());
        file.store(&memory, 1, "one\n").unwrap();
        let faulty = FaultyDisk::over_memory(&memory);
        let unread = |path: &str| {
            let rule = Rule::new(Fault::Error(ErrorKind::Device));
            faulty.add_rule(rule.on(Operation::Read).path(Path::new(path)))
        };
        let on_one = unread("d/card");
        assert!(matches!(file.load(&faulty).unwrap(), Found::Content { .. }));
        faulty.remove_rule(on_one);
        for damaged in [None, Some("d/card")] {
            if let Some(damaged) = damaged {
                damage(&memory, Path::new(damaged));
            }
            unread("d/card");
            unread("d/card.copy");
            let refused = file.load(&faulty).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Device);
            faulty.heal();
            assert!(matches!(file.load(&faulty).unwrap(), Found::Content { .. }));
        }
        for path in ["d/card", "d/card.copy"] {
            damage(&memory, Path::new(path));
        }
        assert_eq!(file.load(&faulty).unwrap(), Found::Damaged);
    }

    #[test]
    fn a_newer_copy_of_another_node_counts_as_damaged() {
        let (disk, file) = (disk(), file());
        file.store(&disk, 1, "own\n").unwrap();
        replace_file(&disk, &file.copy, &encode("a title", 9, "other\n")).unwrap();
        let found = file.load_own(&disk, |body| body == "own\n").unwrap();
        let expected = Found::Content {
            sequence: 1,
            body: "own\n".to_owned(),
            stale: Some("d/card.copy".into()),
        };
        assert_eq!(found, expected);
        assert_eq!(file.bodies(&disk).unwrap(), ["own\n", "own\n"]);
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
