//! Keeps a vnode's trees in their file, and takes them from it at the next start.
//!
//! While a vnode serves, its trees are copied between two syncs of the store: the copy has all batches up
//! to the first sync and none behind the second. After a clean stop both are at the store's last batch.

use kvorum_backend::{Sequence, Timestamp};

use crate::hash_trees::{HashTrees, Taking, TreesOrigin, WholeTrees};
use crate::kept_trees::{KeptStamp, OpenedStore, Present, Refusal, Trust, encode};
use crate::replica_request::ReplicaFailure;
use crate::tree_building::{BuildStep, losses_of};
use crate::tree_files::{FILE_BYTES_MAX, TreeFiles};
use crate::vnode::Vnode;

/// Trees that are about to be written to a file.
struct ToKeep<'a> {
    trees: &'a HashTrees,
    whole: WholeTrees,
    /// Number of their changes before they are copied.
    changes: u64,
    /// Losses that the store lists.
    lost: u64,
}

impl Vnode {
    /// Takes the trees from the file of an earlier run, if the file can be trusted.
    /// [`BuildStep::Going`] means that [`Vnode::build_trees`] has to add the entries written since,
    /// [`BuildStep::Idle`] that nothing was taken. Must be called before each step of building;
    /// only the first call reads the file. Blocks.
    ///
    /// `placements` stands for the properties of buckets that place keys in trees.
    pub fn take_kept_trees(&self, files: &TreeFiles, placements: u32, now: Timestamp) -> BuildStep {
        let Some(trees) = &self.trees else {
            return BuildStep::Idle;
        };
        let Some(opened) = trees.begin_taking(placements, now.0) else {
            return BuildStep::Idle;
        };
        let is_taken = match self.trusted(files, &opened, placements) {
            Ok(taking) => taking.is_some_and(|it| trees.take(it)),
            Err(reason) => {
                self.remove_kept_trees(files, &reason);
                false
            }
        };
        if !is_taken {
            trees.give_up_taking();
            return BuildStep::Idle;
        }
        match trees.are_catching_up() {
            true => BuildStep::Going,
            false => BuildStep::Built,
        }
    }

    /// Reads the file; the reason when it is useless, `None` when there is none.
    fn trusted(
        &self,
        files: &TreeFiles,
        opened: &OpenedStore,
        placements: u32,
    ) -> Result<Option<Taking>, String> {
        let Some(read) = files.read(self.partition) else {
            return Ok(None);
        };
        let (stamp, trees) = read?;
        if !self.is_complete() {
            return Err("the partition is being repaired here".to_owned());
        }
        if self.backend.identity() != opened.store {
            return Err("the store was erased since it was opened".to_owned());
        }
        let status = self.backend.status();
        let present = Present {
            lost: status.lost.len() as u64,
            placements,
        };
        let lacking = match stamp.judge(opened, &present) {
            Trust::Whole => Vec::new(),
            Trust::Lacking(segments) => segments,
            Trust::Refused(refusal) => return Err(refusal.reason().to_owned()),
        };
        Ok(Some(Taking {
            trees,
            lacking,
            complete: stamp.complete,
            origin: TreesOrigin {
                placements,
                begun_at: stamp.built_at,
                losses: losses_of(&status),
            },
        }))
    }

    fn remove_kept_trees(&self, files: &TreeFiles, reason: &str) {
        if let Err(error) = files.give_up(self.partition, reason) {
            // The file belongs to this store's past, so the next run judges it in the same way.
            let partition = self.partition.number();
            tracing::warn!(event = "kept_trees_not_removed", partition, error = %error);
        }
    }

    /// Removes the file if its trees have entries that the store has lost.
    fn remove_if_lossy(&self, files: &TreeFiles) {
        if self.has_lost_since_trees() {
            self.remove_kept_trees(files, Refusal::Lossy.reason());
        }
    }

    /// Writes the trees to their file while the vnode serves; false when they are not whole, or cannot be
    /// kept. Blocks for two syncs of the store and one of the file.
    ///
    /// # Errors
    /// Those of the store and of the disk. The file is then unchanged.
    pub fn keep_trees(&self, files: &TreeFiles) -> Result<bool, ReplicaFailure> {
        let Some(to_keep) = self.trees_to_keep() else {
            self.remove_if_lossy(files);
            return Ok(false);
        };
        let complete = self.backend.sync()?;
        // All of these batches have been shown then.
        self.await_earlier_writes();
        self.write_trees(files, &to_keep, complete, || Ok(self.backend.sync()?))
    }

    /// Writes the trees to their file at the end of a run, after the store was closed without an
    /// error. Nothing is written if the file has them already. Blocks.
    ///
    /// # Errors
    /// As with [`Vnode::keep_trees`].
    pub fn seal_trees(&self, files: &TreeFiles) -> Result<bool, ReplicaFailure> {
        let Some(to_keep) = self.trees_to_keep() else {
            self.remove_if_lossy(files);
            return Ok(false);
        };
        let last = self.backend.durable();
        if to_keep.trees.are_kept_at(last) {
            return Ok(true);
        }
        self.write_trees(files, &to_keep, last, || Ok(last))
    }

    /// True when whole trees differ from those in the file.
    pub fn has_trees_to_keep(&self) -> bool {
        let whole = self.trees.as_ref().filter(|it| it.whole().is_some());
        self.is_kept_over_stops() && whole.is_some_and(|trees| !trees.are_kept())
    }

    /// Notes that other properties of buckets place all keys in the same trees.
    pub fn note_placements(&self, placements: u32) {
        if let Some(trees) = &self.trees {
            trees.note_placements(placements);
        }
    }

    /// The time at which the building of the trees began, in microseconds since the Unix epoch; zero before.
    pub fn trees_begun_at(&self) -> u64 {
        let whole = self.trees.as_ref().and_then(|it| it.whole());
        whole.map_or(0, |(whole, _)| whole.origin.begun_at)
    }

    /// True when the store has lost data, or failed to read data, since the trees were built.
    /// Belongs on the blocking pool.
    pub fn has_lost_since_trees(&self) -> bool {
        let whole = self.trees.as_ref().and_then(|it| it.whole());
        whole.is_some_and(|(whole, _)| losses_of(&self.backend.status()) > whole.origin.losses)
    }

    /// The memory that the trees take, in bytes. Quick.
    pub fn trees_memory_bytes(&self) -> u64 {
        self.trees.as_ref().map_or(0, |it| it.memory_bytes())
    }

    /// The trees that can be kept now.
    fn trees_to_keep(&self) -> Option<ToKeep<'_>> {
        let trees = self.trees.as_deref()?;
        let (whole, changes) = trees.whole()?;
        // Trees without hidden entries are useless once the entries are shown again.
        let is_whole = self.is_complete() && !self.hidden.is_any() && !trees.are_in_doubt();
        if !self.is_kept_over_stops() || !is_whole {
            return None;
        }
        let status = self.backend.status();
        // Entries that the store has lost since may still be in the trees.
        let is_sound = losses_of(&status) == whole.origin.losses;
        is_sound.then_some(ToKeep {
            trees,
            whole,
            changes,
            lost: status.lost.len() as u64,
        })
    }

    fn is_kept_over_stops(&self) -> bool {
        self.backend.capabilities().persistent
    }

    /// Copies the trees, which have every batch up to `complete`, and writes them. `reach` returns
    /// a durable batch; the copy has none behind it.
    fn write_trees(
        &self,
        files: &TreeFiles,
        to_keep: &ToKeep<'_>,
        complete: Sequence,
        reach: impl FnOnce() -> Result<Sequence, ReplicaFailure>,
    ) -> Result<bool, ReplicaFailure> {
        let ToKeep { trees, whole, .. } = to_keep;
        let stamp = KeptStamp {
            store: self.backend.identity(),
            complete,
            reached: complete,
            lost: to_keep.lost,
            built_at: whole.origin.begun_at,
            placements: whole.origin.placements,
        };
        let copies = trees.encoded(stamp.of_tree());
        let stamp = KeptStamp {
            reached: reach()?,
            ..stamp
        };
        let is_same = trees.whole().is_some_and(|(now, _)| now == *whole);
        if !is_same || self.backend.identity() != stamp.store {
            return Ok(false);
        }
        let bytes = encode(&stamp, &copies);
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Ok(false);
        }
        let written = files.write(self.partition, &bytes);
        written.map_err(|error| ReplicaFailure::Storage(format!("keep the trees: {error}")))?;
        trees.note_kept(to_keep.changes, complete);
        Ok(true)
    }
}
