//! redb: a copy-on-write B+tree in Rust; one writer at a time, so a group is one transaction.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase as _, TableDefinition};

use super::grouped::{Grouped, Put};
use super::{Contender, Opening, Sync};

const VALUES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

struct Redb {
    database: Database,
    durability: Durability,
    grouped: Grouped,
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    let database = Database::builder()
        .set_cache_size(usize::try_from(opening.cache_bytes)?)
        .create(opening.directory.join("values.redb"))?;
    let creating = database.begin_write()?;
    creating.open_table(VALUES)?;
    creating.commit()?;
    Ok(Arc::new(Redb {
        database,
        durability: match opening.sync {
            Sync::None => Durability::None,
            Sync::Grouped => Durability::Immediate,
        },
        grouped: Grouped::default(),
    }))
}

impl Redb {
    fn write_group(&self, group: &[Put]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        {
            let mut table = transaction.open_table(VALUES)?;
            for (key, value) in group {
                table.insert(&**key, &**value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Contender for Redb {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        self.grouped
            .put(key, value, |group| self.write_group(group))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let table = self.database.begin_read()?.open_table(VALUES)?;
        let value = table.get(key)?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Option<u64>> {
        let table = self.database.begin_read()?.open_table(VALUES)?;
        let mut visited = 0;
        for entry in table.range(from..)?.take(usize::try_from(count)?) {
            let (_, value) = entry?;
            std::hint::black_box(Bytes::copy_from_slice(value.value()));
            visited += 1;
        }
        Ok(Some(visited))
    }

    /// Makes puts without durability durable; the last handle closes the file.
    fn close(&self) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        Ok(transaction.commit()?)
    }
}
