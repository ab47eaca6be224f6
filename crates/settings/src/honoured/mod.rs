//! The keys that Kvorum honours, one table per owner; the only place with defaults.

mod anti_entropy;
mod bitcask;
mod buckets;
mod durability;
mod encryption;
mod hanoidb;
mod innostore;
mod leveldb;
mod leveled;
mod listeners;
mod log;
mod maintenance;
mod memory;
mod multi;
mod node;
mod objects;
mod requests;

use crate::key::{Key, Section};

pub(crate) use multi::ENGINE;

/// All keys, in the order of the reference page.
pub(crate) const SECTIONS: [Section; 17] = [
    section("Node and directories", node::KEYS),
    section("Listeners and protocols", listeners::KEYS),
    section("Encryption between nodes", encryption::KEYS),
    section("Requests", requests::KEYS),
    section("Object limits", objects::KEYS),
    section("Default bucket properties", buckets::KEYS),
    section("Durability", durability::KEYS),
    section("Bitcask backend", bitcask::KEYS),
    section("LevelDB backend", leveldb::KEYS),
    section("Leveled backend", leveled::KEYS),
    section("Hanoidb backend", hanoidb::KEYS),
    section("Innostore backend", innostore::KEYS),
    section("Memory backend", memory::KEYS),
    section("Several backends on one node", multi::KEYS),
    section("Anti-entropy", anti_entropy::KEYS),
    section("Background work", maintenance::KEYS),
    section("Logs", log::KEYS),
];

const fn section(title: &'static str, keys: &'static [Key]) -> Section {
    Section { title, keys }
}
