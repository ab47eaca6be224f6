//! A vnode's reports of its work: a part of its times, every merge, every change of a data type, and
//! counts that leave out attempts that would have blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_backend::Reading;
use kvorum_data_types::Kind;
use kvorum_object::Clock as ObjectClock;
use kvorum_runtime::{Clock, Moment, WallTime};
use kvorum_vnode::{
    Detail, Handled, Operation, ReplicaReply, SAMPLED_EVERY, ValueFacts, VnodeMeter, VnodeWork,
};
use parking_lot::Mutex;

use crate::data_types::{add, apply};
use crate::{Bench, storage_key, store};

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
struct Reported {
    worked: Mutex<Vec<(VnodeWork, Duration)>>,
    changed: Mutex<Vec<(ValueFacts, Duration)>>,
}

impl VnodeMeter for Reported {
    fn worked(&self, work: VnodeWork, took: Duration, _now: Moment) {
        self.worked.lock().push((work, took));
    }

    fn value_changed(&self, value: ValueFacts, took: Duration, _now: Moment) {
        self.changed.lock().push((value, took));
    }
}

fn metered() -> (Bench, Arc<Reported>) {
    of_bench(Bench::new())
}

fn of_bench(mut bench: Bench) -> (Bench, Arc<Reported>) {
    let reported = Arc::new(Reported::default());
    let clock = Arc::new(Ticking::default());
    bench.vnode = bench.vnode.metered(clock, reported.clone());
    (bench, reported)
}

impl Reported {
    fn count(&self, work: VnodeWork) -> u64 {
        let reported = self.worked.lock();
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
    assert!(reported.worked.lock().iter().all(took));
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

fn counter(by: i128) -> Operation {
    apply("k", kvorum_data_types::Operation::Counter(by), None)
}

#[test]
fn each_operation_on_a_data_type_is_reported_with_its_value() {
    let (bench, reported) = metered();
    bench.done(counter(1));
    bench.done(counter(1));
    bench.done(apply("s", add("a"), None));
    let sketch = kvorum_data_types::Operation::HyperLogLog(vec!["a".into()]);
    bench.done(apply("h", sketch, None));
    let changed = reported.changed.lock();
    let facts: Vec<(Kind, usize)> = changed.iter().map(|(it, _)| (it.kind, it.actors)).collect();
    let counter = (Kind::Counter, 1);
    let expected = [counter, counter, (Kind::Set, 1), (Kind::HyperLogLog, 0)];
    assert_eq!(facts, expected);
    let is_measured = |(value, took): &(ValueFacts, Duration)| value.bytes > 0 && !took.is_zero();
    assert!(changed.iter().all(is_measured), "{changed:?}");
    // Also a write, of which one in so many is measured.
    assert_eq!(bench.vnode.status().puts, 4);
    assert_eq!(reported.count(VnodeWork::Put), 1);
}

#[test]
fn an_operation_that_is_refused_or_would_block_is_not_reported() {
    let (mut bench, reported) = metered();
    // The third sum would overflow.
    for _ in 0..3 {
        bench.done(counter(i128::MAX));
    }
    assert_eq!(reported.changed.lock().len(), 2);
    let counted = reported.changed.lock().len();
    bench.backend.would_block.store(true, Ordering::Relaxed);
    assert!(matches!(bench.handle(counter(1)), Handled::WouldBlock));
    assert_eq!(reported.changed.lock().len(), counted);
    bench.reading = Reading::MayBlock;
    bench.done(counter(-1));
    assert_eq!(reported.changed.lock().len(), counted + 1);
}

#[test]
fn merges_of_a_data_type_are_reported_as_its_own() {
    let (one, reported) = metered();
    let (other, _) = of_bench(Bench::seeded(2));
    one.done(counter(1));
    let ReplicaReply::Stored { object, .. } = other.done(counter(1)) else {
        panic!("it was not stored");
    };
    one.done(store("k", &object));
    let merged = VnodeWork::MergeOfType(Kind::Counter);
    assert_eq!(reported.count(merged), 1);
    assert_eq!(reported.count(VnodeWork::Merge), 0);
    assert_eq!(one.vnode.status().merges, 0);
    one.done(counter(1));
    let actors = reported.changed.lock().last().map(|(it, _)| it.actors);
    assert_eq!(actors, Some(2), "both have changed the merged value");
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
