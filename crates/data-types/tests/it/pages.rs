//! Sets in pages against the same sets whole, damage to pages, and the bytes that an addition writes.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use kvorum_data_types::{
    Actor, Clock, Dot, PageChange, PageSource, PagedSet, PagedSetError, Set, SetChange, SetDelta,
    Update,
};
use proptest::prelude::*;

/// A head and its pages, as a store has them.
#[derive(Clone)]
struct Stored {
    head: PagedSet,
    pages: Pages,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pages(BTreeMap<u32, Bytes>);

impl PageSource for Pages {
    type Error = Infallible;

    fn page(&mut self, number: u32) -> Result<Option<Bytes>, Infallible> {
        Ok(self.0.get(&number).cloned())
    }
}

impl Stored {
    fn of(set: &Set) -> Self {
        let PageChange { head, pages } = PagedSet::split(set);
        let mut stored = Self {
            head,
            pages: Pages::default(),
        };
        stored.write_pages(pages);
        stored
    }

    fn write_pages(&mut self, pages: BTreeMap<u32, Option<Bytes>>) {
        for (number, page) in pages {
            match page {
                Some(page) => self.pages.0.insert(number, page),
                None => self.pages.0.remove(&number),
            };
        }
    }

    /// Writes a change, and returns the bytes that a store would write.
    fn write(&mut self, change: PageChange) -> usize {
        let pages = change.pages.values().flatten().map(Bytes::len);
        let bytes = change.head.encode().len() + pages.sum::<usize>();
        let decoded = PagedSet::decode(&change.head.encode());
        assert_eq!(decoded, Ok(Some(change.head.clone())));
        self.head = change.head;
        self.write_pages(change.pages);
        bytes
    }

    fn update(&mut self, changes: &[SetChange], update: Update<'_>) -> Option<SetDelta> {
        let found = self.head.update(changes, update, &mut self.pages);
        let (change, delta) = found.ok()?;
        self.write(change);
        Some(delta)
    }
}

fn update(actor: u64, counter: u64, context: Option<&Clock>) -> Update<'_> {
    Update {
        dot: Dot::new(Actor(actor), counter),
        micros: 0,
        context,
    }
}

fn member(number: u32, len: usize) -> Bytes {
    let mut name = format!("member-{number:08}").into_bytes();
    name.resize(name.len().max(len), b'.');
    name.into()
}

/// A set whose members were added one by one at three actors.
fn large_set(members: u32) -> Set {
    let mut set = Set::default();
    for number in 0..members {
        let counter = u64::from(number) + 1;
        let changes = [SetChange::Add(member(number, 0))];
        let actor = u64::from(number % 3) + 1;
        set.update(&changes, update(actor, counter, None)).unwrap();
    }
    set
}

#[derive(Clone, Debug)]
struct Step {
    at: usize,
    numbers: Vec<u32>,
    is_removal: bool,
    with_context: bool,
    joins: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = prop::collection::vec(0..400u32, 1..60);
    (
        0..2usize,
        numbers,
        prop::bool::weighted(0.4),
        any::<bool>(),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(at, numbers, is_removal, with_context, joins)| Step {
            at,
            numbers,
            is_removal,
            with_context,
            joins,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    /// Two replicas in pages and two whole ones behave alike: same values, same refusals, and the
    /// pages that the members' hashes determine.
    #[test]
    fn a_set_in_pages_is_the_set(steps in prop::collection::vec(step(), 1..20), len in 0..400usize) {
        let mut whole = [Set::default(), Set::default()];
        let mut paged = [Stored::of(&whole[0]), Stored::of(&whole[1])];
        for (step, counter) in steps.into_iter().zip(1..) {
            let members = step.numbers.iter().map(|number| member(*number, len));
            let changes: Vec<SetChange> = match step.is_removal {
                true => members.map(SetChange::Remove).collect(),
                false => members.map(SetChange::Add).collect(),
            };
            let seen = whole[1 - step.at].context();
            let context = step.with_context.then_some(&seen);
            let at = step.at as u64 + 1;
            let delta = whole[step.at].update(&changes, update(at, counter, context)).ok();
            let paged_delta = paged[step.at].update(&changes, update(at, counter, context));
            prop_assert_eq!(&delta, &paged_delta);
            if let Some(delta) = delta.filter(|_| step.joins) {
                let other = 1 - step.at;
                let stored = &mut paged[other];
                match (whole[other].join(delta.clone()), stored.head.join(delta, &mut stored.pages)) {
                    (Ok(()), Ok(change)) => { stored.write(change); }
                    (Err(_), Err(PagedSetError::Gap(_))) => {
                        let more = whole[step.at].clone();
                        whole[other].merge(more);
                        *stored = Stored::of(&whole[other]);
                    }
                    (ours, theirs) => panic!("{ours:?}, {theirs:?}"),
                }
            }
            for (whole, stored) in whole.iter().zip(&mut paged) {
                prop_assert_eq!(&stored.head.assemble(&mut stored.pages).unwrap(), whole);
                let anew = Stored::of(whole);
                prop_assert_eq!(&anew.head, &stored.head);
                prop_assert_eq!(&anew.pages, &stored.pages);
            }
        }
    }
}

/// Mean bytes of head and pages that 1,000 additions write.
fn bytes_of_an_addition(members: u32) -> usize {
    let mut stored = Stored::of(&large_set(members));
    let mut bytes = 0;
    for number in members..members + 1000 {
        let changes = [SetChange::Add(member(number, 0))];
        let counter = u64::from(number) + 1;
        let change = stored
            .head
            .update(&changes, update(1, counter, None), &mut stored.pages);
        let (change, delta) = change.unwrap();
        bytes += stored.write(change);
        assert!(
            delta.encode().len() < 100,
            "a delta does not grow with the set"
        );
    }
    bytes / 1000
}

#[test]
fn an_addition_to_100_000_members_writes_what_one_to_1000_does() {
    let (few, many) = (bytes_of_an_addition(1000), bytes_of_an_addition(100_000));
    assert!(
        many < few * 4,
        "{many} bytes, {few} with a hundredth of the members"
    );
    assert!(few < 4000, "{few} bytes");
}

#[test]
fn damage_to_pages_is_found() {
    let mut stored = Stored::of(&large_set(300));
    assert!(stored.head.page_count() > 2);
    let sound = stored.pages.clone();
    for (number, page) in &sound.0 {
        for place in 0..page.len() {
            let mut changed = page.to_vec();
            changed[place] ^= 1 << (place % 8);
            stored.pages.0.insert(*number, changed.into());
            let found = stored.head.assemble(&mut stored.pages);
            assert!(found.is_err(), "page {number}, byte {place}");
        }
        stored.pages.0.remove(number);
        let found = stored.head.assemble(&mut stored.pages);
        assert!(
            matches!(found, Err(PagedSetError::Missing { number: missing }) if missing == *number)
        );
        stored.pages.0.insert(*number, page.clone());
    }
}

#[test]
fn equal_sets_have_equal_heads_whatever_way_they_took() {
    let set = large_set(500);
    let mut grown = Stored::of(&large_set(300));
    for number in 300..500 {
        let changes = [SetChange::Add(member(number, 0))];
        let actor = u64::from(number % 3) + 1;
        grown
            .update(&changes, update(actor, u64::from(number) + 1, None))
            .unwrap();
    }
    assert_eq!(grown.head.encode(), Stored::of(&set).head.encode());
    assert_ne!(
        grown.head.encode(),
        Stored::of(&large_set(499)).head.encode()
    );
}
