//! Whole lives of a preference list: lost writes, wiped and rolled-back replicas, wrong trees, exchanges
//! among late writes; and deletes, hints, reaps and restores, after which nothing deleted is there.

use std::collections::BTreeMap;

use kvorum_encoding::StorageKey;
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_tictac::TreeSize;

use crate::exchange::{ExchangeLimits, ExchangeRequest};
use crate::outcome::EndedBy;
use crate::receiver::{AtSources, Fate, ReplicaClaim, Standing, fate_of, standings_of};
use crate::test_world::{Draw, Entry, World, key};
use crate::watermark::{
    Completed, DeleteMode, Incarnation, LocalMark, PresentFacts, StoredTombstone, Verdict,
    judge_tombstone,
};

const KEYS: u64 = 400;

/// One thing that goes wrong, or a write.
fn disturb(world: &mut World, backups: &mut [BTreeMap<StorageKey, Entry>], draw: &mut Draw) {
    let at = draw.place(world.replicas.len());
    let size = world.size;
    match draw.below(100) {
        0 => {
            world.replicas[at].entries.clear();
            world.replicas[at].rebuild(size, 0);
        }
        1 => backups[at] = world.replicas[at].entries.clone(),
        2 => {
            world.replicas[at].entries = backups[at].clone();
            world.replicas[at].rebuild(size, 0);
        }
        3 => {
            let leaves = world.replicas[at].tree.size().leaves();
            let leaf = u32::try_from(draw.below(u64::from(leaves))).unwrap();
            world.replicas[at].tree.correct(leaf, 77);
        }
        4 => {
            let other = TreeSize::ALL[draw.place(3)];
            world.replicas[at].rebuild(other, 0);
        }
        _ => {
            let (number, entry) = (draw.below(KEYS), world.fresh());
            let keeps = draw.place(world.replicas.len());
            for (replica, it) in world.replicas.iter_mut().enumerate() {
                if replica == keeps || !draw.happens(10) {
                    it.receive(&key(number), entry);
                }
            }
        }
    }
}

#[test]
fn replicas_converge_without_reads() {
    let (mut exchanges, mut questions, mut keys_read) = (0u64, 0u64, 0u64);
    for seed in 0..100 {
        let mut draw = Draw(seed);
        let replicas = 2 + draw.place(4);
        let mut world = World::new(replicas, TreeSize::ALL[draw.place(3)]);
        let mut backups = vec![BTreeMap::new(); replicas];
        for _ in 0..draw.below(2000) {
            disturb(&mut world, &mut backups, &mut draw);
        }
        let newest = newest_of(&world);
        let mut turn = 0;
        while !(world.are_equal() && world.are_trees_equal()) {
            let request = ExchangeRequest {
                turn,
                ..world.request()
            };
            let outcome = world.exchange(request, &mut draw, |_, _, _| {});
            exchanges += 1;
            questions += u64::from(outcome.questions);
            keys_read += outcome.keys_read;
            turn += 1;
            assert!(
                turn < 40,
                "seed {seed}: no end after {turn} exchanges: {outcome:?}"
            );
        }
        assert_eq!(world.replicas[0].entries, newest, "seed {seed}");
        let request = world.request();
        let outcome = world.exchange(request, &mut draw, |_, _, _| {});
        assert_eq!(outcome.ended_by, EndedBy::Equal, "seed {seed}");
        assert!(outcome.is_complete, "seed {seed}");
    }
    // A loss of about one key in ten is mended 64 leaves at a time.
    assert!(exchanges < 100 * 12, "{exchanges}");
    assert!(questions < exchanges * 6 * 5, "{questions} in {exchanges}");
    assert!(
        keys_read < exchanges * 2 * 5 * 64 * 3,
        "{keys_read} in {exchanges}"
    );
}

/// The latest entry of each key on any replica: exchanges may lose no other.
fn newest_of(world: &World) -> BTreeMap<StorageKey, Entry> {
    let mut newest: BTreeMap<StorageKey, Entry> = BTreeMap::new();
    for (key, entry) in world.replicas.iter().flat_map(|it| &it.entries) {
        let kept = newest.entry(key.clone()).or_insert(*entry);
        *kept = (*kept).max(*entry);
    }
    newest
}

#[test]
fn a_wiped_replica_is_whole_again() {
    let mut world = World::new(3, TreeSize::XxSmall);
    (0..3000).for_each(|number| world.write_everywhere(number));
    let before = world.replicas[1].entries.clone();
    world.replicas[1].entries.clear();
    world.replicas[1].rebuild(TreeSize::XxSmall, 0);
    let mut draw = Draw(3);
    for turn in 0.. {
        let limits = ExchangeLimits {
            branches_max: 64,
            leaves_max: 256,
            ..ExchangeLimits::default()
        };
        let request = ExchangeRequest {
            limits,
            turn,
            ..world.request()
        };
        if world.exchange(request, &mut draw, |_, _, _| {}).is_complete {
            break;
        }
        assert!(turn < 20);
    }
    assert_eq!(world.replicas[1].entries, before);
}

// Deletes, hints, reaps, restores.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    /// Later writes of a key have greater numbers.
    order: u64,
    is_tombstone: bool,
    sequence: u64,
    written_at: u64,
}

#[derive(Clone)]
struct Store {
    entries: BTreeMap<u64, Stored>,
    sequence: u64,
    mark: Option<LocalMark>,
}

struct Cluster {
    stores: Vec<Store>,
    backups: Vec<Store>,
    incarnations: Vec<Incarnation>,
    back_since: Vec<u64>,
    is_one_restored: bool,
    hints: Vec<(usize, u64, Stored)>,
    completed: Option<Completed>,
    newest: BTreeMap<u64, Stored>,
    last_order: u64,
    last_incarnation: u64,
    now: u64,
    reaped: u64,
}

const STORE: u64 = 5;

impl Store {
    fn receive(&mut self, key: u64, stored: Stored) {
        if self
            .entries
            .get(&key)
            .is_none_or(|own| own.order < stored.order)
        {
            self.put(key, stored);
        }
    }

    fn put(&mut self, key: u64, stored: Stored) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.entries.insert(key, Stored { sequence, ..stored });
    }
}

impl Cluster {
    fn new() -> Self {
        let store = Store {
            entries: BTreeMap::new(),
            sequence: 0,
            mark: None,
        };
        Self {
            stores: vec![store.clone(); 3],
            backups: vec![store; 3],
            incarnations: (0..3).map(Incarnation).collect(),
            back_since: vec![0; 3],
            is_one_restored: false,
            hints: Vec::new(),
            completed: None,
            newest: BTreeMap::new(),
            last_order: 0,
            last_incarnation: 3,
            now: 0,
            reaped: 0,
        }
    }

    /// A write that two replicas or three confirm; the third one's is hinted, or lost with its hint.
    fn write(&mut self, draw: &mut Draw) {
        self.last_order += 1;
        let stored = Stored {
            order: self.last_order,
            is_tombstone: draw.happens(50),
            sequence: 0,
            written_at: self.now,
        };
        let key = draw.below(20);
        self.newest.insert(key, stored);
        let misses = draw.happens(40).then(|| draw.place(3));
        for replica in 0..3 {
            match misses == Some(replica) {
                true if draw.happens(70) => self.hints.push((replica, key, stored)),
                true => {}
                false => self.stores[replica].receive(key, stored),
            }
        }
    }

    fn deliver_hint(&mut self, draw: &mut Draw) {
        if !self.hints.is_empty() {
            let place = draw.place(self.hints.len());
            let (replica, key, stored) = self.hints.swap_remove(place);
            self.stores[replica].receive(key, stored);
        }
    }

    fn restore(&mut self, replica: usize) {
        if std::mem::replace(&mut self.is_one_restored, true) {
            return;
        }
        self.stores[replica] = self.backups[replica].clone();
        // A restored store counts on under another actor; its batches are beyond those of the backup.
        self.back_since[replica] = self.stores[replica].sequence;
        self.last_incarnation += 1;
        self.incarnations[replica] = Incarnation(self.last_incarnation);
    }

    fn standings(&self) -> Vec<Standing> {
        let claims = self.stores.iter().zip(&self.back_since);
        let claims = claims.map(|(store, since)| {
            Some(ReplicaClaim {
                mark: store.mark,
                back_since_sequence: *since,
            })
        });
        let claims: Vec<Option<ReplicaClaim>> = claims.collect();
        standings_of(&claims, self.completed.as_ref())
    }

    /// A complete exchange: every key that differs is mended, by the rules for receivers.
    fn exchange(&mut self) {
        let number = self.completed.as_ref().map_or(0, |it| it.number) + 1;
        let began: Vec<u64> = self.stores.iter().map(|it| it.sequence).collect();
        let standings = self.standings();
        let keys: Vec<u64> = (0..20).collect();
        keys.into_iter().for_each(|key| self.mend(key, &standings));
        self.is_one_restored = false;
        for (store, sequence) in self.stores.iter_mut().zip(began) {
            store.mark = Some(LocalMark {
                number,
                store: STORE,
                sequence,
            });
        }
        self.completed = Some(Completed {
            number,
            epoch: 1,
            replicas: self.incarnations.clone(),
        });
    }

    fn mend(&mut self, key: u64, standings: &[Standing]) {
        let is_held = (0..3).any(|it| {
            standings[it] == Standing::Source && self.stores[it].entries.contains_key(&key)
        });
        let at_sources = match is_held {
            true => AtSources::Held,
            false => AtSources::Absent,
        };
        let mut merged: Option<Stored> = None;
        for (store, standing) in self.stores.iter_mut().zip(standings) {
            let Some(own) = store.entries.get(&key).copied() else {
                continue;
            };
            match fate_of(*standing, own.sequence, at_sources) {
                Fate::Merged => merged = merged.into_iter().chain([own]).max_by_key(|it| it.order),
                Fate::Replaced | Fate::Dropped => _ = store.entries.remove(&key),
                Fate::Withheld => {}
            }
        }
        if let Some(merged) = merged {
            self.stores
                .iter_mut()
                .for_each(|it| it.receive(key, merged));
        }
    }

    fn reap(&mut self, replica: usize) {
        let present = PresentFacts {
            epoch: 1,
            replicas: &self.incarnations,
            are_all_up: true,
            hints: Some(self.hints.len() as u64),
            request_micros_max: 3,
        };
        let store = &self.stores[replica];
        let tombstones = store.entries.iter().filter(|(_, it)| it.is_tombstone);
        let going = tombstones.filter(|(_, it)| {
            let tombstone = StoredTombstone {
                store: STORE,
                sequence: it.sequence,
                age_micros: self.now - it.written_at,
            };
            let (mark, completed) = (store.mark.as_ref(), self.completed.as_ref());
            let mode = DeleteMode::Immediate;
            judge_tombstone(&tombstone, mark, completed, &present, mode) == Verdict::Go
        });
        let going: Vec<(u64, u64)> = going.map(|(key, it)| (*key, it.order)).collect();
        for (key, order) in going {
            self.reaped += 1;
            for store in &mut self.stores {
                let is_it = |it: &Stored| it.is_tombstone && it.order == order;
                if store.entries.get(&key).is_some_and(is_it) {
                    store.sequence += 1;
                    store.entries.remove(&key);
                }
            }
        }
    }

    fn step(&mut self, draw: &mut Draw) {
        self.now += 1;
        let replica = draw.place(3);
        match draw.below(100) {
            0..55 => self.write(draw),
            55..75 => self.deliver_hint(draw),
            75..85 => self.exchange(),
            85..93 => self.reap(replica),
            93..97 => self.backups[replica] = self.stores[replica].clone(),
            _ => self.restore(replica),
        }
    }

    /// The first violation once all hints are delivered.
    fn wrong(&mut self, draw: &mut Draw) -> Option<String> {
        while !self.hints.is_empty() {
            self.deliver_hint(draw);
        }
        self.exchange();
        self.newest.iter().find_map(|(key, newest)| {
            let found = self.stores.iter().map(|it| it.entries.get(key));
            let mut found = found.map(|it| it.map(|it| (it.order, it.is_tombstone)));
            let is_right = match newest.is_tombstone {
                true => found.all(|it| it.is_none_or(|it| it == (newest.order, true))),
                false => found.all(|it| it == Some((newest.order, false))),
            };
            (!is_right).then(|| format!("key {key}: newest is {newest:?}"))
        })
    }
}

/// A write on two of three replicas is lost if both are restored before an exchange, with or without
/// anti-entropy. So one replica is restored between two exchanges, from a backup that may be of any
/// age.
fn first_wrong_seed(seeds: std::ops::Range<u64>) -> (Option<(u64, String)>, u64) {
    let mut reaped = 0;
    for seed in seeds {
        let mut draw = Draw(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let mut cluster = Cluster::new();
        for _ in 0..draw.below(150) {
            cluster.step(&mut draw);
        }
        reaped += cluster.reaped;
        if let Some(wrong) = cluster.wrong(&mut draw) {
            return (Some((seed, wrong)), reaped);
        }
    }
    (None, reaped)
}

#[test]
fn nothing_deleted_comes_back_and_nothing_live_goes() {
    let (wrong, reaped) = first_wrong_seed(0..2000);
    assert_eq!(wrong, None);
    assert!(reaped > 2000, "{reaped}");
}

#[test]
fn planted_defects_of_reaping_are_found() {
    for defect in [
        PlantedDefect::TombstoneReapedBesideHint,
        PlantedDefect::RestoredReplicaTakenForSource,
    ] {
        let _planted = plant(defect);
        let (wrong, _) = first_wrong_seed(0..2000);
        assert!(wrong.is_some(), "{defect:?} was not found");
    }
}
