//! One part of a listing from one vnode, on any node.

use kvorum_backend::{Flow, FoldClock, FoldEnd, Lease};
use kvorum_encoding::{Address, StorageKey, StorageKeyError};
use kvorum_ring::position;

use crate::folding::FoldRequest;
use crate::page_request::{CountPage, Page, PageKind, PageRequest};
use crate::replica_request::ReplicaFailure;
use crate::vnode::Vnode;

/// The most bytes of keys in a part; one key may exceed it.
const PART_BYTES_MAX: usize = 1 << 20;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageFailure {
    /// The lease on the snapshot ran out first.
    OutOfTime,
    /// The vnode refused or failed.
    Failed(ReplicaFailure),
}

impl From<ReplicaFailure> for PageFailure {
    fn from(failure: ReplicaFailure) -> Self {
        Self::Failed(failure)
    }
}

impl Vnode {
    /// Reads a part of a listing, on a snapshot of its own. Blocks.
    pub fn page(
        &self,
        request: &PageRequest,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<Page, PageFailure> {
        let fold = request.fold(clock, lease);
        let names_max = request.names_max();
        let (mut keys, mut key_bytes) = (Vec::new(), 0);
        let mut malformed = None;
        let visitor = &mut |key: &StorageKey| {
            match key.decode() {
                Ok(address) if request.admits(&address) => {
                    key_bytes += key.as_bytes().len();
                    keys.push(key.clone());
                }
                Ok(_) => {}
                Err(error) => malformed = Some(error),
            }
            if keys.len() < names_max && key_bytes < PART_BYTES_MAX {
                Flow::Continue
            } else {
                Flow::Stop
            }
        };
        let end = match request.kind {
            PageKind::Buckets => self.fold_buckets(&fold, visitor),
            PageKind::Keys | PageKind::Count => self.fold_keys(&fold, visitor),
        }?;
        if let Some(error) = malformed {
            return Err(ReplicaFailure::Storage(error.to_string()).into());
        }
        match end {
            FoldEnd::Complete => Ok(Page { keys, next: None }),
            FoldEnd::Stopped(next) => Ok(Page {
                keys,
                next: Some(next),
            }),
            FoldEnd::LeaseExpired(_) => Err(PageFailure::OutOfTime),
        }
    }

    /// Counts the keys of a part of a listing, on a snapshot of its own. Neither objects nor heads
    /// are read, and the part ends after `names_max` keys, wanted or not. Blocks.
    pub fn count_page(
        &self,
        request: &PageRequest,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<CountPage, PageFailure> {
        let keys_max = request.names_max();
        let (mut keys, mut looked_at, mut malformed) = (0, 0, None);
        let visitor = &mut |key: &StorageKey| {
            looked_at += 1;
            match request.wants(key) {
                Ok(is_wanted) => keys += u64::from(is_wanted),
                Err(error) => malformed = Some(error),
            }
            if looked_at < keys_max && malformed.is_none() {
                Flow::Continue
            } else {
                Flow::Stop
            }
        };
        let end = self.fold_keys(&request.fold(clock, lease), visitor)?;
        if let Some(error) = malformed {
            return Err(ReplicaFailure::Storage(error.to_string()).into());
        }
        match end {
            FoldEnd::Complete => Ok(CountPage { keys, next: None }),
            FoldEnd::Stopped(next) => Ok(CountPage {
                keys,
                next: Some(next),
            }),
            FoldEnd::LeaseExpired(_) => Err(PageFailure::OutOfTime),
        }
    }
}

impl PageRequest {
    fn fold(&self, clock: &FoldClock, lease: Lease) -> FoldRequest {
        FoldRequest {
            epoch: self.epoch,
            range: self.range.clone(),
            clock: clock.clone(),
            lease,
        }
    }

    fn names_max(&self) -> usize {
        let names_max = usize::try_from(self.names_max);
        names_max.unwrap_or(usize::MAX).max(1)
    }

    /// True for a key that the vnode answers for. The key is decoded only if the request names owners.
    fn wants(&self, key: &StorageKey) -> Result<bool, StorageKeyError> {
        match self.owners {
            None => Ok(true),
            Some(_) => key.decode().map(|address| self.admits(&address)),
        }
    }

    /// True for names that the vnode answers for. A bucket is reported by every vnode that has it.
    fn admits(&self, address: &Address) -> bool {
        let Some(owners) = &self.owners else {
            return true;
        };
        if self.kind == PageKind::Buckets {
            return true;
        }
        let Address {
            bucket_type,
            bucket,
            key,
        } = address;
        let owner = position(bucket_type, bucket, key, self.hash).owner(self.size);
        owners.contains(&owner)
    }
}
