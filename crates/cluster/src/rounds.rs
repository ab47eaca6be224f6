//! The agreed part of rounds, by which tombstones go: watermarks of preference lists, the epoch that ends
//! rounds, and the keys of which old copies may have been left behind.
//!
//! A round proves that the replicas of a list hold a tombstone. It proves nothing about a vnode that has
//! left the list, and such a vnode may come back with its old entries. So the state keeps for each list
//! whether a vnode has left it, and for each bucket whether its keys have left vnodes. Such copies are not
//! removed yet, so tombstones of those keys stay.
//!
//! The state of a cluster that an earlier version founded has none of this: the copies left behind are
//! unknown, and its tombstones stay. The record cannot begin with the next command either. Members that
//! have restored snapshots of different times would begin at different commands, and their states would
//! differ.
//!
//! Decision 37 has the rule.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, KeyFunction};
use kvorum_reaping::{AgreedRounds, ListName, RoundName, Watermark};
use kvorum_ring::{Partition, Ring};

use crate::content::Content;
use crate::round_record::{Keys, RoundRefusal};
use crate::state::ClusterState;

/// The bucket properties that decide the replicas of a bucket's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Placement {
    hash: KeyFunction,
    n_val: u32,
}

impl Placement {
    fn of(properties: &BucketProperties) -> Self {
        Self {
            hash: properties.chash_keyfun,
            n_val: properties.n_val,
        }
    }

    /// True when keys may have left vnodes for this placement, of lists with so many replicas.
    fn leaves_copies_of(self, before: Self, replicas_max: u16) -> bool {
        let had = before.n_val.min(u32::from(replicas_max));
        self.hash != before.hash || self.n_val < had
    }
}

impl Content {
    pub(crate) fn announce_round(
        &mut self,
        state: &ClusterState,
        list: ListName,
        round: RoundName,
    ) -> Result<(), RoundRefusal> {
        state.may_announce(list)?;
        let rounds = self.rounds.as_mut().ok_or(RoundRefusal::NotFollowed)?;
        let agreed = rounds.lists.entry(list).or_default();
        *agreed = agreed.announce(round)?;
        Ok(())
    }

    pub(crate) fn raise_watermark(
        &mut self,
        list: ListName,
        watermark: Watermark,
    ) -> Result<(), RoundRefusal> {
        let rounds = self.rounds.as_mut().ok_or(RoundRefusal::NotFollowed)?;
        let agreed = rounds.lists.get_mut(&list);
        let agreed = agreed.ok_or(RoundRefusal::NoSuchList(list))?;
        *agreed = agreed.raise(watermark, rounds.epoch)?;
        Ok(())
    }
}

impl ClusterState {
    /// Differs whenever ring, members or the places of keys do; `None` where tombstones stay in any case.
    pub fn rounds_epoch(&self) -> Option<u64> {
        self.content.rounds.as_ref().map(|it| it.epoch)
    }

    /// The lists of which a round was announced.
    pub fn rounds(&self) -> impl Iterator<Item = (ListName, &AgreedRounds)> {
        let rounds = self.content.rounds.iter();
        rounds.flat_map(|it| it.lists.iter().map(|(list, agreed)| (*list, agreed)))
    }

    /// The watermark of a list.
    pub fn watermark(&self, list: ListName) -> Option<&Watermark> {
        let rounds = self.content.rounds.as_ref()?;
        rounds.lists.get(&list)?.watermark.as_ref()
    }

    /// The epoch in which a vnode came to the lists of an owner partition; zero if it was always there.
    pub fn joined_lists(&self, owner: Partition, vnode: Partition) -> u64 {
        let rounds = self.content.rounds.as_ref();
        let joined = rounds.and_then(|it| it.joined.get(&(owner, vnode)));
        joined.copied().unwrap_or(0)
    }

    /// True when old copies of a bucket's keys may be where no list of the bucket has a replica: its
    /// tombstones stay.
    pub fn may_have_old_copies(&self, bucket_type: &BucketType, bucket: &Bucket) -> bool {
        let Some(rounds) = &self.content.rounds else {
            return true;
        };
        if rounds.left_keys.is_empty() {
            return false;
        }
        let bucket_type = match bucket_type.is_default() {
            true => BucketType::default_type(),
            false => bucket_type.clone(),
        };
        let of_type = (bucket_type.clone(), None);
        let of_bucket = (bucket_type, Some(bucket.clone()));
        rounds.left_keys.contains(&of_type) || rounds.left_keys.contains(&of_bucket)
    }

    /// True if a round of a list may be announced now.
    ///
    /// # Errors
    /// The reason if it may not.
    pub fn may_announce(&self, list: ListName) -> Result<(), RoundRefusal> {
        let rounds = self.content.rounds.as_ref();
        let rounds = rounds.ok_or(RoundRefusal::NotFollowed)?;
        let ring = self.ring();
        let owner = ring.size().partition(list.partition);
        let is_used = self.n_vals().contains(&u32::from(list.n_val));
        let owner = owner.filter(|_| is_used);
        let owner = owner.ok_or(RoundRefusal::NoSuchList(list))?;
        if ring.replicas_max() < 2 {
            return Err(RoundRefusal::NoReplicas);
        }
        let vnodes = ring.vnodes_of(owner);
        let moves = |vnode: &Partition| ring.moves().contains_key(vnode);
        if ring.growth().is_some() || vnodes.iter().any(moves) {
            return Err(RoundRefusal::InMotion);
        }
        match rounds.left_lists.contains(&owner) {
            true => Err(RoundRefusal::OldCopies(owner)),
            false => Ok(()),
        }
    }

    /// Notes the changes since the state before: the epoch, and vnodes that lists and keys have left.
    pub(crate) fn note_places_since(&mut self, before: &Self) {
        let placements = match self.has_same_properties(before) {
            true => None,
            false => Some((before.placements(), self.placements())),
        };
        let has_new_ring = self.content.ring != before.content.ring;
        let has_new_members = !self.members().keys().eq(before.members().keys());
        let has_new_places = placements.as_ref().is_some_and(|it| it.0 != it.1);
        if !(has_new_ring || has_new_members || has_new_places) {
            return;
        }
        let (version, ring) = (self.version(), self.ring().clone());
        let Some(rounds) = &mut self.content.rounds else {
            return;
        };
        rounds.epoch = version;
        let joined = vnodes_new(before.ring(), &ring).map(|it| (it, version));
        rounds.joined.extend(joined);
        rounds.left_lists.extend(lists_left(before.ring(), &ring));
        if let Some((before, after)) = placements {
            let replicas_max = replicas_max(&ring);
            rounds
                .left_keys
                .extend(keys_left(&before, &after, replicas_max));
        }
    }

    fn has_same_properties(&self, other: &Self) -> bool {
        let (own, other) = (&self.content, &other.content);
        own.default_properties == other.default_properties
            && own.types == other.types
            && own.buckets == other.buckets
    }

    /// The placements of all types, and of the buckets that have others than their types.
    fn placements(&self) -> BTreeMap<Keys, Placement> {
        let default_type = BucketType::default_type();
        let types = self.bucket_types().keys().chain([&default_type]);
        let of_types = types.filter_map(|name| {
            let properties = self.stored_type_properties(name).ok()?;
            Some(((name.clone(), None), Placement::of(properties)))
        });
        let of_buckets = self.bucket_overlays().filter_map(|(name, bucket, _)| {
            let of_type = Placement::of(self.stored_type_properties(name).ok()?);
            let own = Placement::of(self.stored_properties(name, bucket).ok()?);
            let keys = (name.clone(), Some(bucket.clone()));
            (own != of_type).then_some((keys, own))
        });
        of_types.chain(of_buckets).collect()
    }
}

/// The most replicas that a key has, or will have when the lists have changed.
fn replicas_max(ring: &Ring) -> u16 {
    let next = ring.growth().map_or(0, |growth| growth.to);
    ring.replicas_max().max(next)
}

/// Owner partitions, each with a vnode that its lists had not before.
fn vnodes_new<'a>(
    before: &'a Ring,
    after: &'a Ring,
) -> impl Iterator<Item = (Partition, Partition)> + 'a {
    after.size().partitions().flat_map(move |owner| {
        let present = before.vnodes_of(owner);
        let vnodes = after.vnodes_of(owner).into_iter();
        let new = vnodes.filter(move |vnode| !present.contains(vnode));
        new.map(move |vnode| (owner, vnode))
    })
}

/// The owner partitions whose lists have lost a vnode.
fn lists_left<'a>(before: &'a Ring, after: &'a Ring) -> impl Iterator<Item = Partition> + 'a {
    before.size().partitions().filter(move |owner| {
        let present = after.vnodes_of(*owner);
        let vnodes = before.vnodes_of(*owner);
        vnodes.iter().any(|vnode| !present.contains(vnode))
    })
}

/// Types and buckets whose keys may have left vnodes. A type without its former properties has no keys:
/// it was removed.
fn keys_left(
    before: &BTreeMap<Keys, Placement>,
    after: &BTreeMap<Keys, Placement>,
    replicas_max: u16,
) -> Vec<Keys> {
    let placement = |all: &BTreeMap<Keys, Placement>, keys: &Keys| {
        let of_type = (keys.0.clone(), None);
        all.get(keys).or_else(|| all.get(&of_type)).copied()
    };
    let names: BTreeSet<&Keys> = before.keys().chain(after.keys()).collect();
    let is_left = |keys: &&Keys| {
        let (before, after) = (placement(before, keys), placement(after, keys));
        let both = before.zip(after);
        both.is_some_and(|(before, after)| after.leaves_copies_of(before, replicas_max))
    };
    names.into_iter().filter(is_left).cloned().collect()
}
