//! A vnode's reports of its work: a part of its times, every merge, and counts that leave out attempts
//! that would have blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_backend::Reading;
use kvorum_object::Clock as ObjectClock;
use kvorum_runtime::{Clock, Moment, WallTime};
use kvorum_vnode::{Detail, Handled, Operation, SAMPLED_EVERY, VnodeMeter, VnodeWork};
use parking_lot::Mutex;

use crate::{Bench, storage_key};

/// A clock that advances by a millisecond with each reading.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Moment {
        let ticks = self.0.fetch_add(1, Ordering::Relaxed);
        Moment::from_start(Duration::from_millis(ticks))
    }

    fn wall_time(&self) -> WallTime {
        WallTime::from_seconds(1)
    }
}

#[derive(Default)]
struct Reported(Mutex<Vec<(VnodeWork, Duration)>>);

impl VnodeMeter for Reported {
    fn worked(&self, work: VnodeWork, took: Duration, _now: Moment) {
        self.0.lock().push((work, took));
    }
}

fn metered() -> (Bench, Arc<Reported>) {
    let reported = Arc::new(Reported::default());
    let mut bench = Bench::new();
    let clock = Arc::new(Ticking::default());
    bench.vnode = bench.vnode.metered(clock, reported.clone());
    (bench, reported)
}

impl Reported {
    fn count(&self, work: VnodeWork) -> u64 {
        let reported = self.0.lock();
        reported.iter().filter(|(it, _)| *it == work).count() as u64
    }
}

/// Regression: the reads of clients that read and write in turn were never measured, as all operations were
/// counted together.
#[test]
fn each_kind_of_work_is_measured_once_in_so_many_times() {
    let (bench, reported) = metered();
    for number in 0..2 * SAMPLED_EVERY {
        bench.put(&number.to_string(), "v", &ObjectClock::new());
        bench.get(&number.to_string());
    }
    assert_eq!(reported.count(VnodeWork::Put), 2);
    assert_eq!(reported.count(VnodeWork::Get), 2);
    assert_eq!(reported.count(VnodeWork::Head), 0);
    let took = |(_, took): &(VnodeWork, Duration)| *took > Duration::ZERO;
    assert!(reported.0.lock().iter().all(took));
    let status = bench.vnode.status();
    assert_eq!(
        (status.gets, status.puts),
        (2 * SAMPLED_EVERY, 2 * SAMPLED_EVERY)
    );
}

#[test]
fn merges_are_writes_that_have_not_seen_what_is_there() {
    let (bench, reported) = metered();
    let first = bench.put("k", "a", &ObjectClock::new());
    bench.put("k", "b", first.clock());
    assert_eq!(bench.vnode.status().merges, 0);
    bench.put("k", "c", &ObjectClock::new());
    assert_eq!(bench.vnode.status().merges, 1);
    assert_eq!(reported.count(VnodeWork::Merge), 1);
}

#[test]
fn a_read_that_would_block_is_counted_when_it_is_done() {
    let (mut bench, _) = metered();
    bench.put("k", "v", &ObjectClock::new());
    bench.backend.would_block.store(true, Ordering::Relaxed);
    let get = || Operation::Get {
        key: storage_key("k"),
        detail: Detail::Whole,
    };
    assert!(matches!(bench.handle(get()), Handled::WouldBlock));
    assert_eq!(bench.vnode.status().gets, 0);
    bench.reading = Reading::MayBlock;
    bench.done(get());
    assert_eq!(bench.vnode.status().gets, 1);
}
