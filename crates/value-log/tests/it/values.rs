//! The power is cut at every operation of scripts over stores whose entries stay in the value log,
//! and again while the log is opened: acknowledged writes are back in order, nothing else appears,
//! and collecting changes no answer.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Durable, Fields, Reading, Result, Sequence, StepBudget, StoreId,
    Write,
};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{Tenant, ValueLog, ValueLogOpening, ValueLogSettings};
use proptest::prelude::*;

use crate::tenant_engine::TenantEngine;

pub(crate) const DIRECTORY: &str = "node/values";
const STORES: usize = 3;
const KEYS: usize = 4;
/// A handful of batches to a segment.
pub(crate) const SETTINGS: ValueLogSettings = ValueLogSettings {
    segment_bytes: 700,
    garbage_percent_max: 30,
};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A put, and its wait.
    Put(usize),
    /// A put without a wait.
    Buffered(usize),
    /// A batch of two keys.
    Pair(usize),
    Remove(usize),
    Upkeep,
    Cover(usize),
    Erase(usize),
    Roll,
}

pub(crate) type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// The writes of one store since its contents began.
#[derive(Clone, Debug)]
struct Life {
    identity: u64,
    put: Vec<Batch>,
    /// This many of the first batches were acknowledged as durable.
    acknowledged: usize,
}

impl Life {
    fn new(identity: u64) -> Self {
        Self {
            identity,
            put: Vec::new(),
            acknowledged: 0,
        }
    }

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
}

pub(crate) struct Node {
    pub(crate) log: ValueLog,
    pub(crate) engines: Vec<Arc<TenantEngine>>,
    pub(crate) opening: ValueLogOpening,
    pub(crate) damage: Vec<String>,
    pub(crate) lost: Vec<(StoreId, Sequence)>,
}

pub(crate) fn store_directory(store: usize) -> PathBuf {
    PathBuf::from(format!("node/stores/{store}"))
}

impl Node {
    pub(crate) fn open(disk: &Arc<dyn Disk>, drawn: &Arc<AtomicU64>) -> Result<Self> {
        Self::open_some(disk, drawn, &[0, 1, 2])
    }

    pub(crate) fn open_some(
        disk: &Arc<dyn Disk>,
        drawn: &Arc<AtomicU64>,
        stores: &[usize],
    ) -> Result<Self> {
        let log_id = drawn.fetch_add(1, Ordering::Relaxed);
        let (log, opening) = ValueLog::open(disk.clone(), Path::new(DIRECTORY), log_id, SETTINGS)?;
        let open = |store: &usize| {
            let drawn = drawn.clone();
            let shared = log.clone();
            let draw = move || drawn.fetch_add(1, Ordering::Relaxed);
            TenantEngine::open(disk.clone(), &store_directory(*store), shared, draw)
        };
        let engines: Vec<_> = stores.iter().map(open).collect::<Result<_>>()?;
        let tenants: Vec<Arc<dyn Tenant>> = engines.iter().map(|it| it.clone() as _).collect();
        let admission = log.admit(&tenants)?;
        Ok(Self {
            log,
            engines,
            opening,
            damage: admission.damage,
            lost: admission.lost,
        })
    }

    /// A log without stores, which have to be opened one by one.
    pub(crate) fn begin(disk: &Arc<dyn Disk>, drawn: &Arc<AtomicU64>) -> Result<Self> {
        let log_id = drawn.fetch_add(1, Ordering::Relaxed);
        let (log, opening) = ValueLog::open(disk.clone(), Path::new(DIRECTORY), log_id, SETTINGS)?;
        Ok(Self {
            log,
            engines: Vec::new(),
            opening,
            damage: Vec::new(),
            lost: Vec::new(),
        })
    }

    /// Opens the next store.
    pub(crate) fn admit_next(
        &mut self,
        disk: &Arc<dyn Disk>,
        drawn: &Arc<AtomicU64>,
    ) -> Result<()> {
        let drawn = drawn.clone();
        let draw = move || drawn.fetch_add(1, Ordering::Relaxed);
        let shared: ValueLog = self.log.clone();
        let directory = store_directory(self.engines.len());
        let engine = TenantEngine::open(disk.clone(), &directory, shared, draw)?;
        let admission = self.log.admit_some(&[engine.clone() as Arc<dyn Tenant>])?;
        assert!(admission.failed.is_empty());
        self.engines.push(engine);
        Ok(())
    }

    pub(crate) fn do_upkeep(&self) -> Result<()> {
        for _ in 0..1_000 {
            if !self.log.is_upkeep_due() {
                return Ok(());
            }
            self.log.upkeep_step(StepBudget { bytes: 300 })?;
        }
        panic!("upkeep never ends");
    }

    pub(crate) fn values(&self) -> Vec<Values> {
        let values = |it: &Arc<TenantEngine>| it.values(Reading::MayBlock).unwrap();
        self.engines.iter().map(values).collect()
    }
}

struct Run {
    disk: MemoryDisk,
    drawn: Arc<AtomicU64>,
    lives: Vec<Life>,
    has_failed: bool,
    is_erasing: bool,
}

impl Run {
    /// Plays a script until a step fails.
    fn play(script: &[Step], cut: Option<u64>) -> Self {
        let disk = MemoryDisk::new();
        let mut run = Self {
            disk: disk.clone(),
            drawn: Arc::new(AtomicU64::new(1)),
            lives: Vec::new(),
            has_failed: false,
            is_erasing: false,
        };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let node = Node::open(&shared, &run.drawn).unwrap();
        run.lives = node
            .engines
            .iter()
            .map(|it| Life::new(it.identity().0))
            .collect();
        if let Some(cut) = cut {
            disk.cut_after(cut);
        }
        for (number, step) in script.iter().enumerate() {
            if run.step(*step, number, &node).is_err() {
                run.has_failed = true;
                run.is_erasing = matches!(step, Step::Erase(_));
                break;
            }
        }
        run
    }

    fn step(&mut self, step: Step, number: usize, node: &Node) -> Result<()> {
        match step {
            Step::Put(at) => self.put(node, at, batch(number), true),
            Step::Buffered(at) => self.put(node, at, batch(number), false),
            Step::Pair(at) => {
                let writes = [batch(number).writes, batch(number + 1).writes].concat();
                self.put(node, at, Batch { writes }, true)
            }
            Step::Remove(at) => {
                let write = Write::remove(batch(number).writes[0].key().clone());
                self.put(node, at, Batch::of(write), true)
            }
            Step::Upkeep => node.log.upkeep_step(StepBudget { bytes: 300 }).map(drop),
            Step::Roll => node.log.roll(),
            Step::Cover(at) => node.engines[at].cover(),
            Step::Erase(at) => {
                node.engines[at].erase()?;
                self.lives[at] = Life::new(node.engines[at].identity().0);
                Ok(())
            }
        }
    }

    fn put(&mut self, node: &Node, at: usize, batch: Batch, is_awaited: bool) -> Result<()> {
        let receipt = node.engines[at].put(&batch, Durability::Grouped)?;
        let life = &mut self.lives[at];
        life.put.push(batch);
        if let Durable::After(ticket) = receipt.durable
            && is_awaited
        {
            ticket.wait()?;
            life.acknowledged = life.put.len();
        }
        let values = node.engines[at].values(Reading::MayBlock).unwrap();
        assert_eq!(values, life.values_after(life.put.len()));
        Ok(())
    }

    /// Checks that each store has its first batches, with all acknowledged ones; returns how many.
    fn check(&self, node: &Node, story: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for (life, engine) in self.lives.iter().zip(&node.engines) {
            let is_new = engine.identity().0 != life.identity;
            assert!(!is_new || self.is_erasing, "{story}");
            let fresh = Life::new(0);
            let life = if is_new { &fresh } else { life };
            let last = usize::try_from(engine.last()).unwrap();
            // The only trace of the last batches may be the numbering.
            assert!(last >= life.acknowledged, "{story}: {last} of {life:?}");
            assert!(last <= life.put.len(), "{story}: {last} of {life:?}");
            let values = engine.values(Reading::MayBlock).expect(story);
            assert_eq!(
                values,
                life.values_after(last),
                "{story}: {last} of {life:?}"
            );
            assert_eq!(engine.lost(), 0, "{story}");
            found.push(last);
        }
        found
    }
}

pub(crate) fn batch(number: usize) -> Batch {
    let key = StorageKey::from_encoded(format!("key {}", number % KEYS).into_bytes());
    let body = Bytes::from(vec![u8::try_from(number).unwrap(); 20 + 60 * (number % 3)]);
    Batch::of(Write::put(key, Fields::default(), Bytes::new(), body))
}

/// Opens the disk after a crash, checks it, continues for a while, and crashes again.
fn open_and_go_on(run: &Run, image: &MemoryDisk, story: &str) -> u64 {
    let disk: Arc<dyn Disk> = Arc::new(image.clone());
    let before = image.operations();
    let node = Node::open(&disk, &run.drawn).expect(story);
    let operations = image.operations() - before;
    assert_eq!(node.opening.damage, Vec::<String>::new(), "{story}");
    assert_eq!(node.damage, Vec::<String>::new(), "{story}");
    let lasts = run.check(&node, story);
    let expected = node.values();
    node.do_upkeep().expect(story);
    assert_eq!(node.values(), expected, "{story}: after upkeep");
    for (engine, last) in node.engines.iter().zip(&lasts) {
        assert_eq!(engine.last(), *last as u64);
    }
    // One more put each, and a crash that keeps nothing unsynced.
    let mut expected = expected;
    for (engine, values) in node.engines.iter().zip(&mut expected) {
        let batch = batch(7);
        engine
            .put(&batch, Durability::Grouped)
            .unwrap()
            .wait()
            .expect(story);
        let Write::Put { key, body, .. } = &batch.writes[0] else {
            panic!()
        };
        values.insert(key.as_bytes().to_vec(), body.to_vec());
    }
    drop(node);
    let image = image.crash_image(CrashOptions::nothing_unsynced());
    for is_checkpoint_lost in [false, true] {
        if is_checkpoint_lost {
            for store in 0..STORES {
                TenantEngine::lose_checkpoint(&image, &store_directory(store));
            }
        }
        let disk: Arc<dyn Disk> = Arc::new(image.clone());
        let node = Node::open(&disk, &run.drawn).expect(story);
        assert_eq!(
            node.values(),
            expected,
            "{story}, lost: {is_checkpoint_lost}"
        );
        node.do_upkeep().expect(story);
        assert_eq!(
            node.values(),
            expected,
            "{story}, lost: {is_checkpoint_lost}"
        );
    }
    operations
}

/// Cuts the power everywhere (or at one operation in `every`), and once while opening.
fn sweep(script: &[Step], every: usize) {
    let whole = Run::play(script, None);
    assert!(!whole.has_failed);
    for cut in (0..=whole.disk.operations()).step_by(every) {
        let run = Run::play(script, Some(cut));
        assert!(!run.has_failed || run.disk.is_cut());
        let drawn = (0..2).map(|seed| CrashOptions::drawn(cut * 31 + seed));
        for options in CrashOptions::extremes().into_iter().chain(drawn) {
            let story = format!("cut after {cut}, {options:?}");
            let image = run.disk.crash_image(options);
            let operations = open_and_go_on(&run, &image, &story);
            let second = cut % (operations + 1);
            cut_opening(&run, &run.disk.crash_image(options), second, &story);
        }
        for store in 0..STORES {
            let image = run.disk.crash_image(CrashOptions::drawn(cut));
            TenantEngine::lose_checkpoint(&image, &store_directory(store));
            open_and_go_on(&run, &image, &format!("cut after {cut}, checkpoint lost"));
        }
    }
}

fn cut_opening(run: &Run, image: &MemoryDisk, cut: u64, story: &str) {
    let story = format!("{story}, opening cut after {cut}");
    image.cut_after(image.operations() + cut);
    let disk: Arc<dyn Disk> = Arc::new(image.clone());
    let _cut_or_not = Node::open(&disk, &run.drawn);
    for options in [
        CrashOptions::nothing_unsynced(),
        CrashOptions::everything(),
        CrashOptions::drawn(cut),
    ] {
        let story = format!("{story}, {options:?}");
        open_and_go_on(run, &image.crash_image(options), &story);
    }
}

#[test]
fn a_log_in_one_segment_loses_nothing_acknowledged() {
    let script = [
        Step::Put(0),
        Step::Buffered(0),
        Step::Pair(1),
        Step::Buffered(0),
        Step::Remove(0),
        Step::Put(0),
    ];
    sweep(&script, 1);
}

#[test]
fn rolled_segments_are_replayed_in_order() {
    let script: Vec<Step> = (0..14).map(|number| Step::Put(number % STORES)).collect();
    sweep(&script, 2);
}

#[test]
fn overwritten_segments_are_collected_and_nothing_is_missed() {
    let mut script = Vec::new();
    for number in 0..16 {
        script.extend([Step::Put(number % 2), Step::Upkeep, Step::Upkeep]);
        match number % 5 {
            1 => script.push(Step::Pair(2)),
            3 => script.push(Step::Cover(number % STORES)),
            4 => script.push(Step::Remove(0)),
            _ => {}
        }
    }
    script.extend([Step::Upkeep; 20]);
    sweep(&script, 3);
}

#[test]
fn what_was_erased_stays_gone_and_what_came_after_is_back() {
    let script = [
        Step::Put(0),
        Step::Put(1),
        Step::Erase(0),
        Step::Put(0),
        Step::Upkeep,
        Step::Roll,
        Step::Erase(1),
        Step::Put(2),
        Step::Upkeep,
        Step::Upkeep,
        Step::Put(0),
    ];
    sweep(&script, 2);
}

fn any_step() -> impl Strategy<Value = Step> {
    let store = 0..STORES;
    prop_oneof![
        6 => store.clone().prop_map(Step::Put),
        3 => store.clone().prop_map(Step::Buffered),
        2 => store.clone().prop_map(Step::Pair),
        2 => store.clone().prop_map(Step::Remove),
        6 => Just(Step::Upkeep),
        1 => store.clone().prop_map(Step::Cover),
        1 => store.prop_map(Step::Erase),
        1 => Just(Step::Roll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_script_survives_a_power_cut_anywhere(
        script in proptest::collection::vec(any_step(), 1..60),
        cut in any::<u64>(),
        seed in any::<u64>(),
        lost in 0..STORES,
    ) {
        let whole = Run::play(&script, None);
        prop_assert!(!whole.has_failed);
        let run = Run::play(&script, Some(cut % (whole.disk.operations() + 1)));
        let image = run.disk.crash_image(CrashOptions::drawn(seed));
        if seed % 2 == 0 {
            TenantEngine::lose_checkpoint(&image, &store_directory(lost));
        }
        open_and_go_on(&run, &image, "drawn");
    }
}
