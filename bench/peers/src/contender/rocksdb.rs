//! RocksDB, with values in the tables or in blob files; it groups its own commits.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, WriteOptions,
};

use super::{Contender, Opening, Sync};

/// The least size of values in blob files, as in the other stores that separate values.
const BLOB_BYTES_MIN: u64 = 1_024;
/// Filter bits for each key. According to RocksDB's tuning guide, ten give one false answer in a
/// hundred.
const FILTER_BITS: f64 = 10.0;

struct RocksDb {
    database: DB,
    sync: Sync,
}

pub(super) fn open_plain(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    open(opening, options(opening))
}

pub(super) fn open_blob(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    let mut options = options(opening);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(BLOB_BYTES_MIN);
    options.set_blob_compression_type(DBCompressionType::Lz4);
    options.set_enable_blob_gc(true);
    open(opening, options)
}

fn options(opening: &Opening<'_>) -> Options {
    let mut tables = BlockBasedOptions::default();
    let cache_bytes = usize::try_from(opening.cache_bytes).unwrap_or(usize::MAX);
    tables.set_block_cache(&Cache::new_lru_cache(cache_bytes));
    tables.set_bloom_filter(FILTER_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_compression_type(DBCompressionType::Lz4);
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    options.increase_parallelism(i32::try_from(cores).unwrap_or(2));
    options
}

fn open(opening: &Opening<'_>, options: Options) -> Result<Arc<dyn Contender>> {
    Ok(Arc::new(RocksDb {
        database: DB::open(&options, opening.directory)?,
        sync: opening.sync,
    }))
}

impl Contender for RocksDb {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync == Sync::Grouped);
        Ok(self.database.put_opt(key, value, &options)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.database.get_pinned(key)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Option<u64>> {
        let entries = self
            .database
            .iterator(IteratorMode::From(from, Direction::Forward));
        let mut visited = 0;
        for entry in entries.take(usize::try_from(count)?) {
            std::hint::black_box(entry?);
            visited += 1;
        }
        Ok(Some(visited))
    }

    fn close(&self) -> Result<()> {
        self.database.flush_wal(true)?;
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}
