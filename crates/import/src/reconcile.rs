//! Merges the replicas of one object, by Riak's rules.
//!
//! A replica whose clock another replica's clock descends is outdated. The other replicas are
//! concurrent: a version stays if every other replica has it or has not seen its write. Versions
//! without a dot, from buckets that kept none, always stay.

use crate::riak_object::{RiakObject, RiakSibling};

/// Merges replicas; the result has the siblings of the first replica first. `None` without any
/// replica.
pub fn reconcile(replicas: Vec<RiakObject>) -> Option<RiakObject> {
    replicas.into_iter().reduce(merge)
}

fn merge(left: RiakObject, right: RiakObject) -> RiakObject {
    let (left_knows, right_knows) = (
        left.clock.descends(&right.clock),
        right.clock.descends(&left.clock),
    );
    match (left_knows, right_knows) {
        (true, false) => return left,
        (false, true) => return right,
        (true, true) if has_all(&left, &right) => return left,
        (true, true) if has_all(&right, &left) => return right,
        _ => {}
    }
    let mut siblings = surviving(&left, &right);
    for sibling in surviving(&right, &left) {
        if !siblings.iter().any(|kept| is_same(kept, &sibling)) {
            siblings.push(sibling);
        }
    }
    if siblings.is_empty() {
        // According to the clocks each side has superseded the other, which no sequence of writes
        // explains.
        siblings.clone_from(&left.siblings);
        siblings.extend(right.siblings.iter().cloned());
    }
    let mut clock = left.clock;
    clock.merge(&right.clock);
    RiakObject { clock, siblings }
}

fn has_all(object: &RiakObject, other: &RiakObject) -> bool {
    let has = |sibling: &RiakSibling| object.siblings.iter().any(|own| is_same(own, sibling));
    other.siblings.iter().all(has)
}

/// The siblings of `object` that `other` also has, or has not seen.
fn surviving(object: &RiakObject, other: &RiakObject) -> Vec<RiakSibling> {
    let stays = |sibling: &&RiakSibling| {
        let is_superseded = match &sibling.metadata.dot {
            Some(dot) => other.clock.contains(dot),
            None => false,
        };
        !is_superseded || other.siblings.iter().any(|theirs| is_same(theirs, sibling))
    };
    object.siblings.iter().filter(stays).cloned().collect()
}

/// True if both are the same write.
fn is_same(a: &RiakSibling, b: &RiakSibling) -> bool {
    match (&a.metadata.dot, &b.metadata.dot) {
        (Some(a), Some(b)) => a == b,
        _ => a.value == b.value && a.metadata == b.metadata,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::metadata::RiakMetadata;
    use crate::riak_object::ValueForm;
    use crate::version_vector::{RiakDot, VersionVector};

    fn dot(actor: &'static str, counter: u64) -> RiakDot {
        RiakDot {
            actor: Bytes::from_static(actor.as_bytes()),
            counter,
        }
    }

    fn sibling(value: &'static str, dot: Option<RiakDot>) -> RiakSibling {
        RiakSibling {
            metadata: RiakMetadata {
                dot,
                ..RiakMetadata::default()
            },
            value: Bytes::from_static(value.as_bytes()),
            form: ValueForm::Raw,
        }
    }

    fn object(clock: &[(&'static str, u64)], siblings: Vec<RiakSibling>) -> RiakObject {
        let mut vector = VersionVector::default();
        for (actor, counter) in clock {
            vector.observe(&dot(actor, *counter));
        }
        RiakObject {
            clock: vector,
            siblings,
        }
    }

    fn values(object: &RiakObject) -> Vec<&str> {
        let values = object.siblings.iter();
        let mut values: Vec<&str> = values
            .map(|sibling| std::str::from_utf8(&sibling.value).unwrap())
            .collect();
        values.sort_unstable();
        values
    }

    /// Merges in every order and expects the same values.
    fn merged(replicas: &[RiakObject]) -> Vec<String> {
        let forward = reconcile(replicas.to_vec()).unwrap();
        let backward = reconcile(replicas.iter().rev().cloned().collect()).unwrap();
        assert_eq!(values(&forward), values(&backward));
        assert_eq!(forward.clock, backward.clock);
        values(&forward).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_replica_that_missed_a_write_is_the_past() {
        let old = object(&[("a", 1)], vec![sibling("old", Some(dot("a", 1)))]);
        let new = object(
            &[("a", 1), ("b", 1)],
            vec![sibling("new", Some(dot("b", 1)))],
        );
        assert_eq!(merged(&[old.clone(), new, old]), ["new"]);
    }

    #[test]
    fn concurrent_versions_stay_and_what_both_have_stays_once() {
        let x = sibling("x", Some(dot("a", 1)));
        let left = object(
            &[("a", 1), ("b", 1)],
            vec![x.clone(), sibling("y", Some(dot("b", 1)))],
        );
        let right = object(
            &[("a", 1), ("c", 1)],
            vec![x, sibling("z", Some(dot("c", 1)))],
        );
        assert_eq!(merged(&[left, right]), ["x", "y", "z"]);
    }

    #[test]
    fn a_version_that_the_other_side_has_superseded_goes() {
        let left = object(
            &[("a", 1), ("b", 1)],
            vec![
                sibling("x", Some(dot("a", 1))),
                sibling("y", Some(dot("b", 1))),
            ],
        );
        let right = object(&[("a", 2)], vec![sibling("w", Some(dot("a", 2)))]);
        assert_eq!(merged(&[left, right]), ["w", "y"]);
    }

    #[test]
    fn versions_without_dots_stay_unless_they_are_equal() {
        let left = object(&[("a", 1)], vec![sibling("x", None)]);
        let right = object(&[("b", 1)], vec![sibling("y", None)]);
        let same = object(&[("c", 1)], vec![sibling("x", None)]);
        assert_eq!(merged(&[left, right, same]), ["x", "y"]);
    }

    #[test]
    fn nothing_is_lost_when_equal_clocks_hold_different_versions() {
        let left = object(&[("a", 2)], vec![sibling("x", Some(dot("a", 1)))]);
        let right = object(&[("a", 2)], vec![sibling("y", Some(dot("a", 2)))]);
        assert_eq!(merged(&[left, right]), ["x", "y"]);
    }
}
