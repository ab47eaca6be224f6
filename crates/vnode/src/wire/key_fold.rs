//! Parts of folds over keys as bytes. The forms of question and findings are drawn in `kvorum-key-folds`.

use std::sync::Arc;

use bytes::BufMut as _;
use kvorum_key_folds::{Findings, KeyFold};
use kvorum_ring::{Epoch, KeyHash, Partition};

use super::message::{Reader, WireError, put_owners, put_place};
use crate::key_fold_request::{KeyFoldPart, KeyFoldRequest};

/// The rest of a request, behind its beginning.
///
/// ```text
/// hash u8 (0 standard, 1 bucket only), ring size u16, owners as in a page,
/// place, question
/// place = is_there u8, of 1 a key: varint length, bytes
/// ```
pub(super) fn put_key_fold_request(out: &mut Vec<u8>, request: &KeyFoldRequest) {
    out.put_u8(u8::from(request.hash == KeyHash::BucketOnly));
    out.put_u16_le(request.size.get());
    put_owners(out, request.owners.as_deref());
    put_place(out, request.from.as_ref());
    request.fold.encode(out);
}

/// The rest of an answer, behind its beginning.
///
/// ```text
/// place, as in the request; findings
/// ```
pub(super) fn put_key_fold_part(out: &mut Vec<u8>, part: &KeyFoldPart) {
    put_place(out, part.next.as_ref());
    part.findings.encode(out);
}

impl Reader<'_> {
    pub(super) fn key_fold_request(
        &mut self,
        partition: Partition,
        epoch: Epoch,
    ) -> Result<KeyFoldRequest, WireError> {
        let hash = self.key_hash()?;
        let size = self.ring_size()?;
        let owners = self.owners()?;
        let from = self.place()?;
        let fold = Arc::new(KeyFold::decode(&mut self.bytes)?);
        Ok(KeyFoldRequest {
            partition,
            epoch,
            hash,
            size,
            owners,
            fold,
            from,
        })
    }

    pub(super) fn key_fold_part(&mut self) -> Result<KeyFoldPart, WireError> {
        let next = self.place()?;
        let findings = Findings::decode(&mut self.bytes)?;
        Ok(KeyFoldPart { findings, next })
    }
}
