//! Keys of the memory backend.

use crate::duration::Unit;
use crate::key::{Key, key, own_key};
use crate::kind::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "memory_backend.ttl",
        Kind::DurationOr("off", Unit::Seconds, |settings, value| {
            settings.memory.ttl = value;
        }),
        "off",
        "How long after it was written an object is gone.",
    ),
    key(
        "memory_backend.max_memory_per_vnode",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.memory.per_vnode_bytes_max = value;
        }),
        "off",
        "How much memory the objects of one partition may take, everything counted. \
         Beyond it, the objects written longest ago are dropped.",
    ),
    own_key(
        "memory_backend.max_memory",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.memory.bytes_max = value;
        }),
        "off",
        "How much memory the objects of all partitions of the node may take, shared evenly.",
    ),
];
