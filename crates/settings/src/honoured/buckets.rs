//! Keys of the properties that buckets without a type have by default.

use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind, REPLICAS_MAX};
use crate::settings::{KeyFunction, SyncOnWrite};

pub(super) const KEYS: &[Key] = &[
    key(
        "buckets.default.n_val",
        Kind::Integer(1..=REPLICAS_MAX, |settings, value| {
            settings.buckets.n_val = u32::try_from(value).unwrap_or(u32::MAX);
        }),
        "3",
        "The number of replicas of an object. A cluster with fewer nodes keeps one on each until \
         it grows (see `colocated_replicas`).",
    ),
    key(
        "buckets.default.r",
        Kind::Quorum(1.., |settings, value| settings.buckets.r = value),
        "quorum",
        "The number of replicas that have to answer a read.",
    ),
    key(
        "buckets.default.w",
        Kind::Quorum(1.., |settings, value| settings.buckets.w = value),
        "quorum",
        "The number of replicas that have to receive a write.",
    ),
    key(
        "buckets.default.dw",
        Kind::Quorum(0.., |settings, value| settings.buckets.dw = value),
        "quorum",
        "The number of replicas that have to store a write, in the sense of `durability`.",
    ),
    key(
        "buckets.default.rw",
        Kind::Quorum(1.., |settings, value| settings.buckets.rw = value),
        "quorum",
        "The number of replicas that have to take part in a delete that names no quorums of its \
         own.",
    ),
    key(
        "buckets.default.pr",
        Kind::Quorum(0.., |settings, value| settings.buckets.pr = value),
        "0",
        "The number of replicas that have to answer a read from nodes that own the partition.",
    ),
    key(
        "buckets.default.pw",
        Kind::Quorum(0.., |settings, value| settings.buckets.pw = value),
        "0",
        "The number of replicas that have to take a write on nodes that own the partition.",
    ),
    own_key(
        "buckets.default.node_confirms",
        Kind::Integer(0..=REPLICAS_MAX, |settings, value| {
            settings.buckets.node_confirms = u32::try_from(value).unwrap_or(u32::MAX);
        }),
        "0",
        "The number of different nodes that have to answer a read or take a write. It is never \
         lowered to the number of nodes: 2 on a cluster of one node refuses every request.",
    ),
    key(
        "buckets.default.notfound_ok",
        Kind::Flag(|settings, value| settings.buckets.notfound_ok = value),
        "true",
        "Counts a replica without the object as an answer to a read.",
    ),
    key(
        "buckets.default.basic_quorum",
        Kind::Flag(|settings, value| settings.buckets.basic_quorum = value),
        "false",
        "Ends a read when more than half of the replicas have found nothing; of use with \
         `notfound_ok = false`.",
    ),
    key(
        "buckets.default.allow_mult",
        Kind::Flag(|settings, value| settings.buckets.allow_mult = value),
        "false",
        "Keeps concurrent writes side by side, as siblings, for the client to resolve. Off keeps \
         the latest by the clock.",
    ),
    key(
        "buckets.default.last_write_wins",
        Kind::Flag(|settings, value| settings.buckets.last_write_wins = value),
        "false",
        "Replaces the stored object with each write, without reading it.",
    ),
    key(
        "buckets.default.merge_strategy",
        Kind::Choice(&[
            Choice("1", |settings| settings.buckets.dvv_enabled = false),
            Choice("2", |settings| settings.buckets.dvv_enabled = true),
        ]),
        "1",
        "The bucket property `dvv_enabled`: 2 is true, 1 is false. Clients read back the value \
         that was set; siblings carry dots either way.",
    ),
    own_key(
        "buckets.default.sync_on_write",
        Kind::Choice(&[
            Choice("backend", |settings| {
                settings.buckets.sync_on_write = SyncOnWrite::Backend;
            }),
            Choice("one", |settings| {
                settings.buckets.sync_on_write = SyncOnWrite::One;
            }),
            Choice("all", |settings| {
                settings.buckets.sync_on_write = SyncOnWrite::All;
            }),
        ]),
        "backend",
        "The replicas that have a write on stable storage before they acknowledge it: `backend` \
         goes by `durability`, `one` is the replica that coordinates, `all` is every one.",
    ),
    own_key(
        "buckets.default.chash_keyfun",
        Kind::Choice(&[
            Choice("chash_std_keyfun", |settings| {
                settings.buckets.chash_keyfun = KeyFunction::Standard;
            }),
            Choice("chash_bucketonly_keyfun", |settings| {
                settings.buckets.chash_keyfun = KeyFunction::BucketOnly;
            }),
        ]),
        "chash_std_keyfun",
        "The function that places an object on the ring: by bucket and key, or by the bucket \
         alone. A change does not move stored objects.",
    ),
];
