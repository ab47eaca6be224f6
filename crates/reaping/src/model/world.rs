//! One preference list among five members: writes, late messages, hints, crashes, moves, and stores
//! that are put back to older copies.
//!
//! A write is on two of three replicas at once; the third gets it by a late message, by a hint, or
//! not at all. So between two complete exchanges at most one replica loses anything.

use std::collections::BTreeMap;

use crate::agreed_rounds::AgreedRounds;
use crate::keeper_event::KeeperEvent;
use crate::model::draw::Draw;
use crate::model::driving::Driven;
use crate::model::hint_store::HintStore;
use crate::model::replica::{Image, KEYS, Object, Replica};
use crate::round::RoundRequest;
use crate::watermark::{RoundName, Watermark};

pub(super) const PLACES: usize = 3;
pub(super) const MEMBERS: usize = 5;

/// Messages and hints that take as long as a round, in percent.
const SLOW_MESSAGES_PERCENT: u64 = 4;
const SLOW_HINTS_PERCENT: u64 = 10;

/// Rounds that are led at once, of which all but the last announced come to nothing.
const ROUNDS_MAX: usize = 2;

/// An object on its way to a replica.
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) coordinator: usize,
    place: usize,
    key: u8,
    object: Object,
    is_slow: bool,
}

pub(super) struct World {
    pub(super) draw: Draw,
    /// By member: its store for the list, in use or left over.
    stores: Vec<Option<Replica>>,
    backups: Vec<Option<Image>>,
    /// By place in the list: the member, and the epoch in which the place came to it.
    places: [(usize, u64); PLACES],
    /// By member.
    pub(super) hint_stores: Vec<HintStore>,
    hint_backups: Vec<HintStore>,
    /// By member: the watermark that it has learned.
    pub(super) learned: Vec<Option<Watermark>>,
    pub(super) agreed: AgreedRounds,
    pub(super) epoch: u64,
    pub(super) messages: Vec<Message>,
    pub(super) rounds: Vec<Driven>,
    /// A complete exchange has come after the last loss of a replica.
    pub(super) is_mended: bool,
    newest: BTreeMap<u8, Object>,
    last_order: u64,
    last_message: u64,
    last_identity: u64,
    last_nonce: u64,
    pub(super) reaped: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let store = |identity: u64| Replica::opened(Image::new(identity), None, 0, true);
        let mut stores: Vec<Option<Replica>> = (0..MEMBERS).map(|_| None).collect();
        for (member, identity) in (0..PLACES).zip(1..) {
            stores[member] = Some(store(identity));
        }
        Self {
            draw: Draw::new(seed),
            stores,
            backups: (0..MEMBERS).map(|_| None).collect(),
            places: [(0, 0), (1, 0), (2, 0)],
            hint_stores: vec![HintStore::default(); MEMBERS],
            hint_backups: vec![HintStore::default(); MEMBERS],
            learned: vec![None; MEMBERS],
            agreed: AgreedRounds::default(),
            epoch: 1,
            messages: Vec::new(),
            rounds: Vec::new(),
            is_mended: true,
            newest: BTreeMap::new(),
            last_order: 0,
            last_message: 0,
            last_identity: 10,
            last_nonce: 0,
            reaped: 0,
        }
    }

    /// The replica at a place of the list.
    pub(super) fn replica(&mut self, place: usize) -> &mut Replica {
        let member = self.places[place].0;
        self.stores[member].as_mut().expect("a place has a store")
    }

    pub(super) fn are_all_complete(&mut self) -> bool {
        (0..PLACES).all(|place| self.replica(place).is_complete)
    }

    /// One thing that happens.
    pub(super) fn step(&mut self) {
        match self.draw.below(1000) {
            0..60 => self.write(),
            60..290 => self.deliver(),
            290..293 => self.time_out(),
            293..400 => self.hand_over(),
            400..425 => self.read_repair(),
            425..500 => self.learn_somewhere(),
            500..550 => self.start_round(),
            550..930 => self.drive(),
            930..955 => self.reap_some(),
            955..959 => self.crash(),
            959..974 => self.back_up(),
            974..978 => self.restore(),
            978..992 => self.repair_all(),
            992..994 => self.move_a_place(),
            994..997 => self.roll_hints_back(),
            997..998 => self.wipe(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let object = Object {
            order: self.last_order + 1,
            is_tombstone: self.draw.happens(50),
        };
        let key = self.key();
        let misses = self.draw.happens(40).then(|| self.draw.place(PLACES));
        self.write_to(key, object, misses);
    }

    /// Writes an object to all places but one.
    pub(super) fn write_to(&mut self, key: u8, object: Object, misses: Option<usize>) {
        self.last_order = object.order;
        self.newest.insert(key, object);
        for place in 0..PLACES {
            match misses == Some(place) {
                true => self.miss(place, key, object),
                false => self.replica(place).receive(key, object),
            }
        }
    }

    fn key(&mut self) -> u8 {
        u8::try_from(self.draw.below(u64::from(KEYS))).unwrap()
    }

    fn miss(&mut self, place: usize, key: u8, object: Object) {
        let member = self.draw.place(MEMBERS);
        match self.draw.below(10) {
            0..4 => self.send(member, place, key, object),
            4 => self.keep_hint(member, place, key, object),
            _ => {}
        }
    }

    pub(super) fn send(&mut self, coordinator: usize, place: usize, key: u8, object: Object) {
        self.last_message += 1;
        self.messages.push(Message {
            number: self.last_message,
            coordinator,
            place,
            key,
            object,
            is_slow: self.draw.happens(SLOW_MESSAGES_PERCENT),
        });
    }

    fn keep_hint(&mut self, member: usize, place: usize, key: u8, object: Object) {
        let is_slow = self.draw.happens(SLOW_HINTS_PERCENT);
        self.hint_stores[member].add(place, key, object, is_slow);
    }

    /// Slow messages and hints mostly stay where they are.
    fn stays(&mut self, is_slow: bool) -> bool {
        is_slow && self.draw.happens(95)
    }

    pub(super) fn deliver(&mut self) {
        let Some(message) = self.draw.take(&mut self.messages) else {
            return;
        };
        if self.stays(message.is_slow) {
            return self.messages.push(message);
        }
        let replica = self.replica(message.place);
        replica.receive(message.key, message.object);
    }

    /// A coordinator waits no longer, and has a hint kept.
    fn time_out(&mut self) {
        let member = self.draw.place(MEMBERS);
        if let Some(message) = self.draw.take(&mut self.messages) {
            self.keep_hint(member, message.place, message.key, message.object);
        }
    }

    fn hand_over(&mut self) {
        let holders = (0..MEMBERS).filter(|it| !self.hint_stores[*it].hints.is_empty());
        let mut holders: Vec<usize> = holders.collect();
        let Some(member) = self.draw.take(&mut holders) else {
            return;
        };
        let Some(hint) = self.draw.take(&mut self.hint_stores[member].hints) else {
            return;
        };
        if self.stays(hint.is_slow) {
            return self.hint_stores[member].hints.push(hint);
        }
        self.replica(hint.place).receive(hint.key, hint.object);
    }

    /// A get reads a replica or a hint, and what it has read is on its way to another replica.
    fn read_repair(&mut self) {
        let (from, to) = (self.draw.place(PLACES), self.draw.place(PLACES));
        let (coordinator, holder) = (self.draw.place(MEMBERS), self.draw.place(MEMBERS));
        let key = self.key();
        let read = match self.draw.happens(50) {
            true => {
                let hints = &self.hint_stores[holder].hints;
                hints.iter().find(|it| it.key == key).map(|it| it.object)
            }
            false => {
                let replica = self.replica(from);
                replica.get(key).filter(|_| replica.is_complete)
            }
        };
        if let Some(object) = read {
            self.send(coordinator, to, key, object);
        }
    }

    fn learn_somewhere(&mut self) {
        let member = self.draw.place(MEMBERS);
        self.learn(member);
    }

    /// A member learns what is agreed.
    pub(super) fn learn(&mut self, member: usize) {
        let Some(watermark) = self.agreed.watermark.clone() else {
            return;
        };
        self.hint_stores[member].learn(Some(&watermark));
        self.learned[member] = Some(watermark.clone());
        if let Some(place) = self.place_of(member) {
            self.replica(place)
                .step_keeper(KeeperEvent::Learned(watermark));
        }
    }

    fn place_of(&self, member: usize) -> Option<usize> {
        self.places.iter().position(|it| it.0 == member)
    }

    fn start_round(&mut self) {
        let is_wanted = self.rounds.is_empty() || self.draw.happens(5);
        if is_wanted && self.rounds.len() < ROUNDS_MAX {
            let leader = self.draw.place(MEMBERS);
            self.start_round_at(leader);
        }
    }

    pub(super) fn start_round_at(&mut self, leader: usize) {
        self.last_nonce += 1;
        let name = RoundName {
            number: Watermark::next_number(self.learned[leader].as_ref()),
            nonce: self.last_nonce,
        };
        self.rounds.push(Driven::new(
            leader,
            RoundRequest {
                name,
                epoch: self.epoch,
                replicas: PLACES,
                members: MEMBERS,
            },
        ));
    }

    /// A step of one of the rounds.
    pub(super) fn drive(&mut self) {
        let Some(mut driven) = self.draw.take(&mut self.rounds) else {
            return;
        };
        driven.advance(self);
        if !driven.is_over() {
            self.rounds.push(driven);
        }
    }

    fn reap_some(&mut self) {
        let place = self.draw.place(PLACES);
        self.reap(place, 50);
    }

    /// A replica removes each tombstone that may go, with this probability; how many went.
    pub(super) fn reap(&mut self, place: usize, percent: u64) -> u64 {
        let mut count = 0;
        for key in 0..KEYS {
            if self.draw.happens(percent) && self.replica(place).reap(key) {
                count += 1;
            }
        }
        self.reaped += count;
        count
    }

    /// A member stops and starts again: its requests end, and so do the rounds that it leads.
    fn crash(&mut self) {
        let member = self.draw.place(MEMBERS);
        self.messages.retain(|it| it.coordinator != member);
        self.rounds.retain(|it| it.leader() != member);
        let watermark = self.learned[member].clone();
        let hints = std::mem::take(&mut self.hint_stores[member]);
        self.hint_stores[member] = hints.opened(watermark.as_ref());
        if let Some(place) = self.place_of(member) {
            let replica = self.replica(place);
            let (image, is_complete) = (replica.durable().clone(), replica.is_complete);
            self.open(place, image, is_complete);
        }
    }

    fn open(&mut self, place: usize, image: Image, is_complete: bool) {
        let (member, joined) = self.places[place];
        let watermark = self.learned[member].as_ref();
        let replica = Replica::opened(image, watermark, joined, is_complete);
        self.stores[member] = Some(replica);
    }

    fn back_up(&mut self) {
        let member = self.draw.place(MEMBERS);
        self.hint_backups[member] = self.hint_stores[member].clone();
        if let Some(place) = self.place_of(member) {
            self.back_up_place(place);
        }
    }

    pub(super) fn back_up_place(&mut self, place: usize) {
        let image = self.replica(place).image().clone();
        self.backups[self.places[place].0] = Some(image);
    }

    /// A replica is put back to its backup, of whatever age.
    fn restore(&mut self) {
        let place = self.draw.place(PLACES);
        if self.is_mended && self.are_all_complete() {
            self.restore_place(place);
        }
    }

    pub(super) fn restore_place(&mut self, place: usize) {
        let Some(image) = self.backups[self.places[place].0].clone() else {
            return;
        };
        self.lose();
        self.open(place, image, true);
    }

    fn wipe(&mut self) {
        let place = self.draw.place(PLACES);
        if self.is_mended && self.are_all_complete() {
            self.lose();
            let image = self.fresh_image();
            self.open(place, image, false);
        }
    }

    fn fresh_image(&mut self) -> Image {
        self.last_identity += 1;
        Image::new(self.last_identity)
    }

    /// A replica has lost something: an exchange under way does not count.
    fn lose(&mut self) {
        self.is_mended = false;
        self.rounds.iter_mut().for_each(Driven::spoil);
    }

    fn roll_hints_back(&mut self) {
        let member = self.draw.place(MEMBERS);
        let watermark = self.learned[member].clone();
        let hints = self.hint_backups[member].clone();
        self.hint_stores[member] = hints.opened(watermark.as_ref());
    }

    /// Replicas that are not complete get all that the others have.
    pub(super) fn repair_all(&mut self) {
        for place in 0..PLACES {
            let others = (0..PLACES).filter(|it| *it != place);
            let others: Vec<usize> = others.collect();
            let can_give = others.iter().all(|it| self.replica(*it).is_complete);
            if can_give && !self.replica(place).is_complete {
                others.iter().for_each(|it| self.transfer(*it, place));
                self.repaired(place);
            }
        }
    }

    fn transfer(&mut self, from: usize, to: usize) {
        for key in 0..KEYS {
            if let Some(object) = self.replica(from).get(key) {
                self.replica(to).receive(key, object);
            }
        }
    }

    fn repaired(&mut self, place: usize) {
        let replica = self.replica(place);
        replica.step_keeper(KeeperEvent::Repaired);
        replica.is_complete = true;
    }

    /// A place goes to a member that has none. The member may have entries from an earlier place.
    fn move_a_place(&mut self) {
        let (place, to) = (self.draw.place(PLACES), self.draw.place(MEMBERS));
        let from = self.places[place].0;
        self.learn(from);
        self.learn(to);
        if self.place_of(to).is_some() || !self.replica(place).is_complete {
            return;
        }
        self.epoch += 1;
        self.rounds.iter_mut().for_each(Driven::spoil);
        let objects: Vec<(u8, Object)> = (0..KEYS)
            .filter_map(|key| Some((key, self.replica(place).get(key)?)))
            .collect();
        let leftovers = self.stores[to].as_ref().map(|it| it.image().clone());
        let image = leftovers.unwrap_or_else(|| self.fresh_image());
        self.places[place] = (to, self.epoch);
        self.open(place, image, false);
        for (key, object) in objects {
            self.replica(place).receive(key, object);
        }
        self.repaired(place);
        if self.draw.happens(50) {
            self.stores[from] = None;
        }
    }

    /// Brings a key up to date at all replicas, as an exchange does; false if one is not complete.
    pub(super) fn mend(&mut self, key: u8) -> bool {
        if !self.are_all_complete() {
            return false;
        }
        let found = (0..PLACES).filter_map(|place| self.replica(place).get(key));
        let latest = found.max_by_key(|it| it.order);
        if let Some(object) = latest {
            (0..PLACES).for_each(|place| self.replica(place).receive(key, object));
        }
        true
    }

    /// The first thing that is wrong once everything has come home.
    pub(super) fn wrong_at_last(&mut self) -> Option<String> {
        self.rounds.clear();
        (0..MEMBERS).for_each(|member| self.learn(member));
        while !self.messages.is_empty() {
            self.deliver();
        }
        while self.hint_stores.iter().any(|it| !it.hints.is_empty()) {
            self.hand_over();
        }
        self.repair_all();
        for key in 0..KEYS {
            if !self.mend(key) {
                return Some("a replica is not complete though it was repaired".to_owned());
            }
        }
        self.wrong_key().or_else(|| self.wrong_index())
    }

    fn wrong_key(&mut self) -> Option<String> {
        let newest = self.newest.clone();
        newest.into_iter().find_map(|(key, newest)| {
            let is_right = |found: Option<Object>| match found {
                Some(found) => found == newest,
                None => newest.is_tombstone,
            };
            let found: Vec<Option<Object>> = (0..PLACES)
                .map(|place| self.replica(place).get(key))
                .collect();
            let are_right = found.iter().all(|it| is_right(*it));
            (!are_right).then(|| format!("key {key}: {found:?}, and the newest is {newest:?}"))
        })
    }

    fn wrong_index(&mut self) -> Option<String> {
        (0..PLACES).find_map(|place| {
            let is_wrong = self.replica(place).is_index_wrong();
            is_wrong.then(|| format!("the index at place {place} is not of its entries"))
        })
    }
}
