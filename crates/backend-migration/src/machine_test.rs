//! Moves between two stores in memory, under writes, cancellations and deaths of the process: a read always
//! returns the last write, and a move that has ended leaves no entry in the former place.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::record::Record;

type Store = BTreeMap<Bytes, u32>;

const SCOPE: &[u8] = b"b/";
const STORES: [&str; 2] = ["bc", "ldb"];

/// The points at which a process may die during a write or an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Never,
    /// After the first part of a write, or between an order's effect and its record.
    Between,
    /// Before the last part of a write.
    Late,
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u8,
        death: Death,
    },
    Remove {
        key: u8,
        death: Death,
    },
    /// An order, for at most this many keys.
    Order {
        keys_max: usize,
        death: Death,
    },
    Cancel,
}

/// A store of two backends, with a move in progress.
struct World {
    stores: [Store; 2],
    /// The store that writes go to.
    route: usize,
    migration: Migration,
    record: Vec<u8>,
    /// The writes, for comparison with reads.
    model: Store,
    values: u32,
    room: u64,
}

fn key(number: u8) -> Bytes {
    // Some are outside the scope, before and behind it.
    let bucket = match number % 8 {
        0 => "a/",
        7 => "c/",
        _ => "b/",
    };
    format!("{bucket}{number:03}").into()
}

fn is_in_scope(key: &Bytes) -> bool {
    key.starts_with(SCOPE)
}

fn plan() -> Plan {
    Plan {
        source: STORES[0].to_owned(),
        target: STORES[1].to_owned(),
        scope: Bytes::from_static(SCOPE),
        bytes_estimate: 1000,
    }
}

impl World {
    fn new(keys: &[u8]) -> Self {
        let mut world = Self {
            stores: [Store::new(), Store::new()],
            route: 0,
            migration: Migration::new(plan()),
            record: Vec::new(),
            model: Store::new(),
            values: 0,
            room: 2000,
        };
        for number in keys {
            world.put(&key(*number), Death::Never);
        }
        // Set before the first order.
        world.route = 1;
        world.save();
        world
    }

    fn save(&mut self) {
        let record = Record {
            generation: 1,
            identity: 2,
            migration: self.migration.clone(),
        };
        self.record = record.encode();
    }

    fn die(&mut self) {
        let record = Record::decode(&self.record, Path::new("r")).unwrap();
        self.migration = record.unwrap().migration;
        self.migration.resume();
    }

    /// The stores that may have a key, that of its route first. Keys outside the scope never move.
    fn homes(&self, key: &Bytes) -> [usize; 2] {
        match is_in_scope(key) {
            true => [self.route, 1 - self.route],
            false => [0, 1],
        }
    }

    /// A put, in the order of a store of several backends.
    fn put(&mut self, key: &Bytes, death: Death) {
        let [own, other] = self.homes(key);
        if self.stores[own].contains_key(key) {
            self.stores[other].remove(key);
            if death == Death::Between {
                return self.die();
            }
        }
        self.values += 1;
        self.model.insert(key.clone(), self.values);
        if let Some(there) = self.stores[other].get_mut(key) {
            *there = self.values;
            if death == Death::Between {
                return self.die();
            }
        }
        self.stores[own].insert(key.clone(), self.values);
        match death {
            Death::Never => drop(self.stores[other].remove(key)),
            Death::Between | Death::Late => self.die(),
        }
    }

    /// A removal that dies in between has removed nothing visible, or all.
    fn remove(&mut self, key: &Bytes, death: Death) {
        let [own, other] = self.homes(key);
        self.stores[other].remove(key);
        if death != Death::Never {
            self.die();
            if !self.stores[own].contains_key(key) {
                self.model.remove(key);
            }
            return;
        }
        self.stores[own].remove(key);
        self.model.remove(key);
    }

    fn read(&self, key: &Bytes) -> Option<u32> {
        let homes = self.homes(key);
        homes
            .iter()
            .find_map(|it| self.stores[*it].get(key).copied())
    }

    fn check(&self) {
        for number in 0..=u8::MAX {
            let key = key(number);
            assert_eq!(self.read(&key), self.model.get(&key).copied(), "{key:?}");
        }
    }

    fn order(&mut self, keys_max: usize, death: Death) {
        let Some(order) = self.migration.order() else {
            return;
        };
        let event = self.carry_out(order, keys_max);
        if death != Death::Never {
            return self.die();
        }
        self.migration.step(event);
        self.save();
    }

    fn carry_out(&mut self, order: Order, keys_max: usize) -> Event {
        match order {
            Order::LookForRoom => Event::Room {
                available_bytes: self.room,
            },
            Order::Copy(part) => self.copy(&part, keys_max),
            Order::Verify(part) => self.verify(&part, keys_max),
            Order::Remove(part) => self.remove_part(&part, keys_max),
        }
    }

    /// The source's entries of a part, the numbers of source and target, and the part's last key.
    fn part(&self, part: &Part, keys_max: usize) -> (Store, usize, usize, Option<Bytes>) {
        let number = |name: &str| STORES.iter().position(|it| *it == name).unwrap();
        let (source, target) = (number(&part.source), number(&part.target));
        assert_eq!(target, self.route, "entries go where the route is");
        let from = match &part.after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Included(part.scope.clone()),
        };
        let rest = self.stores[source].range((from, Bound::Unbounded));
        let rest = rest.take_while(|(key, _)| key.starts_with(&part.scope));
        let mut entries: Vec<_> = rest.take(keys_max + 1).collect();
        let is_more = entries.len() > keys_max;
        entries.truncate(keys_max);
        let last = entries.last().map(|(key, _)| (*key).clone());
        let owned = entries
            .into_iter()
            .map(|(key, value)| (key.clone(), *value));
        (owned.collect(), source, target, last.filter(|_| is_more))
    }

    fn copy(&mut self, part: &Part, keys_max: usize) -> Event {
        let (entries, source, target, last) = self.part(part, keys_max);
        let mut copied = 0;
        for (key, value) in entries {
            match self.stores[target].get(&key) {
                None => {
                    self.stores[target].insert(key, value);
                    copied += 1;
                }
                Some(there) if *there != value => drop(self.stores[source].remove(&key)),
                Some(_) => {}
            }
        }
        Event::Copied {
            last,
            keys: copied,
            bytes: 4 * copied,
        }
    }

    fn verify(&self, part: &Part, keys_max: usize) -> Event {
        let (entries, _, target, last) = self.part(part, keys_max);
        let (mut own, mut its) = (Tally::default(), Tally::default());
        for (key, value) in entries {
            count(&mut own, &key, value);
            if let Some(there) = self.stores[target].get(&key) {
                count(&mut its, &key, *there);
            }
        }
        Event::Verified {
            last,
            source: own,
            target: its,
        }
    }

    fn remove_part(&mut self, part: &Part, keys_max: usize) -> Event {
        let (entries, source, target, last) = self.part(part, keys_max);
        let (mut keys, mut left) = (0, 0);
        for key in entries.keys() {
            match self.stores[target].contains_key(key) {
                true => {
                    self.stores[source].remove(key);
                    keys += 1;
                }
                false => left += 1,
            }
        }
        Event::Removed { last, keys, left }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Put { key: number, death } => self.put(&key(number), death),
            Step::Remove { key: number, death } => self.remove(&key(number), death),
            Step::Order { keys_max, death } => self.order(keys_max, death),
            Step::Cancel => self.cancel(),
        }
    }

    fn cancel(&mut self) {
        // The routes change first, so that nothing more is written to the target.
        if self.migration.clone().cancel().is_ok() {
            self.route = 0;
            self.migration.cancel().unwrap();
            self.save();
        }
    }

    /// Continues to the end.
    fn finish(&mut self) -> End {
        for _ in 0..10_000 {
            if let Phase::Ended(end) = self.migration.phase() {
                return end;
            }
            self.order(3, Death::Never);
            self.check();
        }
        panic!("a move without writes does not end: {:?}", self.migration);
    }

    fn has_in_scope(&self, store: usize) -> bool {
        self.stores[store].keys().any(is_in_scope)
    }
}

fn count(tally: &mut Tally, key: &Bytes, value: u32) {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    tally.keys += 1;
    tally.digest = tally.digest.wrapping_add(hasher.finish());
}

fn step() -> impl Strategy<Value = Step> {
    let death =
        || prop_oneof![8 => Just(Death::Never), 1 => Just(Death::Between), 1 => Just(Death::Late)];
    prop_oneof![
        4 => (0..40_u8, death()).prop_map(|(key, death)| Step::Put { key, death }),
        2 => (0..40_u8, death()).prop_map(|(key, death)| Step::Remove { key, death }),
        8 => (1..9_usize, death()).prop_map(|(keys_max, death)| Step::Order { keys_max, death }),
    ]
}

fn is_cut_short(step: &Step) -> bool {
    matches!(step, Step::Put { death, .. } if *death != Death::Never)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_in_the_target_and_nothing_was_ever_hidden(
        keys in prop::collection::vec(0..40_u8, 0..60),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new(&keys);
        for step in &steps {
            world.play(step);
            world.check();
        }
        prop_assert_eq!(world.finish(), End::Moved);
        // A write that died between its steps after the end leaves an entry to the next move.
        let has_died = steps.iter().any(is_cut_short);
        prop_assert!(has_died || !world.has_in_scope(0));
    }

    #[test]
    fn what_is_cancelled_is_in_the_source_again(
        keys in prop::collection::vec(0..40_u8, 0..60),
        before in prop::collection::vec(step(), 0..40),
        after in prop::collection::vec(step(), 0..40),
    ) {
        let mut world = World::new(&keys);
        let cancelled = [Step::Cancel];
        for step in before.iter().chain(&cancelled).chain(&after) {
            world.play(step);
            world.check();
        }
        let end = world.finish();
        let (wanted, left) = match world.migration.is_taken_back() {
            true => (End::TakenBack, 1),
            false => (End::Moved, 0),
        };
        prop_assert_eq!(end, wanted);
        let mut all = before.iter().chain(&after);
        let has_died = all.any(is_cut_short);
        prop_assert!(has_died || !world.has_in_scope(left));
    }
}

#[test]
fn a_move_without_room_is_refused_before_anything_is_copied() {
    let mut world = World::new(&[1, 2, 3]);
    world.room = world.migration.room_needed_bytes() - 1;
    assert_eq!(world.finish(), End::NoRoom);
    assert!(!world.has_in_scope(1));
    world.migration = Migration::new(plan());
    world.room += 1;
    assert_eq!(world.finish(), End::Moved);
}

#[test]
fn what_lies_outside_the_scope_stays_where_it_is() {
    let mut world = World::new(&[0, 1, 7, 8, 9, 15]);
    assert_eq!(world.finish(), End::Moved);
    let outside = |store: usize| {
        world.stores[store]
            .keys()
            .filter(|it| !is_in_scope(it))
            .count()
    };
    assert_eq!((outside(0), outside(1)), (4, 0));
    assert_eq!(world.migration.progress().keys_removed, 2);
    assert_eq!(world.migration.progress().keys_verified, 2);
}

/// A copy that differs from the source's entry must not replace it.
#[test]
fn a_source_goes_only_when_its_copies_are_right() {
    let mut world = World::new(&[1, 2, 3]);
    world.order(9, Death::Never);
    world.order(9, Death::Never);
    assert_eq!(world.migration.phase(), Phase::Verify);
    world.stores[1].remove(&key(2));
    world.order(9, Death::Never);
    assert_eq!(world.migration.phase(), Phase::Copy);
    assert_eq!(world.finish(), End::Moved);
    world.check();
}

#[test]
fn what_goes_on_to_differ_is_given_up_with_both_copies_in_place() {
    let mut migration = Migration::new(plan());
    migration.step(Event::Room {
        available_bytes: u64::MAX,
    });
    let wrong = |keys| Tally { keys, digest: 0 };
    let mut rounds = 0;
    while let Some(order) = migration.order() {
        rounds += 1;
        migration.step(match order {
            Order::Verify(_) => Event::Verified {
                last: None,
                source: wrong(1),
                target: wrong(0),
            },
            _ => Event::Copied {
                last: None,
                keys: 0,
                bytes: 0,
            },
        });
    }
    assert_eq!(migration.phase(), Phase::Ended(End::Differs));
    assert_eq!(rounds, 2 * (usize::from(FAILURES_MAX) + 1));
}

#[test]
fn a_cancellation_is_refused_where_there_is_nothing_to_cancel() {
    let mut world = World::new(&[1]);
    world.cancel();
    assert_eq!(world.migration.cancel(), Err(CancelError::Cancelled));
    assert_eq!(world.finish(), End::TakenBack);
    let ended = world.migration.cancel().unwrap_err();
    assert_eq!(ended, CancelError::Ended(End::TakenBack));
    assert!(ended.to_string().contains("without moving"), "{ended}");
}
