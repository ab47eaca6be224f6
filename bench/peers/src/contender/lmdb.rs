//! LMDB: a memory-mapped copy-on-write B+tree; one writer at a time, so a group is one transaction.
//!
//! It reads through the page cache and has no cache of its own.

use std::ops::Bound;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::grouped::{Grouped, Put};
use super::{Contender, Opening, Sync};

/// Address space that is mapped but not used.
const MAP_BYTES: usize = 256 << 30;
const READERS_MAX: u32 = 512;

struct Lmdb {
    environment: Env<WithTls>,
    database: Database<'static, Raw, Raw>,
    grouped: Grouped,
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX);
    if opening.sync == Sync::None {
        // SAFETY: a crash may tear the file, which is not read after a crash here.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: no other program maps or changes the file while it is open.
    let environment = unsafe { options.open(opening.directory)? };
    let creating = environment.write_txn()?;
    let created: CommitOrAbort<Database<'static, Raw, Raw>, ()> = environment
        .create_databases_and_commit(creating, |opener, creating| {
            let database = opener.create_database(creating, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::Commit(database))
        })?;
    let CommitOrAbort::Commit(database) = created else {
        bail!("the database was not created");
    };
    Ok(Arc::new(Lmdb {
        environment,
        database,
        grouped: Grouped::default(),
    }))
}

impl Lmdb {
    fn write_group(&self, group: &[Put]) -> Result<()> {
        let mut transaction = self.environment.write_txn()?;
        for (key, value) in group {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }
}

impl Contender for Lmdb {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        self.grouped
            .put(key, value, |group| self.write_group(group))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let transaction = self.environment.read_txn()?;
        let value = self.database.get(&transaction, key)?;
        Ok(value.map(Bytes::copy_from_slice))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Option<u64>> {
        let transaction = self.environment.read_txn()?;
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut visited = 0;
        let entries = self.database.range(&transaction, &range)?;
        for entry in entries.take(usize::try_from(count)?) {
            std::hint::black_box(Bytes::copy_from_slice(entry?.1));
            visited += 1;
        }
        Ok(Some(visited))
    }

    fn close(&self) -> Result<()> {
        Ok(self.environment.force_sync()?)
    }
}
