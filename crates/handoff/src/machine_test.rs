//! The machine against a source and a store in memory, with a crash before every effect in turn.

use std::collections::BTreeMap;

use kvorum_object::{ActorId, Clock, Content as ObjectContent, Dot, Timestamp};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_ring::RingSize;
use proptest::prelude::*;

use super::*;
use crate::transfer_id::{TransferKind, Wanted};

const EPOCH: Epoch = Epoch::new(5);

fn partition(number: u16) -> kvorum_ring::Partition {
    RingSize::new(16).unwrap().partition(number).unwrap()
}

fn id() -> TransferId {
    TransferId {
        kind: TransferKind::Ownership,
        partition: partition(3),
        epoch: EPOCH,
    }
}

fn legs() -> Vec<Leg> {
    let leg = |number| Leg {
        source: partition(number),
        wanted: Wanted::All,
    };
    vec![leg(3), leg(4)]
}

fn settings() -> TransferSettings {
    TransferSettings {
        page_entries_max: 3,
        piece_bytes_max: 64,
        cursor_period: Duration::ZERO,
        ..TransferSettings::default()
    }
}

fn object(number: u64, value_len: usize) -> Object {
    let dot = Dot {
        actor: ActorId(7),
        counter: number,
    };
    let mut clock = Clock::new();
    clock.observe(dot, Timestamp::from_micros(number));
    let content = ObjectContent {
        value: vec![b'v'; value_len].into(),
        ..ObjectContent::default()
    };
    Object::as_is(clock, content, Timestamp::from_micros(number))
}

fn key(number: u64) -> StorageKey {
    StorageKey::from_encoded(format!("key{number:04}").into_bytes())
}

type Store = BTreeMap<StorageKey, Object>;

/// Two vnodes with entries, and a third that receives them.
struct World {
    sources: BTreeMap<u16, Store>,
    epoch: Epoch,
    /// The entries sent in the present session, by the number of the page.
    chains: BTreeMap<(u64, u32), Chain>,
    /// The body of the large object that was sent last.
    large: Bytes,
    /// The page that an object is left out of.
    lossy_page: Option<usize>,
    pages: usize,
    store: Store,
    noted: Progress,
    crash_at: usize,
    effects: usize,
}

fn world(count: u64) -> World {
    let half = |odd| {
        let numbers = (0..count).filter(move |number| number % 2 == odd);
        let len = |number| if number % 7 == 6 { 200 } else { 5 };
        numbers
            .map(|number| (key(number), object(number + 1, len(number))))
            .collect()
    };
    World {
        sources: BTreeMap::from([(3, half(0)), (4, half(1))]),
        epoch: EPOCH,
        chains: BTreeMap::new(),
        large: Bytes::new(),
        lossy_page: None,
        pages: 0,
        store: Store::new(),
        noted: Progress::none(&legs()),
        crash_at: usize::MAX,
        effects: 0,
    }
}

fn entry(key: &StorageKey, object: &Object) -> Entry {
    let encoded = object.encode();
    Entry {
        key: key.clone(),
        head: encoded.head,
        body: encoded.body,
    }
}

impl World {
    fn answer(&mut self, question: Question) -> Event {
        match question {
            Question::Page(asked) => Event::Page(self.page(&asked)),
            Question::Piece {
                session,
                offset,
                bytes_max,
            } => {
                let body = self.large.clone();
                let from = usize::try_from(offset).unwrap();
                let to = body.len().min(from + usize::try_from(bytes_max).unwrap());
                Event::Piece {
                    session,
                    offset,
                    bytes: body.slice(from..to),
                }
            }
            Question::Knows { .. } | Question::LacksNothing { .. } | Question::Pin { .. } => {
                unreachable!("a transfer does not ask that")
            }
        }
    }

    fn page(&mut self, asked: &PageQuestion) -> Page {
        let session = asked.session;
        let store = &self.sources[&session.source.number()];
        let behind = |(key, _): &(&StorageKey, &Object)| {
            let after = asked.after.as_ref();
            after.is_none_or(|after| key.as_bytes() > after.as_bytes())
        };
        let is_large = |object: &Object| object.siblings()[0].value.len() > 64;
        let mut left = store.iter().filter(behind).peekable();
        let mut page: Vec<(&StorageKey, &Object)> = Vec::new();
        while let Some((key, object)) = left.peek() {
            if page.len() >= 3 || (is_large(object) && !page.is_empty()) {
                break;
            }
            page.push((key, object));
            let is_over = is_large(object);
            left.next();
            if is_over {
                break;
            }
        }
        let before = match session.sequence {
            0 => Chain::default(),
            sequence => self.chains[&(session.number, sequence - 1)],
        };
        let total = page.iter().fold(before, |chain, (key, object)| {
            chain.with(key.as_bytes(), object.clock())
        });
        self.chains
            .insert((session.number, session.sequence), total);
        self.pages += 1;
        let through = page.last().map(|(key, _)| (*key).clone());
        let mut entries: Vec<Entry> = page.iter().map(|(k, o)| entry(k, o)).collect();
        if self.lossy_page == Some(self.pages) {
            entries.remove(0);
        }
        let large = page.last().filter(|(_, object)| is_large(object));
        self.large = large.map_or_else(Bytes::new, |(_, object)| object.encode().body);
        Page {
            session,
            epoch: self.epoch,
            total,
            keys_about: 0,
            is_last: left.peek().is_none(),
            through: through.or_else(|| asked.after.clone()),
            content: match large {
                Some((key, object)) => Content::Large {
                    key: (*key).clone(),
                    head: object.encode().head,
                    body_len: object.encode().body.len() as u64,
                },
                None => Content::Entries(entries),
            },
        }
    }

    /// Runs a transfer from its notes; false when it crashes or makes no progress.
    fn run(&mut self, session: u64) -> bool {
        let now = Moment::default();
        let progress = self.noted.clone();
        let mut machine = Machine::new(id(), legs(), progress, session, settings(), now);
        let mut event = Event::Go;
        for _ in 0..10_000 {
            let effect = machine.step(event, now);
            self.effects += 1;
            if self.effects == self.crash_at {
                return false;
            }
            event = match effect {
                Effect::Admit { .. } => Event::Admitted(EPOCH),
                Effect::Ask(question) => self.answer(question),
                Effect::Store(objects) => {
                    let objects = objects.into_iter();
                    self.store
                        .extend(objects.map(|(key, it)| (key, Arc::unwrap_or_clone(it))));
                    Event::Stored
                }
                Effect::Note => {
                    self.noted = machine.progress().clone();
                    Event::Noted
                }
                Effect::Pause(..) | Effect::Rest(_) => Event::Go,
                Effect::Finish => return true,
            };
        }
        // The transfer makes no progress, but violates nothing.
        false
    }

    fn has_all(&self) -> bool {
        let mut all = self.sources.values().flatten();
        all.all(|(key, object)| self.store.get(key) == Some(object))
    }
}

/// True when everything arrives despite a crash of the receiver before any one effect.
fn outlives_crashes() -> bool {
    (1..200).all(|crash_at| {
        let mut world = world(23);
        world.crash_at = crash_at;
        let finished = world.run(1) || world.run(1_000);
        finished && world.has_all()
    })
}

#[test]
fn everything_arrives_wherever_the_receiver_crashes() {
    assert!(outlives_crashes());
}

#[test]
fn a_cursor_that_is_noted_before_its_page_is_durable_is_found_out() {
    let _planted = plant(PlantedDefect::CursorBeforeDurable);
    assert!(!outlives_crashes());
}

/// True when everything arrives although a page loses an object on its way.
fn outlives_a_lossy_page() -> bool {
    (1..6).all(|page| {
        let mut world = world(23);
        world.sources.values_mut().for_each(|store| {
            store.retain(|_, object| object.siblings()[0].value.len() < 64);
        });
        world.lossy_page = Some(page);
        world.run(1) && world.has_all()
    })
}

#[test]
fn what_is_lost_from_a_page_is_asked_for_again() {
    assert!(outlives_a_lossy_page());
}

#[test]
fn a_digest_that_is_not_compared_is_found_out() {
    let _planted = plant(PlantedDefect::DigestNotCompared);
    assert!(!outlives_a_lossy_page());
}

/// True when nothing is accepted from a source that has not applied the move.
fn waits_for_its_source() -> bool {
    let mut world = world(23);
    world.epoch = Epoch::new(4);
    !world.run(1) && world.store.is_empty()
}

#[test]
fn a_page_from_before_the_move_is_not_taken() {
    assert!(waits_for_its_source());
}

#[test]
fn a_receiver_that_takes_such_a_page_is_found_out() {
    let _planted = plant(PlantedDefect::EpochRuleSkippedOnReceiver);
    assert!(!waits_for_its_source());
}

#[test]
fn an_answer_that_comes_twice_or_late_changes_nothing() {
    let now = Moment::default();
    let mut world = world(9);
    let none = Progress::none(&legs());
    let mut machine = Machine::new(id(), legs(), none, 1, settings(), now);
    let mut last: Option<Page> = None;
    let mut event = Event::Go;
    for _ in 0..1_000 {
        let effect = machine.step(event, now);
        event = match effect {
            Effect::Admit { .. } => Event::Admitted(EPOCH),
            Effect::Ask(Question::Page(asked)) => {
                // The answer to the previous question, then the right one.
                if let Some(before) = last.take() {
                    let effect = machine.step(Event::Page(before), now);
                    assert!(matches!(effect, Effect::Pause(..)), "{effect:?}");
                }
                let page = world.page(&asked);
                last = Some(page.clone());
                Event::Page(page)
            }
            Effect::Ask(question) => world.answer(question),
            Effect::Store(objects) => {
                for (key, object) in objects {
                    assert!(world.store.insert(key, (*object).clone()).is_none());
                }
                Event::Stored
            }
            Effect::Finish => break,
            _ => Event::Noted,
        };
    }
    assert!(world.has_all());
}

#[test]
fn a_transfer_that_cannot_begin_gives_up_its_turn_at_once_and_one_under_way_waits_a_little() {
    let now = Moment::default();
    let later = || Event::Later {
        wait: Duration::from_millis(200),
        reason: "the partition is being repaired there".into(),
    };
    let none = Progress::none(&legs());
    let mut machine = Machine::new(id(), legs(), none, 1, settings(), now);
    let asked = |machine: &mut Machine, event| {
        let admit = machine.step(event, now);
        assert!(matches!(admit, Effect::Admit { .. }), "{admit:?}");
        match machine.step(Event::Admitted(EPOCH), now) {
            Effect::Ask(Question::Page(page)) => page,
            other => panic!("{other:?}"),
        }
    };
    // The other leg may begin; when none does, the transfer gives up its turn.
    assert_eq!(asked(&mut machine, Event::Go).session.source, partition(3));
    assert_eq!(asked(&mut machine, later()).session.source, partition(4));
    let rest = Effect::Rest("the partition is being repaired there".into());
    assert_eq!(machine.step(later(), now), rest);
    assert!(!machine.has_news());
    // A source that does not answer has the same effect.
    assert_eq!(asked(&mut machine, Event::Go).session.source, partition(3));
    let unanswered = || Event::Unanswered("no route".into());
    let other = asked(&mut machine, unanswered());
    assert_eq!(other.session.source, partition(4));
    // A session that has begun keeps its turn for a while.
    let page = world(23).page(&other);
    assert!(matches!(
        machine.step(Event::Page(page), now),
        Effect::Store(_)
    ));
    assert!(matches!(machine.step(Event::Stored, now), Effect::Note));
    assert!(matches!(
        machine.step(Event::Noted, now),
        Effect::Admit { .. }
    ));
    let mut pauses = 0;
    while matches!(machine.step(later(), now), Effect::Pause(..)) {
        pauses += 1;
    }
    assert_eq!(pauses, WAITS_MAX - 1);
}

#[test]
fn what_could_not_be_stored_is_fetched_again() {
    let now = Moment::default();
    let mut world = world(9);
    let none = Progress::none(&legs());
    let mut machine = Machine::new(id(), legs(), none, 1, settings(), now);
    let mut event = Event::Go;
    let mut stores = 0;
    for _ in 0..1_000 {
        event = match machine.step(event, now) {
            Effect::Admit { .. } => Event::Admitted(EPOCH),
            Effect::Ask(question) => world.answer(question),
            Effect::Store(objects) => {
                stores += 1;
                if stores % 2 == 1 {
                    Event::NotStored("the disk is full".into())
                } else {
                    let objects = objects.into_iter();
                    world
                        .store
                        .extend(objects.map(|(key, it)| (key, (*it).clone())));
                    Event::Stored
                }
            }
            Effect::Note => Event::Noted,
            Effect::Pause(..) | Effect::Rest(_) => Event::Go,
            Effect::Finish => break,
        };
    }
    assert!(world.has_all());
    assert_eq!(machine.sizes().keys, 9);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_crash_at_any_place_loses_anything(
        count in 0u64..40,
        crashes in prop::collection::vec(1usize..60, 0..4),
    ) {
        let mut world = world(count);
        let mut session = 1;
        for crash in crashes {
            world.crash_at = world.effects + crash;
            session += 1_000;
            if world.run(session) {
                break;
            }
        }
        world.crash_at = usize::MAX;
        prop_assert!(world.run(session + 1_000));
        prop_assert!(world.has_all());
    }
}
