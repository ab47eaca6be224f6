//! Several stores of bitcask or of leveldb over one value log, on disks that are full or that fail
//! for one of them: a failing store does not affect the others, and acknowledged or visible writes
//! survive.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use kvorum_backend::{Batch, Durability, ErrorKind, Receipt, Result, StepBudget, Timestamp, Write};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};

use crate::tenant_stores::{KEYS, KINDS, Kind, Mode, NOW, Node, STORES, Values, directory_of, put};
use crate::tenants::{Opened, tenants_of};

/// A disk that can fail, and a node on it.
struct Rig {
    kind: Kind,
    memory: MemoryDisk,
    faulty: FaultyDisk,
    drawn: Arc<AtomicU64>,
    node: Node,
}

impl Rig {
    fn new(kind: Kind) -> Self {
        Self::over(kind, &MemoryDisk::new(), &Arc::new(AtomicU64::new(1))).unwrap()
    }

    fn over(kind: Kind, memory: &MemoryDisk, drawn: &Arc<AtomicU64>) -> Result<Self> {
        let faulty = FaultyDisk::over_memory(memory);
        Ok(Self {
            kind,
            node: opened(kind, &faulty, drawn)?,
            memory: memory.clone(),
            faulty,
            drawn: drawn.clone(),
        })
    }

    fn after_a_cut(&self) -> Self {
        let image = self.memory.crash_image(CrashOptions::nothing_unsynced());
        Self::over(self.kind, &image, &self.drawn).unwrap()
    }

    fn put(&self, store: usize, number: usize) -> Result<()> {
        write(&self.node.stores[store], &Batch::of(put(number)))
    }

    fn fill(&self) {
        fill(&self.faulty);
    }

    fn values(&self) -> Vec<Values> {
        (0..STORES).map(|store| self.node.values(store)).collect()
    }

    /// Does all upkeep that is due within a minute, as far as the disk allows.
    fn do_upkeep(&self) {
        let budget = StepBudget { bytes: 10_000 };
        for second in 0..60 {
            let now = Timestamp(NOW.0 + second * 1_000_000);
            for store in &self.node.stores {
                for task in store.maintenance_due(now) {
                    let _done_or_failed = store.maintenance_step(&task, budget, now);
                }
            }
            let _done_or_failed = self.node.log.upkeep_step(budget);
        }
    }
}

fn opened(
    kind: Kind,
    disk: &(impl Disk + Clone + 'static),
    drawn: &Arc<AtomicU64>,
) -> Result<Node> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Node::open_of(kind, &disk, drawn, Mode::Grouped)
}

fn write(store: &Opened, batch: &Batch) -> Result<()> {
    let receipt = store.put(batch, Durability::Grouped);
    receipt.and_then(Receipt::wait).map(drop)
}

fn fill(disk: &FaultyDisk) {
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    for operation in [Operation::Write, Operation::Allocate] {
        disk.add_rule(Rule::new(no_space).on(operation));
    }
}

fn kind_of<T>(outcome: Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// A refused put may be visible. Regression: it was lost in a crash long after there was room
/// again, unless another put followed it in the store.
#[test]
fn what_a_full_log_refused_and_a_store_shows_stays_once_there_is_room() {
    for kind in KINDS {
        let rig = Rig::new(kind);
        rig.put(0, 0).unwrap();
        rig.do_upkeep();
        let before = rig.values();
        rig.fill();
        assert_eq!(kind_of(rig.put(0, KEYS)), Some(ErrorKind::Full));
        let shown = rig.values();
        assert_ne!(shown, before, "the test shows nothing");
        rig.faulty.heal();
        rig.do_upkeep();
        assert_eq!(rig.after_a_cut().values(), shown, "{kind:?}");
    }
}

/// A put without effect is acknowledged when the present state is durable: an empty batch stands for it.
#[test]
fn nothing_is_acknowledged_over_what_the_log_could_not_take() {
    for kind in KINDS {
        let rig = Rig::new(kind);
        rig.put(0, 0).unwrap();
        rig.fill();
        assert_eq!(kind_of(rig.put(0, 1)), Some(ErrorKind::Full));
        let shown = rig.values();
        let nothing = || write(&rig.node.stores[0], &Batch::default());
        assert_eq!(kind_of(nothing()), Some(ErrorKind::Full), "{kind:?}");
        assert_eq!(kind_of(rig.node.stores[0].sync()), Some(ErrorKind::Full));
        rig.faulty.heal();
        nothing().unwrap();
        assert_eq!(rig.after_a_cut().values(), shown, "{kind:?}");
    }
}

/// The power fails while the disk is full, without room for the writes that a store's replay needs.
/// The store does not open, and the log keeps all of its batches until there is room.
#[test]
fn r28_stores_that_were_cut_on_a_full_disk_open_once_there_is_room_and_lack_nothing() {
    for kind in KINDS {
        let rig = Rig::new(kind);
        for number in 0..60 {
            rig.put(number % STORES, number).unwrap();
        }
        let values = rig.values();
        rig.fill();
        for number in 60..70 {
            let refused = rig.put(number % STORES, number);
            assert_eq!(kind_of(refused), Some(ErrorKind::Full));
        }
        let image = rig.memory.crash_image(CrashOptions::nothing_unsynced());
        let full = FaultyDisk::over_memory(&image);
        fill(&full);
        for _ in 0..3 {
            match opened(kind, &full, &rig.drawn) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
                Ok(node) => {
                    let found: Vec<_> = (0..STORES).map(|store| node.values(store)).collect();
                    assert_eq!(found, values, "{kind:?}");
                }
            }
        }
        full.heal();
        let again = Rig::over(kind, &image, &rig.drawn).unwrap();
        assert_eq!(again.values(), values, "{kind:?}");
        again.put(0, 70).unwrap();
        again.do_upkeep();
        assert_eq!(again.after_a_cut().values(), again.values());
    }
}

/// A store that was closed needs nothing of the log.
#[test]
fn r28_stores_that_were_closed_open_on_a_full_disk() {
    for kind in KINDS {
        let rig = Rig::new(kind);
        for number in 0..60 {
            rig.put(number % STORES, number).unwrap();
        }
        let values = rig.values();
        rig.node.stores.iter().for_each(|it| it.close().unwrap());
        let (memory, drawn) = (rig.memory.clone(), rig.drawn.clone());
        drop(rig);
        let full = FaultyDisk::over_memory(&memory);
        fill(&full);
        let node = opened(kind, &full, &drawn).unwrap();
        let put = || write(&node.stores[0], &Batch::of(put(60)));
        assert_eq!(kind_of(put()), Some(ErrorKind::Full));
        for (store, values) in values.iter().enumerate().skip(1) {
            assert_eq!(node.values(store), *values, "{kind:?}");
        }
        full.heal();
        put().unwrap();
        assert_eq!(node.values(0).len(), KEYS);
    }
}

/// Delayed allocation detects a full disk only at the sync.
#[test]
fn stores_that_close_unsynced_on_a_full_disk_lose_nothing_of_the_log() {
    for kind in KINDS {
        for at in ["node/stores", "node/log"] {
            let rig = Rig::new(kind);
            for number in 0..30 {
                rig.put(number % STORES, number).unwrap();
            }
            let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
            let rule = Rule::new(no_space).on(Operation::Sync);
            rig.faulty.add_rule(rule.path_contains(at));
            for store in &rig.node.stores {
                let _closed_or_failed = store.close();
            }
            let values = rig.after_a_cut().values();
            let expected = Rig::new(kind);
            for number in 0..30 {
                expected.put(number % STORES, number).unwrap();
            }
            assert_eq!(values, expected.values(), "{kind:?}, {at}");
        }
    }
}

/// A store has to write during its replay, and cannot. The others are admitted and continue, and
/// the log keeps the batches that the failed one lacks.
#[test]
fn a_store_that_fails_keeps_no_other_from_being_admitted_and_loses_nothing() {
    let kind = Kind::Leveldb;
    let rig = Rig::new(kind);
    for number in 0..90 {
        rig.put(number % STORES, number).unwrap();
    }
    let values = rig.values();
    let image = rig.memory.crash_image(CrashOptions::nothing_unsynced());
    let faulty = FaultyDisk::over_memory(&image);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let node = Node::unadmitted(kind, &disk, &rig.drawn);
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let of_first = Rule::new(device).path_contains(directory_of(0).to_str().unwrap());
    let of_first = faulty.add_rule(of_first.on(Operation::Write));
    let admitted = node.log.admit_some(&tenants_of(&node.stores)).unwrap();
    assert!(faulty.fired(of_first) > 0, "it had nothing to write");
    let failed: Vec<_> = admitted.failed.iter().map(|(store, _)| *store).collect();
    assert_eq!(failed, [node.stores[0].identity()]);
    assert_eq!(admitted.lost, []);
    for (store, values) in values.iter().enumerate().skip(1) {
        assert_eq!(node.values(store), *values);
    }
    // Segments are dropped meanwhile, except those with records of the first store.
    let budget = StepBudget { bytes: 10_000 };
    for number in 0..100 {
        node.put_durably(1, 5 * number);
        for task in node.stores[1].maintenance_due(NOW) {
            node.stores[1].maintenance_step(&task, budget, NOW).unwrap();
        }
        let _done_or_failed = node.log.upkeep_step(budget);
    }
    let expected = node.values(1);
    drop(node);
    let image = image.crash_image(CrashOptions::nothing_unsynced());
    let again = Rig::over(kind, &image, &rig.drawn).unwrap();
    assert_eq!(
        again.values(),
        [&values[0], &expected, &values[2]].map(Clone::clone)
    );
}

/// After an erasure that fails anywhere, the old contents exist as a whole or not at all, each
/// under an identity of its own. Later puts, if the store takes them, are not lost with the erased
/// contents.
#[test]
fn after_a_failed_erasure_what_is_put_is_logged_under_the_identity_that_the_store_has() {
    for kind in KINDS {
        let mut failed = 0;
        for nth in 1..1_000 {
            let rig = Rig::new(kind);
            for number in 0..30 {
                rig.put(number % STORES, number).unwrap();
            }
            let before = rig.values();
            let device = Fault::Error(kvorum_disk::ErrorKind::Device);
            let rule = Rule::new(device).path_contains("node/").nth(nth);
            let rule = rig.faulty.add_rule(rule);
            let erased = rig.node.stores[0].erase();
            if rig.faulty.fired(rule) == 0 {
                assert!(failed > 3, "{failed} erasures failed, {kind:?}");
                break;
            }
            rig.faulty.heal();
            failed += usize::from(erased.is_err());
            let is_put = rig.put(0, LATER).is_ok();
            let story = format!("{kind:?}, operation {nth}: {erased:?}, put: {is_put}");
            assert!(is_put || erased.is_err(), "{story}");
            let values = rig.after_a_cut().values();
            assert_eq!(values[1..], before[1..], "{story}");
            let contents = match erased {
                Ok(_) => vec![Values::new()],
                Err(_) => vec![Values::new(), before[0].clone()],
            };
            let mut allowed: Vec<Values> = contents.iter().map(with_later).collect();
            if !is_put {
                allowed.extend(contents);
            }
            assert!(allowed.contains(&values[0]), "{story}: {:?}", values[0]);
            assert!(nth < 999, "an erasure has fewer operations");
        }
    }
}

/// The number of the put after an erasure.
const LATER: usize = 77;

fn with_later(values: &Values) -> Values {
    let Write::Put { key, body, .. } = put(LATER) else {
        unreachable!("it is a put");
    };
    let mut values = values.clone();
    values.insert(key.as_bytes().to_vec(), body.to_vec());
    values
}
