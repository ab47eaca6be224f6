//! A start on a data directory that was restored from a backup.
//!
//! A single node starts. A node of a larger cluster lacks its later votes, and would bring back
//! objects that were deleted since. It is refused before it sends anything, unless the operator has
//! confirmed it.

use std::path::Path;

use anyhow::bail;
use kvorum_disk::{Disk, read_file};

use crate::copied::forget_place;
use crate::leases::remove_leases;
use crate::names::{IN_CLUSTER_NAME, MARK_NAME, MEMBERS_WORD, UNFINISHED_NAME};

/// Maximum bytes of a mark, which has a few lines.
const MARK_BYTES_MAX: u64 = 4096;

/// If the directory was restored from a backup, removes the leases of the former data: its vnodes
/// have lost all later writes, and must take fresh actors.
pub fn settle_restored(disk: &dyn Disk, data: &Path, ring_directory: &Path) -> anyhow::Result<()> {
    if disk.info(&data.join(UNFINISHED_NAME))?.is_some() {
        bail!(
            "{} is a backup that was not finished, and not whole; restore another one",
            data.display()
        );
    }
    let mark = data.join(MARK_NAME);
    if disk.info(&mark)?.is_none() {
        return Ok(());
    }
    let text = read_file(disk, &mark, MARK_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let confirmed = data.join(IN_CLUSTER_NAME);
    let is_confirmed = disk.info(&confirmed)?.is_some();
    let members = members_of(&text);
    if members > 1 && !is_confirmed {
        bail!(
            "{} was restored from a backup of a node that had {} others around it. If those run, \
             do not start it: it has lost its later votes, and would bring back objects that were \
             deleted since. Let another node take its place (`kvorum admin cluster force-replace` \
             at one of them), or start it with an empty data directory and let it join. If all of \
             them are restored together, or this copy is all that is left of its partitions, \
             create the file {} and start again",
            data.display(),
            members - 1,
            confirmed.display()
        );
    }
    remove_leases(disk, data, ring_directory)?;
    // A restored directory does not count as a copy.
    forget_place(disk, data, ring_directory)?;
    let text = text.trim_end().replace('\n', ", ");
    tracing::warn!(event = "restored_from_backup", backup = %text);
    disk.remove_file(&mark)?;
    if is_confirmed {
        // The confirmation is for this backup only.
        disk.remove_file(&confirmed)?;
    }
    disk.sync_directory(data)?;
    Ok(())
}

/// The number of the cluster's members, by a mark; marks of earlier versions lack it.
fn members_of(mark: &str) -> u64 {
    let words = mark.lines().filter_map(|line| line.split_once(' '));
    let mut members = words.filter(|(word, _)| *word == MEMBERS_WORD);
    let count = members.next().and_then(|(_, count)| count.parse().ok());
    count.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, create_directory_durably, replace_file};

    use super::*;

    fn disk_with(names: &[&str]) -> MemoryDisk {
        let disk = MemoryDisk::new();
        create_directory_durably(&disk, Path::new("data/ring/hints")).unwrap();
        create_directory_durably(&disk, Path::new("data/hash_trees")).unwrap();
        for name in names {
            replace_file(&disk, &Path::new("data").join(name), b"x").unwrap();
        }
        disk
    }

    fn settle(disk: &MemoryDisk) -> anyhow::Result<()> {
        settle_restored(disk, Path::new("data"), Path::new("data/ring"))
    }

    fn is_there(disk: &MemoryDisk, name: &str) -> bool {
        disk.info(&Path::new("data").join(name)).unwrap().is_some()
    }

    #[test]
    fn leases_and_trees_of_before_go_with_the_mark() {
        let names = [
            "backup",
            "dot_leases",
            "hash_trees/2",
            "ring/hints/dot_leases",
        ];
        let disk = disk_with(&names);
        settle(&disk).unwrap();
        for name in names {
            assert!(!is_there(&disk, name), "{name}");
        }
    }

    #[test]
    fn a_node_of_several_is_refused_until_the_operator_means_it() {
        let disk = disk_with(&["dot_leases", "ring/hints/dot_leases"]);
        let mark = |members: u32| {
            let text = format!("kvorum 0.1.0\nnode a@b\nmade 5\nmembers {members}\n");
            replace_file(&disk, Path::new("data/backup"), text.as_bytes()).unwrap();
        };
        mark(5);
        for _ in 0..2 {
            let refused = settle(&disk).unwrap_err().to_string();
            assert!(refused.contains("had 4 others"), "{refused}");
            assert!(refused.contains("force-replace"), "{refused}");
            assert!(refused.contains("data/restore.in-cluster"), "{refused}");
            assert!(is_there(&disk, "backup") && is_there(&disk, "dot_leases"));
        }
        replace_file(&disk, Path::new("data/restore.in-cluster"), b"").unwrap();
        settle(&disk).unwrap();
        for name in ["backup", "dot_leases", "restore.in-cluster"] {
            assert!(!is_there(&disk, name), "{name}");
        }
        // The confirmation was for that backup only.
        mark(2);
        assert!(settle(&disk).is_err());
        mark(1);
        settle(&disk).unwrap();
    }

    #[test]
    fn leases_of_a_directory_that_was_not_restored_stay() {
        let disk = disk_with(&["dot_leases"]);
        settle(&disk).unwrap();
        assert!(is_there(&disk, "dot_leases"));
    }

    #[test]
    fn a_backup_that_was_not_finished_is_refused() {
        let disk = disk_with(&["backup.unfinished"]);
        let refused = settle(&disk).unwrap_err().to_string();
        assert!(refused.contains("not finished"), "{refused}");
    }
}
