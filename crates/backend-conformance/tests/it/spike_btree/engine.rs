//! The B+tree spike behind the backend trait.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, FoldEnd,
    IndexCounts, IndexEntry, IndexFolds, IndexRange, IndexVisitor, Lease, Lookup, ReadAt, Reading,
    Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry,
    StoredHead, Task, TaskKind, Timestamp, Urgency, Write,
};
use kvorum_backend_conformance::{DrawNumber, EngineUnderTest, Opening, conformance_suite};
use kvorum_disk::{Disk, DiskLock, OpenMode};
use kvorum_encoding::StorageKey;
use parking_lot::{Mutex, RwLock};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, WriteTransaction};

use super::snapshot::TreeSnapshot;
use super::storage::SeamStorage;
use super::{ENTRIES, EXPIRY, INDEX, META, Row, bucket_prefix, corrupt, tree_error};
use crate::entry_encoding::{Value, change_of};
use crate::spike_lsm::disk_error;

/// The spike as the suite sees it.
pub(crate) struct BTree;

impl EngineUnderTest for BTree {
    fn name(&self) -> &'static str {
        "b+tree spike"
    }

    /// The whole store: if a page of the last commit is damaged, the library returns to the commit before.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.redb"]
    }

    fn names_its_files(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: false,
            ordered: true,
            indexes: true,
            backups: false,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        Ok(Box::new(TreeStore::open(opening)?))
    }

    fn is_spike(&self) -> bool {
        true
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        usize::MAX
    }

    /// A file in one of its own earlier states is valid.
    fn reports_truncation(&self) -> bool {
        false
    }

    /// redb checks pages when it opens a file and never again, so that later damage may even make it panic.
    fn checks_every_read(&self) -> bool {
        false
    }

    /// The smallest file has a megabyte, and opening checks all of it.
    fn slowness(&self) -> usize {
        25
    }

    /// After a failed write redb has to be opened again before the next write, and opening writes.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }
}

conformance_suite!(BTree);

struct TreeStore {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    draw: DrawNumber,
    database: RwLock<Database>,
    state: Mutex<State>,
    _lock: Box<dyn DiskLock>,
}

struct State {
    identity: u64,
    last_sequence: Sequence,
    failure: Option<BackendError>,
    is_closed: bool,
    /// Set for snapshots of the present contents when the contents are erased.
    is_erased: Arc<AtomicBool>,
    index_counts: IndexCounts,
}

impl TreeStore {
    fn open(opening: &Opening) -> Result<Self> {
        let (disk, directory) = (opening.disk(), opening.directory.clone());
        disk.create_directory(&directory).map_err(disk_error)?;
        for above in directory.ancestors().skip(1) {
            disk.sync_directory(above).map_err(disk_error)?;
        }
        let lock = disk.lock(&directory.join("lock"), "spike");
        let lock = lock.map_err(disk_error)?;
        let path = directory.join("store.redb");
        if disk.info(&path).map_err(disk_error)?.is_none() {
            create(&*disk, &directory, (opening.draw)(), Sequence(0))?;
        }
        let database = open_tree(&*disk, &path)?;
        let state = read_state(&database)?;
        Ok(Self {
            disk,
            directory,
            draw: Arc::clone(&opening.draw),
            database: RwLock::new(database),
            state: Mutex::new(state),
            _lock: lock,
        })
    }

    fn transaction(&self) -> Result<redb::ReadTransaction> {
        self.database.read().begin_read().map_err(tree_error)
    }

    fn lookup(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<Value>> {
        if at.reading == Reading::CachedOnly {
            // redb reads through its own cache and does not report whether it would have to wait.
            return Ok(Lookup::WouldBlock);
        }
        let table = self
            .transaction()?
            .open_table(ENTRIES)
            .map_err(tree_error)?;
        let Some(bytes) = table.get(key.as_bytes()).map_err(tree_error)? else {
            return Ok(Lookup::Absent);
        };
        let row = Row::decode(key.as_bytes(), bytes.value())?;
        if row.value.fields.is_expired(at.now) {
            return Ok(Lookup::Absent);
        }
        Ok(Lookup::Found(row.value))
    }

    fn write<T>(
        &self,
        state: &mut State,
        act: impl FnOnce(&WriteTransaction) -> Result<T>,
    ) -> Result<T> {
        state.check_writable()?;
        let written = self
            .database
            .read()
            .begin_write()
            .map_err(tree_error)
            .and_then(|transaction| {
                let done = act(&transaction)?;
                transaction.commit().map_err(tree_error)?;
                Ok(done)
            });
        if let Err(error) = &written {
            state.failure.get_or_insert(error.clone());
        }
        written
    }
}

impl State {
    fn check_writable(&self) -> Result<()> {
        if self.is_closed {
            return Err(BackendError::new(ErrorKind::Closed, "b+tree spike"));
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Makes a tree under a temporary name and renames it into place, so that no partial tree ever exists.
fn create(disk: &dyn Disk, directory: &Path, identity: u64, sequence: Sequence) -> Result<()> {
    let path = directory.join("store.redb");
    let temporary = kvorum_disk::temporary_name(&path);
    let file = disk
        .open(&temporary, OpenMode::Create)
        .map_err(disk_error)?;
    file.truncate(0).map_err(disk_error)?;
    let database = redb::Builder::new()
        .create_with_backend(SeamStorage(Arc::clone(&file)))
        .map_err(tree_error)?;
    let transaction = database.begin_write().map_err(tree_error)?;
    transaction.open_table(ENTRIES).map_err(tree_error)?;
    transaction.open_table(INDEX).map_err(tree_error)?;
    transaction.open_table(EXPIRY).map_err(tree_error)?;
    {
        let mut meta = transaction.open_table(META).map_err(tree_error)?;
        meta.insert("identity", identity).map_err(tree_error)?;
        meta.insert("sequence", sequence.0).map_err(tree_error)?;
    }
    transaction.commit().map_err(tree_error)?;
    drop(database);
    file.sync().map_err(disk_error)?;
    disk.rename(&temporary, &path).map_err(disk_error)?;
    disk.sync_directory(directory).map_err(disk_error)
}

fn open_tree(disk: &dyn Disk, path: &Path) -> Result<Database> {
    let file = disk.open(path, OpenMode::ReadWrite).map_err(disk_error)?;
    if file.is_empty().map_err(disk_error)? {
        return Err(corrupt("the tree's file is empty"));
    }
    write_again(&*file)?;
    redb::Builder::new()
        .set_check_integrity_on_open(true)
        .create_with_backend(SeamStorage(file))
        .map_err(tree_error)
}

/// After a failed sync the page cache shows pages that the device may never get, and another sync
/// would not write them. redb continues to read them, so all of the file is made dirty again.
fn write_again(file: &dyn kvorum_disk::DiskFile) -> Result<()> {
    let len = usize::try_from(file.len().map_err(disk_error)?);
    let mut bytes = vec![0; len.map_err(|_| corrupt("the tree's file is too long"))?];
    let read = file.read_at(&mut bytes, 0, kvorum_disk::Reading::MayBlock);
    if read.map_err(disk_error)? < bytes.len() {
        return Err(corrupt("the tree's file was read short"));
    }
    file.write_at(&bytes, 0).map_err(disk_error)?;
    file.sync().map_err(disk_error)
}

fn read_state(database: &Database) -> Result<State> {
    let transaction = database.begin_read().map_err(tree_error)?;
    let meta = transaction.open_table(META).map_err(tree_error)?;
    let number = |name: &str| -> Result<u64> {
        let found = meta.get(name).map_err(tree_error)?;
        found.map(|it| it.value()).ok_or_else(|| corrupt(name))
    };
    Ok(State {
        identity: number("identity")?,
        last_sequence: Sequence(number("sequence")?),
        failure: None,
        is_closed: false,
        is_erased: Arc::default(),
        index_counts: IndexCounts::default(),
    })
}

/// Removes an entry from all tables; returns its index entries.
fn take_out(transaction: &WriteTransaction, key: &StorageKey) -> Result<Vec<IndexEntry>> {
    let mut entries = transaction.open_table(ENTRIES).map_err(tree_error)?;
    let Some(old) = entries.remove(key.as_bytes()).map_err(tree_error)? else {
        return Ok(Vec::new());
    };
    let row = Row::decode(key.as_bytes(), old.value())?;
    if let Some(expiry) = row.value.fields.expiry {
        let mut by_expiry = transaction.open_table(EXPIRY).map_err(tree_error)?;
        let gone = by_expiry.remove((expiry.0, key.as_bytes()));
        gone.map_err(tree_error)?;
    }
    Ok(row.index_entries)
}

fn set_index(
    transaction: &WriteTransaction,
    key: &StorageKey,
    entry: &IndexEntry,
    is_there: bool,
) -> Result<()> {
    let mut index = transaction.open_table(INDEX).map_err(tree_error)?;
    let position = (
        bucket_prefix(key),
        &entry.field[..],
        &entry.term[..],
        key.as_bytes(),
    );
    if is_there {
        index.insert(position, ()).map_err(tree_error)?;
    } else {
        index.remove(position).map_err(tree_error)?;
    }
    Ok(())
}

fn apply(
    transaction: &WriteTransaction,
    write: &Write,
    sequence: Sequence,
    counts: &mut IndexCounts,
) -> Result<()> {
    let (key, value) = change_of(write, sequence);
    let before: BTreeSet<IndexEntry> = take_out(transaction, &key)?.into_iter().collect();
    for entry in &before {
        set_index(transaction, &key, entry, false)?;
    }
    let after: BTreeSet<IndexEntry> = write.index_entries().iter().cloned().collect();
    *counts += IndexCounts {
        writes: u64::from(value.is_some()),
        postings_written: after.difference(&before).count() as u64,
        deletes: u64::from(value.is_none()),
        postings_deleted: before.difference(&after).count() as u64,
    };
    let Some(value) = value else {
        return Ok(());
    };
    let index_entries = write.index_entries().to_vec();
    for entry in &index_entries {
        set_index(transaction, &key, entry, true)?;
    }
    if let Some(expiry) = value.fields.expiry {
        let mut by_expiry = transaction.open_table(EXPIRY).map_err(tree_error)?;
        let put = by_expiry.insert((expiry.0, key.as_bytes()), ());
        put.map_err(tree_error)?;
    }
    let row = Row {
        value,
        index_entries,
    };
    let mut entries = transaction.open_table(ENTRIES).map_err(tree_error)?;
    let put = entries.insert(key.as_bytes(), &row.encode(&key)[..]);
    put.map(drop).map_err(tree_error)
}

impl Backend for TreeStore {
    fn capabilities(&self) -> Capabilities {
        BTree.capabilities()
    }

    fn identity(&self) -> StoreId {
        StoreId(self.state.lock().identity)
    }

    fn put(&self, batch: &Batch, _durability: Durability) -> Result<Receipt> {
        let mut state = self.state.lock();
        let sequence = state.last_sequence.next();
        let mut counts = state.index_counts;
        self.write(&mut state, |transaction| {
            for write in &batch.writes {
                apply(transaction, write, sequence, &mut counts)?;
            }
            let mut meta = transaction.open_table(META).map_err(tree_error)?;
            let put = meta.insert("sequence", sequence.0);
            put.map(drop).map_err(tree_error)
        })?;
        state.last_sequence = sequence;
        state.index_counts = counts;
        Ok(Receipt {
            sequence,
            durable: Durable::Already,
        })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        Ok(self.lookup(key, at)?.map(|value| value.to_stored()))
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        Ok(self.lookup(key, at)?.map(|value| value.to_head()))
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(self.tree_snapshot(lease)?))
    }

    fn sync(&self) -> Result<Sequence> {
        let state = self.state.lock();
        state.check_writable()?;
        Ok(state.last_sequence)
    }

    fn durable(&self) -> Sequence {
        self.state.lock().last_sequence
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        let transaction = self.transaction()?;
        let entries = transaction.open_table(ENTRIES).map_err(tree_error)?;
        let by_expiry = transaction.open_table(EXPIRY).map_err(tree_error)?;
        let expired = by_expiry.range((0, &[][..])..(now.0.saturating_add(1), &[][..]));
        let expired = expired.map_err(tree_error)?.count() as u64;
        Ok(entries.len().map_err(tree_error)? == expired)
    }

    fn status(&self) -> Status {
        let keys = self.transaction().and_then(|transaction| {
            let entries = transaction.open_table(ENTRIES).map_err(tree_error)?;
            entries.len().map_err(tree_error)
        });
        Status {
            engine: "b+tree spike",
            keys: keys.unwrap_or(0),
            ..Status::default()
        }
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let first = self.first_expired(now);
        let due = first.ok().flatten().map(|_| Task {
            kind: TaskKind::Expire,
            subject: 0,
            urgency: Urgency::Idle,
            cost_bytes: 1,
        });
        due.into_iter().collect()
    }

    /// One entry for each step: a transaction is the smallest possible step.
    fn maintenance_step(
        &self,
        task: &Task,
        _budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let mut state = self.state.lock();
        if task.kind != TaskKind::Expire {
            return Ok(StepOutcome::nothing_left());
        }
        let Some(key) = self.first_expired(now)? else {
            return Ok(StepOutcome::nothing_left());
        };
        self.write(&mut state, |transaction| {
            for entry in take_out(transaction, &key)? {
                set_index(transaction, &key, &entry, false)?;
            }
            Ok(())
        })?;
        Ok(StepOutcome {
            cost_bytes: 1,
            is_done: false,
        })
    }

    fn erase(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check_writable()?;
        let identity = (self.draw)();
        let erased = create(&*self.disk, &self.directory, identity, state.last_sequence)
            .and_then(|()| open_tree(&*self.disk, &self.directory.join("store.redb")));
        match erased {
            Ok(database) => {
                std::mem::take(&mut state.is_erased).store(true, Ordering::Release);
                *self.database.write() = database;
                state.identity = identity;
                Ok(())
            }
            Err(error) => {
                state.failure.get_or_insert(error.clone());
                Err(error)
            }
        }
    }

    fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check_writable()?;
        state.is_closed = true;
        Ok(())
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        Some(self)
    }
}

impl TreeStore {
    fn tree_snapshot(&self, lease: Lease) -> Result<TreeSnapshot> {
        let state = self.state.lock();
        Ok(TreeSnapshot {
            transaction: self.transaction()?,
            lease,
            is_erased: Arc::clone(&state.is_erased),
        })
    }

    fn first_expired(&self, now: Timestamp) -> Result<Option<StorageKey>> {
        let by_expiry = self.transaction()?.open_table(EXPIRY).map_err(tree_error)?;
        let first = by_expiry.first().map_err(tree_error)?;
        Ok(first.and_then(|(position, _)| {
            let (expiry, key) = position.value();
            (expiry <= now.0).then(|| StorageKey::from_encoded(key.to_vec()))
        }))
    }
}

impl IndexFolds for TreeStore {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        self.tree_snapshot(lease)?.fold_index(range, now, visitor)
    }

    fn counts(&self) -> IndexCounts {
        self.state.lock().index_counts
    }
}
