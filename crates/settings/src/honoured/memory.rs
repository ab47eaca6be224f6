//! Keys of the memory backend.

use crate::duration::Unit;
use crate::key::{Category, Key};
use crate::kind::Kind;

const fn key(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key::new(name, kind, Some("off"), Category::Memory, help)
}

pub(super) const KEYS: &[Key] = &[
    key(
        "memory_backend.ttl",
        Kind::DurationOr {
            word: "off",
            unit: Unit::Seconds,
            set: |settings, value| settings.memory.ttl = value,
        },
        "How long after it was written an object is gone.",
    ),
    key(
        "memory_backend.max_memory_per_vnode",
        Kind::BytesOr {
            word: "off",
            least: 1 << 20,
            set: |settings, value| settings.memory.per_vnode_bytes_max = value,
        },
        "How much memory the objects of one partition may take, everything counted. \
         Beyond it, the objects written longest ago are dropped.",
    ),
    key(
        "memory_backend.max_memory",
        Kind::BytesOr {
            word: "off",
            least: 1 << 20,
            set: |settings, value| settings.memory.bytes_max = value,
        },
        "How much memory the objects of all partitions of the node may take, shared evenly.",
    )
    .own(),
];
