//! Two replicas' versions of one object become one.
//!
//! The merge is commutative, associative and idempotent for all objects that came out of [`update`]
//! with unique dots, so replicas that have merged the same objects in any order are equal.
//!
//! [`update`]: crate::update

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::update::Stored;
use crate::versions::Siblings;
use crate::versions::Version;
use crate::{
    ActorId, Causality, Clock, Head, Object, Resolution, Sibling, SiblingHead, UpdateError, resolve,
};

/// The result of merging another replica's object.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once a request; a box would be an allocation"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The stored object has seen all of it already; nothing has to be written.
    Unchanged,
    /// The object to store in place of the former one.
    Changed(Object),
}

/// The source of a sibling of the result, by index.
#[derive(Clone, Copy)]
enum Pick {
    Left(usize),
    Right(usize),
    Both(usize, usize),
}

/// Merges two objects.
#[must_use]
pub fn merge(left: Object, right: Object, resolution: Resolution) -> Object {
    let newest = left.clock().newest().max(right.clock().newest());
    let mut merged = match left.clock().compare(right.clock()) {
        Causality::After => left,
        Causality::Before => right,
        Causality::Equal if same_versions(left.siblings(), right.siblings()) => left,
        Causality::Equal | Causality::Concurrent => combine(&left, &right, resolution),
    };
    merged.clock_mut().raise_newest(newest);
    resolve(merged, resolution)
}

/// Merges an object of another replica (a forwarded write, a repair, a handoff) into the stored one.
///
/// The only error is [`UpdateError::BodyNeeded`]: a stored value survives and only the head was
/// given; [`merge_needs_body`] finds out beforehand.
pub fn merge_into_stored(
    stored: Stored<'_>,
    incoming: Object,
    resolution: Resolution,
) -> Result<Merged, UpdateError> {
    match stored {
        Stored::Absent => Ok(Merged::Changed(resolve(incoming, resolution))),
        Stored::Head(head) => match relate(head.clock(), head.siblings(), &incoming) {
            Relation::Covered => Ok(Merged::Unchanged),
            Relation::Dominated => Ok(replaced(head.clock(), incoming, resolution)),
            Relation::Mixed if merge_needs_body(head, &incoming, resolution) => {
                Err(UpdateError::BodyNeeded)
            }
            Relation::Mixed => {
                let merged = combine_head(head, &incoming, resolution);
                Ok(changed(head.clock(), head.siblings(), merged))
            }
        },
        Stored::Object(object) => match relate(object.clock(), object.siblings(), &incoming) {
            Relation::Covered => Ok(Merged::Unchanged),
            Relation::Dominated => Ok(replaced(object.clock(), incoming, resolution)),
            Relation::Mixed => {
                let merged = combine(&object, &incoming, resolution);
                Ok(changed(object.clock(), object.siblings(), merged))
            }
        },
    }
}

/// True when [`merge_into_stored`] must be given the stored values, not the head alone.
pub fn merge_needs_body(stored: &Head, incoming: &Object, resolution: Resolution) -> bool {
    if !matches!(
        relate(stored.clock(), stored.siblings(), incoming),
        Relation::Mixed
    ) {
        return false;
    }
    let picks = plan(
        (stored.clock(), stored.siblings()),
        (incoming.clock(), incoming.siblings()),
        resolution,
    );
    let stored_value = |pick: &Pick| match pick {
        Pick::Left(index) => stored.siblings()[*index].value_len > 0,
        Pick::Right(_) | Pick::Both(..) => false,
    };
    picks.iter().any(stored_value)
}

/// The relation of a stored object to an incoming one.
enum Relation {
    /// It has seen all of the incoming one.
    Covered,
    /// The incoming one has seen all of it, and more.
    Dominated,
    /// They have to be compared sibling by sibling.
    Mixed,
}

fn relate<V: Version>(clock: &Clock, siblings: &[V], incoming: &Object) -> Relation {
    match clock.compare(incoming.clock()) {
        Causality::After => Relation::Covered,
        Causality::Before => Relation::Dominated,
        Causality::Equal if same_versions(siblings, incoming.siblings()) => Relation::Covered,
        Causality::Equal | Causality::Concurrent => Relation::Mixed,
    }
}

fn replaced(stored: &Clock, mut incoming: Object, resolution: Resolution) -> Merged {
    incoming.clock_mut().raise_newest(stored.newest());
    Merged::Changed(resolve(incoming, resolution))
}

/// Under equal clocks, the result may be the stored object. It must not be written again, or repair
/// would never end.
fn changed<V: Version>(clock: &Clock, siblings: &[V], merged: Object) -> Merged {
    if merged.clock() == clock && same_versions(siblings, merged.siblings()) {
        return Merged::Unchanged;
    }
    Merged::Changed(merged)
}

impl Object {
    /// True when both have seen the same writes and keep the same ones. Equal clocks alone do not
    /// suffice: if a bucket's properties changed, one replica may have kept siblings while another
    /// chose one of them.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.clock() == other.clock() && same_versions(self.siblings(), other.siblings())
    }

    /// True when this object has seen more writes than the other, or has seen the same writes and
    /// dropped siblings that the other keeps.
    pub fn is_news_to(&self, other: &Self) -> bool {
        match self.clock().compare(other.clock()) {
            Causality::Before => false,
            Causality::After | Causality::Concurrent => true,
            Causality::Equal => {
                let is_kept = |it: &Sibling| self.siblings().iter().any(|own| own.dot == it.dot);
                !other.siblings().iter().all(is_kept)
            }
        }
    }
}

/// True when both lists name the same writes. Values are not compared: a dot names one value.
fn same_versions<A: Version, B: Version>(a: &[A], b: &[B]) -> bool {
    let named = |(a, b): (&A, &B)| {
        a.dot() == b.dot() && a.metadata().last_modified == b.metadata().last_modified
    };
    a.len() == b.len() && a.iter().zip(b).all(named)
}

fn combine(left: &Object, right: &Object, resolution: Resolution) -> Object {
    let (left_siblings, right_siblings) = (left.siblings(), right.siblings());
    let picks = plan(
        (left.clock(), left_siblings),
        (right.clock(), right_siblings),
        resolution,
    );
    let siblings = picks.into_iter().map(|pick| match pick {
        Pick::Left(index) => left_siblings[index].clone(),
        Pick::Right(index) => right_siblings[index].clone(),
        Pick::Both(a, b) => later(&left_siblings[a], &right_siblings[b]).clone(),
    });
    joined(left.clock(), right.clock(), siblings.collect())
}

/// Like [`combine`], when no stored value survives that the incoming object does not have.
fn combine_head(stored: &Head, incoming: &Object, resolution: Resolution) -> Object {
    let picks = plan(
        (stored.clock(), stored.siblings()),
        (incoming.clock(), incoming.siblings()),
        resolution,
    );
    let siblings = picks.into_iter().map(|pick| match pick {
        Pick::Left(index) => {
            SiblingHead::into_sibling_without_value(stored.siblings()[index].clone())
        }
        Pick::Right(index) => incoming.siblings()[index].clone(),
        Pick::Both(a, b) => {
            let mut sibling = incoming.siblings()[b].clone();
            let last_modified = stored.siblings()[a].metadata.last_modified;
            sibling.metadata.last_modified = sibling.metadata.last_modified.max(last_modified);
            sibling
        }
    });
    joined(stored.clock(), incoming.clock(), siblings.collect())
}

fn joined(left: &Clock, right: &Clock, siblings: Siblings<Sibling>) -> Object {
    let mut clock = left.clone();
    clock.merge(right);
    Object::new(clock, siblings)
}

/// Copies of one write are equal, except for the time of a value stored under a client's clock. If
/// they differ otherwise, every replica still has to choose the same copy.
fn later<'a>(left: &'a Sibling, right: &'a Sibling) -> &'a Sibling {
    let order = (left.rank().cmp(&right.rank()))
        .then_with(|| left.value.cmp(&right.value))
        .then_with(|| left.metadata.cmp(&right.metadata));
    if order == Ordering::Less { right } else { left }
}

/// The siblings that stay: those of both sides, and those that the other side has not seen.
fn plan<A: Version, B: Version>(
    left: (&Clock, &[A]),
    right: (&Clock, &[B]),
    resolution: Resolution,
) -> SmallVec<[Pick; 2]> {
    let (left_clock, left) = left;
    let (right_clock, right) = right;
    let mut picks = walk(
        left,
        right,
        |version| !sees(right_clock, version.dot()),
        |version| !sees(left_clock, version.dot()),
    );
    if picks.is_empty() {
        // Each side claims to have superseded the other: no sequence of writes leads there. Keep
        // everything rather than nothing.
        picks = walk(left, right, |_| true, |_| true);
    }
    if resolution.keeps_one() {
        let rank = |pick: &Pick| match *pick {
            Pick::Left(index) => left[index].rank(),
            Pick::Right(index) => right[index].rank(),
            Pick::Both(a, b) => left[a].rank().max(right[b].rank()),
        };
        picks = picks.into_iter().max_by_key(rank).into_iter().collect();
    }
    picks
}

fn sees(clock: &Clock, dot: crate::Dot) -> bool {
    dot.actor != ActorId::CONTENT && clock.contains(dot)
}

/// Walks two lists by ascending dot; shared dots are kept, the closures decide about the others.
fn walk<A: Version, B: Version>(
    left: &[A],
    right: &[B],
    keep_left: impl Fn(&A) -> bool,
    keep_right: impl Fn(&B) -> bool,
) -> SmallVec<[Pick; 2]> {
    let mut picks = SmallVec::new();
    let (mut a, mut b) = (0, 0);
    while a < left.len() || b < right.len() {
        let order = match (left.get(a), right.get(b)) {
            (Some(left), Some(right)) => left.dot().cmp(&right.dot()),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less if keep_left(&left[a]) => picks.push(Pick::Left(a)),
            Ordering::Greater if keep_right(&right[b]) => picks.push(Pick::Right(b)),
            Ordering::Equal => picks.push(Pick::Both(a, b)),
            Ordering::Less | Ordering::Greater => {}
        }
        a += usize::from(order != Ordering::Greater);
        b += usize::from(order != Ordering::Less);
    }
    picks
}
