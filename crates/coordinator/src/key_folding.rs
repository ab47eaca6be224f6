//! Folds over the keys of a bucket, on the vnodes of a coverage plan.
//!
//! As in listings, vnodes are read one after the other, each in parts, each part on a snapshot of
//! its own. An entry that does not change during the fold is found once, in one replica.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kvorum_encoding::StorageKey;
use kvorum_key_folds::{Findings, KeyFold};
use kvorum_ring::CoverageVnode;
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{KeyFoldPart, KeyFoldRequest, ReplicaReply, Vnode};

use crate::coverage::{Coverage, CoverageRun, in_place_of, owners_of};
use crate::error::RequestError;
use crate::gate::{Gate, OwnPass};
use crate::part_reading::{PartForm, PartRead, read_part};
use crate::replicas::no_reply;
use crate::request::BucketOrType;
use crate::trace::RequestKind;

/// The most memory of a fold that is answered in one piece, in bytes. A longer list is refused;
/// clients can request it by ranges of keys.
const ANSWER_BYTES_MAX: usize = 128 << 20;

const FORM: PartForm<KeyFoldRequest, KeyFoldPart> = PartForm {
    message: PeerRequest::KeyFold,
    answer: |reply| match reply {
        ReplicaReply::Folded(part) => Ok(*part),
        ReplicaReply::Failed(failure) => Err(failure.into()),
        _ => Err(no_reply().into()),
    },
    read: Vnode::key_fold_part,
};

/// A fold in progress through the vnodes.
pub(crate) struct KeyFolding {
    run: CoverageRun,
    fold: Arc<KeyFold>,
    parts: VecDeque<Part>,
    _counted: OwnPass,
}

/// The unread keys of one vnode.
struct Part {
    vnode: CoverageVnode,
    /// The first key; `None` for the beginning of the scope.
    from: Option<StorageKey>,
}

impl KeyFolding {
    /// Begins a fold.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        fold: KeyFold,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let scope = &fold.scope;
        let place = BucketOrType::new(&scope.bucket_type, Some(&scope.bucket));
        let kind = RequestKind::KeyFold;
        let (run, counted, cover) = CoverageRun::begin(coverage, gate, kind, place, timeout)?;
        let part = |vnode| Part { vnode, from: None };
        let parts = match scope.is_empty() {
            true => VecDeque::new(),
            false => cover.into_iter().map(part).collect(),
        };
        Ok(Self {
            run,
            fold: Arc::new(fold),
            parts,
            _counted: counted,
        })
    }

    /// The findings of the next part; `None` behind the last one.
    pub(crate) async fn next(&mut self) -> Option<Result<Findings, RequestError>> {
        while let Some(part) = self.parts.pop_front() {
            match self.read_part(part).await {
                Ok(None) => {}
                Ok(Some(findings)) => return Some(Ok(findings)),
                Err(error) => return Some(Err(self.ended_by(error))),
            }
        }
        None
    }

    /// The findings of all parts together; lists are in the order of keys.
    pub(crate) async fn whole(mut self) -> Result<Findings, RequestError> {
        let mut whole = Findings::default();
        while let Some(found) = self.next().await {
            whole.merge(found?);
            if whole.memory_bytes() > ANSWER_BYTES_MAX {
                let bytes_max = ANSWER_BYTES_MAX as u64;
                return Err(self.ended_by(RequestError::AnswerTooLarge { bytes_max }));
            }
        }
        whole.sort();
        Ok(whole)
    }

    fn ended_by(&mut self, error: RequestError) -> RequestError {
        self.parts.clear();
        self.run.error = Some(error.clone());
        error
    }

    /// `None` when other vnodes are asked instead.
    async fn read_part(&mut self, part: Part) -> Result<Option<Findings>, RequestError> {
        let request = self.request(&part);
        match read_part(&mut self.run, &part.vnode, request, &FORM).await? {
            PartRead::Answer(KeyFoldPart { findings, next }) => {
                if next.is_some() {
                    let vnode = part.vnode;
                    self.parts.push_front(Part { vnode, from: next });
                }
                Ok(Some(findings))
            }
            PartRead::Instead(cover) => {
                self.take_over(&part, cover);
                Ok(None)
            }
        }
    }

    fn request(&self, part: &Part) -> KeyFoldRequest {
        let (run, vnode) = (&self.run, &part.vnode);
        KeyFoldRequest {
            partition: vnode.partition,
            epoch: vnode.epoch,
            hash: run.hash,
            size: run.size,
            owners: owners_of(vnode),
            fold: self.fold.clone(),
            from: part.from.clone(),
        }
    }

    /// Assigns the rest of a part to the vnodes of another cover.
    fn take_over(&mut self, part: &Part, cover: Vec<CoverageVnode>) {
        for vnode in in_place_of(&part.vnode, cover).rev() {
            let from = part.from.clone();
            self.parts.push_front(Part { vnode, from });
        }
    }
}
