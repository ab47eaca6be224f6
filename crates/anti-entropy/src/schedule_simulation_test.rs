//! The schedule, exchanges and the pace of repairs on two and three replicas. Writes come early,
//! late and never, replicas go down, and anti-entropy is disabled and enabled. A complete exchange
//! is complete, a stopped one has no further effects, and replicas converge once writes and
//! failures end.

use std::collections::BTreeMap;

use kvorum_encoding::StorageKey;
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_tictac::{Tree, TreeSize};

use crate::exchange::{Exchange, ExchangeLimits, ExchangeRequest};
use crate::exchange_event::{ExchangeEffect, ExchangeEvent};
use crate::outcome::Outcome;
use crate::pace::Pace;
use crate::schedule::{Order, Schedule, ScheduleSettings, Target};
use crate::test_world::{Draw, Entry, World, key};

const SETTINGS: ScheduleSettings = ScheduleSettings {
    at_once: 2,
    interval_micros: 1_000_000,
    loops_max: 3,
};

const REPAIRS_A_SECOND: u32 = 200;
const REPAIRS_AT_ONCE: u32 = 5;
const KEYS: u64 = 120;
const MICROS_A_STEP: u64 = 1000;

struct Running {
    order: Order,
    exchange: Exchange,
    effects: Vec<ExchangeEffect>,
    /// The latest entry of each key on any replica when the exchange began.
    at_start: BTreeMap<StorageKey, Entry>,
}

#[derive(Debug, Default)]
struct Tally {
    exchanges: u64,
    complete: u64,
    stopped: u64,
    repairs: u64,
}

struct Node {
    worlds: BTreeMap<Target, World>,
    /// Writes that a replica has yet to receive.
    late: Vec<(Target, usize, u64, Entry)>,
    schedule: Schedule,
    is_enabled: bool,
    running: Vec<Running>,
    pace: Pace,
    now: u64,
    tally: Tally,
    wrong: Option<String>,
}

fn newest_of(world: &World) -> BTreeMap<StorageKey, Entry> {
    let mut newest: BTreeMap<StorageKey, Entry> = BTreeMap::new();
    for (key, entry) in world.replicas.iter().flat_map(|it| &it.entries) {
        let kept = newest.entry(key.clone()).or_insert(*entry);
        *kept = (*kept).max(*entry);
    }
    newest
}

impl Node {
    /// Two partitions with two replicas each, and two with three.
    fn new() -> Self {
        let targets = (0..4).map(|partition| Target {
            partition,
            n: 2 + u8::try_from(partition % 2).unwrap(),
        });
        let targets: Vec<Target> = targets.collect();
        let worlds = targets.iter().map(|it| {
            let mut world = World::new(usize::from(it.n), TreeSize::XxSmall);
            (0..KEYS).for_each(|number| world.write_everywhere(number));
            (*it, world)
        });
        let worlds = worlds.collect();
        let mut schedule = Schedule::new(SETTINGS);
        assert_eq!(schedule.set_targets(1, targets), []);
        Self {
            worlds,
            late: Vec::new(),
            schedule,
            is_enabled: true,
            running: Vec::new(),
            pace: Pace::new(REPAIRS_A_SECOND, REPAIRS_AT_ONCE),
            now: 0,
            tally: Tally::default(),
            wrong: None,
        }
    }

    fn any_target(&self, draw: &mut Draw) -> Target {
        let place = draw.place(self.worlds.len());
        *self.worlds.keys().nth(place).unwrap()
    }

    fn world(&mut self, target: Target) -> &mut World {
        self.worlds.get_mut(&target).unwrap()
    }

    /// A write that reaches one replica at once, and each other replica at once, later, or never.
    fn write(&mut self, draw: &mut Draw) {
        let target = self.any_target(draw);
        let world = self.worlds.get_mut(&target).unwrap();
        let written_often = draw.happens(30);
        let number = draw.below(if written_often { 2 } else { KEYS });
        let entry = world.fresh();
        let keeps = draw.place(world.replicas.len());
        for (at, replica) in world.replicas.iter_mut().enumerate() {
            match draw.below(100) {
                _ if at == keeps => replica.receive(&key(number), entry),
                0..75 if !replica.is_down => replica.receive(&key(number), entry),
                0..92 => self.late.push((target, at, number, entry)),
                _ => {}
            }
        }
    }

    fn deliver(&mut self, draw: &mut Draw) {
        if !self.late.is_empty() {
            let place = draw.place(self.late.len());
            let (target, replica, number, entry) = self.late.swap_remove(place);
            self.world(target).replicas[replica].receive(&key(number), entry);
        }
    }

    fn turn_replica(&mut self, draw: &mut Draw) {
        let target = self.any_target(draw);
        let place = draw.place(usize::from(target.n));
        let replica = &mut self.world(target).replicas[place];
        match draw.below(4) {
            0 => replica.is_down = true,
            1 => {
                replica.is_building = true;
                replica.tree = Tree::new(TreeSize::XSmall);
            }
            _ => {
                replica.is_down = false;
                if std::mem::take(&mut replica.is_building) {
                    replica.rebuild(TreeSize::XSmall, 0);
                }
            }
        }
    }

    fn switch(&mut self) {
        self.is_enabled = !self.is_enabled;
        if self.is_enabled {
            return self.schedule.enable();
        }
        let mut stopped = self.schedule.disable();
        stopped.sort();
        let mut under_way: Vec<Target> = self.running.iter().map(|it| it.order.target).collect();
        under_way.sort();
        assert_eq!(stopped, under_way);
        for mut running in std::mem::take(&mut self.running) {
            let is_end = |it: &ExchangeEffect| matches!(it, ExchangeEffect::End(_));
            if running.effects.iter().any(is_end) {
                self.stopped_at_end(running);
                continue;
            }
            let mut effects = Vec::new();
            running.exchange.step(ExchangeEvent::Stop, &mut effects);
            let [ExchangeEffect::End(outcome)] = &effects[..] else {
                panic!("a stopped exchange went on: {effects:?}");
            };
            assert!(!outcome.is_complete);
            self.schedule.ended(&running.order, outcome, self.now);
            self.tally.stopped += 1;
        }
    }

    /// The exchange ended before it was stopped, so it has no further effects.
    fn stopped_at_end(&mut self, mut running: Running) {
        let mut effects = Vec::new();
        running.exchange.step(ExchangeEvent::Stop, &mut effects);
        assert!(effects.is_empty(), "{effects:?}");
        for effect in std::mem::take(&mut running.effects) {
            if let ExchangeEffect::End(outcome) = effect {
                self.schedule.ended(&running.order, &outcome, self.now);
            }
        }
    }

    fn begin(&mut self) {
        while let Some(order) = self.schedule.next(self.now) {
            assert!(self.is_enabled && self.running.len() < SETTINGS.at_once);
            let world = &self.worlds[&order.target];
            let request = ExchangeRequest {
                limits: ExchangeLimits {
                    leaves_max: 16,
                    ..ExchangeLimits::default()
                },
                hint: order.hint.clone(),
                after: order.after.clone(),
                turn: order.turn,
                ..world.request()
            };
            let mut effects = Vec::new();
            let exchange = Exchange::start(request, &mut effects);
            self.running.push(Running {
                at_start: newest_of(world),
                order,
                exchange,
                effects,
            });
        }
    }

    /// Carries out one effect of one exchange.
    fn advance(&mut self, draw: &mut Draw) {
        if self.running.is_empty() {
            return;
        }
        let place = draw.place(self.running.len());
        let running = &mut self.running[place];
        let next = draw.place(running.effects.len());
        if let ExchangeEffect::Repair { .. } = running.effects[next] {
            if self.pace.let_through(self.now).is_err() {
                return;
            }
            self.tally.repairs += 1;
        }
        let effect = running.effects.swap_remove(next);
        if let ExchangeEffect::End(outcome) = effect {
            let running = self.running.swap_remove(place);
            return self.end(running, &outcome);
        }
        let world = self.worlds.get_mut(&running.order.target).unwrap();
        if let Some(event) = world.carry_out(effect) {
            running.exchange.step(event, &mut running.effects);
        }
    }

    fn end(&mut self, running: Running, outcome: &Outcome) {
        let target = running.order.target;
        let world = self.worlds.get_mut(&target).unwrap();
        for effect in running.effects {
            let event = world.carry_out(effect);
            assert!(event.is_none(), "a question without an answer");
        }
        self.tally.exchanges += 1;
        if outcome.is_complete {
            self.tally.complete += 1;
            self.wrong = self.wrong.take().or(lacking(world, &running.at_start));
        }
        self.schedule.ended(&running.order, outcome, self.now);
    }

    fn step(&mut self, draw: &mut Draw) {
        self.now += MICROS_A_STEP;
        match draw.below(1000) {
            0..120 => self.write(draw),
            120..250 => self.deliver(draw),
            250..252 => self.turn_replica(draw),
            252 => self.switch(),
            253..450 => self.begin(),
            _ => self.advance(draw),
        }
    }

    /// Delivers all late writes, and runs anti-entropy until nothing differs.
    fn settle(&mut self, draw: &mut Draw) {
        while !self.late.is_empty() {
            self.deliver(draw);
        }
        for replica in self.worlds.values_mut().flat_map(|it| &mut it.replicas) {
            replica.is_down = false;
            if std::mem::take(&mut replica.is_building) {
                replica.rebuild(TreeSize::XSmall, 0);
            }
        }
        if !self.is_enabled {
            self.switch();
        }
        let settled_from = self.now;
        for _ in 0..1_000_000 {
            self.now += MICROS_A_STEP;
            self.begin();
            self.advance(draw);
            let reports = self.schedule.report();
            let is_complete = |at: Option<u64>| at.is_some_and(|it| it > settled_from);
            if reports.iter().all(|it| is_complete(it.complete_at)) {
                return;
            }
        }
        panic!("no complete exchange of all: {:?}", self.schedule.report());
    }
}

/// A replica that lacks an entry from before a complete exchange, if there is one.
fn lacking(world: &World, at_start: &BTreeMap<StorageKey, Entry>) -> Option<String> {
    let lacks = |own: Option<&Entry>, entry: &Entry| own.is_none_or(|own| own < entry);
    world.replicas.iter().enumerate().find_map(|(at, replica)| {
        let mut all = at_start.iter();
        let (key, entry) = all.find(|(key, entry)| lacks(replica.entries.get(*key), entry))?;
        Some(format!("replica {at} lacks {entry:?} of {key:?}"))
    })
}

/// Runs the life of one node; returns the first violation, if there is one.
fn live(seed: u64) -> (Tally, Option<String>) {
    let mut draw = Draw(seed);
    let mut node = Node::new();
    for _ in 0..6000 {
        node.step(&mut draw);
    }
    let newest: Vec<_> = node.worlds.values().map(newest_of).collect();
    node.settle(&mut draw);
    for (world, newest) in node.worlds.values().zip(newest) {
        let reached = &world.replicas[0].entries;
        let is_kept = newest.iter().all(|(key, entry)| reached[key] >= *entry);
        if !is_kept || !world.are_equal() {
            let wrong = "replicas differ, or lost something, when nothing is under way";
            node.wrong.get_or_insert(wrong.to_owned());
        }
    }
    let seconds = node.now / 1_000_000;
    let allowed = u64::from(REPAIRS_AT_ONCE) + (seconds + 1) * u64::from(REPAIRS_A_SECOND);
    assert!(node.tally.repairs <= allowed, "seed {seed}");
    (node.tally, node.wrong)
}

#[test]
fn exchanges_among_writes_are_complete_when_they_say_so_and_converge() {
    let mut all = Tally::default();
    for seed in 0..60 {
        let (tally, wrong) = live(seed);
        assert_eq!(wrong, None, "seed {seed}");
        all.exchanges += tally.exchanges;
        all.complete += tally.complete;
        all.stopped += tally.stopped;
        all.repairs += tally.repairs;
    }
    // The runs have covered every case that they are about.
    let has_happened = all.exchanges > 1000 && all.complete > 300 && all.stopped > 20;
    assert!(has_happened && all.repairs > 1000, "{all:?}");
}

#[test]
fn the_planted_defect_of_completeness_is_found() {
    let _planted = plant(PlantedDefect::ExchangeShortOfReplicaComplete);
    assert!((0..60).any(|seed| live(seed).1.is_some()));
}
