//! The store: each operation goes to the child of its bucket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Backups, Batch, Belonging, Capabilities, Durability, ErrorKind, Flow,
    FoldDetail, FoldEnd, FoldFilter, FoldRange, IndexCounts, IndexFolds, IndexRange, IndexVisitor,
    JournalFoldEnd, JournalFolded, JournalFolds, Lease, Lookup, MoveEstimate, MoveStatus, Moves,
    OldEntry, PinnedTo, ReadAt, Reading, Receipt, Replayed, Result, Sequence, Snapshot, Status,
    StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry, StoredHead, Task, TaskKind,
    Timestamp, Urgency, Visitor, Write, write_two_copies,
};
use kvorum_backend_migration::{Event as MoveEvent, Migration, Order as MoveOrder, room_needed};
use kvorum_disk::{Disk, create_directory_durably, replace_file};
use kvorum_encoding::{StorageKey, pages_prefix, without_page_mark};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::card::{CARD_NAMES, Card};
use crate::carry::{IndexEntriesOf, Pair};
use crate::child::{Child, ChildNumber, ChildSet};
use crate::index_merge::{self, IndexSource};
use crate::key_merge::bucket_of_key;
use crate::move_record;
use crate::mover::{Going, Job, Mover, Next, StrayBuckets, Wanted};
use crate::opening::{CardFiles, DrawNumber, erase, known};
use crate::pin::{self, Pin, PinnedRoutes};
use crate::placement::{Homes, Placement, Strays};
use crate::routes::{RouteTable, Routes};
use crate::snapshot::MultiSnapshot;
use crate::status_sum;
use crate::survey::{BUCKET_BYTES, Survey};
use crate::tickets::all_of;
use crate::upkeep::{MOVE_SUBJECT, SURVEY_SUBJECT, of_child, of_whole};
use crate::walk::Count;

/// The assumed cost of a survey, in bytes: the number of buckets is unknown.
const SURVEY_COST_BYTES: u64 = 64 * BUCKET_BYTES;
/// Keys that a step counts before a move.
const COUNTED_A_STEP: usize = 4096;
/// The time that a part of a move waits for puts and queries that need keys to stay in their
/// places.
const HELD_WAIT: Duration = Duration::from_millis(5);
/// The most doublings of that time after waits in vain, so that no load of puts stops a move.
const DOUBLINGS_MAX: u32 = 4;

/// The locks of a part of a move that changes two children.
type Held<'a> = (RwLockReadGuard<'a, Placement>, RwLockWriteGuard<'a, ()>);

/// A store of several parts; see the crate's documentation.
pub struct MultiBackend {
    children: Vec<Child>,
    routes: PinnedRoutes,
    /// Read by each put for as long as it lasts: after a change no put uses the routes before it.
    placement: RwLock<Placement>,
    survey: Mutex<Option<Survey>>,
    files: CardFiles,
    card: Mutex<Card>,
    draw: DrawNumber,
    /// The last sequence that this store has put to each child.
    last: Vec<AtomicU64>,
    is_closed: AtomicBool,
    /// True from the beginning of an erasure until one has ended: puts made meanwhile would be
    /// erased with the rest.
    is_erasing: AtomicBool,
    /// Read by operations that need keys to stay in their children: puts to buckets that are in
    /// several, queries of indexes and backups. Written by a part of a move; taken after
    /// `placement`.
    staying: RwLock<()>,
    /// Moves buckets with data outside of the route of their properties, if moves are enabled.
    mover: Option<Mover>,
}

impl MultiBackend {
    /// Makes a store in `directory` of children that are open, each with its files in the directory
    /// of its name there. The numbers in the routes are those of the children in this order. With
    /// `moves`, which makes the index entries of objects, buckets move, as upkeep, to the child
    /// that a property of theirs or of their type selects.
    ///
    /// # Errors
    /// Those of the disk; [`ErrorKind::Corrupt`] for a child with another identity than before, and
    /// [`ErrorKind::Denied`] if a former child is no longer declared.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        belonging: &Belonging,
        children: Vec<Child>,
        routes: Arc<dyn Routes>,
        draw: DrawNumber,
        moves: Option<Box<IndexEntriesOf>>,
    ) -> Result<Self> {
        let files = CardFiles {
            disk,
            directory: directory.to_owned(),
        };
        let card = files.settle(belonging, &children, &draw)?;
        let routes = PinnedRoutes::open(&files, card.identity, &children, routes)?;
        let (version, table) = routes.table();
        let placement = Placement::new(version, table, children.len());
        let last = children.iter().map(|it| it.store.durable().0);
        let mover = moves.map(|it| Mover::new(&files, card.identity, it));
        let mover = mover.transpose()?;
        Ok(Self {
            last: last.map(AtomicU64::new).collect(),
            children,
            routes,
            placement: RwLock::new(placement),
            survey: Mutex::new(None),
            files,
            card: Mutex::new(card),
            draw,
            is_closed: AtomicBool::new(false),
            is_erasing: AtomicBool::new(false),
            staying: RwLock::new(()),
            mover,
        })
    }

    /// The children, in their order.
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    fn has_child(&self, name: &str) -> bool {
        self.children.iter().any(|it| it.name == name)
    }

    /// By the routes that count now.
    fn placement(&self) -> RwLockReadGuard<'_, Placement> {
        let placement = self.placement.read();
        if placement.version == self.routes.version() {
            return placement;
        }
        drop(placement);
        let (version, table) = self.routes.table();
        self.placement.write().renew(version, table);
        self.placement.read()
    }

    /// The homes of a key, or of a bucket by the prefix of its keys, and the table they are from.
    fn homes(&self, key: &[u8]) -> (Homes, Arc<RouteTable>) {
        let placement = self.placement();
        (placement.homes(key), placement.table.clone())
    }

    /// True when a table is outdated: writes may have moved keys since then.
    fn is_outdated(&self, table: &Arc<RouteTable>) -> bool {
        !Arc::ptr_eq(&self.placement().table, table)
    }

    /// Reads from the child of the route, and then from the others that may have the key.
    fn look<T>(
        &self,
        key: &StorageKey,
        read: impl Fn(&Child) -> Result<Lookup<T>>,
        of_stray: impl Fn(T) -> T,
    ) -> Result<Lookup<T>> {
        loop {
            let (homes, table) = self.homes(key.as_bytes());
            let found = self.look_in(homes, &read, &of_stray)?;
            if !matches!(found, Lookup::Absent) || !self.is_outdated(&table) {
                return Ok(found);
            }
        }
    }

    fn look_in<T>(
        &self,
        homes: Homes,
        read: impl Fn(&Child) -> Result<Lookup<T>>,
        of_stray: impl Fn(T) -> T,
    ) -> Result<Lookup<T>> {
        let read = |child: ChildNumber| {
            let child = &self.children[child];
            child.named(read(child))
        };
        let found = read(homes.own)?;
        if !matches!(found, Lookup::Absent) || homes.others.is_empty() {
            return Ok(found);
        }
        for other in homes.others.iter() {
            match read(other)? {
                Lookup::Absent => {}
                found => return Ok(found.map(&of_stray)),
            }
        }
        // A write may have moved it from there to the child of the route meanwhile.
        read(homes.own)
    }

    /// The child that all keys of a batch belong to, and the others that may have one of them;
    /// `None` for an empty batch.
    fn homes_of(&self, placement: &Placement, batch: &Batch) -> Result<Option<Homes>> {
        let mut homes: Option<Homes> = None;
        for write in &batch.writes {
            let its = placement.homes(write.key().as_bytes());
            match &mut homes {
                None => homes = Some(its),
                Some(homes) if homes.own == its.own => {
                    homes.others = its.others.iter().fold(homes.others, ChildSet::with);
                }
                Some(homes) => {
                    let [one, other] = [homes.own, its.own].map(|it| &self.children[it].name);
                    let detail = format!(
                        "a batch has keys of the backends {one} and {other}, which cannot change together"
                    );
                    return Err(BackendError::new(ErrorKind::Misuse, detail));
                }
            }
        }
        Ok(homes)
    }

    /// Gives a batch without writes a place behind all puts: in the default child, and in the
    /// others with data that are not durable yet.
    fn put_nothing(&self, placement: &Placement, durability: Durability) -> Result<Receipt> {
        let default = placement.table.child_of(&[]);
        let receipt = self.put_in(default, &Batch::default(), durability)?;
        let mut promises = vec![receipt.durable];
        for (number, child) in self.children.iter().enumerate() {
            let last = Sequence(self.last[number].load(Ordering::Acquire));
            if number != default && child.store.durable() < last {
                let behind = self.put_in(number, &Batch::default(), durability)?;
                promises.push(behind.durable);
            }
        }
        Ok(Receipt {
            sequence: receipt.sequence,
            durable: all_of(promises),
        })
    }

    /// Puts a batch to a child, without index entries if the child has no indexes.
    fn put_to(&self, child: ChildNumber, batch: &Batch, durability: Durability) -> Result<Receipt> {
        let has_entries = batch.writes.iter().any(|it| !it.index_entries().is_empty());
        if !has_entries || self.children[child].store.indexes().is_some() {
            return self.put_in(child, batch, durability);
        }
        let bare = Batch {
            writes: batch.writes.iter().cloned().map(without_entries).collect(),
        };
        self.put_in(child, &bare, durability)
    }

    /// Puts a batch to a child.
    fn put_in(
        &self,
        number: ChildNumber,
        batch: &Batch,
        durability: Durability,
    ) -> Result<Receipt> {
        let child = &self.children[number];
        let receipt = child.named(child.store.put(batch, durability))?;
        self.last[number].fetch_max(receipt.sequence.0, Ordering::AcqRel);
        Ok(receipt)
    }

    /// Writes for the other children with keys of a batch, made by `make` from the put and the
    /// place of the old entry.
    fn in_strays(
        &self,
        others: ChildSet,
        batch: &Batch,
        make: &dyn Fn(&Write, OldEntry) -> Result<Option<Write>>,
    ) -> Result<Vec<(ChildNumber, Batch)>> {
        let mut strays = Vec::new();
        for other in others.iter() {
            let mut made = Batch::default();
            for write in &batch.writes {
                if let Some(old) = entry_of(&self.children[other], write)? {
                    made.writes.extend(make(write, old)?);
                }
            }
            if !made.writes.is_empty() {
                strays.push((other, made));
            }
        }
        Ok(strays)
    }

    /// A put to a bucket that is in several children.
    ///
    /// After any interruption no child has an older version of a key beside a newer one in another
    /// child: the routes may change before the next read, and the older one would count again. So a
    /// removal goes to the others first. A put replaces the key in its present child before it goes
    /// to the child of its route; if that has the key too, the key is removed from the others
    /// first.
    fn put_over_strays(
        &self,
        homes: Homes,
        batch: &Batch,
        durability: Durability,
    ) -> Result<Receipt> {
        let (own, others) = (homes.own, homes.others);
        let removal = |write: &Write, old| Ok(Some(removal_of(write, old)));
        let is_removal = batch
            .writes
            .iter()
            .all(|it| matches!(it, Write::Remove { .. }));
        let superseded = |write: &Write, old| {
            let is_superseded = is_removal || entry_of(&self.children[own], write)?.is_some();
            Ok(is_superseded.then(|| removal_of(write, old)))
        };
        let replacement = |write: &Write, old| Ok(Some(with_old(write.clone(), old)));
        let mut promises = Vec::new();
        let is_cached = |it: &Write| it.old().reading == Reading::CachedOnly;
        if batch.writes.iter().any(is_cached)
            && !self.in_strays(others, batch, &removal)?.is_empty()
        {
            let detail = "a key goes from one backend to another, which waits for a sync";
            return Err(BackendError::new(ErrorKind::WouldBlock, detail));
        }
        for (child, removals) in self.in_strays(others, batch, &superseded)? {
            promises.push(self.put_in(child, &removals, durability)?.durable);
        }
        for (child, replaced) in self.in_strays(others, batch, &replacement)? {
            promises.push(self.put_to(child, &replaced, durability)?.durable);
        }
        let receipt = self.put_to(own, batch, durability)?;
        let removals = self.in_strays(others, batch, &removal)?;
        if !removals.is_empty() {
            // The children may have logs of their own: the removal could outlive the put, and the
            // old entry would be lost.
            let child = &self.children[own];
            child.named(child.store.sync())?;
        }
        for (child, removals) in removals {
            promises.push(self.put_in(child, &removals, durability)?.durable);
        }
        Ok(Receipt {
            sequence: receipt.sequence,
            durable: all_of([receipt.durable].into_iter().chain(promises)),
        })
    }

    /// The sum over the persistent children, plus the part of the others: while they are open one
    /// batch for the loss of their contents, and the batches since.
    fn sequence_of(&self, each: impl Fn(&Child) -> Result<Sequence>) -> Result<Sequence> {
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let (mut sum, mut passing) = (0, None);
        for child in &self.children {
            let sequence = child.named(each(child))?.0;
            match child.is_kept() {
                true => sum += sequence,
                false => passing = Some(passing.unwrap_or(1) + sequence),
            }
        }
        Ok(Sequence(match is_closed {
            true => sum,
            false => sum + passing.unwrap_or(0),
        }))
    }

    fn refuse_in_erasure(&self) -> Result<()> {
        if !self.is_erasing.load(Ordering::Acquire) {
            return Ok(());
        }
        let detail = "the erasure of the store has failed half way and has to be tried again";
        Err(BackendError::new(ErrorKind::Failed, detail))
    }

    fn snapshot_of(&self, placement: &Placement, lease: Lease) -> Result<Box<dyn Snapshot>> {
        let parts = self
            .children
            .iter()
            .map(|child| child.named(child.store.snapshot(lease)));
        Ok(Box::new(MultiSnapshot {
            parts: parts.collect::<Result<_>>()?,
            placement: placement.clone(),
        }))
    }

    fn is_survey_due(&self) -> bool {
        matches!(self.placement().strays, Strays::Unknown)
    }

    fn survey_step(&self, budget: StepBudget, now: Timestamp) -> Result<StepOutcome> {
        let (version, table) = {
            let placement = self.placement();
            if matches!(placement.strays, Strays::Known(_)) {
                return Ok(StepOutcome::nothing_left());
            }
            (placement.version, placement.table.clone())
        };
        let mut survey = self.survey.lock();
        let mut current = match survey.take() {
            Some(survey) if survey.version == version => survey,
            _ => Survey::new(version),
        };
        let step = current.step(&self.children, &table, budget.bytes, now)?;
        let Some(found) = step.found else {
            *survey = Some(current);
            return Ok(StepOutcome::partial(step.cost_bytes));
        };
        let is_settled = found.is_empty();
        {
            let mut placement = self.placement.write();
            if placement.version == version {
                placement.strays = Strays::Known(Arc::new(found));
            }
        }
        if is_settled && self.routes.pin() == Pin::Back {
            let identity = self.card.lock().identity;
            self.routes.change(&self.files, identity, Pin::None)?;
        }
        Ok(StepOutcome::done(step.cost_bytes))
    }

    /// Keeps keys in their children while a batch is put.
    fn stay(&self, batch: &Batch) -> Result<RwLockReadGuard<'_, ()>> {
        if let Some(staying) = self.staying.try_read() {
            return Ok(staying);
        }
        let mut writes = batch.writes.iter();
        if writes.any(|it| it.old().reading == Reading::CachedOnly) {
            let detail = "a part of the bucket is being moved";
            return Err(BackendError::new(ErrorKind::WouldBlock, detail));
        }
        Ok(self.staying.read())
    }

    /// The buckets outside of their routes, if known, and the table of these routes.
    fn known_strays(&self) -> Option<(StrayBuckets, Arc<RouteTable>)> {
        let placement = self.placement();
        match &placement.strays {
            Strays::Unknown => None,
            Strays::Known(strays) => Some((strays.clone(), placement.table.clone())),
        }
    }

    /// The free space for a move to a child.
    fn room_for(&self, target: ChildNumber) -> Result<u64> {
        if !self.children[target].is_kept() {
            return Ok(u64::MAX);
        }
        Ok(self.files.disk.space(&self.files.directory)?.available)
    }

    fn wanted(&self, mover: &Mover) -> Wanted {
        let Some((strays, table)) = self.known_strays() else {
            return Wanted::Nothing;
        };
        let mut state = mover.state.lock();
        state.renew(&strays, &table);
        let has_room = |target, needed| self.room_for(target).is_ok_and(|it| it >= needed);
        state.wanted(&self.children, &has_room)
    }

    fn move_task(&self) -> Option<Task> {
        let left_bytes = match self.wanted(self.mover.as_ref()?) {
            Wanted::Nothing => return None,
            Wanted::Survey => 0,
            Wanted::Move(next) => match next.going {
                Going::Counting { .. } => 0,
                Going::Moving(migration) => {
                    let progress = migration.progress();
                    progress
                        .bytes_estimate
                        .saturating_sub(progress.bytes_copied)
                }
            },
        };
        Some(Task {
            kind: TaskKind::Move,
            subject: MOVE_SUBJECT,
            urgency: Urgency::Normal,
            cost_bytes: left_bytes.max(BUCKET_BYTES),
        })
    }

    fn move_step(&self, budget: StepBudget, now: Timestamp) -> Result<StepOutcome> {
        let Some(mover) = &self.mover else {
            return Ok(StepOutcome::nothing_left());
        };
        let Some(_turn) = mover.turn.try_lock() else {
            return Ok(StepOutcome::partial(0));
        };
        self.refuse_in_erasure()?;
        match self.wanted(mover) {
            Wanted::Nothing => Ok(StepOutcome::nothing_left()),
            Wanted::Survey => {
                // The remaining data elsewhere can be found only by another survey.
                let mut placement = self.placement.write();
                placement.strays = Strays::Unknown;
                Ok(StepOutcome::done(BUCKET_BYTES))
            }
            Wanted::Move(next) => self.go_on(mover, &next, budget, now),
        }
    }

    fn go_on(
        &self,
        mover: &Mover,
        next: &Next,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let job = &next.job;
        match &next.going {
            Going::Counting { count, after } => {
                let (mut count, source) = (*count, &self.children[job.source]);
                let after =
                    count.add_part(source, &next.buckets, after.as_ref(), COUNTED_A_STEP)?;
                let mut state = mover.state.lock();
                state.counted(job, count, after, &self.children);
                Ok(StepOutcome::partial(BUCKET_BYTES))
            }
            Going::Moving(migration) => {
                let Some((event, cost)) = self.carry_out(mover, next, migration, budget, now)?
                else {
                    return Ok(StepOutcome::partial(0));
                };
                self.record(mover, job, migration, event, now)?;
                Ok(StepOutcome::partial(cost))
            }
        }
    }

    fn record(
        &self,
        mover: &Mover,
        job: &Job,
        before: &Migration,
        event: MoveEvent,
        now: Timestamp,
    ) -> Result<()> {
        let mut migration = before.clone();
        migration.step(event);
        let due = {
            let state = mover.state.lock();
            state.generation_due(before.phase(), migration.phase())
        };
        if let Some(generation) = due {
            let identity = self.card.lock().identity;
            move_record::write(&self.files, identity, generation, &migration)?;
        }
        mover.state.lock().went_on(job, migration, due, now);
        Ok(())
    }

    /// The result of the order, and its cost in bytes; `None` if others keep the keys in their
    /// places.
    fn carry_out(
        &self,
        mover: &Mover,
        next: &Next,
        migration: &Migration,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<Option<(MoveEvent, u64)>> {
        let Some(order) = migration.order() else {
            return Ok(None);
        };
        let job = &next.job;
        let pair = Pair {
            source: &self.children[job.source],
            target: &self.children[job.target],
        };
        let (part, detail) = match &order {
            MoveOrder::LookForRoom => {
                let available_bytes = self.room_for(job.target)?;
                return Ok(Some((MoveEvent::Room { available_bytes }, BUCKET_BYTES)));
            }
            MoveOrder::Copy(part) | MoveOrder::Verify(part) => (part, FoldDetail::Entries),
            MoveOrder::Remove(part) => (part, FoldDetail::Keys),
        };
        // Bytes that are read are written too.
        let bytes_max = (budget.bytes / 2).max(1);
        let gathered = pair.gather(&next.buckets, part.after.as_ref(), detail, bytes_max)?;
        let cost = gathered.bytes.saturating_mul(2).max(BUCKET_BYTES);
        let durable = match order {
            MoveOrder::Remove(_) => pair.target.named(pair.target.store.sync())?,
            _ => Sequence::default(),
        };
        let Some(_held) = self.hold_still(mover, &next.table) else {
            return Ok(None);
        };
        let put = |batch: &Batch| {
            self.put_to(job.target, batch, Durability::Buffered)
                .map(drop)
        };
        // An entry that a client's removal finds gone must not come back after a crash.
        let remove = |batch: &Batch| {
            let receipt = self.put_in(job.source, batch, Durability::Grouped)?;
            receipt.wait().map(drop)
        };
        let event = match order {
            MoveOrder::Copy(_) => pair.copy(gathered, &mover.index_entries, now, &put, &remove)?,
            MoveOrder::Verify(_) => pair.verify(&gathered)?,
            _ => pair.remove(gathered, durable, now, &remove)?,
        };
        Ok(Some((event, cost)))
    }

    /// Keeps puts to buckets that are in several children, queries and snapshots from beginning,
    /// and a table's routes in place. `None` if the routes have changed, or the present holders
    /// take too long.
    fn hold_still(&self, mover: &Mover, table: &Arc<RouteTable>) -> Option<Held<'_>> {
        let placement = self.placement();
        if !Arc::ptr_eq(&placement.table, table) {
            return None;
        }
        let put_off = mover.put_off.load(Ordering::Relaxed);
        let wait = HELD_WAIT * (1 << put_off.min(DOUBLINGS_MAX));
        mover.is_waiting.store(true, Ordering::Relaxed);
        let moving = self.staying.try_write_for(wait);
        mover.is_waiting.store(false, Ordering::Relaxed);
        let put_off = moving.as_ref().map_or(put_off.saturating_add(1), |_| 0);
        mover.put_off.store(put_off, Ordering::Relaxed);
        Some((placement, moving?))
    }

    /// A query of a bucket that is in several children keeps its keys in place, and gives way to a
    /// waiting part of a move. A part does not change the order of entries, and the query continues
    /// behind the last one.
    fn fold_index_in_turns(
        &self,
        homes: Homes,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let is_waiting = || {
            let mover = self.mover.as_ref();
            mover.is_some_and(|it| it.is_waiting.load(Ordering::Relaxed))
        };
        let mut range = range.clone();
        loop {
            let (mut gives_way, mut last) = (false, None);
            let end = {
                let _staying = self.staying.read();
                self.fold_index_in(homes, &range, lease, now, &mut |term, key| {
                    if visitor(term, key) == Flow::Stop {
                        return Flow::Stop;
                    }
                    gives_way = is_waiting();
                    if gives_way {
                        last = Some((term.clone(), key.clone()));
                        return Flow::Stop;
                    }
                    Flow::Continue
                })?
            };
            if !gives_way {
                return Ok(end);
            }
            range.after = last;
        }
    }

    fn fold_index_in(
        &self,
        homes: Homes,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let own = &self.children[homes.own];
        let Some(indexes) = own.store.indexes() else {
            let detail = format!("the backend {} of the bucket keeps no indexes", own.name);
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        };
        let strays = self.indexes_of_strays(homes.others, range)?;
        if strays.is_empty() {
            return own.named(indexes.fold_index(range, lease, now, visitor));
        }
        let all = [indexes].into_iter().chain(strays);
        let sources = all.map(|it| IndexSource::new(it, range)).collect();
        let is_superseded = |key: &StorageKey| {
            let of_any_age = ReadAt::may_block(Timestamp(0));
            let found = own.named(own.store.head(key, of_any_age))?;
            Ok(!matches!(found, Lookup::Absent))
        };
        index_merge::merge(sources, lease, now, &is_superseded, visitor)
    }

    /// The children other than the route's with data of a bucket, with their indexes.
    fn indexes_of_strays(
        &self,
        others: ChildSet,
        range: &IndexRange,
    ) -> Result<Vec<&dyn IndexFolds>> {
        let mut indexes = Vec::new();
        for other in others.iter() {
            let child = &self.children[other];
            if !has_bucket(child, &range.bucket_prefix)? {
                continue;
            }
            let its = child.store.indexes().ok_or_else(|| {
                let detail = format!(
                    "objects of the bucket are in the backend {}, which keeps no indexes; read them and put \
                     them again, and they are in the backend of the bucket",
                    child.name
                );
                BackendError::new(ErrorKind::Unread, detail)
            })?;
            indexes.push(its);
        }
        Ok(indexes)
    }
}

impl Backend for MultiBackend {
    fn capabilities(&self) -> Capabilities {
        let each = || self.children.iter().map(|it| it.store.capabilities());
        Capabilities {
            persistent: each().all(|it| it.persistent),
            cheap_heads: each().all(|it| it.cheap_heads),
            ordered: each().all(|it| it.ordered),
            indexes: each().any(|it| it.indexes),
            backups: self.backups().is_some(),
            drops_entries: each().any(|it| it.drops_entries),
        }
    }

    fn identity(&self) -> StoreId {
        StoreId(self.card.lock().identity)
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        let placement = self.placement();
        self.refuse_in_erasure()?;
        match self.homes_of(&placement, batch)? {
            None => self.put_nothing(&placement, durability),
            Some(homes) if homes.others.is_empty() => self.put_to(homes.own, batch, durability),
            Some(homes) => {
                let _staying = self.stay(batch)?;
                self.put_over_strays(homes, batch, durability)
            }
        }
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.look(key, |child| child.store.get(key, at), |entry| entry)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        // The place is in another store than that of the next write.
        let without_place = |head| StoredHead {
            place: None,
            ..head
        };
        self.look(key, |child| child.store.head(key, at), without_place)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        {
            let placement = self.placement();
            if placement.is_settled() {
                return self.snapshot_of(&placement, lease);
            }
        }
        // No write moves a key from one child to another meanwhile.
        let placement = self.placement.write();
        self.snapshot_of(&placement, lease)
    }

    fn sync(&self) -> Result<Sequence> {
        self.sequence_of(|child| child.store.sync())
    }

    fn durable(&self) -> Sequence {
        self.sequence_of(|child| Ok(child.store.durable()))
            .unwrap_or_default()
    }

    /// The sum of the children's numbers does not show which batches of a child are missing.
    fn take_replayed(&self) -> Option<Replayed> {
        for child in &self.children {
            drop(child.store.take_replayed());
        }
        None
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        for child in &self.children {
            if !child.named(child.store.is_empty(now))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn status(&self) -> Status {
        let mut status = status_sum::sum(&self.children);
        if let Strays::Known(strays) = &self.placement().strays {
            status
                .details
                .push(("buckets_elsewhere", strays.len().to_string()));
        }
        status
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let mut due = Vec::new();
        if self.is_survey_due() {
            due.push(Task {
                kind: TaskKind::Checkpoint,
                subject: SURVEY_SUBJECT,
                urgency: Urgency::Normal,
                cost_bytes: SURVEY_COST_BYTES,
            });
        }
        due.extend(self.move_task());
        for (number, child) in self.children.iter().enumerate() {
            let tasks = child.store.maintenance_due(now);
            due.extend(tasks.iter().map(|task| of_whole(number, task)));
        }
        due.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let Some((child, task)) = of_child(task) else {
            return match task.subject {
                MOVE_SUBJECT => self.move_step(budget, now),
                _ => self.survey_step(budget, now),
            };
        };
        match self.children.get(child) {
            Some(child) => child.named(child.store.maintenance_step(&task, budget, now)),
            None => Ok(StepOutcome::nothing_left()),
        }
    }

    fn part_of(&self, task: &Task) -> Option<(&str, Task)> {
        let (child, task) = of_child(task)?;
        Some((&self.children.get(child)?.name, task))
    }

    /// An interruption by a crash is detected by the children that are erased already, and the next
    /// opening continues. After an error puts are refused until it is repeated.
    fn erase(&self) -> Result<()> {
        let mut placement = self.placement.write();
        self.is_erasing.store(true, Ordering::Release);
        let mut card = self.card.lock();
        erase(&self.children, Some(&card))?;
        let erased = Card {
            generation: card.generation + 1,
            erased: card.identity,
            identity: (self.draw)().max(1),
            children: known(&self.children),
            label: card.label.clone(),
        };
        let (disk, directory) = (&*self.files.disk, &self.files.directory);
        if !erased.children.is_empty() {
            write_two_copies(disk, directory, CARD_NAMES, &erased.encode()).both()?;
        }
        *card = erased;
        for (last, child) in self.last.iter().zip(&self.children) {
            last.store(child.store.durable().0, Ordering::Release);
        }
        placement.strays = Strays::Known(Arc::default());
        if let Some(mover) = &self.mover {
            mover.state.lock().clear();
        }
        self.routes.forget();
        self.is_erasing.store(false, Ordering::Release);
        Ok(())
    }

    /// All are closed, even if the first fails.
    fn close(&self) -> Result<()> {
        let closed: Vec<Result<()>> = self
            .children
            .iter()
            .map(|child| child.named(child.store.close()))
            .collect();
        self.is_closed.store(true, Ordering::Release);
        closed.into_iter().collect()
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        let has_any = self.children.iter().any(|it| it.store.indexes().is_some());
        has_any.then_some(self)
    }

    fn indexes_of(&self, bucket_prefix: &[u8]) -> Option<&dyn IndexFolds> {
        let own = self.placement().homes(bucket_prefix).own;
        self.children[own]
            .store
            .indexes()
            .map(|_| self as &dyn IndexFolds)
    }

    fn engine_of(&self, bucket_prefix: &[u8]) -> &'static str {
        let own = self.placement().homes(bucket_prefix).own;
        self.children[own].store.status().engine
    }

    /// Available if every child has a journal, and no data are outside of their routes: a key that
    /// moves meanwhile would be visited twice or not at all.
    fn journal_folds(&self) -> Option<&dyn JournalFolds> {
        let mut children = self.children.iter();
        let have_all = children.all(|it| it.store.journal_folds().is_some());
        (have_all && self.placement().is_settled()).then_some(self)
    }

    fn backups(&self) -> Option<&dyn Backups> {
        let mut kept = self.children.iter().filter(|it| it.is_kept()).peekable();
        kept.peek()?;
        kept.all(|it| it.store.backups().is_some()).then_some(self)
    }

    fn moves(&self) -> Option<&dyn Moves> {
        self.mover.as_ref().map(|_| self as &dyn Moves)
    }
}

impl Moves for MultiBackend {
    fn moves(&self) -> Vec<MoveStatus> {
        let Some(mover) = &self.mover else {
            return Vec::new();
        };
        let known = self.known_strays();
        let mut state = mover.state.lock();
        if let Some((strays, table)) = known {
            state.renew(&strays, &table);
        }
        state.statuses(&self.children)
    }

    fn is_looking(&self) -> bool {
        self.is_survey_due()
    }

    fn estimate(&self, scope: &[u8], target: &str, now: Timestamp) -> Result<MoveEstimate> {
        let target = self.children.iter().position(|it| it.name == target);
        let target = target.ok_or_else(no_such_child)?;
        let table = self.placement().table.clone();
        let mut estimate = MoveEstimate {
            available_bytes: self.room_for(target)?,
            ..MoveEstimate::default()
        };
        for (number, child) in self.children.iter().enumerate() {
            if number == target {
                continue;
            }
            let buckets = buckets_of(child, scope, &table, now)?;
            let (mut count, mut after) = (Count::default(), None);
            loop {
                after = count.add_part(child, &buckets, after.as_ref(), COUNTED_A_STEP)?;
                if after.is_none() {
                    break;
                }
            }
            estimate.keys += count.keys;
            estimate.bytes += count.bytes();
        }
        estimate.needed_bytes = room_needed(estimate.bytes);
        Ok(estimate)
    }

    fn pin(&self, target: Option<&str>) -> Result<()> {
        if target.is_some_and(|name| !self.has_child(name)) {
            return Err(no_such_child());
        }
        self.take_over_pin(target)
    }

    fn take_over_pin(&self, target: Option<&str>) -> Result<()> {
        let pin = match target {
            Some(name) => Pin::To(name.to_owned()),
            None if matches!(self.routes.pin(), Pin::To(_)) => Pin::Back,
            None => return Ok(()),
        };
        let identity = self.card.lock().identity;
        self.routes.change(&self.files, identity, pin)
    }

    fn pinned(&self) -> Option<PinnedTo> {
        match self.routes.pin() {
            Pin::To(name) => Some(PinnedTo {
                is_there: self.has_child(&name),
                name,
            }),
            Pin::None | Pin::Back => None,
        }
    }
}

/// The buckets of a child in a scope, in order, without those of a type whose backend is chosen
/// otherwise.
fn buckets_of(
    child: &Child,
    scope: &[u8],
    table: &RouteTable,
    now: Timestamp,
) -> Result<Vec<Bytes>> {
    let snapshot = child.named(child.store.snapshot(Lease::Unlimited))?;
    let filter = FoldFilter::unexpired(now);
    let mut buckets = Vec::new();
    let prefixes = match scope.is_empty() {
        true => vec![Vec::new()],
        false => vec![scope.to_vec(), pages_prefix(scope)],
    };
    for prefix in prefixes {
        let end = snapshot.fold_buckets(&FoldRange::prefix(&prefix), &filter, &mut |visited| {
            let keys_prefix = bucket_of_key(visited.key);
            let bucket = without_page_mark(keys_prefix);
            if bucket == scope || scope.is_empty() || !table.is_apart_from_type(bucket) {
                buckets.push(Bytes::copy_from_slice(keys_prefix));
            }
            Flow::Continue
        });
        child.named(end)?;
    }
    buckets.sort_unstable();
    Ok(buckets)
}

impl IndexFolds for MultiBackend {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let (homes, table) = self.homes(&range.bucket_prefix);
        let end = match homes.others.is_empty() {
            true => self.fold_index_in(homes, range, lease, now, visitor)?,
            false => self.fold_index_in_turns(homes, range, lease, now, visitor)?,
        };
        if self.is_outdated(&table) {
            return Err(outdated("query"));
        }
        Ok(end)
    }

    fn counts(&self) -> IndexCounts {
        let mut all = IndexCounts::default();
        for indexes in self.children.iter().filter_map(|it| it.store.indexes()) {
            all += indexes.counts();
        }
        all
    }
}

/// One journal after the other.
impl JournalFolds for MultiBackend {
    fn fold_in_journal_order(
        &self,
        range: &FoldRange,
        lease: Lease,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<JournalFolded> {
        let (children, table) = {
            let placement = self.placement();
            (placement.children_of(range), placement.table.clone())
        };
        let mut all = JournalFolded {
            end: JournalFoldEnd::Complete,
            has_met_damage: false,
        };
        for number in children.iter() {
            let child = &self.children[number];
            let Some(folds) = child.store.journal_folds() else {
                let detail = format!("the backend {} keeps no journal", child.name);
                return Err(BackendError::new(ErrorKind::Misuse, detail));
            };
            let folded = child.named(folds.fold_in_journal_order(range, lease, filter, visitor))?;
            all.end = folded.end;
            all.has_met_damage |= folded.has_met_damage;
            if folded.end != JournalFoldEnd::Complete {
                break;
            }
        }
        match self.is_outdated(&table) {
            true => Err(outdated("fold")),
            false => Ok(all),
        }
    }
}

impl Backups for MultiBackend {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let disk = &*self.files.disk;
        create_directory_durably(disk, directory)?;
        // A key that moves meanwhile could be in neither copy.
        let _staying = self.staying.read();
        let mut all = StoreBackup::default();
        let mut held = Vec::new();
        for child in self.children.iter().filter(|it| it.is_kept()) {
            let Some(backups) = child.store.backups() else {
                continue;
            };
            let made = child.named(backups.backup(&directory.join(&child.name)))?;
            all.files += made.files;
            held.extend(made.held);
        }
        if !held.is_empty() {
            all.held = Some(Arc::new(held));
        }
        let card = self.card.lock().encode();
        for name in CARD_NAMES {
            replace_file(disk, &directory.join(name), &card)?;
            all.files.count_copy(card.len() as u64);
        }
        // The record of a move is left out: the required moves are found without it.
        for (name, pin) in pin::kept_copies(&self.files)? {
            replace_file(disk, &directory.join(name), &pin)?;
            all.files.count_copy(pin.len() as u64);
        }
        Ok(all)
    }
}

fn no_such_child() -> BackendError {
    BackendError::new(ErrorKind::Misuse, "the store has no backend of this name")
}

fn outdated(asked: &str) -> BackendError {
    let detail = format!(
        "the backends of buckets have changed during the {asked}, which may be short of objects that were \
         written meanwhile: ask again"
    );
    BackendError::new(ErrorKind::Unread, detail)
}

fn without_entries(write: Write) -> Write {
    match write {
        Write::Put {
            key,
            fields,
            head,
            body,
            old,
            ..
        } => Write::Put {
            key,
            fields,
            head,
            body,
            index_entries: Vec::new(),
            old,
        },
        removal @ Write::Remove { .. } => removal,
    }
}

/// The place of a child's entry of a write's key, expired or not, if it has one.
fn entry_of(child: &Child, write: &Write) -> Result<Option<OldEntry>> {
    let reading = write.old().reading;
    let of_any_age = ReadAt {
        reading,
        now: Timestamp(0),
    };
    match child.named(child.store.head(write.key(), of_any_age))? {
        Lookup::Absent => Ok(None),
        Lookup::Found(head) => Ok(Some(OldEntry {
            place: head.place,
            reading,
        })),
        Lookup::WouldBlock => Err(BackendError::new(
            ErrorKind::WouldBlock,
            format!("the backend {} has to be read for the key", child.name),
        )),
    }
}

fn removal_of(write: &Write, old: OldEntry) -> Write {
    Write::Remove {
        key: write.key().clone(),
        old,
    }
}

/// The same write for another store that has the key.
fn with_old(mut write: Write, there: OldEntry) -> Write {
    match &mut write {
        Write::Put { old, .. } | Write::Remove { old, .. } => *old = there,
    }
    write
}

/// True when a child has an entry of a bucket, expired or not.
fn has_bucket(child: &Child, bucket_prefix: &[u8]) -> Result<bool> {
    let snapshot = child.named(child.store.snapshot(Lease::Unlimited))?;
    let of_any_age = FoldFilter::unexpired(Timestamp(0));
    let (range, mut is_there) = (FoldRange::prefix(bucket_prefix), false);
    let end = snapshot.fold(FoldDetail::Keys, &range, &of_any_age, &mut |_| {
        is_there = true;
        Flow::Stop
    });
    child.named(end).map(|_| is_there)
}
