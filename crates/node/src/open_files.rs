//! Open files: the system's limit is raised as far as possible, and clients get the files that remain. A
//! start is refused if it could not keep the files of its stores and the connections of its cluster open.
//!
//! A store keeps each of its files open. Closing and reopening on demand was rejected: a merged
//! file that readers still hold has lost its name and could not be reopened, and reads that memory
//! could answer would wait for the device. Files are few (a bitcask store aims at some dozens), and
//! work that reduces their number is pressing when they are many.
//!
//! Other nodes come before clients: a node that its cluster does not reach is useless.
//! `peer_connections_max` bounds their number, which is reserved here.

use std::path::Path;

use anyhow::{Context, bail};
use kvorum_disk::{Disk, EntryKind};
use kvorum_maintenance::machine;
use kvorum_settings::Settings;

use crate::store_roots::StoreRoots;

/// New files that each store may need in addition: the next segment or table, its hint,
/// results of merges, and replacements.
const MORE_OF_STORE: u64 = 6;
/// Files of the program itself: sockets, logs, the cluster's files, directories that are being
/// read.
const OWN: u64 = 128;
/// The least number of connections for clients; with fewer, a start is refused.
const CLIENTS_MIN: u64 = 64;
/// The largest useful number of connections for clients.
const CLIENTS_MAX: u64 = 20_000;
/// If other nodes can connect, files for at least this many are reserved, for growth.
const OTHERS_MIN: u64 = 4;
/// Maximum depth of directories in a data directory.
const DEPTH_MAX: u32 = 4;

/// Files that a node may have open, and those that its stores need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// `None` if there is no limit.
    limit: Option<u64>,
    /// Files that the stores have.
    there: u64,
    partitions: u64,
    /// Other nodes can connect.
    has_peers: bool,
}

/// Raises the limit, and returns it with the present files and the needs of stores. Refuses a node
/// that could not serve even as the only one.
pub(crate) fn settle(disk: &dyn Disk, settings: &Settings) -> anyhow::Result<OpenFiles> {
    let limit = [
        machine::raise_open_files(),
        settings.maintenance.open_files_max,
    ];
    let mut there = 0;
    for root in StoreRoots::of(settings).iter().flat_map(StoreRoots::all) {
        there += count_files(disk, root, DEPTH_MAX)?;
    }
    let log = count_files(disk, &settings.node.data_dir.join("value_log"), DEPTH_MAX)?;
    let files = OpenFiles {
        limit: limit.into_iter().flatten().min(),
        there: there + log,
        partitions: settings.node.ring_size,
        has_peers: !settings.listeners.peer.is_empty(),
    };
    files.clients_max(0)?;
    Ok(files)
}

impl OpenFiles {
    /// Number of connections for clients, in a cluster with this many other nodes.
    ///
    /// # Errors
    /// There are not enough for stores and other nodes, as a text for the operator.
    pub(crate) fn clients_max(&self, others: u64) -> anyhow::Result<u64> {
        let Some(limit) = self.limit else {
            return Ok(CLIENTS_MAX);
        };
        let peers = match self.has_peers {
            true => kvorum_member::peer_connections_max(others.max(OTHERS_MIN)),
            false => 0,
        };
        let (there, partitions) = (self.there, self.partitions);
        let taken = there + partitions * MORE_OF_STORE + OWN + peers;
        let needed = taken + CLIENTS_MIN;
        if limit < needed {
            bail!(
                "{there} files of the stores, those to come for {partitions} partitions and {peers} \
                 connections of other nodes ({others} are known) need {needed} open files, and {limit} \
                 are allowed: raise the limit of the process (`ulimit -n`, or LimitNOFILE of a systemd \
                 unit) to {} or more, and maintenance.open_files_max if it is set",
                needed.saturating_mul(2).next_power_of_two().max(65_536)
            );
        }
        // The rest is for the stores and the cluster to grow.
        Ok(((limit - taken) / 2).clamp(CLIENTS_MIN / 2, CLIENTS_MAX))
    }
}

fn count_files(disk: &dyn Disk, directory: &Path, depth: u32) -> anyhow::Result<u64> {
    let action = || format!("count the files below {}", directory.display());
    if disk.info(directory).with_context(action)?.is_none() {
        return Ok(0);
    }
    let mut count = 0;
    for entry in disk.list(directory).with_context(action)? {
        count += match entry.kind {
            EntryKind::File => 1,
            EntryKind::Directory if depth > 0 => {
                count_files(disk, &directory.join(entry.name), depth - 1)?
            }
            EntryKind::Directory => 0,
        };
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode};

    use super::*;

    fn files(limit: u64, there: u64, has_peers: bool) -> OpenFiles {
        OpenFiles {
            limit: Some(limit),
            there,
            partitions: 64,
            has_peers,
        }
    }

    #[test]
    fn a_limit_below_what_stores_need_is_refused_with_a_way_out() {
        let refused = files(1024, 600, false).clients_max(0).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("600 files of the stores"), "{refused}");
        assert!(refused.contains("1024 are allowed"), "{refused}");
        assert!(refused.contains("ulimit -n"), "{refused}");
        assert!(refused.contains("65536 or more"), "{refused}");
    }

    #[test]
    fn clients_have_half_of_what_the_stores_leave() {
        let all = files(1024, 0, false).clients_max(0).unwrap();
        assert_eq!(all, (1024 - 64 * MORE_OF_STORE - OWN) / 2);
        let fewer = files(1024, 300, false).clients_max(0).unwrap();
        assert!(fewer < all && fewer >= CLIENTS_MIN / 2);
        let many = files(1 << 20, 0, true).clients_max(100).unwrap();
        assert_eq!(many, CLIENTS_MAX);
    }

    #[test]
    fn other_nodes_come_before_clients_and_a_cluster_too_large_for_the_limit_is_refused() {
        let files = files(4096, 600, true);
        let few = files.clients_max(0).unwrap();
        // Three lanes to each, and up to three times as many from each.
        assert_eq!(files.clients_max(4).unwrap(), few);
        let more = files.clients_max(104).unwrap();
        assert_eq!(few - more, 100 * 12 / 2);
        let refused = files.clients_max(1000).unwrap_err().to_string();
        assert!(
            refused.contains("12064 connections of other nodes (1000 are known)"),
            "{refused}"
        );
        assert!(refused.contains("4096 are allowed"), "{refused}");
    }

    #[test]
    fn files_are_counted_in_every_store() {
        let disk = MemoryDisk::new();
        for directory in ["bitcask/0", "bitcask/1", "bitcask/1/lost"] {
            disk.create_directory(Path::new(directory)).unwrap();
            let file = Path::new(directory).join("file");
            disk.open(&file, OpenMode::CreateNew).unwrap();
        }
        let count = |path: &str| count_files(&disk, Path::new(path), DEPTH_MAX).unwrap();
        assert_eq!(count("bitcask"), 3);
        assert_eq!(count("elsewhere"), 0);
    }
}
