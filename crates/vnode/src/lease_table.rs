//! Leases: permissions for vnodes to continue under the actor of their last run.
//!
//! A dot is (actor, counter), the counter being one number for the whole vnode. Two things must
//! never happen, because each loses writes without a trace (the family of failures known as kv679):
//!
//! - The same dot is issued twice.
//! - A vnode that has lost an entry writes its key again under the same actor. The new clock counts
//!   from the actor's first dot, so it claims to have seen the lost write, and replicas that have
//!   that write drop it. No bound on counters prevents this.
//!
//! So an actor lives as long as its vnode is known to have lost nothing, and no longer. Actors are
//! random numbers, and a fresh one may be used at once. After a clean stop a vnode continues with
//! its actor and its counter, which keeps clocks short: when everything is synced,
//! [`LeaseTable::seal`] writes a lease for each vnode. The next run takes the lease back before it
//! writes anything ([`LeaseTable::renew`]), so a run that ends in a crash leaves none. A lease
//! names the store's identity and sequence. A store that was wiped, erased, rolled back or cut
//! short does not fit its lease. Its vnode gets a fresh actor, and so does a vnode without a
//! readable lease, with a damaged entry, or with a clock that has unissued dots of its actor.
//!
//! Riak starts a fresh actor for each key that is not found. A fresh actor for every run, the other
//! choice, makes the clocks of long-lived keys grow with every restart. One case is left open: a
//! whole node that is restored from a copy made after a clean stop fits its leases. The operator
//! has to remove the table first; without it all actors are fresh.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Sequence, StoreId};
use kvorum_disk::{Disk, DiskError};
use kvorum_object::ActorId;
use kvorum_planted_defects::is_planted;
use kvorum_ring::Partition;
use kvorum_runtime::Randomness;
use parking_lot::Mutex;

use crate::dot_source::DotSource;
use crate::lease_file::{self, Lease, Leases, Unreadable};

/// The name of the leases' file.
pub const LEASES_NAME: &str = "dot_leases";

/// The leases of all vnodes of a node.
pub struct LeaseTable {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    randomness: Arc<dyn Randomness>,
    /// Held over a write of the table and its sync; taken before `table`, and never while issuing dots.
    writing: Mutex<()>,
    table: Mutex<Table>,
}

struct Table {
    /// Leases of partitions not opened in this run, and of those sealed again.
    leases: Leases,
    /// Vnodes of partitions whose lease is not void yet in the file, in the order of their making.
    unready: Vec<(Partition, Arc<DotSource>)>,
}

impl LeaseTable {
    /// Reads the table of a node, or starts an empty one. An unreadable table is moved aside and
    /// reported, since fresh actors are always safe.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        randomness: Arc<dyn Randomness>,
    ) -> Result<(Self, Option<Unreadable>), DiskError> {
        let path = directory.join(LEASES_NAME);
        let (leases, unreadable) = lease_file::read(&*disk, &path)?;
        let unready = Vec::new();
        let table = Self {
            disk,
            path,
            randomness,
            writing: Mutex::new(()),
            table: Mutex::new(Table { leases, unready }),
        };
        Ok((table, unreadable))
    }

    /// The dot source of a vnode whose store has this identity and was opened at this sequence. Consumes
    /// the partition's lease; [`LeaseTable::renew`] removes all consumed leases from the file at once.
    pub fn source(
        &self,
        partition: Partition,
        store: StoreId,
        sequence: Sequence,
    ) -> Arc<DotSource> {
        let mut table = self.table.lock();
        let lease = table.leases.remove(&partition.number());
        let is_void = table.unready.iter().all(|(other, _)| *other != partition);
        let is_ready = lease.is_none() && is_void;
        let fits = |lease: &Lease| lease.store == store && lease.sequence == sequence;
        let (actor, next) = match lease.filter(fits) {
            None if is_planted!(CounterLeaseIgnored) => {
                (ActorId(1 + u64::from(partition.number())), 1)
            }
            Some(lease) => (lease.actor, lease.next),
            None => (self.fresh_actor(), 1),
        };
        let source = Arc::new(DotSource::new(store, actor, next, is_ready));
        if !is_ready {
            table.unready.push((partition, source.clone()));
        }
        source
    }

    /// The sequence at which the store of a partition was closed, if nothing was written to it since then;
    /// `None` if that is not known, or for another store. Must be called before [`LeaseTable::source`].
    pub fn closed_at(&self, partition: Partition, store: StoreId) -> Option<Sequence> {
        let table = self.table.lock();
        let lease = table.leases.get(&partition.number())?;
        (lease.store == store).then_some(lease.sequence)
    }

    /// True when a vnode waits for [`LeaseTable::renew`] before it may write.
    #[cfg(test)]
    pub(crate) fn is_renewal_due(&self) -> bool {
        !self.table.lock().unready.is_empty()
    }

    /// Takes back, durably, the leases of all vnodes made since the last call; then they may write.
    /// Blocks for a sync if there are any.
    pub fn renew(&self) -> Result<(), DiskError> {
        let _writing = self.writing.lock();
        let (bytes, count) = {
            let table = self.table.lock();
            (lease_file::encode(&table.leases), table.unready.len())
        };
        if count == 0 {
            return Ok(());
        }
        kvorum_disk::replace_file(&*self.disk, &self.path, &bytes)?;
        // Later ones are not in the written file.
        for (_, source) in self.table.lock().unready.drain(..count) {
            source.make_ready();
        }
        Ok(())
    }

    /// Lets these sources of dots continue in the next run, each from its store's durable sequence.
    pub(crate) fn seal_sources<'a>(
        &self,
        sources: impl Iterator<Item = (Partition, Sequence, &'a DotSource)>,
    ) -> Result<(), DiskError> {
        let _writing = self.writing.lock();
        let bytes = {
            let mut table = self.table.lock();
            for (partition, sequence, source) in sources {
                let (store, actor, next) = source.position();
                let lease = Lease {
                    store,
                    sequence,
                    actor,
                    next,
                };
                table.leases.insert(partition.number(), lease);
            }
            lease_file::encode(&table.leases)
        };
        kvorum_disk::replace_file(&*self.disk, &self.path, &bytes)
    }

    /// An actor that was never used.
    pub(crate) fn fresh_actor(&self) -> ActorId {
        // The reserved actor has number 0; 1 in place of 0 is as random as any other number.
        ActorId(self.randomness.next_u64().max(ActorId::CONTENT.0 + 1))
    }
}

#[cfg(test)]
#[path = "lease_table_test.rs"]
mod tests;
