//! The least that an engine with its entries in the value log can be: places in memory, a file of
//! copies, and a checkpoint that may be lost.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, Fields, Lease,
    Lookup, ReadAt, Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId,
    StoredEntry, StoredHead, Task, Timestamp, Write,
};
use kvorum_disk::{Disk, DiskError, Reading, read_file, replace_file};
use kvorum_encoding::{ByteReader, StorageKey, Truncated};
use kvorum_segment::{EncodedBack, Location, StoredBack};
use kvorum_value_log::{
    HeldSegments, LogPlace, LogPromise, LogRecord, LogSegment, LoggedRecord, SegmentUse, Tenant,
    ValueLog,
};
use parking_lot::Mutex;

/// The place of a key's last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Log(LogPlace),
    Copies,
}

/// The last that was said of a key.
#[derive(Clone, Copy, Debug)]
struct Slot {
    sequence: u64,
    is_removal: bool,
    home: Home,
}

/// Copied out of the log: a value, or the word that there is none.
type Copies = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

#[derive(Default)]
struct State {
    id: u64,
    last: u64,
    covered: u64,
    slots: BTreeMap<Vec<u8>, Slot>,
    copies: Copies,
    /// The segments of batches that are not covered.
    uncovered: BTreeSet<u32>,
    lost: usize,
}

pub(crate) struct TenantEngine {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log: ValueLog,
    draw: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
}

impl TenantEngine {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log: ValueLog,
        draw: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        kvorum_disk::create_directory_durably(&*disk, directory).map_err(|error| failed(&error))?;
        let engine = Self {
            disk,
            directory: directory.to_owned(),
            log,
            draw: Box::new(draw),
            state: Mutex::default(),
        };
        let mut state = State::default();
        match engine.read("identity") {
            Some(bytes) => state.id = u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            None => {
                state.id = (engine.draw)();
                engine.write("identity", &state.id.to_le_bytes())?;
            }
        }
        if let Some(bytes) = engine.read("copies") {
            engine.load_copies(&mut state, &bytes).unwrap();
        }
        if let Some(bytes) = engine.read("checkpoint") {
            engine.load_checkpoint(&mut state, &bytes).unwrap();
        }
        *engine.state.lock() = state;
        Ok(Arc::new(engine))
    }

    /// Loses a checkpoint, as any checkpoint may be lost.
    pub(crate) fn lose_checkpoint(disk: &dyn Disk, directory: &Path) {
        let path = directory.join("checkpoint");
        if disk.info(&path).unwrap().is_some() {
            disk.remove_file(&path).unwrap();
            disk.sync_directory(directory).unwrap();
        }
    }

    /// The values of all keys that can be read.
    pub(crate) fn values(
        &self,
        reading: kvorum_backend::Reading,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let keys: Vec<_> = self.state.lock().slots.keys().cloned().collect();
        let mut values = BTreeMap::new();
        for key in keys {
            let at = ReadAt {
                reading,
                now: Timestamp(0),
            };
            match self.get(&StorageKey::from_encoded(key.clone()), at) {
                Ok(Lookup::Found(entry)) => _ = values.insert(key, entry.body.to_vec()),
                Ok(Lookup::Absent | Lookup::WouldBlock) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(values)
    }

    pub(crate) fn last(&self) -> u64 {
        self.state.lock().last
    }

    pub(crate) fn lost(&self) -> usize {
        self.state.lock().lost
    }

    /// Writes a checkpoint of everything so far.
    pub(crate) fn cover(&self) -> Result<()> {
        self.cover_locked(&mut self.state.lock())?;
        self.log.usage_changed();
        Ok(())
    }

    fn cover_locked(&self, state: &mut State) -> Result<()> {
        self.log.sync()?;
        // A checkpoint that names copies needs them on the disk.
        self.write_copies(state)?;
        let mut out = Vec::new();
        for number in [state.id, state.last, state.slots.len() as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for (key, slot) in &state.slots {
            let place = match slot.home {
                Home::Log(place) => place,
                Home::Copies => LogPlace {
                    segment: 0,
                    record: Location {
                        offset: 0,
                        front_end: 0,
                        len: 0,
                    },
                },
            };
            out.push(u8::try_from(key.len()).unwrap());
            out.extend_from_slice(key);
            out.push(u8::from(slot.is_removal));
            out.extend_from_slice(&place.segment.to_le_bytes());
            let at = place.record;
            for number in [slot.sequence, at.offset, at.front_end, at.len] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.write("checkpoint", &out)?;
        state.covered = state.last;
        state.uncovered.clear();
        Ok(())
    }

    fn write_copies(&self, state: &State) -> Result<()> {
        let mut out = Vec::new();
        out.extend_from_slice(&state.id.to_le_bytes());
        out.extend_from_slice(&(state.copies.len() as u64).to_le_bytes());
        for (key, (sequence, value)) in &state.copies {
            out.push(u8::try_from(key.len()).unwrap());
            out.extend_from_slice(key);
            out.extend_from_slice(&sequence.to_le_bytes());
            out.push(u8::from(value.is_some()));
            let value = value.as_deref().unwrap_or_default();
            out.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
            out.extend_from_slice(value);
        }
        self.write("copies", &out)
    }

    fn load_copies(&self, state: &mut State, bytes: &[u8]) -> std::result::Result<(), Truncated> {
        let mut reader = ByteReader::new(bytes);
        if reader.u64()? != state.id {
            return Ok(());
        }
        for _ in 0..reader.u64()? {
            let len = usize::from(reader.u8()?);
            let key = reader.take(len)?.to_vec();
            let sequence = reader.u64()?;
            let has_value = reader.u8()? != 0;
            let len = reader.u32()? as usize;
            let value = reader.take(len)?.to_vec();
            let slot = Slot {
                sequence,
                is_removal: !has_value,
                home: Home::Copies,
            };
            state.slots.insert(key.clone(), slot);
            state
                .copies
                .insert(key, (sequence, has_value.then_some(value)));
        }
        Ok(())
    }

    /// On top of the copies, which may be newer.
    fn load_checkpoint(
        &self,
        state: &mut State,
        bytes: &[u8],
    ) -> std::result::Result<(), Truncated> {
        let mut reader = ByteReader::new(bytes);
        if reader.u64()? != state.id {
            return Ok(());
        }
        state.last = reader.u64()?;
        state.covered = state.last;
        for _ in 0..reader.u64()? {
            let len = usize::from(reader.u8()?);
            let key = reader.take(len)?.to_vec();
            let is_removal = reader.u8()? != 0;
            let segment = reader.u32()?;
            let sequence = reader.u64()?;
            let record = Location {
                offset: reader.u64()?,
                front_end: reader.u64()?,
                len: reader.u64()?,
            };
            let place = LogPlace { segment, record };
            let home = if segment == 0 {
                Home::Copies
            } else {
                Home::Log(place)
            };
            let known = state.slots.get(&key).map_or(0, |it| it.sequence);
            if sequence > known {
                state.slots.insert(
                    key,
                    Slot {
                        sequence,
                        is_removal,
                        home,
                    },
                );
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.directory.join(name);
        self.disk.info(&path).unwrap()?;
        Some(read_file(&*self.disk, &path, 1 << 20).unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        replace_file(&*self.disk, &self.directory.join(name), bytes).map_err(|error| failed(&error))
    }

    /// A removal is needed while something older that it hides may be found again.
    fn is_needed(&self, state: &State, key: &[u8], slot: &Slot) -> bool {
        let Home::Log(place) = slot.home else {
            return false;
        };
        let oldest = self.log.oldest_segment_of(StoreId(state.id));
        let hides_in_log = oldest.is_some_and(|oldest| oldest < place.segment);
        !slot.is_removal || hides_in_log || state.copies.contains_key(key)
    }

    fn show(state: &mut State, sequence: u64, records: &[(Vec<u8>, bool, LogPlace)]) {
        for (key, is_removal, place) in records {
            let known = state.slots.get(key).map_or(0, |it| it.sequence);
            if known <= sequence {
                let slot = Slot {
                    sequence,
                    is_removal: *is_removal,
                    home: Home::Log(*place),
                };
                state.slots.insert(key.clone(), slot);
            }
            state.uncovered.insert(place.segment);
        }
        state.last = sequence;
    }
}

fn failed(error: &DiskError) -> BackendError {
    let kind = match error.kind() {
        kvorum_disk::ErrorKind::NoSpace => ErrorKind::Full,
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

fn record_of(write: &Write) -> LogRecord {
    let key = write.key().as_bytes();
    let mut front = LogRecord::front_for(key.len());
    front.extend_from_slice(key);
    let (removal, back) = match write {
        Write::Put { body, .. } => (false, StoredBack::of(EncodedBack::plain(body), body)),
        Write::Remove { .. } => (true, StoredBack::empty()),
    };
    LogRecord {
        kind: 1,
        removal,
        front,
        back,
    }
}

impl Tenant for TenantEngine {
    fn store_id(&self) -> StoreId {
        StoreId(self.state.lock().id)
    }

    fn known(&self) -> Sequence {
        Sequence(self.state.lock().last)
    }

    fn held(&self) -> Vec<Arc<HeldSegments>> {
        Vec::new()
    }

    fn own_bytes(&self) -> u64 {
        0
    }

    fn unwritten_bytes(&self) -> u64 {
        0
    }

    fn covered(&self) -> Sequence {
        Sequence(self.state.lock().covered)
    }

    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()> {
        let mut state = self.state.lock();
        let shown: Vec<_> = records
            .iter()
            .map(|record| {
                assert_eq!(record.segment, segment.number());
                let head = &record.stored.head;
                (head.front.to_vec(), head.removal, record.place())
            })
            .collect();
        if records.is_empty() {
            // Something was damaged: its sequence is used up.
            state.last = state.last.max(sequence.0);
            return Ok(());
        }
        assert!(state.last < sequence.0);
        Self::show(&mut state, sequence.0, &shown);
        Ok(())
    }

    fn usage(&self) -> Vec<SegmentUse> {
        let state = self.state.lock();
        let mut usage: BTreeMap<u32, u64> = BTreeMap::new();
        for segment in &state.uncovered {
            usage.entry(*segment).or_default();
        }
        for (key, slot) in &state.slots {
            if let Home::Log(place) = slot.home
                && self.is_needed(&state, key, slot)
            {
                *usage.entry(place.segment).or_default() += place.record.len;
            }
        }
        let used = |(segment, live_bytes)| SegmentUse {
            segment,
            live_bytes,
            settle_bytes: 0,
            is_passing: false,
        };
        usage.into_iter().map(used).collect()
    }

    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        let mut state = self.state.lock();
        let mut bytes = 0;
        for record in records {
            let key = record.stored.head.front.to_vec();
            let current = state.slots.get(&key).copied();
            let is_current = |slot: &Slot| slot.home == Home::Log(record.place());
            let Some(slot) = current.filter(is_current) else {
                continue;
            };
            if !self.is_needed(&state, &key, &slot) {
                state.slots.remove(&key);
                continue;
            }
            let value = (!slot.is_removal).then(|| record.stored.back.bytes().to_vec());
            bytes += record.stored.back.bytes().len() as u64;
            state.copies.insert(key.clone(), (slot.sequence, value));
            // Until the copy is on the disk.
            state.uncovered.insert(record.segment);
            state.slots.insert(
                key,
                Slot {
                    home: Home::Copies,
                    ..slot
                },
            );
        }
        Ok(bytes)
    }

    fn settle(&self, segment: u32, _budget: StepBudget) -> Result<StepOutcome> {
        let mut state = self.state.lock();
        let of_it = |slot: &Slot| matches!(slot.home, Home::Log(place) if place.segment == segment);
        // A removal that hides nothing any more is no loss, whether it was looked at or not.
        let there = state.slots.iter().filter(|(_, slot)| of_it(slot));
        let is_lost = |(key, slot): &(&Vec<u8>, &Slot)| self.is_needed(&state, key, slot);
        let lost = there.filter(is_lost).count();
        state.lost += lost;
        state.slots.retain(|_, slot| !of_it(slot));
        self.cover_locked(&mut state)?;
        Ok(StepOutcome::nothing_left())
    }
}

impl Backend for TenantEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn identity(&self) -> StoreId {
        StoreId(self.state.lock().id)
    }

    fn put(&self, batch: &Batch, _durability: Durability) -> Result<Receipt> {
        self.log.wait_for_room()?;
        let records = batch.writes.iter().map(record_of).collect();
        let mut state = self.state.lock();
        let sequence = Sequence(state.last + 1);
        let (store, purpose) = (StoreId(state.id), batch.purpose());
        let promise = LogPromise::Durable;
        let appended = self
            .log
            .append(store, sequence, records, purpose, promise)?;
        let shown: Vec<_> = batch
            .writes
            .iter()
            .zip(&appended.places)
            .map(|(write, place)| {
                let is_removal = matches!(write, Write::Remove { .. });
                (write.key().as_bytes().to_vec(), is_removal, *place)
            })
            .collect();
        Self::show(&mut state, sequence.0, &shown);
        Ok(Receipt {
            sequence,
            durable: Durable::After(appended.ticket),
        })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        let entry = |sequence, body: Bytes| StoredEntry {
            sequence: Sequence(sequence),
            fields: Fields::default(),
            head: Bytes::new(),
            body,
        };
        loop {
            let (slot, segment) = {
                let state = self.state.lock();
                let Some(slot) = state.slots.get(key.as_bytes()).copied() else {
                    return Ok(Lookup::Absent);
                };
                if slot.is_removal {
                    return Ok(Lookup::Absent);
                }
                match slot.home {
                    Home::Copies => {
                        let (sequence, value) = state.copies[key.as_bytes()].clone();
                        return Ok(Lookup::Found(entry(sequence, value.unwrap().into())));
                    }
                    Home::Log(place) => (slot, self.log.segment(place.segment)),
                }
            };
            let (Home::Log(place), Some(segment)) = (slot.home, segment) else {
                // It was collected in between.
                if self
                    .state
                    .lock()
                    .slots
                    .get(key.as_bytes())
                    .map(|it| it.home)
                    == Some(slot.home)
                {
                    return Err(BackendError::new(ErrorKind::Corrupt, "a segment is gone"));
                }
                continue;
            };
            let reading = match at.reading {
                kvorum_backend::Reading::CachedOnly => Reading::CachedOnly,
                kvorum_backend::Reading::MayBlock => Reading::MayBlock,
            };
            let record = match segment.read(place.record, reading) {
                Ok(record) => record,
                Err(error) if error.would_block() => return Ok(Lookup::WouldBlock),
                Err(error) => {
                    return Err(BackendError::new(ErrorKind::Corrupt, error.to_string()));
                }
            };
            let stored = record.stored;
            assert_eq!(stored.head.front, key.as_bytes());
            assert_eq!(stored.head.sequence, slot.sequence);
            assert_eq!(stored.head.location, place.record);
            if let Ok(front) = segment.read_front(place.record, reading) {
                assert_eq!(front.stored, stored.head);
            }
            return Ok(Lookup::Found(entry(
                slot.sequence,
                stored.back.bytes().clone(),
            )));
        }
    }

    fn head(&self, _key: &StorageKey, _at: ReadAt) -> Result<Lookup<StoredHead>> {
        unreachable!("not asked here")
    }

    fn snapshot(&self, _lease: Lease) -> Result<Box<dyn Snapshot>> {
        unreachable!("not asked here")
    }

    fn sync(&self) -> Result<Sequence> {
        let last = self.last();
        self.log.sync()?;
        Ok(Sequence(last))
    }

    fn durable(&self) -> Sequence {
        self.covered()
    }

    fn is_empty(&self, _now: Timestamp) -> Result<bool> {
        Ok(self.state.lock().slots.values().all(|slot| slot.is_removal))
    }

    fn status(&self) -> Status {
        Status::default()
    }

    fn maintenance_due(&self, _now: Timestamp) -> Vec<Task> {
        Vec::new()
    }

    fn maintenance_step(
        &self,
        _task: &Task,
        _budget: StepBudget,
        _now: Timestamp,
    ) -> Result<StepOutcome> {
        Ok(StepOutcome::nothing_left())
    }

    fn erase(&self) -> Result<()> {
        let mut state = self.state.lock();
        let old = state.id;
        self.log.announce_erasure(StoreId(old))?;
        let id = (self.draw)();
        self.write("identity", &id.to_le_bytes())?;
        *state = State {
            id,
            ..State::default()
        };
        self.log.forget(StoreId(old), StoreId(id))
    }

    fn close(&self) -> Result<()> {
        self.cover()
    }
}
