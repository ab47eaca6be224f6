//! No dot is ever issued twice, whatever happens to the table, the stores and the power.

use std::collections::BTreeSet;

use kvorum_backend::StoreId;
use kvorum_disk::{CrashOptions, ErrorKind, FaultyDisk, MemoryDisk, OpenMode};
use kvorum_object::Timestamp;
use kvorum_ring::RingSize;
use kvorum_runtime::SeededRandomness;
use proptest::prelude::*;

use super::*;
use crate::LeaseUsedUp;
use crate::dot_source::LEASE_DOTS;

const PARTITIONS: u16 = 3;

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

fn open(disk: &MemoryDisk, randomness: &Arc<SeededRandomness>) -> (LeaseTable, bool) {
    let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness.clone());
    let (table, unreadable) = opened.unwrap();
    (table, unreadable.is_some())
}

fn randomness() -> Arc<SeededRandomness> {
    Arc::new(SeededRandomness::new(1))
}

fn clock_with(dot: Dot) -> Clock {
    let mut clock = Clock::new();
    clock.observe(dot, Timestamp::from_micros(1));
    clock
}

/// Remembers every dot, and fails at the second of a kind.
#[derive(Default)]
struct Issued(BTreeSet<(u64, u64)>);

impl Issued {
    fn note(&mut self, dot: Dot) {
        assert!(
            self.0.insert((dot.actor.0, dot.counter)),
            "{dot} was issued twice"
        );
    }
}

#[test]
fn nothing_is_issued_before_the_first_renewal() {
    let (table, _) = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), StoreId(7));
    assert_eq!(source.next(), Err(LeaseUsedUp));
    assert!(table.is_renewal_due());
    table.renew().unwrap();
    assert!(!table.is_renewal_due());
    assert_eq!(source.next().unwrap().counter, 1);
    assert_eq!(source.counter(), 1);
}

#[test]
fn a_restart_goes_on_under_the_same_actor_above_everything_issued() {
    let (disk, randomness) = (empty_disk(), randomness());
    let (table, _) = open(&disk, &randomness);
    let source = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    let before = source.next().unwrap();
    let (table, is_unreadable) = open(&disk, &randomness);
    assert!(!is_unreadable);
    let source = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    let after = source.next().unwrap();
    assert_eq!(after.actor, before.actor);
    assert_eq!(after.counter, 1 + LEASE_DOTS);
}

#[test]
fn a_store_of_another_identity_gets_a_fresh_actor() {
    let (disk, randomness) = (empty_disk(), randomness());
    let (table, _) = open(&disk, &randomness);
    let before = table.source(partition(0), StoreId(7)).actor();
    table.renew().unwrap();
    let (table, _) = open(&disk, &randomness);
    assert_ne!(table.source(partition(0), StoreId(8)).actor(), before);
    assert_eq!(table.source(partition(0), StoreId(7)).actor(), before);
}

#[test]
fn a_source_made_anew_in_one_run_starts_above_the_old_one() {
    let (table, _) = open(&empty_disk(), &randomness());
    let mut issued = Issued::default();
    let old = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    issued.note(old.next().unwrap());
    let new = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    for _ in 0..3 {
        issued.note(old.next().unwrap());
        issued.note(new.next().unwrap());
    }
    assert_eq!(new.actor(), old.actor());
}

#[test]
fn a_lease_runs_out_and_is_renewed_in_time() {
    let (table, _) = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    for _ in 0..LEASE_DOTS / 2 {
        source.next().unwrap();
    }
    assert!(!table.is_renewal_due());
    source.next().unwrap();
    assert!(table.is_renewal_due());
    for _ in 0..LEASE_DOTS / 2 - 1 {
        source.next().unwrap();
    }
    assert_eq!(source.next(), Err(LeaseUsedUp));
    let dot = table.next_dot(&source, StoreId(7), &[]).unwrap();
    assert_eq!(dot.counter, LEASE_DOTS + 1);
}

#[test]
fn a_renewal_that_fails_grants_nothing() {
    let disk = FaultyDisk::over_memory(&empty_disk());
    for n in 1.. {
        let faults = disk.faults();
        let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness());
        let (table, _) = opened.unwrap();
        let source = table.source(partition(0), StoreId(n));
        disk.fail_operation_number(disk.operations() + n);
        let renewed = table.renew();
        disk.heal();
        if disk.faults() == faults {
            assert!(n > 5, "the sweep met {n} operations alone");
            return;
        }
        let error = renewed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert_eq!(source.next(), Err(LeaseUsedUp));
        table.renew().unwrap();
        source.next().unwrap();
    }
}

#[test]
fn nobody_who_issues_dots_waits_for_a_renewal() {
    let (table, _) = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    // What a renewal holds over its sync.
    let _renewing = table.renewing.lock();
    source.next().unwrap();
    assert!(!source.is_overtaken_by(&Clock::new()));
    assert!(!table.is_renewal_due());
    table.source(partition(1), StoreId(8));
}

#[test]
fn an_actor_that_others_know_better_is_left() {
    let (table, _) = open(&empty_disk(), &randomness());
    let source = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    let first = source.next().unwrap();
    assert!(!source.is_overtaken_by(&clock_with(first)));
    let never_issued = Dot {
        counter: first.counter + 1,
        ..first
    };
    let seen = clock_with(never_issued);
    assert!(source.is_overtaken_by(&seen));
    let dot = table.next_dot(&source, StoreId(7), &[&seen]).unwrap();
    assert_ne!(dot.actor, first.actor);
    // The fresh actor knows nothing of the old one's troubles.
    assert!(!source.is_overtaken_by(&seen));
    let actor = source.actor();
    table
        .leave_overtaken_actor(&source, StoreId(7), &seen)
        .unwrap();
    assert_eq!(source.actor(), actor);
    table
        .leave_overtaken_actor(&source, StoreId(7), &clock_with(Dot { counter: 2, ..dot }))
        .unwrap();
    assert_ne!(source.actor(), actor);
    source.next().unwrap();
}

#[test]
fn a_vnode_that_was_replaced_gets_no_more_leases() {
    let (table, _) = open(&empty_disk(), &randomness());
    let old = table.source(partition(0), StoreId(7));
    let _new = table.source(partition(0), StoreId(8));
    let refused = table.next_dot(&old, StoreId(7), &[]);
    assert!(matches!(refused, Err(LeaseError::Replaced)), "{refused:?}");
}

#[test]
fn a_table_that_cannot_be_read_is_kept_aside() {
    let (disk, randomness) = (empty_disk(), randomness());
    let path = directory().join("dot_leases");
    kvorum_disk::replace_file(&disk, &path, b"no table").unwrap();
    let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness).unwrap();
    let unreadable = opened.1.unwrap();
    assert_eq!(
        unreadable.kept_as,
        directory().join("dot_leases.unreadable")
    );
    assert!(unreadable.reason.contains("checksum"), "{unreadable:?}");
    let kept = kvorum_disk::read_file(&disk, &unreadable.kept_as, 100).unwrap();
    assert_eq!(kept, b"no table");
    assert_eq!(disk.info(&path).unwrap(), None);
}

#[test]
fn threads_that_issue_renew_and_replace_share_no_dot() {
    let (table, _) = open(&empty_disk(), &randomness());
    let old = table.source(partition(0), StoreId(7));
    table.renew().unwrap();
    let issue = |source: Arc<DotSource>| {
        let dot = || table.next_dot(&source, StoreId(7), &[]);
        (0..20_000).map_while(|_| dot().ok()).collect::<Vec<Dot>>()
    };
    let lists = std::thread::scope(|scope| {
        let issuers: Vec<_> = (0..2).map(|_| scope.spawn(|| issue(old.clone()))).collect();
        let renewer = scope.spawn(|| (0..200).for_each(|_| table.renew().unwrap()));
        let replacer = scope.spawn(|| {
            let sources = (0..20).map(|_| table.source(partition(0), StoreId(7)));
            sources
                .flat_map(|source| issue(source).split_off(19_900))
                .collect()
        });
        renewer.join().unwrap();
        let mut lists: Vec<_> = issuers.into_iter().map(|it| it.join().unwrap()).collect();
        lists.push(replacer.join().unwrap());
        lists
    });
    let mut issued = Issued::default();
    lists.into_iter().flatten().for_each(|dot| issued.note(dot));
    assert!(issued.0.len() > 20_000);
}

/// Opens the table, renews it twice and issues dots in between, as far as the power lasts.
fn one_run(disk: &MemoryDisk, randomness: &Arc<SeededRandomness>, issued: &mut Issued) {
    let opened = LeaseTable::open(Arc::new(disk.clone()), directory(), randomness.clone());
    let Ok((table, _)) = opened else { return };
    let sources = [0, 1, 2].map(|number| table.source(partition(number), StoreId(number.into())));
    for _ in 0..2 {
        let _may_fail = table.renew();
        for source in &sources {
            (0..2).for_each(|_| source.next().into_iter().for_each(|dot| issued.note(dot)));
        }
    }
}

#[test]
fn no_crash_makes_a_dot_be_issued_twice() {
    let operations = {
        let disk = empty_disk();
        one_run(&disk, &randomness(), &mut Issued::default());
        disk.operations()
    };
    for cut in 0..=operations {
        for seed in 0..20 {
            let randomness = Arc::new(SeededRandomness::new(seed));
            let mut issued = Issued::default();
            let mut disk = empty_disk();
            for run in 0..4 {
                // A run with a lease to lose, two in which the power fails, and one to look back.
                match run {
                    1 => disk.cut_after(disk.operations() + cut),
                    2 => disk.cut_after(disk.operations() + (cut + seed) % (operations + 1)),
                    _ => {}
                }
                one_run(&disk, &randomness, &mut issued);
                disk = disk.crash_image(CrashOptions::drawn(seed + run));
            }
            assert!(issued.0.len() >= 12, "cut {cut} seed {seed}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Issue { vnode: u16, dots: u8 },
    Renew,
    Restart,
    Crash { seed: u64 },
    CutPowerAfter { operations: u64 },
    WipeStore { vnode: u16 },
    ReplaceVnode { vnode: u16 },
    LoseTable,
    FlipByte { at: usize },
    Overtake { vnode: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let vnode = 0..PARTITIONS;
    prop_oneof![
        6 => (vnode.clone(), 1..4_u8).prop_map(|(vnode, dots)| Step::Issue { vnode, dots }),
        3 => Just(Step::Renew),
        2 => Just(Step::Restart),
        2 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
        1 => (0..6_u64).prop_map(|operations| Step::CutPowerAfter { operations }),
        1 => vnode.clone().prop_map(|vnode| Step::WipeStore { vnode }),
        1 => vnode.clone().prop_map(|vnode| Step::ReplaceVnode { vnode }),
        1 => Just(Step::LoseTable),
        1 => (0..120_usize).prop_map(|at| Step::FlipByte { at }),
        1 => vnode.prop_map(|vnode| Step::Overtake { vnode }),
    ]
}

struct World {
    disk: MemoryDisk,
    randomness: Arc<SeededRandomness>,
    table: LeaseTable,
    sources: Vec<Arc<DotSource>>,
    /// Vnodes that were replaced and are still in somebody's hands.
    former: Vec<Arc<DotSource>>,
    stores: Vec<u64>,
    issued: Issued,
}

impl World {
    fn new() -> Self {
        let (disk, randomness) = (empty_disk(), randomness());
        let (table, _) = open(&disk, &randomness);
        let mut world = Self {
            disk,
            randomness,
            table,
            sources: Vec::new(),
            former: Vec::new(),
            stores: (0..u64::from(PARTITIONS)).collect(),
            issued: Issued::default(),
        };
        world.make_sources();
        world
    }

    fn make_sources(&mut self) {
        let source = |number: u16| {
            let store = StoreId(self.stores[usize::from(number)]);
            self.table.source(partition(number), store)
        };
        self.sources = (0..PARTITIONS).map(source).collect();
        self.former.clear();
    }

    fn restart(&mut self) {
        // Losing power for good would end the story.
        self.disk.cut_after(u64::MAX);
        (self.table, _) = open(&self.disk, &self.randomness);
        self.make_sources();
    }

    fn issue(&mut self, vnode: u16) {
        let source = &self.sources[usize::from(vnode)];
        let of_former = self.former.iter().filter_map(|former| former.next().ok());
        source
            .next()
            .ok()
            .into_iter()
            .chain(of_former)
            .for_each(|dot| self.issued.note(dot));
    }

    fn take(&mut self, step: &Step) {
        let path = directory().join("dot_leases");
        match *step {
            Step::Issue { vnode, dots } => (0..dots).for_each(|_| self.issue(vnode)),
            Step::Renew => drop(self.table.renew()),
            Step::Restart => self.restart(),
            Step::Crash { seed } => {
                self.disk = self.disk.crash_image(CrashOptions::drawn(seed));
                self.restart();
            }
            Step::CutPowerAfter { operations } => {
                self.disk.cut_after(self.disk.operations() + operations);
            }
            Step::WipeStore { vnode } => {
                self.stores[usize::from(vnode)] += 100;
                self.restart();
            }
            Step::ReplaceVnode { vnode } => {
                let store = StoreId(self.stores[usize::from(vnode)]);
                let new = self.table.source(partition(vnode), store);
                let old = std::mem::replace(&mut self.sources[usize::from(vnode)], new);
                self.former.push(old);
            }
            Step::LoseTable => {
                let _may_be_missing = self.disk.remove_file(&path);
                self.restart();
            }
            Step::FlipByte { at } => {
                let Ok(file) = self.disk.open(&path, OpenMode::ReadWrite) else {
                    return;
                };
                let offset = at as u64 % file.len().unwrap().max(1);
                let mut byte = [0];
                let whole = kvorum_disk::Reading::MayBlock;
                file.read_at(&mut byte, offset, whole).unwrap();
                let _may_lack_power = file.write_at(&[byte[0] ^ 0x10], offset);
                self.restart();
            }
            Step::Overtake { vnode } => {
                let source = &self.sources[usize::from(vnode)];
                let seen = clock_with(Dot {
                    actor: source.actor(),
                    counter: source.counter() + 5,
                });
                let store = StoreId(self.stores[usize::from(vnode)]);
                if let Ok(dot) = self.table.next_dot(source, store, &[&seen]) {
                    self.issued.note(dot);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn all_dots_ever_issued_are_distinct(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
