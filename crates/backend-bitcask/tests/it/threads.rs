//! Puts, gets, folds and upkeep at once: every read sees the last finished put or a later one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{Backend, StepBudget, TaskKind};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::MemoryDisk;

use crate::store::{NOW, body_of, folded, open, put};

const KEYS: usize = 6;
/// The least number of rounds of writers, which continue until something was merged: threads may
/// start late.
const ROUNDS: u64 = 150;
/// Enough for any machine: after this many the test fails.
const ROUNDS_MAX: u64 = 100 * ROUNDS;

#[test]
fn r14_reads_folds_and_merges_beside_puts_see_every_finished_put() {
    let disk = MemoryDisk::new();
    let mut settings = BitcaskSettings {
        file_bytes_max: 700,
        checkpoint_after_bytes: 3000,
        ..BitcaskSettings::default()
    };
    settings.merge.garbage_bytes_trigger = 200;
    settings.merge.garbage_bytes_threshold = 100;
    let store = &open(&disk, settings.clone());
    let finished: &[AtomicU64; KEYS] = &Default::default();
    let is_over = &AtomicBool::new(false);
    let merges = &AtomicU64::new(0);
    let name = |key: usize| format!("key {key}");
    let number = |body: &str| body.parse::<u64>().unwrap();
    for key in 0..KEYS {
        put(store, &name(key), "0");
    }
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|half| {
            scope.spawn(move || {
                for round in 1..=ROUNDS_MAX {
                    for key in (half..KEYS).step_by(2) {
                        put(store, &name(key), &round.to_string());
                        finished[key].store(round, Ordering::Release);
                    }
                    if round >= ROUNDS && merges.load(Ordering::Acquire) > 0 {
                        break;
                    }
                }
            })
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                for (key, floor) in finished.iter().enumerate() {
                    let floor = floor.load(Ordering::Acquire);
                    let body = body_of(store, &name(key)).unwrap();
                    assert!(number(&body) >= floor, "{key}: {body} after {floor}");
                }
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let floors: Vec<u64> = finished
                    .iter()
                    .map(|floor| floor.load(Ordering::Acquire))
                    .collect();
                let seen = folded(store, NOW);
                assert_eq!(seen.len(), KEYS);
                for ((_, body), floor) in seen.iter().zip(floors) {
                    assert!(number(body) >= floor);
                }
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                for task in store.maintenance_due(NOW) {
                    let budget = StepBudget { bytes: 300 };
                    store.maintenance_step(&task, budget, NOW).unwrap();
                    if task.kind == TaskKind::Merge {
                        merges.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Release);
    });
    assert!(merges.load(Ordering::Acquire) > 0);
    store.close().unwrap();
    for (key, last) in finished.iter().enumerate() {
        let last = last.load(Ordering::Acquire);
        assert_eq!(body_of(store, &name(key)), Some(last.to_string()));
    }
}
