//! The keys that Kvorum honours, one table per owner; the only place where a default stands.

mod bitcask;
mod buckets;
mod durability;
mod encryption;
mod leveldb;
mod leveled;
mod listeners;
mod log;
mod maintenance;
mod memory;
mod node;
mod objects;
mod requests;

use crate::key::Key;

/// All tables, in the order of the reference page.
pub(crate) const TABLES: [&[Key]; 13] = [
    node::KEYS,
    listeners::KEYS,
    encryption::KEYS,
    requests::KEYS,
    objects::KEYS,
    buckets::KEYS,
    durability::KEYS,
    bitcask::KEYS,
    leveldb::KEYS,
    leveled::KEYS,
    memory::KEYS,
    maintenance::KEYS,
    log::KEYS,
];
