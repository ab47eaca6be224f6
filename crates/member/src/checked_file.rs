//! A small text file in two copies. It is read back exactly as it was written, or not at all.
//!
//! Both copies hold the newest content: such a file (the node's identity, the log that it follows)
//! must not fall back to earlier content because the newest copy was damaged. The second copy serves
//! when the first cannot be read.
//!
//! The body of a node's file begins with the node (`of NODE`), so that a copy of another node's
//! file counts as damaged at any sequence. Files of earlier versions lack the line.

use std::path::{Path, PathBuf};

use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, DiskError, ErrorKind, read_file, replace_file};
use kvorum_ring::NodeId;

/// Larger than any of these files: one has a line for each partition of the largest ring, one the
/// whole state of a cluster with many buckets.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// First word of the body of a node's file.
pub(crate) const OWNER_WORD: &str = "of ";

/// A file and its copy.
pub(crate) struct CheckedFile {
    path: PathBuf,
    copy: PathBuf,
    title: &'static str,
    owner: Option<NodeId>,
}

/// Bytes of a file and of its copy.
type Files = [Option<Vec<u8>>; 2];

/// Sequence and body of an intact file.
pub(crate) type Content = (u64, String);

/// The content of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Neither file exists.
    Nothing,
    /// The newest content, and a file that does not have it: missing, damaged or older.
    Content {
        sequence: u64,
        body: String,
        stale: Option<PathBuf>,
    },
    /// Files exist, and none of them is intact.
    Damaged,
}

impl CheckedFile {
    pub(crate) fn new(directory: &Path, name: &str, title: &'static str) -> Self {
        Self {
            path: directory.join(name),
            copy: directory.join(format!("{name}.copy")),
            title,
            owner: None,
        }
    }

    /// The same file, kept for a node: another node's content does not count.
    pub(crate) fn of(self, node: NodeId) -> Self {
        Self {
            owner: Some(node),
            ..self
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the files; mends the file that does not have the newest content, if it can.
    ///
    /// # Errors
    /// If reading fails. If the device cannot read one of the files, the other one serves. If it
    /// can read neither, the files do not count as damaged: the next attempt may succeed.
    pub(crate) fn load(&self, disk: &dyn Disk) -> Result<Found, DiskError> {
        self.load_own(disk, |_| true)
    }

    /// The intact bodies of the file and of its copy. Repairs nothing.
    ///
    /// # Errors
    /// If reading fails.
    pub(crate) fn bodies(&self, disk: &dyn Disk) -> Result<Vec<String>, DiskError> {
        let contents = self.contents(disk)?.into_iter().flatten();
        Ok(contents.map(|it| it.1).collect())
    }

    /// The newest intact body that satisfies `is_own`. Repairs nothing.
    ///
    /// # Errors
    /// The errors of [`CheckedFile::bodies`].
    pub(crate) fn newest_own(
        &self,
        disk: &dyn Disk,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, DiskError> {
        let contents = self.contents(disk)?.into_iter().flatten();
        let newest = contents.filter(|it| is_own(&it.1)).max_by_key(|it| it.0);
        Ok(newest.map(|it| it.1))
    }

    /// Like [`CheckedFile::load`], but only a body that satisfies `is_own` counts.
    ///
    /// # Errors
    /// The errors of [`CheckedFile::load`].
    pub(crate) fn load_own(
        &self,
        disk: &dyn Disk,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Found, DiskError> {
        let (files, failed) = self.read(disk)?;
        if files == [None, None] {
            return Ok(Found::Nothing);
        }
        let own = |content: &Content| is_own(&content.1);
        let contents = files.map(|file| self.decoded(&file?).filter(own));
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
            let bytes = self.encoded(sequence, &body);
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

    /// Writes both files. After a failure, the newest readable copy may have the new content or the
    /// former one.
    pub(crate) fn store(
        &self,
        disk: &dyn Disk,
        sequence: u64,
        body: &str,
    ) -> Result<(), DiskError> {
        let bytes = self.encoded(sequence, body);
        replace_file(disk, &self.path, &bytes)?;
        replace_file(disk, &self.copy, &bytes)
    }

    /// Contents of both files; `None` for one that is not intact. Repairs nothing.
    pub(crate) fn contents(&self, disk: &dyn Disk) -> Result<[Option<Content>; 2], DiskError> {
        let (files, _) = self.read(disk)?;
        Ok(files.map(|file| self.decoded(&file?)))
    }

    /// Defects of both files, for a check that changes nothing.
    pub(crate) fn findings(&self, disk: &dyn Disk) -> Vec<(PathBuf, String)> {
        let Ok((files, _)) = self.read(disk) else {
            return Vec::new();
        };
        if files == [None, None] {
            return Vec::new();
        }
        let is_sound = |file: &Option<Vec<u8>>| {
            let decoded = file.as_ref().and_then(|file| self.decoded(file));
            decoded.is_some()
        };
        let paths = [&self.path, &self.copy];
        let mut findings = Vec::new();
        for (path, file) in paths.into_iter().zip(&files) {
            let what = match file {
                None => "missing: its copy is there",
                Some(_) if !is_sound(file) => "it differs from the record that this node wrote",
                Some(_) => continue,
            };
            findings.push((path.clone(), what.to_owned()));
        }
        findings
    }

    /// Bytes of both files. A file that the device cannot read counts as empty, and its error is returned
    /// with the bytes.
    fn read(&self, disk: &dyn Disk) -> Result<(Files, Option<DiskError>), DiskError> {
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
        Ok((files, failed))
    }

    fn encoded(&self, sequence: u64, body: &str) -> Vec<u8> {
        match self.owner {
            Some(owner) => encode(
                self.title,
                sequence,
                &format!("{OWNER_WORD}{owner}\n{body}"),
            ),
            None => encode(self.title, sequence, body),
        }
    }

    fn decoded(&self, bytes: &[u8]) -> Option<Content> {
        let (sequence, body) = decode(self.title, bytes)?;
        let (Some(owner), Some(rest)) = (self.owner, body.strip_prefix(OWNER_WORD)) else {
            return Some((sequence, body));
        };
        let (of, rest) = rest.split_once('\n')?;
        (of == owner.to_string()).then(|| (sequence, rest.to_owned()))
    }
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

    /// Regression: the higher sequence counted, and the partitions of another node were removed or taken.
    #[test]
    fn a_copy_of_another_nodes_file_never_counts() {
        let (disk, node) = (disk(), |number| NodeId::from_bytes([number; 16]));
        let (own, other) = (file().of(node(1)), file().of(node(2)));
        other.store(&disk, 9, "other\n").unwrap();
        let foreign = read_file(&disk, other.path(), FILE_BYTES_MAX).unwrap();
        for path in ["d/card", "d/card.copy"] {
            own.store(&disk, 1, "own\n").unwrap();
            assert_eq!(own.findings(&disk), []);
            replace_file(&disk, Path::new(path), &foreign).unwrap();
            assert_eq!(own.findings(&disk).len(), 1);
            let Found::Content { body, stale, .. } = own.load(&disk).unwrap() else {
                panic!("one copy is whole");
            };
            assert_eq!((body.as_str(), stale), ("own\n", Some(path.into())));
        }
        other.store(&disk, 10, "other\n").unwrap();
        assert_eq!(own.load(&disk).unwrap(), Found::Damaged);
        // An earlier version did not write the node.
        file().store(&disk, 2, "before\n").unwrap();
        assert!(matches!(own.load(&disk).unwrap(), Found::Content { .. }));
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
