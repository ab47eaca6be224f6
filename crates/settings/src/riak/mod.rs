//! The keys of riak.conf that Kvorum does not have under the same name, and what becomes of them.
//!
//! Together with `honoured` they are every key of the files shipped with Riak 2.2 to 3.4 and every
//! hidden one of their schemas, so that an unmodified riak.conf starts the server and a
//! misspelt key is told from one that is merely not for us.

mod anti_entropy;
mod backends;
mod buckets;
mod cluster;
mod erlang;
mod leveldb;
mod leveled;
mod logs;
mod monitoring;
mod multi;
mod node;
mod queries;
mod replication;
mod requests;
mod search;
mod security;

pub(crate) use multi::{MULTI, MULTI_PREFIX};

/// A key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiakKey {
    /// The name, or a pattern with one free word.
    pub name: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// Riak's default, for keys of directories: other values refer to them as `$(name)`.
    pub default: Option<&'static str>,
}

/// What becomes of a key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is taken as a value of this key of ours.
    Mapped(&'static str),
    /// It has no effect; the reason fits after "ignored because".
    Ignored(&'static str),
    /// It would change what becomes of data, so that it is refused unless it is empty; the reason.
    Guarded(&'static str),
}

/// Keys of Riak's that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// What they are about.
    pub title: &'static str,
    /// The keys.
    pub keys: &'static [RiakKey],
}

/// All families, in the order of the reference page.
pub(crate) const FAMILIES: [Family; 16] = [
    node::FAMILY,
    erlang::FAMILY,
    security::FAMILY,
    requests::FAMILY,
    buckets::FAMILY,
    queries::FAMILY,
    cluster::FAMILY,
    anti_entropy::FAMILY,
    replication::FAMILY,
    backends::FAMILY,
    leveldb::FAMILY,
    leveled::FAMILY,
    multi::FAMILY,
    search::FAMILY,
    monitoring::FAMILY,
    logs::FAMILY,
];

const fn ignored(name: &'static str, reason: &'static str) -> RiakKey {
    RiakKey {
        name,
        fate: Fate::Ignored(reason),
        default: None,
    }
}

const fn mapped(name: &'static str, to: &'static str) -> RiakKey {
    RiakKey {
        name,
        fate: Fate::Mapped(to),
        default: None,
    }
}
