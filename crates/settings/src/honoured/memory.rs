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
        "The time from a write to the end of its object.",
    ),
    key(
        "memory_backend.max_memory_per_vnode",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.memory.per_vnode_bytes_max = value;
        }),
        "off",
        "The memory for the objects of one partition, everything counted. Beyond it, the objects \
         written longest ago are dropped.",
    ),
    own_key(
        "memory_backend.max_memory",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.memory.bytes_max = value;
        }),
        "off",
        "The memory for the objects of all partitions of the node, shared evenly.",
    ),
];
