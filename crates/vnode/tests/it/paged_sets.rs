//! Large sets in pages have the values of whole sets, at the vnode that changes them and at those that
//! follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend as _, Durability, FoldClock, FoldRange, Lease, Lookup, ReadAt, Reading,
};
use kvorum_data_types::{Kind, SetChange, Value};
use kvorum_encoding::{StorageKey, page_key, page_of_key};
use kvorum_object::{Content, Limits, Object, ObjectTag, Resolution};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_reaping::{BatchName, Extent};
use kvorum_vnode::{
    Condition, Operation, PagedUpdate, ReplicaFailure, ReplicaReply, ScanLimits, ScanRequest,
    StoredObject, value_of_type,
};
use proptest::prelude::*;

use crate::data_types::apply;
use crate::{Bench, NOW, coordinate, storage_key, store};

const KEY: &str = "k";

/// The result of an operation, for the other replicas.
enum Made {
    Whole(Arc<Object>),
    Update(Arc<PagedUpdate>),
}

fn member(number: u32) -> Bytes {
    format!("member-{number:0100}").into()
}

fn adds(numbers: impl IntoIterator<Item = u32>) -> kvorum_data_types::Operation {
    let numbers = numbers.into_iter();
    kvorum_data_types::Operation::Set(numbers.map(|it| SetChange::Add(member(it))).collect())
}

fn removes(numbers: impl IntoIterator<Item = u32>) -> kvorum_data_types::Operation {
    let numbers = numbers.into_iter();
    kvorum_data_types::Operation::Set(numbers.map(|it| SetChange::Remove(member(it))).collect())
}

fn follow(update: &Arc<PagedUpdate>) -> Operation {
    Operation::Follow {
        key: storage_key(KEY),
        update: update.clone(),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
        durability: Durability::Grouped,
    }
}

fn members_of(object: &Object) -> Vec<Bytes> {
    match value_of_type(object, Kind::Set, 14).value() {
        Value::Set(members) => members,
        other => panic!("{other:?}"),
    }
}

fn bench(seed: u64) -> Bench {
    Bench {
        reading: Reading::MayBlock,
        ..Bench::seeded(seed)
    }
}

/// A vnode that keeps sets whole.
fn whole_bench(seed: u64) -> Bench {
    let bench = bench(seed);
    Bench {
        vnode: bench.vnode.keeping_for_others(0),
        ..bench
    }
}

impl Bench {
    fn carry_out(
        &self,
        operation: kvorum_data_types::Operation,
        context: Option<kvorum_data_types::Clock>,
    ) -> Result<Made, ReplicaFailure> {
        match self.done(apply(KEY, operation, context)) {
            ReplicaReply::Stored { object, .. } => Ok(Made::Whole(object)),
            ReplicaReply::Updated { update, .. } => Ok(Made::Update(update)),
            ReplicaReply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    /// Carries out an operation on a set that is in pages before and after it.
    fn updated(&self, operation: kvorum_data_types::Operation) -> Arc<PagedUpdate> {
        match self.carry_out(operation, None) {
            Ok(Made::Update(update)) => update,
            Ok(Made::Whole(_)) => panic!("the set was taken whole"),
            Err(failure) => panic!("{failure}"),
        }
    }

    fn large_set(&self, members: u32) {
        self.carry_out(adds(0..members), None).unwrap();
        assert!(!self.pages().is_empty());
    }

    /// Takes in what another replica has made, as a coordinator has it do.
    fn take_in(&self, made: &Made, from: &Self) {
        let object = match made {
            Made::Whole(object) => object.clone(),
            Made::Update(update) => match self.done(follow(update)) {
                ReplicaReply::Received { .. } => return,
                ReplicaReply::NeedsWhole => from.get(KEY).unwrap(),
                other => panic!("{other:?}"),
            },
        };
        let reply = self.done(store(KEY, &object));
        assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
    }

    fn follows(&self, update: &Arc<PagedUpdate>) -> bool {
        match self.done(follow(update)) {
            ReplicaReply::Received { .. } => true,
            ReplicaReply::NeedsWhole => false,
            other => panic!("{other:?}"),
        }
    }

    fn members(&self) -> Vec<Bytes> {
        self.get(KEY).map_or(Vec::new(), |it| members_of(&it))
    }

    /// The keys in the store.
    fn stored_keys(&self) -> Vec<StorageKey> {
        let snapshot = self.backend.snapshot(Lease::Unlimited).unwrap();
        let filter = kvorum_backend::FoldFilter::unexpired(NOW);
        let mut keys = Vec::new();
        let detail = kvorum_backend::FoldDetail::Keys;
        let end = snapshot.fold(detail, &FoldRange::all(), &filter, &mut |visited| {
            keys.push(visited.key.clone());
            kvorum_backend::Flow::Continue
        });
        end.unwrap();
        keys
    }

    /// The numbers of pages in the store.
    fn pages(&self) -> Vec<u32> {
        let keys = self.stored_keys();
        let pages = keys.iter().filter_map(|key| page_of_key(key.as_bytes()));
        pages.map(|(_, number)| number).collect()
    }

    /// The stored head and body of the key: replicas compare their hashes.
    fn entry(&self) -> (Bytes, Bytes) {
        let at = ReadAt::may_block(NOW);
        match self.backend.get(&storage_key(KEY), at).unwrap() {
            Lookup::Found(entry) => (entry.head, entry.body),
            other => panic!("{other:?}"),
        }
    }

    fn scanned<T: kvorum_vnode::Scanned>(&self) -> Vec<T> {
        let request = ScanRequest {
            range: FoldRange::all(),
            clock: FoldClock::stopped_at(NOW),
            lease: Lease::Unlimited,
            limits: ScanLimits::NONE,
        };
        let page = self.vnode.scan(&request, &mut |_| true).unwrap();
        assert_eq!(page.undecodable, 0);
        page.entries
    }
}

#[test]
fn a_large_set_is_in_pages_and_a_small_one_is_not() {
    let bench = bench(1);
    bench.carry_out(adds(0..10), None).unwrap();
    assert_eq!(bench.pages(), Vec::<u32>::new());
    bench.carry_out(adds(10..100), None).unwrap();
    assert!(bench.pages().len() > 3);
    assert_eq!(bench.members().len(), 100);
    assert!(matches!(
        bench.carry_out(adds([100]), None),
        Ok(Made::Update(_))
    ));
    assert_eq!(bench.members().len(), 101);
    // Back to a size that is kept whole.
    bench.carry_out(removes(5..101), None).unwrap();
    assert_eq!(bench.pages(), Vec::<u32>::new());
    assert_eq!(bench.members().len(), 5);
}

#[test]
fn an_update_writes_a_page_or_two_and_no_others() {
    let bench = bench(1);
    bench.large_set(1000);
    let before = bench.backend.status().put_bytes;
    for number in 1000..1100 {
        bench.updated(adds([number]));
    }
    let bytes = (bench.backend.status().put_bytes - before) / 100;
    assert!(bytes < 5000, "{bytes}");
    assert_eq!(bench.members().len(), 1100);
}

#[test]
fn replicas_that_follow_store_the_same_bytes() {
    let (one, other) = (bench(1), bench(2));
    one.large_set(100);
    other.take_in(&Made::Whole(one.get(KEY).unwrap()), &one);
    for number in 100..140 {
        assert!(other.follows(&one.updated(adds([number]))));
        assert!(one.follows(&other.updated(removes([number - 50]))));
    }
    assert_eq!(one.entry(), other.entry());
    assert_eq!(one.get(KEY), other.get(KEY));
    assert_eq!(one.members().len(), 100);
}

#[test]
fn an_update_that_comes_twice_or_late_changes_nothing() {
    let (one, other) = (bench(1), bench(2));
    one.large_set(100);
    other.take_in(&Made::Whole(one.get(KEY).unwrap()), &one);
    let updates = [one.updated(adds([100])), one.updated(removes([0]))];
    for update in [&updates[0], &updates[0], &updates[1], &updates[0]] {
        assert!(other.follows(update));
    }
    assert_eq!(one.entry(), other.entry());
}

/// A replica in each state from which an update does not lead to the other's value.
#[test]
fn a_replica_that_lacks_something_needs_the_whole_object() {
    let (one, other) = (bench(1), bench(2));
    one.large_set(100);
    let update = one.updated(adds([100]));
    assert!(!other.follows(&update), "it has nothing");
    let small = bench(3);
    small.carry_out(adds([7]), None).unwrap();
    assert!(!small.follows(&update), "it has a concurrent value");
    other.take_in(&Made::Update(update), &one);
    let missed = one.updated(adds([101]));
    let next = one.updated(adds([102]));
    assert!(!other.follows(&next), "it has missed an update");
    assert_eq!(other.members().len(), 101);
    assert!(other.follows(&missed));
    assert!(other.follows(&next));
    assert_eq!(one.entry(), other.entry());
}

/// An update of a third replica is in no dot that a later addition needs.
fn lacks_an_update_of_another() -> (Bench, bool) {
    let (one, two, three) = (bench(1), bench(2), bench(3));
    one.large_set(100);
    for replica in [&two, &three] {
        replica.take_in(&Made::Whole(one.get(KEY).unwrap()), &one);
    }
    let missed = two.updated(adds([200]));
    assert!(one.follows(&missed));
    let follows = three.follows(&one.updated(adds([300])));
    (three, follows)
}

#[test]
fn an_update_is_not_taken_where_another_replica_s_is_missing() {
    let (three, follows) = lacks_an_update_of_another();
    assert!(!follows);
    assert_eq!(three.members().len(), 100);
}

#[test]
fn a_replica_that_takes_updates_unchecked_loses_one() {
    let _planted = plant(PlantedDefect::UpdateTakenUnchecked);
    let (three, follows) = lacks_an_update_of_another();
    assert!(follows);
    assert!(!three.members().contains(&member(200)));
}

#[test]
fn a_deletion_removes_the_pages() {
    let bench = bench(1);
    bench.large_set(100);
    bench.delete(KEY);
    assert_eq!(bench.stored_keys(), [storage_key(KEY)]);
    let clock = bench.get(KEY).unwrap().clock().clone();
    let key = storage_key(KEY);
    bench.done(Operation::Reap { key, clock });
    assert!(bench.stored_keys().is_empty());
    bench.large_set(50);
    assert_eq!(bench.members().len(), 50);
}

#[test]
fn scans_show_whole_objects_and_no_pages() {
    let bench = bench(1);
    bench.put("a", "plain", &kvorum_object::Clock::new());
    bench.large_set(100);
    let keys: Vec<StorageKey> = bench.scanned();
    assert_eq!(keys, [storage_key("a"), storage_key(KEY)]);
    let heads: Vec<(StorageKey, kvorum_object::Head)> = bench.scanned();
    assert!(heads[1].1.size().bytes > 10_000, "pages count");
    let objects: Vec<StoredObject> = bench.scanned();
    let whole = objects[1].decode().unwrap();
    assert_eq!(Some(whole.clone()), bench.get(KEY));
    let stored = bench.vnode.stored_object(&storage_key(KEY), NOW);
    assert_eq!(stored.unwrap().unwrap().decode(), Ok(whole));
}

#[test]
fn a_lost_page_is_found_and_mended() {
    let (bench, other) = (bench(1), bench(2));
    bench.large_set(100);
    other.take_in(&Made::Whole(bench.get(KEY).unwrap()), &bench);
    let page = StorageKey::from_encoded(page_key(storage_key(KEY).as_bytes(), 1));
    let lost = kvorum_backend::Batch::of(kvorum_backend::Write::remove(page));
    let _receipt = bench.backend.put(&lost, Durability::Grouped).unwrap();
    assert!(matches!(
        bench.try_get(KEY),
        Err(ReplicaFailure::Damaged(_))
    ));
    bench.done(Operation::Mend {
        key: storage_key(KEY),
        object: other.get(KEY).unwrap(),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
    });
    assert_eq!(bench.get(KEY), other.get(KEY));
    assert_eq!(bench.entry(), other.entry());
}

#[test]
fn a_set_that_would_be_too_large_is_refused() {
    let limits = Limits {
        size_max_bytes: 20_000,
        ..Limits::default()
    };
    let bench = Bench {
        reading: Reading::MayBlock,
        ..Bench::with_limits(limits)
    };
    bench.large_set(100);
    let refused = (100..300).find_map(|it| bench.carry_out(adds([it]), None).err());
    assert!(matches!(
        refused,
        Some(ReplicaFailure::ObjectTooLarge { bytes, .. }) if bytes > 20_000
    ));
    bench.updated(removes([3]));
}

#[test]
fn an_operation_on_pages_that_are_not_in_memory_is_carried_out_once() {
    let mut bench = bench(1);
    bench.large_set(100);
    bench.reading = Reading::CachedOnly;
    let waits = &bench.backend.would_block;
    waits.store(true, std::sync::atomic::Ordering::Relaxed);
    let handled = bench.handle(apply(KEY, adds([100]), None));
    assert!(matches!(handled, kvorum_vnode::Handled::WouldBlock));
    bench.reading = Reading::MayBlock;
    bench.updated(adds([100]));
    assert_eq!(bench.members().len(), 101);
}

#[test]
fn a_store_that_drops_entries_keeps_sets_whole() {
    let bench = whole_bench(1);
    bench.carry_out(adds(0..200), None).unwrap();
    assert_eq!(bench.pages(), Vec::<u32>::new());
    let other = self::bench(2);
    other.large_set(100);
    assert!(!bench.follows(&other.updated(adds([100]))));
}

#[test]
fn hidden_sets_go_with_their_pages_and_present_ones_keep_theirs() {
    let bench = bench(1);
    bench.large_set(200);
    let everything = Extent::up_to([BatchName {
        store: bench.vnode.store_id().0,
        sequence: bench.backend.durable().0,
    }]);
    bench.vnode.hide(everything);
    bench.vnode.mark_complete();
    assert_eq!(bench.get(KEY), None);
    bench.large_set(60);
    bench.vnode.mark_incomplete();
    let request = ScanRequest {
        range: FoldRange::all(),
        clock: FoldClock::stopped_at(NOW),
        lease: Lease::Unlimited,
        limits: ScanLimits::NONE,
    };
    let removed = bench.vnode.remove_hidden_page(&request).unwrap();
    assert!(removed.entries > 0 && removed.next.is_none(), "{removed:?}");
    bench.vnode.show_hidden();
    bench.vnode.mark_complete();
    assert_eq!(bench.members().len(), 60);
    let other = self::bench(2);
    other.take_in(&Made::Whole(bench.get(KEY).unwrap()), &bench);
    assert_eq!(bench.pages(), other.pages());
}

#[derive(Clone, Debug)]
enum Step {
    Add(BTreeSet<u32>),
    Remove {
        numbers: BTreeSet<u32>,
        with_context: bool,
    },
    Delete,
}

fn step() -> impl Strategy<Value = (usize, Step, bool)> {
    let numbers = || prop::collection::btree_set(0..120u32, 1..50);
    let step = prop_oneof![
        6 => numbers().prop_map(Step::Add),
        3 => (numbers(), any::<bool>()).prop_map(|(numbers, with_context)| Step::Remove {
            numbers,
            with_context,
        }),
        1 => Just(Step::Delete),
    ];
    (0..3usize, step, prop::bool::weighted(0.8))
}

/// Carries out a step at a replica, and at the others if it is delivered; the members that each shows.
fn go(
    benches: &[Bench; 3],
    (at, step, is_delivered): &(usize, Step, bool),
) -> (bool, Vec<Vec<Bytes>>) {
    let bench = &benches[*at];
    let context = || {
        let seen = benches[(at + 1) % 3].get(KEY)?;
        value_of_type(&seen, Kind::Set, 14).context()
    };
    let made = match step {
        Step::Add(numbers) => bench.carry_out(adds(numbers.iter().copied()), None).ok(),
        Step::Remove {
            numbers,
            with_context,
        } => {
            let context = with_context.then(context).flatten();
            let numbers = numbers.iter().copied();
            bench.carry_out(removes(numbers), context).ok()
        }
        Step::Delete => bench.get(KEY).map(|present| {
            let (clock, tombstone) = (present.clock(), Content::tombstone());
            match bench.done(coordinate(KEY, tombstone, clock, Condition::Always)) {
                ReplicaReply::Stored { object, .. } => Made::Whole(object),
                other => panic!("{other:?}"),
            }
        }),
    };
    let is_done = made.is_some();
    if let Some(made) = made.filter(|_| *is_delivered) {
        for other in (0..3).filter(|it| it != at) {
            benches[other].take_in(&made, bench);
        }
    }
    (is_done, benches.iter().map(Bench::members).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    /// Three replicas with pages and three without go the same way.
    #[test]
    fn sets_in_pages_are_sets(steps in prop::collection::vec(step(), 1..16)) {
        let paged = [bench(1), bench(2), bench(3)];
        let whole = [whole_bench(1), whole_bench(2), whole_bench(3)];
        for step in &steps {
            prop_assert_eq!(go(&paged, step), go(&whole, step));
        }
        // In the end all have what each has, in the same bytes.
        for benches in [&paged, &whole] {
            for from in benches {
                let Some(object) = from.get(KEY) else {
                    continue;
                };
                for to in benches {
                    to.take_in(&Made::Whole(object.clone()), from);
                }
            }
        }
        let last = (0, Step::Add(BTreeSet::from([7])), true);
        prop_assert_eq!(go(&paged, &last), go(&whole, &last));
        prop_assert_eq!(paged[0].entry(), paged[1].entry());
        prop_assert_eq!(paged[0].entry(), paged[2].entry());
    }
}
