//! The contenders: every store behind the same four calls.
//!
//! Each contender is configured as its documentation advises for this use, with caches of equal
//! size. A store without group commit gets ours ([`grouped`]). The stores are compared at their
//! best, and not with their defaults.

mod fjall;
mod grouped;
mod kvorum;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod straw_man;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;

/// The moment at which a put is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the operating system has the put.
    None,
    /// When the device has the put.
    Grouped,
}

/// A store under load, which many threads call.
pub trait Contender: Send + std::marker::Sync {
    /// Stores a value; returns when it is acknowledged.
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()>;

    /// The value of a key, copied or shared, as the store returns it.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads up to `count` values in key order from a key on; returns their number. `None` if the
    /// store has no order.
    fn scan(&self, _from: &[u8], _count: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Like [`Contender::put`], with a term for queries. Stores without indexes get a second key,
    /// from the term and the first key: the least that a program would write. The key of an earlier
    /// term is not removed.
    fn put_indexed(&self, key: &[u8], value: &Bytes, term: u64) -> Result<()> {
        self.put(
            &[b"term ", &term.to_be_bytes()[..], key].concat(),
            &Bytes::new(),
        )?;
        self.put(key, value)
    }

    /// Reads the keys of up to `count` terms in order, from a term on; returns their number. `None`
    /// if the store has no order.
    fn query(&self, from: u64, count: u64) -> Result<Option<u64>> {
        self.scan(&[b"term ", &from.to_be_bytes()[..]].concat(), count)
    }

    /// Ends background work and closes the files.
    fn close(&self) -> Result<()>;
}

/// The settings that open a contender.
pub struct Opening<'a> {
    /// An empty directory, or the directory of an earlier opening.
    pub directory: &'a Path,
    /// The moment at which puts are acknowledged.
    pub sync: Sync,
    /// The size of block caches, in bytes. Stores that read through the page cache need none.
    pub cache_bytes: u64,
}

type Open = fn(&Opening<'_>) -> Result<Arc<dyn Contender>>;

/// A contender by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in arguments and tables.
    pub name: &'static str,
    /// Opens or reopens the store.
    pub open: Open,
    /// True if it can scan.
    pub is_ordered: bool,
}

/// All contenders in this program; the straw man comes first, as the base of every ratio.
pub const ALL: &[Entry] = &[
    Entry {
        name: "straw-man",
        open: straw_man::open,
        is_ordered: false,
    },
    Entry {
        name: "kvorum-bitcask",
        open: kvorum::open_bitcask,
        is_ordered: false,
    },
    Entry {
        name: "kvorum-leveldb",
        open: kvorum::open_leveldb,
        is_ordered: true,
    },
    Entry {
        name: "kvorum-leveldb-inline",
        open: kvorum::open_leveldb_inline,
        is_ordered: true,
    },
    Entry {
        name: "fjall",
        open: fjall::open_plain,
        is_ordered: true,
    },
    Entry {
        name: "fjall-kv",
        open: fjall::open_separated,
        is_ordered: true,
    },
    Entry {
        name: "redb",
        open: redb::open,
        is_ordered: true,
    },
    Entry {
        name: "lmdb",
        open: lmdb::open,
        is_ordered: true,
    },
    #[cfg(feature = "rocksdb")]
    Entry {
        name: "rocksdb",
        open: rocksdb::open_plain,
        is_ordered: true,
    },
    #[cfg(feature = "rocksdb")]
    Entry {
        name: "rocksdb-blob",
        open: rocksdb::open_blob,
        is_ordered: true,
    },
];

/// The contenders with these names, or all; the straw man is always included.
pub fn named(names: &[String]) -> Result<Vec<Entry>> {
    for name in names {
        if !ALL.iter().any(|entry| entry.name == name) {
            let known: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
            bail!("no contender {name:?}; there are {}", known.join(", "));
        }
    }
    let is_wanted = |entry: &Entry| {
        names.is_empty() || entry.name == "straw-man" || names.iter().any(|name| name == entry.name)
    };
    Ok(ALL.iter().copied().filter(is_wanted).collect())
}
