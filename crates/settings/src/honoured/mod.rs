//! The keys that Kvorum honours, one table per owner; the only place where a default stands.

mod bitcask;
mod buckets;
mod durability;
mod listeners;
mod log;
mod maintenance;
mod memory;
mod node;
mod objects;
mod requests;

use crate::key::Key;

/// All tables, in the order of the reference page.
pub(crate) const TABLES: [&[Key]; 10] = [
    node::KEYS,
    listeners::KEYS,
    requests::KEYS,
    objects::KEYS,
    buckets::KEYS,
    durability::KEYS,
    bitcask::KEYS,
    memory::KEYS,
    maintenance::KEYS,
    log::KEYS,
];
