//! One part of a listing, a count or a fold, read from its vnode on this node or another.

use std::time::Duration;

use kvorum_backend::{FoldClock, Lease};
use kvorum_ring::CoverageVnode;
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{PageFailure, ReplicaReply, Vnode};

use crate::coverage::{CoverageRun, PageError};
use crate::error::RequestError;

/// The form of one kind of parts, with requests `Q` and answers `A`.
pub(crate) struct PartForm<Q, A> {
    /// The message of a request.
    pub(crate) message: fn(Q) -> PeerRequest,
    /// The answer in a reply.
    pub(crate) answer: fn(ReplicaReply) -> Result<A, PageError>,
    /// The answer of a vnode of this node.
    pub(crate) read: fn(&Vnode, &Q, &FoldClock, Lease) -> Result<A, PageFailure>,
}

/// The outcome of reading a part.
pub(crate) enum PartRead<A> {
    /// The answer of the vnode.
    Answer(A),
    /// The vnodes to ask in its place.
    Instead(Vec<CoverageVnode>),
}

/// Reads a part, or finds the vnodes that have it by the present ring.
///
/// # Errors
/// Those that end the whole request.
pub(crate) async fn read_part<Q: Send + 'static, A: Send + 'static>(
    run: &mut CoverageRun,
    vnode: &CoverageVnode,
    request: Q,
    form: &PartForm<Q, A>,
) -> Result<PartRead<A>, RequestError> {
    let remaining = run.remaining()?;
    if !run.coverage.is_of_now(vnode) {
        // The vnode would refuse, and each refusal costs a pause.
        return run.cover().map(PartRead::Instead);
    }
    match ask(run, vnode, request, form, remaining).await {
        Ok(answer) => {
            run.note_answered();
            Ok(PartRead::Answer(answer))
        }
        Err(error) => {
            let cover = run.cover_without(vnode, error).await;
            cover.map(PartRead::Instead)
        }
    }
}

async fn ask<Q: Send + 'static, A: Send + 'static>(
    run: &mut CoverageRun,
    vnode: &CoverageVnode,
    request: Q,
    form: &PartForm<Q, A>,
    remaining: Duration,
) -> Result<A, PageError> {
    let (coverage, progress) = (&run.coverage, &mut run.progress);
    if !coverage.is_here(vnode) {
        let message = (form.message)(request);
        let asked = coverage
            .replicas
            .ask_peer(vnode.node, message, progress.deadline);
        return (form.answer)(asked.await?);
    }
    let (vnode, read) = (coverage.vnode(vnode.partition)?, form.read);
    let read = move |clock: &FoldClock, lease| read(&vnode, &request, clock, lease);
    let (answer, queued) = coverage.read_here(remaining, read).await?;
    progress.trace.queue += queued;
    Ok(answer?)
}
