//! Entries whose bodies cannot be read any more.
//!
//! Replicas compare heads. Damage to a body does not change its head, so no exchange finds it. When
//! a store reports damage, all of its entries are read once, and the unreadable ones are reported.

use kvorum_backend::{FoldClock, FoldRange, Lease, ReadAt, Reading};
use kvorum_encoding::StorageKey;

use crate::page::PageFailure;
use crate::replica_request::ReplicaFailure;
use crate::scanning::{ScanLimits, ScanRequest};
use crate::tree_building::losses_of;
use crate::vnode::{Interrupted, Vnode};

/// A page of entries that were read.
#[derive(Clone, Debug)]
pub struct BodyCheck {
    /// The keys whose entries are damaged.
    pub damaged: Vec<StorageKey>,
    /// The beginning of the next page; `None` when this was the last.
    pub next: Option<StorageKey>,
}

impl Vnode {
    /// Counts damaged ranges that the store has set aside, and reads that met damage. Belongs on
    /// the blocking pool.
    pub fn losses(&self) -> u64 {
        losses_of(&self.store_status())
    }

    /// Reads up to `entries_max` entries from a key on, or from the first one. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read for another reason than damage.
    pub fn check_bodies(
        &self,
        from: Option<&StorageKey>,
        clock: &FoldClock,
        lease: Lease,
        entries_max: usize,
    ) -> Result<BodyCheck, PageFailure> {
        let all = FoldRange::all();
        let request = ScanRequest {
            range: from.map_or_else(FoldRange::all, |from| all.resumed_at(from)),
            clock: clock.clone(),
            lease,
            limits: ScanLimits {
                entries_max,
                ..ScanLimits::NONE
            },
        };
        let page = self.scan::<StorageKey>(&request, &mut |_| true)?;
        let mut damaged = Vec::new();
        for key in page.entries {
            let at = ReadAt {
                now: clock.now(),
                reading: Reading::MayBlock,
            };
            match self
                .read_object(&key, at)
                .map_err(Interrupted::into_failure)
            {
                Ok(_) => {}
                Err(ReplicaFailure::Damaged(_)) => damaged.push(key),
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(BodyCheck {
            damaged,
            next: page.next,
        })
    }
}
