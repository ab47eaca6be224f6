//! A lease that ends during a fold: the fold checks its clock periodically, and returns a resume point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldClock, FoldDetail, FoldEnd, FoldFilter,
    FoldRange, KEYS_PER_LOOK, Lease, Timestamp, Write,
};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};

use super::stage::Stage;
use crate::Checked;
use crate::violation::{MustSucceed, ensure};

/// Enough keys for a fold to check its clock twice.
const KEYS_PUT: u32 = 3 * KEYS_PER_LOOK;
const PUT_AT_ONCE: u32 = 64;
/// The lease ends when this many were visited.
const VISITED: usize = 10;

/// The clock advances within the visitor: the fold ends with a resume point, from which a second
/// fold shows the rest once.
pub(super) fn ends_meanwhile(stage: &Stage<'_>) -> Checked {
    let trial = stage.play(&[])?;
    let (store, now) = (trial.store()?, trial.now);
    let put: Vec<StorageKey> = (0..KEYS_PUT).map(key).collect();
    for keys in put.chunks(PUT_AT_ONCE as usize) {
        let write = |key: &StorageKey| {
            let body = Bytes::from_static(b"a body");
            Write::put(key.clone(), Fields::default(), Bytes::new(), body)
        };
        let batch = Batch {
            writes: keys.iter().map(write).collect(),
        };
        let put = store.put(&batch, Durability::Buffered);
        let _buffered = put.must("put")?;
    }
    for detail in [FoldDetail::Keys, FoldDetail::Heads, FoldDetail::Entries] {
        check_fold(store, now, detail, &put)?;
    }
    Ok(())
}

fn check_fold(
    store: &dyn Backend,
    now: Timestamp,
    detail: FoldDetail,
    put: &[StorageKey],
) -> Checked {
    let time = Arc::new(AtomicU64::new(now.0));
    let read = time.clone();
    let clock = FoldClock::new(move || Timestamp(read.load(Ordering::Relaxed)));
    let over = Timestamp(now.0 + 10);
    let snapshot = store.snapshot(Lease::Until(over)).must("snapshot")?;
    let filter = FoldFilter::unexpired_by(&clock);
    let mut seen: Vec<StorageKey> = Vec::new();
    let end = snapshot.fold(detail, &FoldRange::all(), &filter, &mut |visited| {
        seen.push(visited.key.clone());
        if seen.len() == VISITED {
            time.store(over.0, Ordering::Relaxed);
        }
        Flow::Continue
    });
    let resume = match end.must("fold")? {
        FoldEnd::LeaseExpired(resume) => resume,
        end => {
            return ensure(false, 14, || {
                let count = seen.len();
                format!("a fold of {count} keys outlived its lease and ended with {end:?}")
            });
        }
    };
    let look = VISITED + KEYS_PER_LOOK as usize;
    ensure(seen.len() <= look, 14, || {
        let count = seen.len();
        format!("a fold visited {count} keys although its lease was over after {VISITED}")
    })?;
    ensure(seen.last() < Some(&resume), 14, || {
        format!(
            "a fold that ended behind {:?} resumes at {resume:?}",
            seen.last()
        )
    })?;
    let snapshot = store.snapshot(Lease::Unlimited).must("snapshot")?;
    let rest = FoldRange::all().resumed_at(&resume);
    let end = snapshot.fold(detail, &rest, &filter, &mut |visited| {
        seen.push(visited.key.clone());
        Flow::Continue
    });
    let end = end.must("fold")?;
    ensure(end == FoldEnd::Complete && seen == put, 14, || {
        let (count, of) = (seen.len(), put.len());
        format!("a fold that was resumed showed {count} keys of {of} and ended with {end:?}")
    })
}

fn key(number: u32) -> StorageKey {
    let key = Key::from(format!("{number:05}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("many"), &key)
}
