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
mod family;
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

pub use family::{Family, Fate, RiakKey};
pub(crate) use multi::{MULTI, MULTI_PREFIX};

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
