//! One part of a listing, as it is asked of one vnode, wherever it runs.

use kvorum_backend::{Flow, FoldClock, FoldEnd, Lease};
use kvorum_encoding::{Address, StorageKey};
use kvorum_ring::position;

use crate::folding::FoldRequest;
use crate::page_request::{Page, PageKind, PageRequest};
use crate::replica_request::ReplicaFailure;
use crate::vnode::Vnode;

/// Keys of a part, in bytes; one key may exceed it.
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
        let fold = FoldRequest {
            epoch: request.epoch,
            range: request.range.clone(),
            clock: clock.clone(),
            lease,
        };
        let names_max = usize::try_from(request.names_max)
            .unwrap_or(usize::MAX)
            .max(1);
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
            PageKind::Keys => self.fold_keys(&fold, visitor),
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
}

impl PageRequest {
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
