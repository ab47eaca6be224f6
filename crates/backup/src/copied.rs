//! A start on a data directory that was copied: put on another machine, or put back later.
//!
//! A copy made by `cp` or `rsync` has the same contents, and is as dangerous as a restored backup:
//! two nodes would have one identity, or a node would have lost its votes, and its vnodes would use
//! dots again. No copy can keep a file's time of birth. So a small file, the place, contains its
//! own time of birth. In a copy the two differ.
//!
//! Inode numbers are not used, since two new file systems that were filled alike often have the
//! same. Device numbers change with every mount. The machine's identity is not used either: a
//! volume that is attached to another machine is not a copy. A file system without times of birth
//! is ignored. A directory keeps its times when it is moved, remounted or mounted into a container.
//! Images of disks and snapshots of file systems or virtual machines are not detected.
//!
//! A single node is never refused. Its vnodes take fresh actors, which costs little.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::bail;
use kvorum_cluster::AgreedState as _;
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, DiskError, OpenMode, create_directory_durably, read_file, replace_file};
use kvorum_member::Member;
use kvorum_runtime::Runtime;

use crate::leases::remove_leases;
use crate::names::IN_CLUSTER_NAME;

/// The file with its own time of birth, in the data directory and in that of the agreed log.
pub(crate) const PLACE_NAME: &str = "place";
const PLACE_TITLE: &str = "kvorum place of a data directory";
/// The file with the number of other nodes at the last run.
const OTHERS_NAME: &str = "others";
const OTHERS_TITLE: &str = "kvorum number of other members";
/// The maximum length of either file, in bytes; each has two lines.
const FILE_BYTES_MAX: u64 = 4096;

/// The members are counted this often.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// The time of a file's birth, since 1970; `None` if the file system does not have it.
pub type BornAt<'a> = &'a dyn Fn(&Path) -> Option<Duration>;

/// The system's time of birth of a file.
pub fn born_at(path: &Path) -> Option<Duration> {
    let born = std::fs::metadata(path).ok()?.created().ok()?;
    born.duration_since(UNIX_EPOCH).ok()
}

/// Refuses a copied node of a larger cluster, unless the operator has confirmed it. Removes the
/// leases of any other copy, and writes the places of both directories.
pub fn settle_copied(
    disk: &dyn Disk,
    data: &Path,
    ring_directory: &Path,
    born_at: BornAt<'_>,
) -> anyhow::Result<()> {
    let directories = [data, ring_directory];
    let copied = directories
        .into_iter()
        .find(|directory| is_copied(disk, directory, born_at));
    if let Some(copied) = copied {
        settle_copy(disk, (data, ring_directory), copied)?;
        forget_place(disk, data, ring_directory)?;
    }
    for directory in directories {
        if let Err(error) = note_place(disk, directory, born_at) {
            // A node must start even on a full disk.
            tracing::warn!(event = "place_not_noted", directory = %directory.display(), error = %error);
        }
    }
    if copied.is_some() {
        // The confirmation is for this copy, and no other.
        remove_if_there(disk, &data.join(IN_CLUSTER_NAME))?;
        disk.sync_directory(data)?;
    }
    Ok(())
}

fn settle_copy(
    disk: &dyn Disk,
    (data, ring_directory): (&Path, &Path),
    copied: &Path,
) -> anyhow::Result<()> {
    let confirmed = data.join(IN_CLUSTER_NAME);
    let is_confirmed = disk.info(&confirmed)?.is_some();
    let others = others_noted(disk, data);
    if others != Some(0) && !is_confirmed {
        let others = others.map_or("others".to_owned(), |others| format!("{others} others"));
        bail!(
            "{} was copied here from another place (its file `{PLACE_NAME}` was created at \
             another time than the one in it), and its node was a member of a cluster with \
             {others}. If the node runs elsewhere, or has run since the copy was made, do not \
             start it: there would be two of it, or it would have lost its later votes and bring \
             back objects that were deleted since. Let another node take its place (`kvorum admin \
             cluster force-replace` at one of the others), or start it with an empty data \
             directory and let it join. If the node was stopped, then copied, and has not run \
             anywhere since, or if this copy is all that is left of its partitions, create the \
             file {} and start again",
            copied.display(),
            confirmed.display()
        );
    }
    remove_leases(disk, data, ring_directory)?;
    tracing::warn!(
        event = "data_directory_copied",
        directory = %copied.display(),
        "the data directory was copied since the last start; vnodes take fresh actors",
    );
    Ok(())
}

/// Removes the places of the directories, so that new ones are written.
pub(crate) fn forget_place(
    disk: &dyn Disk,
    data: &Path,
    ring_directory: &Path,
) -> anyhow::Result<()> {
    for directory in [data, ring_directory] {
        remove_if_there(disk, &directory.join(PLACE_NAME))?;
    }
    Ok(())
}

/// True for a directory whose place was born at another time than it states. An unreadable place
/// proves nothing.
fn is_copied(disk: &dyn Disk, directory: &Path, born_at: BornAt<'_>) -> bool {
    let path = directory.join(PLACE_NAME);
    let (Some(noted), Some(born)) = (born_noted(disk, &path), born_at(&path)) else {
        return false;
    };
    noted != born
}

fn born_noted(disk: &dyn Disk, path: &Path) -> Option<Duration> {
    let bytes = read_file(disk, path, FILE_BYTES_MAX).ok()?;
    let (_, body) = decode(PLACE_TITLE, &bytes)?;
    let nanos = body.strip_prefix("born ")?.trim_end().parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Writes a directory's place, unless it has a readable one.
fn note_place(disk: &dyn Disk, directory: &Path, born_at: BornAt<'_>) -> Result<(), DiskError> {
    let path = directory.join(PLACE_NAME);
    if born_noted(disk, &path).is_some() {
        return Ok(());
    }
    create_directory_durably(disk, directory)?;
    remove_if_there(disk, &path)?;
    // The file is not replaced by rename: its own time of birth counts.
    let file = disk.open(&path, OpenMode::CreateNew)?;
    let Some(nanos) = born_at(&path).and_then(|born| u64::try_from(born.as_nanos()).ok()) else {
        drop(file);
        return remove_if_there(disk, &path);
    };
    file.write_at(&encode(PLACE_TITLE, 1, &format!("born {nanos}\n")), 0)?;
    file.sync()?;
    disk.sync_directory(directory)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    match disk.info(path)? {
        Some(_) => disk.remove_file(path),
        None => Ok(()),
    }
}

/// Notes the number of other nodes in the cluster.
fn note_others(disk: &dyn Disk, data: &Path, others: u64) -> Result<(), DiskError> {
    let text = encode(OTHERS_TITLE, 1, &format!("others {others}\n"));
    replace_file(disk, &data.join(OTHERS_NAME), &text)
}

/// Keeps the note of other nodes current as the cluster changes.
pub async fn keep_others_noted(
    runtime: Runtime,
    disk: Arc<dyn Disk>,
    data: PathBuf,
    member: Arc<Member>,
) {
    let mut noted = None;
    loop {
        let others = member.state().current().members().len().saturating_sub(1) as u64;
        if member.is_state_known() && noted != Some(others) {
            let (disk, data) = (disk.clone(), data.clone());
            let note = move || note_others(&*disk, &data, others);
            match runtime.blocking(note).await {
                Ok(()) => noted = Some(others),
                Err(error) => tracing::warn!(event = "others_not_noted", error = %error),
            }
        }
        runtime.sleep(NOTED_EVERY).await;
    }
}

/// The last noted number; `None` for an unreadable note, zero without a note.
pub fn others_noted(disk: &dyn Disk, data: &Path) -> Option<u64> {
    let path: PathBuf = data.join(OTHERS_NAME);
    if matches!(disk.info(&path), Ok(None)) {
        return Some(0);
    }
    let bytes = read_file(disk, &path, FILE_BYTES_MAX).ok()?;
    let (_, body) = decode(OTHERS_TITLE, &bytes)?;
    body.strip_prefix("others ")?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;

    use super::*;

    const DATA: &str = "data";
    const RING: &str = "data/ring";

    fn disk() -> MemoryDisk {
        let disk = MemoryDisk::new();
        create_directory_durably(&disk, Path::new("data/ring/hints")).unwrap();
        disk
    }

    fn start(disk: &MemoryDisk, born: Option<u64>) -> anyhow::Result<()> {
        let born_at = move |_: &Path| born.map(Duration::from_nanos);
        settle_copied(disk, Path::new(DATA), Path::new(RING), &born_at)
    }

    fn lease(disk: &MemoryDisk) {
        replace_file(disk, Path::new("data/dot_leases"), b"x").unwrap();
    }

    fn is_there(disk: &MemoryDisk, path: &str) -> bool {
        disk.info(Path::new(path)).unwrap().is_some()
    }

    #[test]
    fn a_directory_that_stays_is_never_taken_for_a_copy() {
        let disk = disk();
        start(&disk, Some(7)).unwrap();
        note_others(&disk, Path::new(DATA), 4).unwrap();
        lease(&disk);
        for _ in 0..3 {
            start(&disk, Some(7)).unwrap();
        }
        // Through a file system without times of birth.
        start(&disk, None).unwrap();
        start(&disk, Some(7)).unwrap();
        assert!(is_there(&disk, "data/dot_leases"));
    }

    #[test]
    fn a_copy_of_a_node_of_several_is_refused_until_the_operator_means_it() {
        let disk = disk();
        start(&disk, Some(7)).unwrap();
        note_others(&disk, Path::new(DATA), 4).unwrap();
        lease(&disk);
        for _ in 0..2 {
            let refused = start(&disk, Some(8)).unwrap_err().to_string();
            assert!(
                refused.contains("a member of a cluster with 4 others"),
                "{refused}"
            );
            assert!(refused.contains("force-replace"), "{refused}");
            assert!(refused.contains("data/restore.in-cluster"), "{refused}");
            assert!(is_there(&disk, "data/dot_leases"));
        }
        replace_file(&disk, Path::new("data/restore.in-cluster"), b"").unwrap();
        start(&disk, Some(8)).unwrap();
        assert!(!is_there(&disk, "data/dot_leases"));
        assert!(!is_there(&disk, "data/restore.in-cluster"));
        start(&disk, Some(8)).unwrap();
        // The confirmation was for that copy only.
        assert!(start(&disk, Some(9)).is_err());
    }

    #[test]
    fn a_copied_agreed_log_alone_is_seen() {
        let disk = disk();
        start(&disk, Some(7)).unwrap();
        note_others(&disk, Path::new(DATA), 1).unwrap();
        let born_at = |path: &Path| {
            let is_of_ring = path.starts_with(RING);
            Some(Duration::from_nanos(if is_of_ring { 8 } else { 7 }))
        };
        let refused = settle_copied(&disk, Path::new(DATA), Path::new(RING), &born_at);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("data/ring was copied")
        );
    }

    #[test]
    fn a_copy_of_a_node_alone_starts_with_fresh_actors() {
        let disk = disk();
        start(&disk, Some(7)).unwrap();
        note_others(&disk, Path::new(DATA), 0).unwrap();
        lease(&disk);
        start(&disk, Some(8)).unwrap();
        assert!(!is_there(&disk, "data/dot_leases"));
        lease(&disk);
        start(&disk, Some(8)).unwrap();
        assert!(is_there(&disk, "data/dot_leases"));
    }

    #[test]
    fn what_cannot_be_read_is_no_reason_to_refuse_and_is_written_anew() {
        let disk = disk();
        start(&disk, Some(7)).unwrap();
        note_others(&disk, Path::new(DATA), 4).unwrap();
        let whole = read_file(&disk, Path::new("data/place"), 4096).unwrap();
        for at in 0..whole.len() {
            let place = disk.open(Path::new("data/place"), OpenMode::ReadWrite);
            place
                .unwrap()
                .write_at(&[whole[at] ^ 1], at as u64)
                .unwrap();
            start(&disk, Some(7)).unwrap();
            let mended = read_file(&disk, Path::new("data/place"), 4096).unwrap();
            assert_eq!(mended, whole, "byte {at}");
        }
        // The number of others is unknown then.
        replace_file(&disk, Path::new("data/others"), b"?").unwrap();
        let refused = start(&disk, Some(8)).unwrap_err().to_string();
        assert!(
            refused.contains("a member of a cluster with others"),
            "{refused}"
        );
    }

    #[test]
    fn where_the_file_system_reports_nothing_nothing_is_noted() {
        let disk = disk();
        start(&disk, None).unwrap();
        assert!(!is_there(&disk, "data/place") && !is_there(&disk, "data/ring/place"));
    }
}
