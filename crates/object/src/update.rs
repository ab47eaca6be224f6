//! A client's write at the vnode that coordinates it.
//!
//! One write takes exactly one dot. Values that the client had seen are superseded. Values that it
//! had not seen stay beside the new one, unless the bucket keeps only the newest.

use crate::versions::Siblings;
use crate::versions::Version;
use crate::{
    ActorId, Clock, Content, Dot, Head, Object, Resolution, Sibling, SiblingHead, Timestamp,
};

/// The object of the coordinating vnode, or of a replica, under the key.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once a request; a box would be an allocation"
)]
#[derive(Clone, Debug)]
pub enum Stored<'a> {
    /// Nothing.
    Absent,
    /// An object whose values were not read.
    Head(&'a Head),
    /// An object.
    Object(Object),
}

/// A client's write.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The client's context; a fresh clock for a blind write.
    pub context: &'a Clock,
    /// The content to store.
    pub content: Content,
    /// A dot that the vnode has never issued before.
    pub dot: Dot,
    /// Wall-clock time.
    pub now: Timestamp,
    /// The bucket's resolution of concurrent versions.
    pub resolution: Resolution,
}

/// The write cannot be carried out with these arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Stored values survive and were not read: read the body and call again.
    #[error("stored values survive the write and were not given")]
    BodyNeeded,
    /// The stored clock or the client's has seen this dot, so it is not fresh: the vnode has lost
    /// the record of dots that it issued. Take a new actor and call again.
    #[error("dot {dot} is not fresh, {seen} has been seen from its actor")]
    DotNotFresh {
        /// The dot given.
        dot: Dot,
        /// The highest counter seen from its actor.
        seen: u64,
    },
    /// The dot's actor is [`ActorId::CONTENT`], which no vnode may have: a bug in the caller.
    #[error("dot {dot} has the reserved actor")]
    ActorReserved {
        /// The dot given.
        dot: Dot,
    },
}

/// Carries out a write: the object to store, and to send to the other replicas.
///
/// The new clock covers the stored clock, the context and the new dot. A context that the stored
/// clock does not descend is normal: the client read from a replica that had seen more.
///
/// The new value is stamped `now`, or just after the newest time in the stored clock and the context, if the
/// wall clock has fallen behind: it is newer than all versions that it supersedes, and newer than all
/// siblings of its coordinator. This holds for every bucket, so that its resolution may change later.
///
/// Under [`Resolution::NewestWins`] the head suffices always, yet it has to be given: without it a
/// wall clock that steps back would let an older write win. Under [`Resolution::WrittenOnce`] it need not be
/// given, at that price.
pub fn update(stored: Stored<'_>, write: Write<'_>) -> Result<Object, UpdateError> {
    let Write {
        context,
        content,
        dot,
        now,
        resolution,
    } = write;
    let (mut clock, siblings) = survivors(stored, context, resolution)?;
    clock.merge(context);
    add(clock, siblings, content, (dot, now))
}

/// Adds a sibling of a fresh dot to those that stay.
fn add(
    mut clock: Clock,
    mut siblings: Siblings<Sibling>,
    content: Content,
    (dot, now): (Dot, Timestamp),
) -> Result<Object, UpdateError> {
    if dot.actor == ActorId::CONTENT {
        return Err(UpdateError::ActorReserved { dot });
    }
    if clock.contains(dot) {
        return Err(UpdateError::DotNotFresh {
            dot,
            seen: clock.get(dot.actor),
        });
    }
    let Content {
        mut metadata,
        value,
    } = content;
    metadata.last_modified = now.max(clock.newest().next());
    clock.observe(dot, metadata.last_modified);
    let place = siblings.partition_point(|sibling| sibling.dot < dot);
    siblings.insert(
        place,
        Sibling {
            dot,
            metadata,
            value,
        },
    );
    Ok(Object::new(clock, siblings))
}

/// A write that replaces siblings by content that was made from them.
#[derive(Clone, Debug)]
pub struct Succession {
    /// The content that replaces the siblings.
    pub content: Content,
    /// A dot that the vnode has never issued before.
    pub dot: Dot,
    /// Wall-clock time.
    pub now: Timestamp,
}

/// Replaces siblings by content that was made from them; the others stay.
///
/// `stored` has all its values, and `is_taken_up` selects the siblings that the content was made from:
/// replicas that have one of them drop it when they get the result. Time and clock are as in [`update`].
///
/// # Errors
/// [`UpdateError`], except [`UpdateError::BodyNeeded`].
pub fn succeed(
    stored: Option<Object>,
    is_taken_up: impl Fn(&Sibling) -> bool,
    succession: Succession,
) -> Result<Object, UpdateError> {
    let (clock, mut siblings) = match stored {
        None => (Clock::new(), Siblings::new()),
        Some(object) => object.into_sibling_list(),
    };
    siblings.retain(|sibling| !is_taken_up(sibling));
    let Succession { content, dot, now } = succession;
    add(clock, siblings, content, (dot, now))
}

/// True when [`update`] must be given the stored values, not the head alone.
pub fn update_needs_body(stored: &Head, context: &Clock, resolution: Resolution) -> bool {
    let mut surviving = surviving(stored.siblings(), stored.clock(), context, resolution);
    surviving.any(|sibling| sibling.value_len > 0)
}

/// The stored clock, and the stored siblings that survive the write.
fn survivors(
    stored: Stored<'_>,
    context: &Clock,
    resolution: Resolution,
) -> Result<(Clock, Siblings<Sibling>), UpdateError> {
    match stored {
        Stored::Absent => Ok((Clock::new(), Siblings::new())),
        Stored::Head(head) if update_needs_body(head, context, resolution) => {
            Err(UpdateError::BodyNeeded)
        }
        Stored::Head(head) => {
            let clock = head.clock();
            let siblings = surviving(head.siblings(), clock, context, resolution)
                .cloned()
                .map(SiblingHead::into_sibling_without_value);
            Ok((clock.clone(), siblings.collect()))
        }
        Stored::Object(object) => {
            let (clock, mut siblings) = object.into_sibling_list();
            siblings.retain(|sibling| survives(sibling, &clock, context, resolution));
            Ok((clock, siblings))
        }
    }
}

fn surviving<'a, V: Version>(
    siblings: &'a [V],
    stored_clock: &'a Clock,
    context: &'a Clock,
    resolution: Resolution,
) -> impl Iterator<Item = &'a V> {
    siblings
        .iter()
        .filter(move |sibling| survives(*sibling, stored_clock, context, resolution))
}

/// True for a sibling that the client had not seen, if the bucket keeps siblings.
fn survives(
    sibling: &impl Version,
    stored_clock: &Clock,
    context: &Clock,
    resolution: Resolution,
) -> bool {
    let dot = sibling.dot();
    // A value without a dot of its own has been seen by a client that has seen all of its object.
    let seen = match dot.actor {
        ActorId::CONTENT => context.descends(stored_clock),
        _ => context.contains(dot),
    };
    resolution == Resolution::KeepSiblings && !seen
}
