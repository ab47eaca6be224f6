//! The contenders: every store behind the same four calls.
//!
//! Each contender is set up as its own documentation advises for this use, with caches of equal size, and a
//! store without group commit gets ours ([`grouped`]): the question is what a program can get out of each,
//! not the better defaults.

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

/// When a put is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the system has it.
    None,
    /// When the device has it.
    Grouped,
}

/// A store under load. Calls come from many threads.
pub trait Contender: Send + std::marker::Sync {
    /// Stores a value; returns when it is acknowledged.
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()>;

    /// The value of a key, copied or shared, as the store gives it out.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads up to so many values in key order, from this key on; how many there were. `None` where the
    /// store has no order.
    fn scan(&self, _from: &[u8], _count: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// As [`Contender::put`], findable by a term. Stores without indexes get a second key, made of the term
    /// and the first key: the least that a program would write. The key of an earlier term is not removed.
    fn put_indexed(&self, key: &[u8], value: &Bytes, term: u64) -> Result<()> {
        self.put(
            &[b"term ", &term.to_be_bytes()[..], key].concat(),
            &Bytes::new(),
        )?;
        self.put(key, value)
    }

    /// Reads the keys of up to so many terms in order, from this term on; how many there were. `None` where
    /// the store has no order.
    fn query(&self, from: u64, count: u64) -> Result<Option<u64>> {
        self.scan(&[b"term ", &from.to_be_bytes()[..]].concat(), count)
    }

    /// Ends background work and closes the files.
    fn close(&self) -> Result<()>;
}

/// The settings that open a contender.
pub struct Opening<'a> {
    /// An empty directory, or that of an earlier opening.
    pub directory: &'a Path,
    /// When puts are acknowledged.
    pub sync: Sync,
    /// For block caches, in bytes. Stores that read through the page cache need none.
    pub cache_bytes: u64,
}

type Open = fn(&Opening<'_>) -> Result<Arc<dyn Contender>>;

/// A contender by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in arguments and tables.
    pub name: &'static str,
    /// Opens or reopens it.
    pub open: Open,
    /// It can scan.
    pub is_ordered: bool,
}

/// All that are built in; the straw man is the base of every ratio and comes first.
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

/// The contenders of these names, or all of them; the straw man is always among them.
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
