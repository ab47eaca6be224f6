//! The machine's snapshot on disk: two generations, each replaced atomically and checked by a
//! checksum over all of it.
//!
//! ```text
//! line 1:  kvorum agreed snapshot, format F, N bytes, crc32c C\n
//!            F  format, decimal
//!            N  length of what follows in bytes, decimal
//!            C  masked CRC-32C of line 1 up to "bytes" and of what follows, 8 hexadecimal digits
//! line 2:  what the snapshot covers, JSON\n
//! after:   the machine's state as it gave it
//! ```
//!
//! A snapshot never replaces one that covers more. A failed write may be repeated after another
//! node has sent a newer snapshot; by then the log no longer reaches back to the older one.
//!
//! There are two generations because in other systems a full disk has left an empty file in place
//! of the cluster's state. The log completes an older generation, if it still reaches back to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, ErrorKind, read_file, replace_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};
use parking_lot::Mutex;

use crate::error::OpenError;
use crate::raft_types::{LogId, SnapshotMeta};

const FORMAT: u32 = 1;
const NEWEST: &str = "snapshot";
const PREVIOUS: &str = "snapshot.previous";
pub(crate) const TITLE: &str = "kvorum agreed snapshot, format ";
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;

/// A snapshot: its last entry, and the machine's state.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: Vec<u8>,
}

/// The files of the snapshots.
#[derive(Clone)]
pub(crate) struct SnapshotFiles {
    disk: Arc<dyn Disk>,
    newest: PathBuf,
    previous: PathBuf,
    /// The last entry of the newest snapshot. Locked while a snapshot is written.
    covered: Arc<Mutex<Option<LogId>>>,
}

impl SnapshotFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        Self {
            disk,
            newest: directory.join(NEWEST),
            previous: directory.join(PREVIOUS),
            covered: Arc::default(),
        }
    }

    /// Keeps a snapshot, unless the present one covers more. The present one becomes the older generation.
    pub(crate) fn store(&self, stored: &Stored) -> std::io::Result<()> {
        let mut covered = self.covered.lock();
        if *covered > stored.meta.last_log_id {
            return Ok(());
        }
        let bytes = encode(stored)?;
        let disk = &*self.disk;
        match read_file(disk, &self.newest, FILE_BYTES_MAX) {
            // An unreadable snapshot must not replace a readable one.
            Ok(before) if decode(&before).is_ok() => {
                replace_file(disk, &self.previous, &before).map_err(std::io::Error::other)?;
            }
            _ => {}
        }
        replace_file(disk, &self.newest, &bytes).map_err(std::io::Error::other)?;
        *covered = stored.meta.last_log_id;
        Ok(())
    }

    /// The newest readable snapshot, if there is one, and the path of an unreadable snapshot, if
    /// there is one.
    pub(crate) fn load(&self) -> Result<(Option<Stored>, Option<PathBuf>), OpenError> {
        let (newest, previous) = load_both(&*self.disk, &self.newest, &self.previous)?;
        let found = [&newest, &previous].into_iter().flatten().flatten();
        *self.covered.lock() = found.filter_map(|it| it.meta.last_log_id).max();
        match (newest, previous) {
            (Ok(Some(stored)), Ok(_)) => Ok((Some(stored), None)),
            (Ok(Some(stored)), Err(_)) => Ok((Some(stored), Some(self.previous.clone()))),
            (Ok(None), Ok(None)) => Ok((None, None)),
            // The older generation never exists alone.
            (Ok(None) | Err(_), Ok(Some(stored))) => Ok((Some(stored), Some(self.newest.clone()))),
            // The log may still have its first entry: `check_reach` compares it.
            (Err(_), Ok(None)) | (_, Err(_)) => Ok((None, Some(self.newest.clone()))),
        }
    }

    /// Refuses a snapshot that ends before the log begins: the entries between them are lost.
    pub(crate) fn check_reach(
        &self,
        covered: Option<LogId>,
        purged: Option<LogId>,
        unreadable: Option<&Path>,
    ) -> Result<(), OpenError> {
        let is_there = covered.is_some() && unreadable.is_none();
        check_reach(&self.newest, is_there, covered, purged)
    }

    /// Defects of the snapshots of a directory, given the first entry of its log. Finds no damaged bytes.
    pub(crate) fn check(
        disk: &dyn Disk,
        directory: &Path,
        purged: Option<LogId>,
    ) -> Vec<(PathBuf, String)> {
        let (newest, previous) = (directory.join(NEWEST), directory.join(PREVIOUS));
        let Ok((first, second)) = load_both(disk, &newest, &previous) else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        if matches!((&first, &second), (Ok(None), Ok(Some(_)))) {
            let what = "missing: the generation before it is there".to_owned();
            findings.push((newest.clone(), what));
        }
        let found = [&first, &second].into_iter().flatten().flatten();
        let covered = found.filter_map(|it| it.meta.last_log_id).max();
        let is_there = matches!(first, Ok(Some(_)));
        if let Err(error) = check_reach(&newest, is_there, covered, purged) {
            findings.push((newest, error.to_string()));
        }
        findings
    }
}

fn check_reach(
    newest: &Path,
    is_there: bool,
    covered: Option<LogId>,
    purged: Option<LogId>,
) -> Result<(), OpenError> {
    match purged {
        Some(purged) if covered < Some(purged) => Err(OpenError::SnapshotBehind {
            file: newest.to_owned(),
            is_there,
            covered: covered.map(|it| it.index),
            purged: purged.index,
        }),
        _ => Ok(()),
    }
}

/// The inner error concerns one generation, so the other one may be used.
type Loaded = Result<Option<Stored>, OpenError>;

fn load_both(
    disk: &dyn Disk,
    newest: &Path,
    previous: &Path,
) -> Result<(Loaded, Loaded), OpenError> {
    Ok((load_one(disk, newest)?, load_one(disk, previous)?))
}

fn load_one(disk: &dyn Disk, path: &Path) -> Result<Loaded, OpenError> {
    let bytes = match read_file(disk, path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) if error.kind() == ErrorKind::Device => return Ok(Err(error.into())),
        Err(error) => return Err(error.into()),
    };
    match decode(&bytes) {
        Ok(stored) => Ok(Ok(Some(stored))),
        Err(Undecodable::Newer(got)) => Err(OpenError::NewerFormat {
            file: path.to_owned(),
            got,
            newest: FORMAT,
        }),
        Err(Undecodable::Damaged(what)) => Ok(Err(OpenError::Damaged {
            file: path.to_owned(),
            offset: 0,
            what,
        })),
    }
}

#[derive(Debug)]
pub(crate) enum Undecodable {
    Newer(u32),
    Damaged(String),
}

pub(crate) fn encode(stored: &Stored) -> std::io::Result<Vec<u8>> {
    let mut content = serde_json::to_vec(&stored.meta)?;
    content.push(b'\n');
    content.extend_from_slice(&stored.state);
    let mut bytes = first_line(FORMAT, &content).into_bytes();
    bytes.extend_from_slice(&content);
    Ok(bytes)
}

fn first_line(format: u32, content: &[u8]) -> String {
    let start = format!("{TITLE}{format}, {} bytes", content.len());
    let sum = mask_checksum(checksum_append(checksum(start.as_bytes()), content));
    format!("{start}, crc32c {sum:08x}\n")
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Stored, Undecodable> {
    let damaged = |what: &str| Undecodable::Damaged(what.to_owned());
    let (line, content) = cut_line(bytes).ok_or(damaged("the first line has no end"))?;
    let text = std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.strip_prefix(TITLE));
    let format = text.and_then(|text| text.split(',').next()?.parse::<u32>().ok());
    let format = format.ok_or(damaged("the first line is not ours"))?;
    // Format and content determine the line; comparing all of it checks every byte.
    if first_line(format, content).as_bytes() != line {
        return Err(damaged("the checksum does not match"));
    }
    if format > FORMAT {
        return Err(Undecodable::Newer(format));
    }
    let (meta, state) = cut_line(content).ok_or(damaged("the second line has no end"))?;
    let meta = serde_json::from_slice(meta);
    Ok(Stored {
        meta: meta.map_err(|error| Undecodable::Damaged(error.to_string()))?,
        state: state.to_vec(),
    })
}

/// The first line with its end, and the rest.
fn cut_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    bytes.split_at_checked(end + 1)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode};
    use kvorum_golden::assert_bytes;

    use super::*;

    fn stored(state: &str) -> Stored {
        Stored {
            meta: SnapshotMeta {
                snapshot_id: state.to_owned(),
                ..SnapshotMeta::default()
            },
            state: state.as_bytes().to_vec(),
        }
    }

    fn files(disk: &MemoryDisk) -> SnapshotFiles {
        SnapshotFiles::new(Arc::new(disk.clone()), Path::new("."))
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = encode(&stored("the state")).unwrap();
        let (line, content) = cut_line(&bytes).unwrap();
        let (covered, state) = cut_line(content).unwrap();
        let drawing = [
            ("first line: title, format, length, checksum", line.len()),
            ("second line: what the snapshot covers", covered.len()),
            ("state", state.len()),
        ];
        assert_bytes("snapshot_file.hex", &drawing, &bytes);
        assert_eq!(decode(&bytes).unwrap().state, b"the state");
    }

    #[test]
    fn the_older_generation_serves_when_the_newest_is_damaged() {
        let disk = MemoryDisk::new();
        assert!(matches!(files(&disk).load(), Ok((None, None))));
        files(&disk).store(&stored("one")).unwrap();
        files(&disk).store(&stored("two")).unwrap();
        let (loaded, bad) = files(&disk).load().unwrap();
        assert_eq!((loaded.unwrap().state, bad), (b"two".to_vec(), None));
        let file = disk
            .open(Path::new("./snapshot"), OpenMode::ReadWrite)
            .unwrap();
        let len = file.len().unwrap();
        for at in 0..len {
            let mut byte = [0];
            file.read_at(&mut byte, at, kvorum_disk::Reading::MayBlock)
                .unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            let (loaded, bad) = files(&disk).load().unwrap();
            assert_eq!(loaded.unwrap().state, b"one", "byte {at}");
            assert!(bad.is_some());
            file.write_at(&byte, at).unwrap();
        }
    }

    #[test]
    fn a_snapshot_that_covers_less_never_replaces_one_that_covers_more() {
        let covering = |index| {
            let mut stored = stored(&format!("up to {index}"));
            let leader = openraft::CommittedLeaderId::new(1, crate::raft_types::MemberId::from(1));
            stored.meta.last_log_id = Some(LogId::new(leader, index));
            stored
        };
        let disk = MemoryDisk::new();
        let before = files(&disk);
        before.store(&covering(7)).unwrap();
        before.store(&covering(9)).unwrap();
        before.store(&covering(8)).unwrap();
        let again = files(&disk);
        let loaded = || again.load().unwrap().0.unwrap().state;
        assert_eq!(loaded(), b"up to 9");
        again.store(&covering(8)).unwrap();
        assert_eq!(loaded(), b"up to 9");
        again.store(&covering(10)).unwrap();
        assert_eq!(loaded(), b"up to 10");
    }

    #[test]
    fn a_damaged_snapshot_never_replaces_a_sound_one() {
        let disk = MemoryDisk::new();
        files(&disk).store(&stored("one")).unwrap();
        files(&disk).store(&stored("two")).unwrap();
        let file = disk
            .open(Path::new("./snapshot"), OpenMode::ReadWrite)
            .unwrap();
        file.write_at(b"x", 40).unwrap();
        files(&disk).store(&stored("three")).unwrap();
        let file = disk
            .open(Path::new("./snapshot"), OpenMode::ReadWrite)
            .unwrap();
        file.write_at(b"x", 40).unwrap();
        let (loaded, _) = files(&disk).load().unwrap();
        assert_eq!(loaded.unwrap().state, b"one");
    }
}
