//! The power is cut at every operation of scripts over three stores, and again while recovery runs:
//! what was acknowledged is back in order, and nothing else appears.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Durable, Fields, Write};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, Recovery, recover};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;

use crate::history_engine::{HistoryEngine, Kept};

const DIRECTORY: &str = "node/commit_log";
const STORES: usize = 3;
/// So small that a handful of batches fills a segment and half a dozen segments are trimmed.
const SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 700,
    bytes_max: 3_000,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A put that is waited for.
    Put(usize),
    /// A put that nobody waits for.
    Buffered(usize),
    Upkeep,
    Sync(usize),
    Erase(usize),
}

/// What one store was asked since its contents began.
#[derive(Clone, Debug)]
struct Life {
    identity: u64,
    put: Vec<Batch>,
    /// So many of the first were acknowledged as durable.
    acknowledged: usize,
}

struct Run {
    disk: MemoryDisk,
    engines: Vec<Arc<HistoryEngine>>,
    lives: Vec<Life>,
    has_failed: bool,
    log: Option<CommitLog>,
    last: Option<Step>,
}

impl Run {
    /// Plays a script until a step fails.
    fn play(script: &[Step], cut: Option<u64>) -> Self {
        let disk = MemoryDisk::new();
        if let Some(cut) = cut {
            disk.cut_after(cut);
        }
        let kept = (0..STORES as u64).map(|identity| Kept {
            identity,
            batches: Vec::new(),
        });
        let engines: Vec<_> = kept.map(|kept| HistoryEngine::open(&kept, &disk)).collect();
        let lives = (0..STORES as u64).map(|identity| Life {
            identity,
            put: Vec::new(),
            acknowledged: 0,
        });
        let mut run = Self {
            disk,
            engines,
            lives: lives.collect(),
            has_failed: false,
            log: None,
            last: None,
        };
        let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
        let Ok(log) = CommitLog::create(disk, Path::new(DIRECTORY), 0xabc, SETTINGS) else {
            run.has_failed = true;
            return run;
        };
        run.log = Some(log.clone());
        let committed: Vec<Committed> = (run.engines.iter())
            .map(|engine| Committed::new(engine.clone(), log.clone(), Durability::Grouped))
            .collect();
        for (number, step) in script.iter().enumerate() {
            run.last = Some(*step);
            if !run.step(*step, number, &log, &committed) {
                run.has_failed = true;
                break;
            }
        }
        run
    }

    fn step(&mut self, step: Step, number: usize, log: &CommitLog, stores: &[Committed]) -> bool {
        match step {
            Step::Put(at) | Step::Buffered(at) => {
                let batch = batch(number);
                let is_awaited = matches!(step, Step::Put(_));
                let durability = if is_awaited {
                    Durability::Grouped
                } else {
                    Durability::Buffered
                };
                let Ok(receipt) = stores[at].put(&batch, durability) else {
                    return false;
                };
                self.lives[at].put.push(batch);
                match receipt.durable {
                    Durable::Already => true,
                    Durable::After(ticket) => {
                        let is_durable = ticket.wait().is_ok();
                        if is_durable {
                            self.lives[at].acknowledged = self.lives[at].put.len();
                        }
                        is_durable
                    }
                }
            }
            Step::Upkeep => log.upkeep_step().is_ok(),
            Step::Sync(at) => {
                let is_durable = stores[at].sync().is_ok();
                if is_durable {
                    self.lives[at].acknowledged = self.lives[at].put.len();
                }
                is_durable
            }
            Step::Erase(at) => {
                let is_erased = stores[at].erase().is_ok();
                if is_erased {
                    let identity = stores[at].identity().0;
                    self.lives[at] = Life {
                        identity,
                        put: Vec::new(),
                        acknowledged: 0,
                    };
                }
                is_erased
            }
        }
    }

    fn kept(&self, more: usize) -> Vec<Kept> {
        self.engines
            .iter()
            .map(|engine| engine.crash(more))
            .collect()
    }

    fn check(&self, engines: &[Arc<HistoryEngine>], story: &str) {
        for (life, engine) in self.lives.iter().zip(engines) {
            assert_eq!(engine.identity().0, life.identity, "{story}");
            let back = engine.batches();
            assert!(
                back.len() >= life.acknowledged,
                "{story}: {} of {life:?}",
                back.len()
            );
            assert!(
                life.put.starts_with(&back),
                "{story}: {back:?} is not of {life:?}"
            );
        }
    }
}

fn batch(number: usize) -> Batch {
    let key = StorageKey::from_encoded(format!("key {}", number % 3).into_bytes());
    let body = Bytes::from(vec![u8::try_from(number).unwrap(); 20 + 60 * (number % 4)]);
    Batch::of(Write::put(key, Fields::default(), Bytes::new(), body))
}

fn open(kept: &[Kept], disk: &MemoryDisk) -> Vec<Arc<HistoryEngine>> {
    kept.iter()
        .map(|kept| HistoryEngine::open(kept, disk))
        .collect()
}

fn recover_all(
    disk: &MemoryDisk,
    engines: &[Arc<HistoryEngine>],
) -> kvorum_backend::Result<Recovery> {
    let stores: Vec<Arc<dyn Backend>> = engines
        .iter()
        .map(|it| it.clone() as Arc<dyn Backend>)
        .collect();
    recover(disk, Path::new(DIRECTORY), &stores)
}

/// Cuts the power everywhere, and everywhere in some of the recoveries.
fn sweep(script: &[Step]) {
    let whole = Run::play(script, None);
    assert!(!whole.has_failed);
    for cut in 0..=whole.disk.operations() {
        let run = Run::play(script, Some(cut));
        assert!(!run.has_failed || run.disk.is_cut());
        let drawn = (0..3).map(|seed| CrashOptions::drawn(cut * 31 + seed));
        for (at, options) in CrashOptions::extremes()
            .into_iter()
            .chain(drawn)
            .enumerate()
        {
            let story = format!("cut after {cut}, {options:?}");
            let more = at % 3;
            let image = run.disk.crash_image(options);
            let operations = recover_and_check(&run, &image, &run.kept(more), &story);
            let second = (cut + at as u64) % (operations + 1);
            cut_recovery(&run, &run.disk.crash_image(options), more, second, &story);
        }
    }
}

/// Recovers twice; the second time finds nothing to do. Returns the operations of the first.
fn recover_and_check(run: &Run, image: &MemoryDisk, kept: &[Kept], story: &str) -> u64 {
    let engines = open(kept, image);
    let report = recover_all(image, &engines).expect(story);
    let operations = image.operations();
    assert_eq!(report.damage, Vec::<String>::new(), "{story}");
    assert_eq!(report.batches_missing, 0, "{story}");
    let is_erasing = run.has_failed && matches!(run.last, Some(Step::Erase(_)));
    if !is_erasing {
        assert_eq!(report.batches_of_unknown_stores, 0, "{story}");
    }
    run.check(&engines, story);
    let again = recover_all(image, &engines).expect(story);
    assert_eq!(
        (again.batches_read, again.batches_replayed),
        (0, 0),
        "{story}"
    );
    operations
}

fn cut_recovery(run: &Run, image: &MemoryDisk, more: usize, cut: u64, story: &str) {
    let story = format!("{story}, recovery cut after {cut}");
    image.cut_after(cut);
    let engines = open(&run.kept(more), image);
    let _cut_or_not = recover_all(image, &engines);
    let kept: Vec<Kept> = engines.iter().map(|engine| engine.crash(more)).collect();
    for options in CrashOptions::extremes()
        .into_iter()
        .chain([CrashOptions::drawn(cut)])
    {
        let story = format!("{story}, {options:?}");
        recover_and_check(run, &image.crash_image(options), &kept, &story);
    }
}

#[test]
fn one_store_loses_nothing_acknowledged() {
    sweep(&[
        Step::Put(0),
        Step::Buffered(0),
        Step::Buffered(0),
        Step::Put(0),
    ]);
}

#[test]
fn rolled_segments_are_replayed_in_order() {
    let script: Vec<Step> = (0..14).map(|number| Step::Put(number % STORES)).collect();
    sweep(&script);
}

#[test]
fn trimmed_segments_are_not_missed() {
    let mut script = Vec::new();
    for number in 0..24 {
        script.push(Step::Put(number % STORES));
        if number % 3 == 0 {
            script.push(Step::Buffered(2));
        }
        script.push(Step::Upkeep);
    }
    sweep(&script);
}

#[test]
fn synced_stores_are_given_only_what_they_lack() {
    let mut script = Vec::new();
    for number in 0..12 {
        script.extend([Step::Put(number % 2), Step::Buffered(2), Step::Upkeep]);
        if number % 4 == 3 {
            script.push(Step::Sync(number % STORES));
        }
    }
    sweep(&script);
}

#[test]
fn what_was_erased_stays_gone_and_what_came_after_is_back() {
    let mut script = vec![
        Step::Put(0),
        Step::Buffered(1),
        Step::Put(1),
        Step::Erase(0),
    ];
    script.extend([
        Step::Put(0),
        Step::Upkeep,
        Step::Put(1),
        Step::Erase(1),
        Step::Put(1),
    ]);
    script.extend([
        Step::Buffered(0),
        Step::Erase(0),
        Step::Put(2),
        Step::Put(0),
    ]);
    sweep(&script);
}

#[test]
fn stores_that_were_erased_keep_no_log() {
    let run = Run::play(
        &[Step::Put(0), Step::Put(1), Step::Erase(0), Step::Put(1)],
        None,
    );
    let image = run.disk.crash_image(CrashOptions::nothing_unsynced());
    let report = recover_all(&image, &open(&run.kept(0), &image)).unwrap();
    assert_eq!(report.batches_of_unknown_stores, 0);
    assert_eq!(report.batches_replayed, 2);
    assert_eq!(image.list(Path::new(DIRECTORY)).unwrap(), vec![]);
}

#[test]
fn a_store_that_is_not_open_finds_its_batches_later() {
    let script: Vec<Step> = (0..14).map(|number| Step::Put(number % STORES)).collect();
    let run = Run::play(&script, None);
    let image = run.disk.crash_image(CrashOptions::nothing_unsynced());
    let engines = open(&run.kept(0), &image);
    let report = recover_all(&image, &engines[..2]).unwrap();
    assert_eq!(
        report.batches_of_unknown_stores,
        run.lives[2].put.len() as u64
    );
    let image = image.crash_image(CrashOptions::nothing_unsynced());
    let report = recover_all(&image, &engines).unwrap();
    assert_eq!(report.batches_replayed, run.lives[2].put.len() as u64);
    run.check(&engines, "opened later");
    assert_eq!(image.list(Path::new(DIRECTORY)).unwrap(), vec![]);
}

#[test]
fn a_log_that_was_being_removed_keeps_nothing_for_erased_stores() {
    let script = [
        Step::Put(0),
        Step::Put(0),
        Step::Put(0),
        Step::Put(0),
        Step::Put(1),
        Step::Erase(0),
    ];
    let script: Vec<Step> = script
        .into_iter()
        .chain((0..8).map(|_| Step::Put(1)))
        .collect();
    let finish = |cut: Option<u64>| {
        let run = Run::play(&script, None);
        let log = run.log.clone().unwrap();
        for (at, engine) in run.engines.iter().enumerate() {
            engine.close().unwrap();
            log.forget(kvorum_backend::StoreId(run.lives[at].identity));
        }
        let before = run.disk.operations();
        if let Some(cut) = cut {
            run.disk.cut_after(before + cut);
        }
        let _cut_or_not = log.remove();
        let after = run.disk.operations();
        (run, after - before)
    };
    let (_, operations) = finish(None);
    for cut in 0..=operations {
        let (run, _) = finish(Some(cut));
        let drawn = (0..40).map(|seed| CrashOptions::drawn(cut * 100 + seed));
        for options in CrashOptions::extremes().into_iter().chain(drawn) {
            let image = run.disk.crash_image(options);
            let report = recover_all(&image, &open(&run.kept(0), &image)).unwrap();
            let story = format!("{cut} of {operations}, {options:?}");
            assert_eq!(report.batches_of_unknown_stores, 0, "{story}");
            assert_eq!(report.batches_replayed, 0, "{story}");
            assert_eq!(image.list(Path::new(DIRECTORY)).unwrap(), vec![], "{story}");
        }
    }
}

#[test]
fn trimmed_erasures_leave_nothing_to_keep() {
    let mut script = Vec::new();
    for number in 0..30 {
        script.extend([
            Step::Put(number % 2),
            Step::Buffered(2),
            Step::Upkeep,
            Step::Upkeep,
        ]);
        if number % 5 == 4 {
            script.push(Step::Erase(number % STORES));
        }
    }
    sweep(&script);
}
