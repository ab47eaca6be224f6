//! No dot is ever issued twice, and no actor outlives its vnode's record of it, under any faults of
//! the table, the stores and the power.

use std::collections::BTreeMap;

use kvorum_disk::{CrashOptions, ErrorKind, FaultyDisk, MemoryDisk, OpenMode, Reading};
use kvorum_object::{Clock, Dot, Timestamp};
use kvorum_ring::RingSize;
use kvorum_runtime::SeededRandomness;
use proptest::prelude::*;

use super::*;
use crate::dot_source::{Lane, Overtaken};

const STORE: StoreId = StoreId(7);
/// The lane of a store that keeps one entry for each key.
const OWN: Lane = Lane::OWN;

fn directory() -> &'static Path {
    Path::new("data")
}

fn partition(number: u16) -> Partition {
    RingSize::new(8).unwrap().partition(number).unwrap()
}

fn empty_disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk
}

fn randomness() -> Arc<SeededRandomness> {
    Arc::new(SeededRandomness::new(1))
}

fn open(disk: &MemoryDisk, randomness: &Arc<SeededRandomness>) -> LeaseTable {
    let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness.clone());
    opened.unwrap().0
}

fn seal(table: &LeaseTable, source: &DotSource, sequence: u64) {
    let sources = [(partition(0), Sequence(sequence), source)];
    table.seal_sources(sources.into_iter()).unwrap();
}

fn next(source: &DotSource) -> Dot {
    source.next_beyond(STORE, OWN, &[]).unwrap()
}

#[test]
fn a_first_run_may_write_at_once() {
    let disk = empty_disk();
    let table = open(&disk, &randomness());
    let source = table.source(partition(0), STORE, Sequence(0));
    assert!(source.is_ready() && !table.is_renewal_due());
    let operations = disk.operations();
    table.renew().unwrap();
    assert_eq!(disk.operations(), operations);
    assert_eq!(source.counter(), 0);
    assert_eq!(next(&source).counter, 1);
    assert_eq!(source.counter(), 1);
}

#[test]
fn a_clean_stop_lets_the_actor_go_on() {
    let (disk, randomness) = (empty_disk(), randomness());
    let table = open(&disk, &randomness);
    let source = table.source(partition(0), STORE, Sequence(0));
    let before = next(&source);
    seal(&table, &source, 5);
    let table = open(&disk, &randomness);
    let source = table.source(partition(0), STORE, Sequence(5));
    assert!(!source.is_ready() && table.is_renewal_due());
    table.renew().unwrap();
    assert!(source.is_ready() && !table.is_renewal_due());
    let after = next(&source);
    assert_eq!(after.actor, before.actor);
    assert_eq!(after.counter, before.counter + 1);
}

#[test]
fn anything_but_a_clean_stop_means_a_fresh_actor() {
    let (disk, randomness) = (empty_disk(), randomness());
    let mut former = Vec::new();
    // Never sealed, sealed at another sequence before or after, sealed for another store.
    let runs = [
        (5, 7, None),
        (5, 7, Some(9)),
        (5, 7, Some(4)),
        (5, 8, Some(5)),
        (5, 7, None),
    ];
    for (opened_at, store, sealed_at) in runs {
        let table = open(&disk, &randomness);
        let source = table.source(partition(0), StoreId(store), Sequence(opened_at));
        table.renew().unwrap();
        assert!(source.is_ready());
        let actor = source.actor();
        assert!(!former.contains(&actor));
        former.push(actor);
        if let Some(sequence) = sealed_at {
            seal(&table, &source, sequence);
        }
    }
}

#[test]
fn a_lease_serves_once() {
    let (disk, randomness) = (empty_disk(), randomness());
    let table = open(&disk, &randomness);
    let first = table.source(partition(0), STORE, Sequence(5));
    seal(&table, &first, 5);
    let table = open(&disk, &randomness);
    let again = table.source(partition(0), STORE, Sequence(5));
    // A vnode made again in the same run is not ready either, nor does it share the actor.
    let anew = table.source(partition(0), STORE, Sequence(5));
    assert_eq!(again.actor(), first.actor());
    assert_ne!(anew.actor(), first.actor());
    assert!(!anew.is_ready());
    table.renew().unwrap();
    assert!(again.is_ready() && anew.is_ready());
    let table = open(&disk, &randomness);
    let crashed = table.source(partition(0), STORE, Sequence(5));
    assert!(![again.actor(), anew.actor()].contains(&crashed.actor()));
}

#[test]
fn a_lease_that_does_not_fit_is_taken_back_all_the_same() {
    let (disk, randomness) = (empty_disk(), randomness());
    let table = open(&disk, &randomness);
    let first = table.source(partition(0), STORE, Sequence(0));
    seal(&table, &first, 9);
    // The store was rolled back to sequence 5 and now writes up to 9 again.
    let table = open(&disk, &randomness);
    let restored = table.source(partition(0), STORE, Sequence(5));
    assert!(!restored.is_ready());
    table.renew().unwrap();
    let table = open(&disk, &randomness);
    let crashed = table.source(partition(0), STORE, Sequence(9));
    assert_ne!(crashed.actor(), first.actor());
}

#[test]
fn vnodes_that_were_not_opened_keep_their_leases() {
    let (disk, randomness) = (empty_disk(), randomness());
    let table = open(&disk, &randomness);
    let [zero, one] = [0, 1].map(|number| table.source(partition(number), STORE, Sequence(0)));
    let sealed = [
        (partition(0), Sequence(3), &*zero),
        (partition(1), Sequence(4), &*one),
    ];
    table.seal_sources(sealed.into_iter()).unwrap();
    let table = open(&disk, &randomness);
    table.source(partition(0), STORE, Sequence(3));
    table.renew().unwrap();
    let table = open(&disk, &randomness);
    let still = table.source(partition(1), STORE, Sequence(4));
    assert_eq!(still.actor(), one.actor());
}

#[test]
fn a_renewal_that_fails_makes_no_vnode_ready() {
    let memory = empty_disk();
    let disk = FaultyDisk::over_memory(&memory);
    let randomness = randomness();
    let open_faulty = || {
        let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness.clone());
        opened.unwrap().0
    };
    for n in 1.. {
        let table = open_faulty();
        seal(&table, &table.source(partition(0), STORE, Sequence(1)), 1);
        let table = open_faulty();
        let source = table.source(partition(0), STORE, Sequence(1));
        let faults = disk.faults();
        disk.fail_operation_number(disk.operations() + n);
        let renewed = table.renew();
        disk.heal();
        if disk.faults() == faults {
            assert!(n > 5, "the sweep met {n} operations alone");
            return;
        }
        assert_eq!(renewed.unwrap_err().kind(), ErrorKind::Device);
        assert!(!source.is_ready());
        table.renew().unwrap();
        assert!(source.is_ready());
    }
}

#[test]
fn no_issue_of_a_dot_waits_for_the_table() {
    let table = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), STORE, Sequence(0));
    // A renewal holds this lock over its sync.
    let _writing = table.writing.lock();
    next(&source);
    assert!(!table.is_renewal_due());
    table.source(partition(1), STORE, Sequence(0));
}

#[test]
fn an_actor_that_others_know_better_issues_nothing() {
    let table = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), STORE, Sequence(0));
    let first = next(&source);
    let clock_with = |counter| {
        let mut clock = Clock::new();
        clock.observe(Dot { counter, ..first }, Timestamp::from_micros(1));
        clock
    };
    assert!(!source.is_overtaken_by(OWN, &clock_with(1)));
    assert!(source.is_overtaken_by(OWN, &clock_with(2)));
    assert_eq!(
        source.next_beyond(STORE, OWN, &[&clock_with(2)]),
        Err(Overtaken)
    );
    assert_eq!(source.next_beyond(StoreId(8), OWN, &[]), Err(Overtaken));
    source.change_actor(StoreId(8), ActorId(99));
    let dot = source
        .next_beyond(StoreId(8), OWN, &[&clock_with(2)])
        .unwrap();
    assert_eq!((dot.actor, dot.counter), (ActorId(99), 1));
}

#[test]
fn r30_a_table_that_cannot_be_read_is_kept_aside() {
    let disk = empty_disk();
    let path = directory().join("dot_leases");
    kvorum_disk::replace_file(&disk, &path, b"no table").unwrap();
    let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness()).unwrap();
    let unreadable = opened.1.unwrap();
    assert_eq!(
        unreadable.kept_as,
        directory().join("dot_leases.unreadable")
    );
    assert!(unreadable.reason.contains("checksum"), "{unreadable:?}");
    let after = disk.crash_image(CrashOptions::nothing_unsynced());
    let kept = kvorum_disk::read_file(&after, &unreadable.kept_as, 100).unwrap();
    assert_eq!(kept, b"no table");
    assert_eq!(after.info(&path).unwrap(), None);
}

/// An operator removes the table and restores a store, which grows to the same sequence. The power
/// fails before the removal is on the device.
#[test]
fn a_table_that_was_missing_does_not_come_back() {
    let mut world = World::new();
    let before = [
        Step::Write { vnode: 2 },
        Step::Stop,
        Step::LoseTable,
        Step::RestoreStore { vnode: 2, loses: 1 },
        Step::Write { vnode: 2 },
    ];
    before.iter().for_each(|step| world.take(step));
    for seed in 0..20 {
        let mut after = World {
            disk: world.disk.crash_image(CrashOptions::drawn(seed)),
            stores: world.stores.clone(),
            issued: world.issued.clone(),
            randomness: world.randomness.clone(),
            ..World::new()
        };
        after.start();
        after.take(&Step::Renew);
        after.take(&Step::Write { vnode: 2 });
    }
}

#[test]
fn threads_share_no_dot() {
    let table = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), STORE, Sequence(0));
    let issue = || {
        (0..20_000)
            .map(|_| next(&source).counter)
            .collect::<Vec<_>>()
    };
    let lists = std::thread::scope(|scope| {
        let issuers = [(); 3].map(|()| scope.spawn(issue));
        issuers.map(|issuer| issuer.join().unwrap())
    });
    let mut counters = lists.concat();
    counters.sort_unstable();
    assert!(counters.into_iter().eq(1..=60_000));
}

#[derive(Clone, Debug)]
enum Step {
    Write { vnode: u16 },
    Renew,
    Stop,
    Crash { seed: u64, loses: u8 },
    Kill,
    CutPowerAfter { operations: u64 },
    RestoreStore { vnode: u16, loses: u8 },
    WipeStore { vnode: u16 },
    ReplaceVnode { vnode: u16 },
    LoseTable,
    FlipByte { at: usize },
}

const VNODES: u16 = 3;

fn step() -> impl Strategy<Value = Step> {
    let vnode = 0..VNODES;
    prop_oneof![
        8 => vnode.clone().prop_map(|vnode| Step::Write { vnode }),
        4 => Just(Step::Renew),
        4 => Just(Step::Stop),
        2 => (any::<u64>(), 0..4_u8).prop_map(|(seed, loses)| Step::Crash { seed, loses }),
        1 => Just(Step::Kill),
        1 => (0..8_u64).prop_map(|operations| Step::CutPowerAfter { operations }),
        1 => (vnode.clone(), 0..4_u8).prop_map(|(vnode, loses)| Step::RestoreStore { vnode, loses }),
        1 => vnode.clone().prop_map(|vnode| Step::WipeStore { vnode }),
        1 => vnode.prop_map(|vnode| Step::ReplaceVnode { vnode }),
        1 => Just(Step::LoseTable),
        1 => (0..150_usize).prop_map(|at| Step::FlipByte { at }),
    ]
}

/// A store: the dots of its entries in the order of their writing, and its identity.
#[derive(Clone, Default)]
struct Store {
    identity: u64,
    entries: Vec<Dot>,
    /// Sequences continue when entries are lost, so this counts every write.
    sequence: u64,
}

struct World {
    disk: MemoryDisk,
    randomness: Arc<SeededRandomness>,
    table: LeaseTable,
    stores: Vec<Store>,
    sources: Vec<Arc<DotSource>>,
    /// Every counter ever issued, by actor.
    issued: BTreeMap<ActorId, Vec<u64>>,
}

impl World {
    fn new() -> Self {
        let (disk, randomness) = (empty_disk(), randomness());
        let store = |identity| Store {
            identity,
            ..Store::default()
        };
        let mut world = Self {
            table: open(&disk, &randomness),
            disk,
            randomness,
            stores: (0..u64::from(VNODES)).map(store).collect(),
            sources: Vec::new(),
            issued: BTreeMap::new(),
        };
        world.start();
        world
    }

    fn source(&self, vnode: u16) -> Arc<DotSource> {
        let store = &self.stores[usize::from(vnode)];
        let (identity, sequence) = (StoreId(store.identity), Sequence(store.sequence));
        self.table.source(partition(vnode), identity, sequence)
    }

    fn start(&mut self) {
        // A permanent power cut would end the run.
        self.disk.cut_after(u64::MAX);
        self.table = open(&self.disk, &self.randomness);
        self.sources = (0..VNODES).map(|vnode| self.source(vnode)).collect();
    }

    /// The new clock covers every dot of its actor up to its own: the store must hold them all.
    fn write(&mut self, vnode: u16) {
        let (source, store) = (
            &self.sources[usize::from(vnode)],
            &mut self.stores[usize::from(vnode)],
        );
        if !source.is_ready() {
            return;
        }
        let dot = source
            .next_beyond(StoreId(store.identity), OWN, &[])
            .unwrap();
        let earlier = self.issued.entry(dot.actor).or_default();
        assert!(!earlier.contains(&dot.counter), "{dot} was issued twice");
        for counter in earlier.iter().copied() {
            let covered = Dot { counter, ..dot };
            assert!(
                store.entries.contains(&covered),
                "{dot} covers {covered}, which the vnode has lost"
            );
        }
        earlier.push(dot.counter);
        store.entries.push(dot);
        store.sequence += 1;
    }

    fn lose(&mut self, vnode: u16, loses: u8) {
        let store = &mut self.stores[usize::from(vnode)];
        let kept = store.entries.len().saturating_sub(loses.into());
        let lost = store.entries.len() - kept;
        store.entries.truncate(kept);
        store.sequence -= lost as u64;
    }

    fn take(&mut self, step: &Step) {
        let path = directory().join("dot_leases");
        match *step {
            Step::Write { vnode } => self.write(vnode),
            Step::Renew => drop(self.table.renew()),
            Step::Stop => {
                let sealed = (0..VNODES).map(|vnode| {
                    let at = usize::from(vnode);
                    let sequence = Sequence(self.stores[at].sequence);
                    (partition(vnode), sequence, &*self.sources[at])
                });
                let _may_lack_power = self.table.seal_sources(sealed);
                self.start();
            }
            Step::Crash { seed, loses } => {
                self.disk = self.disk.crash_image(CrashOptions::drawn(seed));
                (0..VNODES).for_each(|vnode| self.lose(vnode, loses));
                self.start();
            }
            Step::Kill => self.start(),
            Step::CutPowerAfter { operations } => {
                self.disk.cut_after(self.disk.operations() + operations);
            }
            Step::RestoreStore { vnode, loses } => {
                self.lose(vnode, loses);
                self.start();
            }
            Step::WipeStore { vnode } => {
                let store = &mut self.stores[usize::from(vnode)];
                store.identity += 100;
                store.entries.clear();
                store.sequence = 0;
                self.start();
            }
            Step::ReplaceVnode { vnode } => self.sources[usize::from(vnode)] = self.source(vnode),
            Step::LoseTable => {
                let _may_be_missing = self.disk.remove_file(&path);
                self.start();
            }
            Step::FlipByte { at } => {
                if let Ok(file) = self.disk.open(&path, OpenMode::ReadWrite) {
                    let offset = at as u64 % file.len().unwrap().max(1);
                    let mut byte = [0];
                    file.read_at(&mut byte, offset, Reading::MayBlock).unwrap();
                    let _may_lack_power = file.write_at(&[byte[0] ^ 0x10], offset);
                }
                self.start();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_dot_is_issued_twice_and_none_covers_what_was_lost(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
