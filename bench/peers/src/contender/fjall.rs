//! fjall: an LSM tree in Rust, with values in the tables or separated from them.
//!
//! It has a journal, but no group commit: in the durable mode a group is one batch and one persist.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::grouped::{Grouped, Put};
use super::{Contender, Opening, Sync};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    grouped: Option<Grouped>,
}

pub(super) fn open_plain(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    open(opening, None)
}

pub(super) fn open_separated(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    open(opening, Some(KvSeparationOptions::default()))
}

fn open(
    opening: &Opening<'_>,
    separation: Option<KvSeparationOptions>,
) -> Result<Arc<dyn Contender>> {
    let database = Database::builder(opening.directory)
        .cache_size(opening.cache_bytes)
        .open()?;
    let options = || KeyspaceCreateOptions::default().with_kv_separation(separation.clone());
    let keyspace = database.keyspace("values", options)?;
    Ok(Arc::new(Fjall {
        database,
        keyspace,
        grouped: (opening.sync == Sync::Grouped).then(Grouped::default),
    }))
}

impl Fjall {
    fn write_group(&self, group: &[Put]) -> Result<()> {
        let mut batch = self
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        for (key, value) in group {
            batch.insert(&self.keyspace, &**key, &**value);
        }
        Ok(batch.commit()?)
    }
}

impl Contender for Fjall {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        match &self.grouped {
            Some(grouped) => grouped.put(key, value, |group| self.write_group(group)),
            None => Ok(self.keyspace.insert(key, &**value)?),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.keyspace.get(key)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Option<u64>> {
        let mut visited = 0;
        for entry in self.keyspace.range(from..).take(usize::try_from(count)?) {
            std::hint::black_box(entry.into_inner()?);
            visited += 1;
        }
        Ok(Some(visited))
    }

    fn close(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
