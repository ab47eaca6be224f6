//! The machine's limit: values appended to one file, with positions in a hash map.
//!
//! Without checksums, format or recovery it has no use, but no store can be faster.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use super::grouped::{Grouped, Put};
use super::{Contender, Opening, Sync};

const SHARDS: usize = 64;

type Positions = HashMap<Box<[u8]>, (u64, usize)>;

struct StrawMan {
    file: File,
    end: AtomicU64,
    positions: Vec<RwLock<Positions>>,
    grouped: Option<Grouped>,
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(opening.directory.join("log"))?;
    Ok(Arc::new(StrawMan {
        file,
        end: AtomicU64::new(0),
        positions: (0..SHARDS).map(|_| RwLock::default()).collect(),
        grouped: (opening.sync == Sync::Grouped).then(Grouped::default),
    }))
}

impl StrawMan {
    fn shard(&self, key: &[u8]) -> &RwLock<Positions> {
        let hash = usize::try_from(xxh3_64(key)).unwrap_or(0);
        &self.positions[hash % SHARDS]
    }

    fn append(&self, bytes: &[u8]) -> Result<u64> {
        let length = u64::try_from(bytes.len())?;
        let at = self.end.fetch_add(length, Ordering::Relaxed);
        self.file.write_all_at(bytes, at)?;
        Ok(at)
    }

    fn write_group(&self, group: &[Put]) -> Result<()> {
        let total = group.iter().map(|(_, value)| value.len()).sum();
        let mut bytes = Vec::with_capacity(total);
        for (_, value) in group {
            bytes.extend_from_slice(value);
        }
        let mut at = self.append(&bytes)?;
        self.file.sync_data()?;
        for (key, value) in group {
            self.shard(key)
                .write()
                .insert(key.clone(), (at, value.len()));
            at += u64::try_from(value.len())?;
        }
        Ok(())
    }
}

impl Contender for StrawMan {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        if let Some(grouped) = &self.grouped {
            return grouped.put(key, value, |group| self.write_group(group));
        }
        let at = self.append(value)?;
        self.shard(key)
            .write()
            .insert(key.into(), (at, value.len()));
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let Some((at, length)) = self.shard(key).read().get(key).copied() else {
            return Ok(None);
        };
        let mut value = vec![0; length];
        self.file.read_exact_at(&mut value, at)?;
        Ok(Some(value.into()))
    }

    fn close(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}
