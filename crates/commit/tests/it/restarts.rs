//! One process after another over engines whose files are on the same disk: killed, stopped in order,
//! cut at every disk operation, and again at operations of the recovery that follows.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;

use kvorum_backend::{Backend, Receipt, Sequence};
use kvorum_disk::{CrashOptions, MemoryDisk};

use crate::node::{KEYS, Node, World, copy_of};

const STORES: [usize; 3] = [0, 1, 2];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Puts to this store and waits.
    Put(usize),
    /// Puts to this store; waited for by the next step that waits.
    PutLazily(usize),
    /// Waits for all lazy puts.
    Await,
    /// Syncs the engine of this store.
    Sync(usize),
    Upkeep,
    Erase(usize),
    /// The process dies, and another one starts.
    Kill,
    /// The process stops in order, and another one starts.
    Stop,
}

/// What was asked of one store since its contents began.
#[derive(Clone, Debug, Default)]
struct History {
    /// Key, value and sequence of each accepted put.
    puts: Vec<(u8, u64, Sequence)>,
    /// So many of the first of them were acknowledged.
    acknowledged: usize,
    /// An erasure began and did not end.
    is_erasing: bool,
}

/// A run of a script until the power is cut.
struct Run {
    world: World,
    disk: MemoryDisk,
    node: Option<Node>,
    histories: Vec<History>,
    lazy: Vec<(usize, usize, Receipt)>,
    values: u64,
}

impl Run {
    fn start(disk: MemoryDisk) -> Self {
        let world = World::default();
        let node = world.open_some(&disk, &STORES).ok();
        Self {
            world,
            disk,
            node,
            histories: vec![History::default(); STORES.len()],
            lazy: Vec::new(),
            values: 0,
        }
    }

    fn play(&mut self, script: &[Step]) {
        for step in script {
            if self.step(*step).is_none() {
                assert!(self.disk.is_cut(), "{step:?} failed without a cause");
            }
        }
    }

    fn step(&mut self, step: Step) -> Option<()> {
        match step {
            Step::Put(store) => {
                self.put(store)?;
                self.await_puts()
            }
            Step::PutLazily(store) => self.put(store),
            Step::Await => self.await_puts(),
            Step::Sync(store) => {
                self.node.as_ref()?.stores[store].sync().ok()?;
                let history = &mut self.histories[store];
                history.acknowledged = history.puts.len();
                Some(())
            }
            Step::Upkeep => self.node.as_ref()?.do_upkeep().ok(),
            Step::Erase(store) => {
                let history = &mut self.histories[store];
                history.is_erasing = true;
                self.node.as_ref()?.stores[store].erase().ok()?;
                *history = History::default();
                self.lazy.retain(|(of, ..)| *of != store);
                Some(())
            }
            Step::Kill => self.reopen(),
            Step::Stop => {
                let node = self.node.as_ref()?;
                for store in &node.stores {
                    store.close().ok()?;
                }
                node.log.remove().ok()?;
                for history in &mut self.histories {
                    history.acknowledged = history.puts.len();
                }
                self.reopen()
            }
        }
    }

    fn put(&mut self, store: usize) -> Option<()> {
        self.values += 1;
        let key = self.values.to_le_bytes()[0] % KEYS;
        let receipt = self.node.as_ref()?.put(store, key, self.values).ok()?;
        let history = &mut self.histories[store];
        history.puts.push((key, self.values, receipt.sequence));
        self.lazy.push((store, history.puts.len(), receipt));
        Some(())
    }

    fn await_puts(&mut self) -> Option<()> {
        for (store, count, receipt) in self.lazy.drain(..) {
            receipt.wait().ok()?;
            let history = &mut self.histories[store];
            history.acknowledged = history.acknowledged.max(count);
        }
        Some(())
    }

    fn reopen(&mut self) -> Option<()> {
        self.lazy.clear();
        self.node = None;
        self.node = Some(self.world.open_some(&self.disk, &STORES).ok()?);
        // What the process had in memory only is gone; the next one goes on from what it found.
        for (store, history) in self.histories.iter_mut().enumerate() {
            let found = explain(history, &self.node.as_ref()?.values(store));
            history
                .puts
                .truncate(found.expect("a killed process lost what it promised"));
        }
        Some(())
    }
}

/// How many of the puts were done when a store shows these values, or `None` when nothing explains
/// them.
fn explain(history: &History, values: &BTreeMap<u8, (u64, Sequence)>) -> Option<usize> {
    let prefix = |count: usize| {
        let puts = history.puts[..count].iter();
        puts.map(|(key, value, sequence)| (*key, (*value, *sequence)))
            .collect::<BTreeMap<_, _>>()
    };
    let least = if history.is_erasing {
        0
    } else {
        history.acknowledged
    };
    (least..=history.puts.len()).find(|count| prefix(*count) == *values)
}

impl Run {
    /// Opens what a crash left and checks it; then lives on and checks again.
    fn check_image(&self, image: &MemoryDisk, told: &str) {
        let disk = copy_of(image);
        let node = self.world.open_some(&disk, &STORES);
        let node = node.unwrap_or_else(|error| panic!("{told}: opening failed: {error}"));
        assert_eq!(node.found.damage, Vec::<String>::new(), "{told}");
        assert_eq!(node.found.batches_of_unknown_stores, 0, "{told}");
        for (store, history) in self.histories.iter().enumerate() {
            let values = node.values(store);
            let found = explain(history, &values);
            assert!(
                found.is_some(),
                "{told}: store {store} shows {values:?} after {history:?}"
            );
        }
        let last: Vec<Sequence> = STORES
            .iter()
            .map(|store| node.put_durably(*store, 0, 1_000_000).unwrap())
            .collect();
        drop(node);
        let again = disk.crash_image(CrashOptions::nothing_unsynced());
        let node = self.world.open_some(&again, &STORES).unwrap();
        for (store, sequence) in last.into_iter().enumerate() {
            let found = node.values(store).get(&0).copied();
            assert_eq!(found, Some((1_000_000, sequence)), "{told}: a later put");
        }
    }

    /// Cuts the recovery as well.
    fn check_cut_recovery(&self, image: &MemoryDisk, cut: u64, options: CrashOptions, told: &str) {
        let disk = copy_of(image);
        disk.cut_after(cut);
        let opened = self.world.open_some(&disk, &STORES);
        let again = disk.crash_image(options);
        drop(opened);
        let told = format!("{told}, recovery cut after {cut} with {options:?}");
        self.check_image(&again, &told);
    }

    fn recovery_operations(&self, image: &MemoryDisk) -> u64 {
        let disk = copy_of(image);
        let _node = self.world.open_some(&disk, &STORES).unwrap();
        disk.operations()
    }
}

fn sweep(script: &[Step]) {
    let whole = {
        let mut run = Run::start(MemoryDisk::new());
        run.play(script);
        run.disk.operations()
    };
    let mut random = 1u64;
    let mut draw = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for cut in 0..=whole {
        let disk = MemoryDisk::new();
        disk.cut_after(cut);
        let mut run = Run::start(disk);
        run.play(script);
        let mut crashes = CrashOptions::extremes().to_vec();
        crashes.extend([CrashOptions::drawn(draw()), CrashOptions::drawn(draw())]);
        for options in crashes {
            let image = run.disk.crash_image(options);
            let told = format!("cut after {cut} of {whole} with {options:?}");
            run.check_image(&image, &told);
            let operations = run.recovery_operations(&image);
            let (at, seed) = (draw() % (operations + 1), draw());
            run.check_cut_recovery(&image, at, CrashOptions::drawn(seed), &told);
        }
    }
}

#[test]
fn trimming_keeps_what_a_store_lacks() {
    use Step::*;
    let mut script = Vec::new();
    for round in 0..4 {
        script.extend([Put(0), Put(1), PutLazily(2), Put(0), Put(0), Put(1)]);
        script.push(if round % 2 == 0 { Upkeep } else { Sync(0) });
    }
    script.extend([Upkeep, PutLazily(2), Put(1)]);
    sweep(&script);
}

#[test]
fn erased_contents_stay_away_and_new_ones_stay() {
    use Step::*;
    sweep(&[
        Put(0),
        Put(1),
        PutLazily(0),
        Erase(0),
        Put(0),
        PutLazily(0),
        Upkeep,
        Put(2),
        Sync(0),
        Put(0),
        Erase(1),
        PutLazily(1),
        Put(0),
    ]);
}

#[test]
fn one_process_after_another_loses_nothing() {
    use Step::*;
    sweep(&[
        Put(0),
        PutLazily(1),
        Put(2),
        Kill,
        Put(0),
        Put(1),
        Upkeep,
        Kill,
        PutLazily(2),
        Put(2),
        Stop,
        Put(1),
        PutLazily(0),
        Await,
        Kill,
        Put(0),
    ]);
}
