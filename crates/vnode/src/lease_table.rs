//! The durable lease of dots: which counters each vnode of this node may use without asking.
//!
//! A dot is (actor, counter), the counter being one number for the whole vnode. Issuing the same dot
//! twice loses writes without a trace (the family of failures known as kv679), so a vnode issues only
//! counters that lie below a bound which is already on disk. After a restart it goes on at the bound;
//! the counters between are never used, which costs nothing with 64 bits.
//!
//! One table serves all vnodes of a node: a renewal is one small file replaced, whatever the number of
//! vnodes. Each lease names the [`StoreId`] it was made for. A store that was wiped, erased or rebuilt
//! has another identity and gets a fresh actor; a store put back to an older copy keeps its identity,
//! and its counters still go on above everything that was ever issued, since the bound is not kept
//! with the copy. A table that cannot be read is set aside, and every vnode gets a fresh actor.
//!
//! What the table cannot notice by itself is that it was put back to an older copy together with the
//! stores. A vnode notices when it meets a clock that knows more of its actor than it does itself, and
//! takes a fresh actor then; whoever restores a whole node removes the table to be sure beforehand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_object::{ActorId, Clock, Dot};
use kvorum_ring::Partition;
use kvorum_runtime::Randomness;
use parking_lot::Mutex;

use crate::dot_source::{DotSource, NoDot};
use crate::lease_file::{self, Leases, Unreadable};

/// The leases of all vnodes of a node.
pub struct LeaseTable {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    randomness: Arc<dyn Randomness>,
    /// Held over a renewal and its sync. Taken before `table`, never by who issues dots.
    renewing: Mutex<()>,
    table: Mutex<Table>,
}

struct Table {
    /// What the file says, or may say once a renewal under way is done: a source made for the same
    /// store starts at the bound given here.
    leases: Leases,
    sources: BTreeMap<u16, Arc<DotSource>>,
}

/// Why there is no dot.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The table could not be written. Mend the disk, then try again.
    #[error("renew the dot leases: {0}")]
    Disk(#[from] DiskError),
    /// Another source has been made for the partition since: the vnode that asks has been replaced.
    #[error("the vnode has been replaced by another of its partition")]
    Replaced,
}

impl LeaseTable {
    /// Reads the table of a node, or starts an empty one. An unreadable table is moved aside and
    /// reported, since fresh actors are always safe.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        randomness: Arc<dyn Randomness>,
    ) -> Result<(Self, Option<Unreadable>), DiskError> {
        let path = directory.join("dot_leases");
        let (leases, unreadable) = lease_file::read(&*disk, &path)?;
        let sources = BTreeMap::new();
        let table = Self {
            disk,
            path,
            randomness,
            renewing: Mutex::new(()),
            table: Mutex::new(Table { leases, sources }),
        };
        Ok((table, unreadable))
    }

    /// The dot source of a vnode, in place of any earlier one of the partition. It has no counters
    /// yet: [`LeaseTable::renew`] gives it some, for all vnodes at once. Never waits for a renewal.
    pub fn source(&self, partition: Partition, store: StoreId) -> Arc<DotSource> {
        let mut table = self.table.lock();
        let kept = table.leases.get(&partition.number());
        let (actor, next) = match kept.filter(|lease| lease.store == store) {
            Some(lease) => (lease.actor, lease.bound),
            None => (self.fresh_actor(), 1),
        };
        let source = Arc::new(DotSource::new(store, actor, next));
        table.sources.insert(partition.number(), source.clone());
        source
    }

    /// True when a vnode has used half of its lease.
    pub fn is_renewal_due(&self) -> bool {
        let table = self.table.lock();
        table.sources.values().any(|source| source.is_renewal_due())
    }

    /// Extends every lease, durably. Blocks for a sync.
    pub fn renew(&self) -> Result<(), DiskError> {
        let _renewing = self.renewing.lock();
        self.renew_alone()
    }

    /// The next dot of a vnode, after a renewal if its lease is used up, and under a fresh actor if
    /// one of the clocks in `seen` knows dots of the present one that the vnode does not. Blocks for a
    /// sync in these two cases.
    pub fn next_dot(
        &self,
        source: &Arc<DotSource>,
        store: StoreId,
        seen: &[&Clock],
    ) -> Result<Dot, LeaseError> {
        if let Ok(dot) = source.next_beyond(seen) {
            return Ok(dot);
        }
        let _renewing = self.renewing.lock();
        loop {
            // Another thread may have renewed while this one waited.
            match source.next_beyond(seen) {
                Ok(dot) => return Ok(dot),
                Err(NoDot::Overtaken) => source.change_actor(store, self.fresh_actor()),
                Err(NoDot::LeaseUsedUp) => {}
            }
            if !self.is_present(source) {
                return Err(LeaseError::Replaced);
            }
            self.renew_alone()?;
        }
    }

    /// Gives a vnode a fresh actor if a clock knows dots of the present one that the vnode does not.
    /// Blocks for a sync then.
    pub fn leave_overtaken_actor(
        &self,
        source: &DotSource,
        store: StoreId,
        seen: &Clock,
    ) -> Result<(), DiskError> {
        let _renewing = self.renewing.lock();
        if !source.is_overtaken_by(seen) {
            return Ok(());
        }
        source.change_actor(store, self.fresh_actor());
        self.renew_alone()
    }

    /// The caller holds `renewing`.
    fn renew_alone(&self) -> Result<(), DiskError> {
        let (bytes, proposals) = {
            let mut table = self.table.lock();
            let Table { leases, sources } = &mut *table;
            let mut proposals = Vec::with_capacity(sources.len());
            for (partition, source) in sources.iter() {
                let lease = source.proposed();
                leases.insert(*partition, lease);
                proposals.push((source.clone(), lease));
            }
            (lease_file::encode(leases), proposals)
        };
        kvorum_disk::replace_file(&*self.disk, &self.path, &bytes)?;
        for (source, lease) in proposals {
            source.grant(lease);
        }
        Ok(())
    }

    fn is_present(&self, source: &Arc<DotSource>) -> bool {
        let table = self.table.lock();
        table
            .sources
            .values()
            .any(|other| Arc::ptr_eq(other, source))
    }

    fn fresh_actor(&self) -> ActorId {
        // The reserved actor has number 0; one more than 0 is as random as any other.
        ActorId(self.randomness.next_u64().max(ActorId::CONTENT.0 + 1))
    }
}

#[cfg(test)]
#[path = "lease_table_test.rs"]
mod tests;
