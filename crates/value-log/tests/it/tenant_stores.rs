//! Several stores of bitcask, leveldb or leveled with their entries in one value log, as in a node:
//! killed, cut from the power anywhere, opened again under another durability, collected and merged
//! meanwhile. Acknowledged writes survive, as far as the durability at that time promised.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Durable, Fields, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease,
    Lookup, ReadAt, Reading, Result, Sequence, StepBudget, TaskKind, Timestamp, Visited, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_backend_hanoidb::HanoidbSettings;
use kvorum_backend_innostore::InnostoreSettings;
use kvorum_backend_leveldb::LeveldbSettings;
use kvorum_backend_leveled::LeveledSettings;
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{Admission, Tenant, ValueLog, ValueLogSettings};
use proptest::prelude::*;

use crate::tenants::{
    Engine, Opened, bitcask_settings, hanoidb_settings, innostore_settings, leveldb_settings,
    leveled_settings, tenants_of,
};

pub(crate) const STORES: usize = 3;
pub(crate) const KEYS: usize = 5;
/// Some ten batches to a segment.
const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 1_500,
    garbage_percent_max: 20,
};
pub(crate) const NOW: Timestamp = Timestamp(1_000_000);
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A put with the store's own durability, and its wait.
    Put(usize),
    /// A durable put, and its wait.
    PutDurably(usize),
    /// A put without a wait.
    Buffered(usize),
    /// A batch of two keys.
    Pair(usize),
    Remove(usize),
    LogUpkeep,
    /// The due task at this place.
    Upkeep(usize, usize),
    Roll,
    Erase(usize),
    /// Replaces one store by another instance while the log stays.
    Exchange(usize),
    /// Closes all, and opens them with another durability.
    Close(Mode),
    /// The process dies.
    Kill(Mode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No value log yet: entries are in the stores' own files.
    Own,
    None,
    Interval,
    Grouped,
}

impl Mode {
    fn strategy(self) -> SyncStrategy {
        match self {
            Self::Own | Self::None => SyncStrategy::None,
            Self::Interval => SyncStrategy::Interval(INTERVAL),
            Self::Grouped => SyncStrategy::Grouped,
        }
    }
}

/// The engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bitcask,
    Leveldb,
    Leveled,
    Hanoidb,
    Innostore,
}

pub(crate) const KINDS: [Kind; 5] = [
    Kind::Bitcask,
    Kind::Leveldb,
    Kind::Leveled,
    Kind::Hanoidb,
    Kind::Innostore,
];

impl Kind {
    fn engine(self, mode: Mode) -> Engine {
        match self {
            Self::Bitcask => Engine::Bitcask(BitcaskSettings {
                sync: mode.strategy(),
                file_bytes_max: 2_000,
                checkpoint_after_bytes: 3_000,
                log_segments_behind_max: 2,
                ..bitcask_settings()
            }),
            Self::Leveldb => Engine::Leveldb(LeveldbSettings {
                sync: mode.strategy(),
                write_buffer_bytes: 2_000,
                // Two values of three.
                blob_threshold_bytes: 100,
                log_segments_behind_max: 2,
                ..leveldb_settings()
            }),
            Self::Hanoidb => Engine::Hanoidb(HanoidbSettings {
                sync: mode.strategy(),
                write_buffer_bytes: 2_000,
                // Two values of three.
                blob_threshold_bytes: 100,
                log_segments_behind_max: 2,
                ..hanoidb_settings()
            }),
            Self::Leveled => Engine::Leveled(LeveledSettings {
                sync: match mode {
                    Mode::Own | Mode::None => SyncStrategy::None,
                    Mode::Interval => SyncStrategy::Interval(INTERVAL),
                    Mode::Grouped => SyncStrategy::Grouped,
                },
                log_segments_behind_max: 2,
                ..leveled_settings()
            }),
            Self::Innostore => Engine::Innostore(InnostoreSettings {
                sync: mode.strategy(),
                // One value of three.
                body_apart_bytes: 150,
                log_segments_behind_max: 2,
                ..innostore_settings()
            }),
        }
    }
}

pub(crate) type Values = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) struct Node {
    pub(crate) log: ValueLog,
    pub(crate) stores: Vec<Opened>,
    disk: Arc<dyn Disk>,
    drawn: Arc<AtomicU64>,
    kind: Kind,
    mode: Mode,
}

impl Node {
    fn open(disk: &Arc<dyn Disk>, drawn: &Arc<AtomicU64>, mode: Mode) -> Result<Self> {
        Self::open_of(Kind::Bitcask, disk, drawn, mode)
    }

    pub(crate) fn open_of(
        kind: Kind,
        disk: &Arc<dyn Disk>,
        drawn: &Arc<AtomicU64>,
        mode: Mode,
    ) -> Result<Self> {
        let log_id = drawn.fetch_add(1, Ordering::Relaxed);
        let (log, found) = ValueLog::open(disk.clone(), Path::new("node/log"), log_id, LOG)?;
        assert_eq!(found.damage, Vec::<String>::new());
        let mut node = Self {
            log,
            stores: Vec::new(),
            disk: disk.clone(),
            drawn: drawn.clone(),
            kind,
            mode,
        };
        node.stores = (0..STORES)
            .map(|number| node.open_store(number))
            .collect::<Result<_>>()?;
        let (log, stores) = (&node.log, &node.stores);
        if mode != Mode::Own {
            let admitted = log.admit(&tenants_of(stores))?;
            assert_eq!(admitted.damage, Vec::<String>::new());
            all_admitted(admitted)?;
        }
        for store in stores {
            // An interrupted erasure leaves the checkpoint of the erased contents.
            let mut lost = store.status().lost;
            lost.retain(|range| !range.held.contains("nothing is lost"));
            assert_eq!(lost, Vec::new());
        }
        Ok(node)
    }

    /// A log, and stores to which it has not replayed its batches.
    pub(crate) fn unadmitted(kind: Kind, disk: &Arc<dyn Disk>, drawn: &Arc<AtomicU64>) -> Self {
        let log_id = drawn.fetch_add(1, Ordering::Relaxed);
        let (log, _) = ValueLog::open(disk.clone(), Path::new("node/log"), log_id, LOG).unwrap();
        let mut node = Self {
            log,
            stores: Vec::new(),
            disk: disk.clone(),
            drawn: drawn.clone(),
            kind,
            mode: Mode::Grouped,
        };
        node.stores = (0..STORES).map(|it| node.open_store(it).unwrap()).collect();
        node
    }

    fn open_store(&self, number: usize) -> Result<Opened> {
        let drawn = self.drawn.clone();
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let shared: ValueLog = self.log.clone();
        let shared = (self.mode != Mode::Own).then_some(shared);
        let engine = self.kind.engine(self.mode);
        engine.open(self.disk.clone(), &directory_of(number), draw, shared)
    }

    /// Opens another instance of a store over the files of this one.
    fn exchange(&mut self, number: usize) -> Result<()> {
        if self.mode != Mode::Own {
            self.log.sync()?;
        }
        self.stores.remove(number);
        self.stores.insert(number, self.open_store(number)?);
        if self.mode != Mode::Own {
            all_admitted(
                self.log
                    .admit_some(&tenants_of(&self.stores[number..=number]))?,
            )?;
        }
        Ok(())
    }

    pub(crate) fn values(&self, store: usize) -> Values {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        let mut values = Values::new();
        for number in 0..KEYS {
            let key = key(number);
            match self.stores[store].get(&key, at).expect("reading") {
                Lookup::Found(entry) => {
                    values.insert(key.as_bytes().to_vec(), entry.body.to_vec());
                }
                found => assert!(matches!(found, Lookup::Absent)),
            }
        }
        assert_eq!(self.folded(store), values, "a fold, and what is read");
        values
    }

    /// The same by a fold.
    fn folded(&self, store: usize) -> Values {
        let snapshot = self.stores[store].snapshot(Lease::Unlimited).unwrap();
        let filter = FoldFilter::unexpired(NOW);
        let mut values = Values::new();
        let visit = &mut |visited: Visited<'_>| {
            values.insert(visited.key.as_bytes().to_vec(), visited.body.to_vec());
            Flow::Continue
        };
        let all = FoldRange::all();
        let folded = snapshot.fold(FoldDetail::Entries, &all, &filter, visit);
        assert_eq!(folded, Ok(FoldEnd::Complete));
        values
    }

    pub(crate) fn put_durably(&self, store: usize, number: usize) {
        let receipt = self.stores[store].put(&Batch::of(put(number)), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    fn close(&self) -> Result<()> {
        self.stores.iter().try_for_each(|store| store.close())
    }
}

/// A store may have to flush during its replay, and the power may be cut there.
fn all_admitted(admitted: Admission) -> Result<()> {
    match admitted.failed.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

pub(crate) fn directory_of(store: usize) -> PathBuf {
    PathBuf::from(format!("node/stores/{store}"))
}

pub(crate) fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {number}").into_bytes())
}

pub(crate) fn put(number: usize) -> Write {
    let len = 20 + 90 * (number % 3);
    let body = Bytes::from(format!("{number:0len$}"));
    let head = Bytes::from_static(b"head");
    Write::put(key(number % KEYS), Fields::default(), head, body)
}

/// The writes of a store.
#[derive(Clone, Debug, Default)]
struct Life {
    put: Vec<Batch>,
    /// A kill may not lose this many of the first batches.
    written: usize,
    /// A power cut may not lose this many.
    durable: usize,
    is_erasing: bool,
}

impl Life {
    fn values_after(&self, batches: usize) -> Values {
        let mut values = Values::new();
        for write in self.put[..batches].iter().flat_map(|it| &it.writes) {
            let key = write.key().as_bytes().to_vec();
            match write {
                Write::Put { body, .. } => values.insert(key, body.to_vec()),
                Write::Remove { .. } => values.remove(&key),
            };
        }
        values
    }

    /// The contents after a crash: the first batches, no fewer than promised.
    fn survive(&mut self, found: &Values, promised: usize, story: &str) {
        let mut counts = (promised..=self.put.len()).rev();
        let count = counts.find(|count| self.values_after(*count) == *found);
        let count = match count {
            Some(count) => count,
            None if self.is_erasing && found.is_empty() => 0,
            None => panic_of(self, found, promised, story),
        };
        self.put.truncate(count);
        self.written = count.min(self.written);
        self.durable = count.min(self.durable);
        self.is_erasing = false;
    }
}

#[expect(clippy::panic, reason = "a failed check of a test")]
fn panic_of(life: &Life, found: &Values, promised: usize, story: &str) -> usize {
    let names = |values: &Values| -> Vec<String> {
        let name = |(key, body): (&Vec<u8>, &Vec<u8>)| {
            let body = String::from_utf8_lossy(body);
            let body = body.trim_start_matches('0');
            format!("{} = {body}", String::from_utf8_lossy(key))
        };
        values.iter().map(name).collect()
    };
    panic!(
        "{story}: {:?}, promised {:?} ({promised} of {}), put {:?}",
        names(found),
        names(&life.values_after(promised)),
        life.put.len(),
        names(&life.values_after(life.put.len())),
    )
}

struct Run {
    kind: Kind,
    memory: MemoryDisk,
    drawn: Arc<AtomicU64>,
    lives: Vec<Life>,
    mode: Mode,
    node: Option<Node>,
}

impl Run {
    fn begin(kind: Kind, mode: Mode) -> Self {
        Self {
            kind,
            memory: MemoryDisk::new(),
            drawn: Arc::new(AtomicU64::new(1)),
            lives: vec![Life::default(); STORES],
            mode,
            node: None,
        }
    }

    fn node(&mut self) -> Result<&Node> {
        if self.node.is_none() {
            let disk: Arc<dyn Disk> = Arc::new(self.memory.clone());
            let node = Node::open_of(self.kind, &disk, &self.drawn, self.mode)?;
            self.node = Some(node);
        }
        Ok(self.node.as_ref().unwrap())
    }

    /// Plays a script until a step fails.
    fn play(&mut self, script: &[Step], from: usize) -> Result<()> {
        for (number, step) in (from..).zip(script) {
            self.step(*step, number)?;
        }
        Ok(())
    }

    fn step(&mut self, step: Step, number: usize) -> Result<()> {
        match step {
            Step::Put(at) => self.put(at, Batch::of(put(number)), Durability::BackendDefault),
            Step::PutDurably(at) => self.put(at, Batch::of(put(number)), Durability::Grouped),
            Step::Buffered(at) => self.put(at, Batch::of(put(number)), Durability::Buffered),
            Step::Pair(at) => {
                let writes = vec![put(number), put(number + 1)];
                self.put(at, Batch { writes }, Durability::BackendDefault)
            }
            Step::Remove(at) => {
                let batch = Batch::of(Write::remove(key(number % KEYS)));
                self.put(at, batch, Durability::BackendDefault)
            }
            Step::LogUpkeep => {
                let budget = StepBudget { bytes: 600 };
                self.node()?.log.upkeep_step(budget).map(drop)
            }
            Step::Upkeep(at, pick) => {
                let store = self.node()?.stores[at].clone();
                let due = store.maintenance_due(NOW);
                let Some(task) = due.get(pick % due.len().max(1)) else {
                    return Ok(());
                };
                let budget = StepBudget { bytes: 600 };
                store.maintenance_step(task, budget, NOW).map(drop)
            }
            Step::Roll => self.node()?.log.roll(),
            Step::Erase(at) => {
                let store = self.node()?.stores[at].clone();
                self.lives[at].is_erasing = true;
                store.erase()?;
                self.lives[at] = Life::default();
                Ok(())
            }
            Step::Exchange(at) => {
                self.node()?;
                if let Some(node) = &mut self.node {
                    node.exchange(at)?;
                }
                let life = &self.lives[at];
                let expected = life.values_after(life.put.len());
                assert_eq!(
                    self.node()?.values(at),
                    expected,
                    "step {number}, exchanged"
                );
                Ok(())
            }
            Step::Close(mode) => {
                self.node()?.close()?;
                for life in &mut self.lives {
                    life.written = life.put.len();
                    life.durable = life.put.len();
                }
                self.reopen(mode, number)
            }
            Step::Kill(mode) => {
                self.node()?;
                self.reopen(mode, number)
            }
        }
    }

    fn reopen(&mut self, mode: Mode, number: usize) -> Result<()> {
        self.node = None;
        self.mode = mode;
        let found: Vec<Values> = {
            let node = self.node()?;
            (0..STORES).map(|store| node.values(store)).collect()
        };
        for (at, found) in found.iter().enumerate() {
            let story = format!("step {number}, store {at} opened as {mode:?}");
            let life = &mut self.lives[at];
            life.survive(found, life.written, &story);
        }
        Ok(())
    }

    fn put(&mut self, at: usize, batch: Batch, durability: Durability) -> Result<()> {
        let store = self.node()?.stores[at].clone();
        let receipt = store.put(&batch, durability)?;
        self.lives[at].put.push(batch);
        if durability != Durability::Buffered {
            if let Durable::After(ticket) = receipt.durable {
                ticket.wait()?;
            }
            let life = &mut self.lives[at];
            life.written = life.put.len();
            if durability == Durability::Grouped || self.mode == Mode::Grouped {
                life.durable = life.put.len();
            }
        }
        let life = &self.lives[at];
        let expected = life.values_after(life.put.len());
        assert_eq!(self.node()?.values(at), expected);
        Ok(())
    }

    /// Continues after a power cut.
    fn cut(&mut self, options: CrashOptions, mode: Mode, story: &str) {
        self.node = None;
        self.memory = self.memory.crash_image(options);
        self.mode = mode;
        let found: Vec<Values> = {
            let node = self.node().expect(story);
            (0..STORES).map(|store| node.values(store)).collect()
        };
        for (at, found) in found.iter().enumerate() {
            let life = &mut self.lives[at];
            life.survive(found, life.durable, &format!("{story}, store {at}"));
        }
    }

    /// Does all due upkeep; every answer stays as before.
    fn finish_upkeep(&mut self, story: &str) {
        let node = self.node().expect(story);
        for _ in 0..200 {
            let mut is_idle = !node.log.is_upkeep_due();
            node.log
                .upkeep_step(StepBudget { bytes: 2_000 })
                .expect(story);
            for store in &node.stores {
                if let Some(task) = store.maintenance_due(NOW).first() {
                    let budget = StepBudget { bytes: 2_000 };
                    store.maintenance_step(task, budget, NOW).expect(story);
                    is_idle = false;
                }
            }
            if is_idle {
                break;
            }
        }
        for (at, life) in self.lives.iter().enumerate() {
            let expected = life.values_after(life.put.len());
            let node = self.node.as_ref().unwrap();
            assert_eq!(
                node.values(at),
                expected,
                "{story}, store {at} after upkeep"
            );
        }
    }
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        2 => Just(Mode::Grouped),
        1 => Just(Mode::None),
        1 => Just(Mode::Interval),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let store = 0..STORES;
    prop_oneof![
        8 => store.clone().prop_map(Step::Put),
        3 => store.clone().prop_map(Step::PutDurably),
        3 => store.clone().prop_map(Step::Buffered),
        3 => store.clone().prop_map(Step::Pair),
        5 => store.clone().prop_map(Step::Remove),
        8 => Just(Step::LogUpkeep),
        8 => (store.clone(), 0..4usize).prop_map(|(at, pick)| Step::Upkeep(at, pick)),
        1 => Just(Step::Roll),
        1 => store.clone().prop_map(Step::Erase),
        2 => store.prop_map(Step::Exchange),
        1 => any_mode().prop_map(Step::Close),
        1 => any_mode().prop_map(Step::Kill),
    ]
}

/// A store that has used the log cannot do without it any more.
fn first_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![1 => Just(Mode::Own), 2 => any_mode()]
}

fn any_script() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..120)
}

/// Plays each script up to a power cut, and continues after it with the next durability.
fn check(kind: Kind, mode: Mode, scripts: &[(Vec<Step>, u64, Mode)], lost: Option<usize>) {
    let mut run = Run::begin(kind, mode);
    let mut number = 0;
    for (script, seed, next_mode) in scripts {
        // The cut is drawn: the number of operations without a cut is unknown.
        let operations = run.memory.operations();
        run.memory
            .cut_after(operations + 5 + seed % (script.len() as u64 * 6));
        let _whole_or_cut = run.play(script, number);
        number += script.len();
        if let Some(store) = lost.filter(|_| seed % 3 == 0) {
            run.node = None;
            run.memory = run.memory.crash_image(CrashOptions::drawn(*seed));
            let checkpoint = directory_of(store).join("checkpoint");
            let _gone_or_never_there = run.memory.remove_file(&checkpoint);
        }
        let story = format!("cut of seed {seed}");
        run.cut(CrashOptions::drawn(*seed), *next_mode, &story);
        if seed % 2 == 0 {
            run.finish_upkeep(&story);
        }
    }
    run.cut(
        CrashOptions::nothing_unsynced(),
        Mode::Grouped,
        "the last cut",
    );
    run.finish_upkeep("the end");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_script_survives_power_cuts_anywhere_and_what_comes_after(
        mode in first_mode(),
        scripts in proptest::collection::vec((any_script(), any::<u64>(), any_mode()), 1..4),
        lost in proptest::option::of(0..STORES),
    ) {
        check(Kind::Bitcask, mode, &scripts, lost);
    }

    #[test]
    fn any_script_over_leveldb_survives_power_cuts_anywhere_and_what_comes_after(
        mode in first_mode(),
        scripts in proptest::collection::vec((any_script(), any::<u64>(), any_mode()), 1..4),
    ) {
        check(Kind::Leveldb, mode, &scripts, None);
    }

    #[test]
    fn any_script_over_hanoidb_survives_power_cuts_anywhere_and_what_comes_after(
        mode in first_mode(),
        scripts in proptest::collection::vec((any_script(), any::<u64>(), any_mode()), 1..4),
    ) {
        check(Kind::Hanoidb, mode, &scripts, None);
    }

    #[test]
    fn any_script_over_leveled_survives_power_cuts_anywhere_and_what_comes_after(
        mode in any_mode(),
        scripts in proptest::collection::vec((any_script(), any::<u64>(), any_mode()), 1..4),
    ) {
        check(Kind::Leveled, mode, &scripts, None);
    }

    #[test]
    fn any_script_over_innostore_survives_power_cuts_anywhere_and_what_comes_after(
        mode in any_mode(),
        scripts in proptest::collection::vec((any_script(), any::<u64>(), any_mode()), 1..4),
    ) {
        check(Kind::Innostore, mode, &scripts, None);
    }
}

/// Regression: a put was acknowledged while only the server's memory had it, and a kill came before
/// the log's thread wrote. This required `durability = none` on a directory with a value log of
/// earlier grouped puts.
#[test]
fn a_put_without_a_sync_counts_as_done_when_a_kill_cannot_lose_it() {
    KINDS.into_iter().for_each(|kind| {
        for mode in [Mode::None, Mode::Interval] {
            let memory = MemoryDisk::new();
            let disk: Arc<dyn Disk> = Arc::new(memory.clone());
            let drawn = Arc::new(AtomicU64::new(1));
            let node = Node::open_of(kind, &disk, &drawn, mode).unwrap();
            let faulty = FaultyDisk::over_memory(&memory);
            drop(node);
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let node = Node::open_of(kind, &disk, &drawn, mode).unwrap();
            // The log's files are there.
            let first = node.stores[0].put(&Batch::of(put(0)), Durability::BackendDefault);
            first.unwrap().wait().unwrap();
            faulty.clear_log();
            let second = node.stores[1].put(&Batch::of(put(1)), Durability::BackendDefault);
            second.unwrap().wait().unwrap();
            let synced = faulty.log().into_iter();
            let synced = synced.filter(|it| it.operation == Operation::Sync).count();
            assert_eq!(synced, 0, "{mode:?}");
            // The process loses its memory.
            drop(node);
            let node = Node::open_of(kind, &disk, &drawn, mode).unwrap();
            assert_eq!(node.values(0).len(), 1, "{mode:?}");
            assert_eq!(node.values(1).len(), 1, "{mode:?}");
        }
    });
}

#[test]
fn what_was_put_without_a_sync_is_synced_within_the_interval() {
    KINDS.into_iter().for_each(|kind| {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open_of(kind, &disk, &drawn, Mode::Interval).unwrap();
        let store = &node.stores[0];
        let receipt = store.put(&Batch::of(put(0)), Durability::BackendDefault);
        receipt.unwrap().wait().unwrap();
        let is_sync = |it: &kvorum_backend::Task| it.kind == TaskKind::Sync;
        assert!(!store.maintenance_due(NOW).iter().any(is_sync));
        let later = Timestamp(NOW.0 + 1_000_000);
        let due = store.maintenance_due(later);
        let task = due.iter().find(|it| is_sync(it)).expect("a sync is due");
        let budget = StepBudget { bytes: 1 };
        store.maintenance_step(task, budget, later).unwrap();
        assert!(!store.maintenance_due(later).iter().any(is_sync));
        drop(node);
        let image = memory.crash_image(CrashOptions::nothing_unsynced());
        let node = Node::open_of(
            kind,
            &(Arc::new(image) as Arc<dyn Disk>),
            &drawn,
            Mode::None,
        )
        .unwrap();
        assert_eq!(node.values(0).len(), 1);
    });
}

/// Regression: the copies were only in the page cache, the store had no live record in the segment
/// any more, and the segment was removed. A power cut took both.
#[test]
fn a_segment_stays_until_the_copies_out_of_it_are_durable() {
    KINDS.into_iter().for_each(|kind| {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open_of(kind, &disk, &drawn, Mode::Grouped).unwrap();
        let put = |store: usize, number: usize| node.put_durably(store, number);
        put(0, 3);
        // Most of the first segments is garbage, and all is covered.
        (0..40).for_each(|number| put(1, 5 * number));
        cover_all(&node);
        let segments = node.log.status().segments;
        for step in 0..60 {
            // A checkpoint or an erasure may request the next survey at any time.
            node.log.usage_changed();
            node.log.upkeep_step(StepBudget { bytes: 1 }).unwrap();
            node.log.upkeep_step(StepBudget { bytes: 1 }).unwrap();
            let image = memory.crash_image(CrashOptions::nothing_unsynced());
            let image: Arc<dyn Disk> = Arc::new(image);
            let left = Node::open_of(kind, &image, &drawn, Mode::Grouped).unwrap();
            for store in 0..STORES {
                assert_eq!(left.values(store), node.values(store), "step {step}");
            }
        }
        assert!(
            node.log.status().segments < segments,
            "nothing was collected"
        );
    });
}

fn cover_all(node: &Node) {
    for store in &node.stores {
        while let Some(task) = store.maintenance_due(NOW).first() {
            let budget = StepBudget { bytes: 100_000 };
            store.maintenance_step(task, budget, NOW).unwrap();
        }
    }
}

/// Regression: records that were read while a store was away are not offered again, and a store
/// settled records that it had not been offered.
#[test]
fn a_store_that_is_opened_while_a_segment_is_collected_loses_nothing_of_it() {
    let mut under_way = 0;
    // Entries of innostore stay in the log no longer than in memory.
    let kinds: Vec<Kind> = KINDS
        .into_iter()
        .filter(|it| *it != Kind::Innostore)
        .collect();
    let runs = (0..36).map(|run| (kinds[run % kinds.len()], run / kinds.len()));
    for (kind, steps_away) in runs {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let drawn = Arc::new(AtomicU64::new(1));
        let mut node = Node::open_of(kind, &disk, &drawn, Mode::Grouped).unwrap();
        (0..3).for_each(|number| node.put_durably(0, number));
        (0..40).for_each(|number| node.put_durably(1, 5 * number));
        cover_all(&node);
        let expected: Vec<Values> = (0..STORES).map(|store| node.values(store)).collect();
        while node.log.collection_due().is_none() {
            node.log.usage_changed();
            node.log.chore_step().unwrap();
        }
        drop(node.stores.remove(0));
        let bit = StepBudget { bytes: 1 };
        let steps = (0..steps_away).map(|_| node.log.collection_step(bit).unwrap());
        under_way += usize::from(steps.filter(|step| !step.is_done).count() > 1);
        node.stores.insert(0, node.open_store(0).unwrap());
        node.log.admit_some(&tenants_of(&node.stores[..1])).unwrap();
        for _ in 0..40 {
            node.log.chore_step().unwrap();
            node.log.collection_step(bit).unwrap();
        }
        assert_eq!(node.log.collection_due(), None);
        for (store, values) in expected.iter().enumerate() {
            assert_eq!(
                node.values(store),
                *values,
                "{kind:?}, {steps_away} steps, store {store}"
            );
        }
        assert_eq!(node.stores[0].status().lost, Vec::new());
    }
    assert!(under_way > 10, "{under_way} collections were under way");
}

/// A sector of the log that stays unreadable keeps its segment from being collected, and no other.
#[test]
fn a_segment_that_cannot_be_read_holds_up_no_other_collection() {
    KINDS.into_iter().for_each(|kind| {
        let memory = MemoryDisk::new();
        let faulty = FaultyDisk::over_memory(&memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open_of(kind, &disk, &drawn, Mode::Grouped).unwrap();
        let put = |store: usize, number: usize| node.put_durably(store, number);
        // All but one of its entries are garbage, more than in any other segment.
        (0..KEYS).for_each(|number| put(0, number));
        node.log.roll().unwrap();
        (1..KEYS).for_each(|number| put(0, number));
        let device = Fault::Error(kvorum_disk::ErrorKind::Device);
        let first = Path::new("node/log/0000000001.segment");
        assert!(memory.info(first).unwrap().is_some());
        faulty.add_rule(Rule::new(device).on(Operation::Read).path(first));
        overwrite_and_collect(&node);
        let segments = node.log.status().segments;
        assert!(segments < 6, "{segments} segments");
        faulty.heal();
        drop(node);
        let node = Node::open_of(kind, &disk, &drawn, Mode::Grouped).unwrap();
        assert_eq!(node.values(0).len(), KEYS);
    });
}

/// Writes to two stores for a long time, with the upkeep of all.
fn overwrite_and_collect(node: &Node) {
    let put = |store: usize, number: usize| node.put_durably(store, number);
    for round in 0..300 {
        // Most of a segment becomes garbage with the next put, and some of it stays live for long.
        let number = |lasting| {
            if round % 10 == lasting {
                round / 10
            } else {
                5 * round
            }
        };
        put(1, number(0));
        put(2, number(5));
        for store in &node.stores {
            for task in store.maintenance_due(NOW) {
                let budget = StepBudget { bytes: 100_000 };
                let _failed_or_done = store.maintenance_step(&task, budget, NOW);
            }
        }
        node.log.usage_changed();
        for _ in 0..4 {
            let _failed_or_done = node.log.upkeep_step(StepBudget { bytes: 10_000 });
        }
    }
}

/// Regression: a store that could not release a segment, here for want of a checkpoint, also kept
/// the log from collecting any other.
#[test]
fn a_store_that_cannot_settle_holds_up_no_other_collection() {
    for kind in [
        kvorum_disk::ErrorKind::Device,
        kvorum_disk::ErrorKind::Denied,
    ] {
        let memory = MemoryDisk::new();
        let faulty = FaultyDisk::over_memory(&memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open(&disk, &drawn, Mode::Grouped).unwrap();
        let path = directory_of(0).join("checkpoint");
        let rule = Rule::new(Fault::Error(kind)).on(Operation::Open);
        faulty.add_rule(rule.path_contains(path.to_str().unwrap()));
        (0..KEYS).for_each(|number| node.put_durably(0, number));
        node.log.roll().unwrap();
        (1..KEYS).for_each(|number| node.put_durably(0, number));
        overwrite_and_collect(&node);
        let segments = node.log.status().segments;
        assert!(segments < 6, "{segments} segments, {kind:?}");
        faulty.heal();
        drop(node);
        let node = Node::open(&disk, &drawn, Mode::Grouped).unwrap();
        assert_eq!(node.values(0).len(), KEYS);
    }
}

/// A store releases a segment that no checkpoint covers yet by writing one, of all its keys.
#[test]
fn what_stores_write_to_let_go_of_a_segment_is_declared() {
    const MANY: usize = 20_000;
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let log_settings = ValueLogSettings {
        segment_bytes: 256 << 10,
        garbage_percent_max: 20,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 7, log_settings).unwrap();
    let (own, shared) = (BitcaskSettings::default(), log.clone());
    let drawn = AtomicU64::new(1);
    let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
    let store = Bitcask::open(disk, Path::new("store"), own, draw, Some(shared));
    let store: Opened = store.unwrap().into();
    log.admit(&tenants_of(std::slice::from_ref(&store)))
        .unwrap();
    for number in (0..MANY).chain(0..MANY / 2) {
        let (name, body) = (format!("one of many {number}"), Bytes::from(vec![b'v'; 50]));
        let name = StorageKey::from_encoded(name.into_bytes());
        let write = Write::put(name, Fields::default(), Bytes::new(), body);
        let receipt = store.put(&Batch::of(write), Durability::BackendDefault);
        receipt.unwrap().wait().unwrap();
    }
    let mut steps = 0;
    for _ in 0..100 {
        log.chore_step().unwrap();
        let Some(due) = log.collection_due() else {
            log.usage_changed();
            continue;
        };
        let budget = StepBudget { bytes: 50_000 };
        let cost = log.collection_step(budget).unwrap().cost_bytes;
        steps += 1;
        let declared = due.cost_bytes.min(budget.bytes);
        assert!(cost <= 2 * declared, "{cost} of {due:?}");
    }
    let covered = Some(store.tenant.covered());
    assert!(
        covered > Some(Sequence(0)),
        "no checkpoint in {steps} steps"
    );
}

/// Regression: a full disk kept queued batches out of the log. Closing ignored that, as it ignores
/// a checkpoint without room.
#[test]
fn closing_fails_when_the_log_has_no_room_for_what_was_put() {
    KINDS.into_iter().for_each(|kind| {
        let faulty = FaultyDisk::over_memory(&MemoryDisk::new());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let node = Node::open_of(kind, &disk, &Arc::new(AtomicU64::new(1)), Mode::Grouped).unwrap();
        let store = &node.stores[0];
        let first = store.put(&Batch::of(put(0)), Durability::Grouped);
        first.unwrap().wait().unwrap();
        let queued = store.put(&Batch::of(put(1)), Durability::Buffered);
        drop(queued.unwrap());
        let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
        faulty.add_rule(Rule::new(no_space).on(Operation::Write));
        assert!(store.close().is_err());
    });
}

#[test]
fn several_threads_give_stores_what_one_gives_them() {
    for kind in KINDS {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open_of(kind, &disk, &drawn, Mode::Grouped).unwrap();
        (0..40).for_each(|number| node.put_durably(number % STORES, number));
        let expected: Vec<Values> = (0..STORES).map(|store| node.values(store)).collect();
        drop(node);
        let node = Node::unadmitted(kind, &disk, &drawn);
        let mut all = Admission::default();
        std::thread::scope(|scope| {
            let log = &node.log;
            let tenants = tenants_of(&node.stores);
            let admit =
                |tenant: Arc<dyn Tenant>| scope.spawn(move || log.admit_some(&[tenant]).unwrap());
            let threads: Vec<_> = tenants.into_iter().map(admit).collect();
            let found = threads.into_iter().map(|it| it.join().unwrap());
            found.for_each(|found| all.add(found));
        });
        assert_eq!(all.batches_replayed, 40, "{kind:?}");
        assert_eq!((all.damage.len(), all.failed.len()), (0, 0), "{kind:?}");
        for (store, values) in expected.iter().enumerate() {
            assert_eq!(node.values(store), *values, "{kind:?}");
        }
    }
}
