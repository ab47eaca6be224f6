//! Random scripts. Weights are chosen so that keys collide, files fill and merges have work.

use kvorum_backend::{Durability, FoldDetail};
use kvorum_encoding::SegmentFilter;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::names::{KEYS, TERMS};
use crate::script::{PlannedBound, PlannedFold, PlannedValue, PlannedWrite, Script, Step};

/// Times in scripts are multiples of this, so that expiries, leases and filters meet.
const TICK_MICROS: u64 = 1_000;

/// A script with steps of all kinds, for the model group.
pub(crate) fn script(rng: &mut ChaCha8Rng, len: usize) -> Script {
    Script {
        steps: (0..len).map(|_| step(rng)).collect(),
    }
}

/// A script of steps that change the disk, for the crash and fault groups.
pub(crate) fn changing_script(rng: &mut ChaCha8Rng, len: usize) -> Script {
    Script {
        steps: (0..len).map(|_| changing_step(rng)).collect(),
    }
}

fn step(rng: &mut ChaCha8Rng) -> Step {
    match rng.random_range(0..100) {
        0..56 => changing_step(rng),
        56..58 => Step::ReadAll,
        58..68 => Step::Fold {
            slot: None,
            fold: fold(rng),
        },
        68..72 => Step::FoldBuckets { fold: fold(rng) },
        72..80 => Step::FoldIndex {
            bucket: rng.random_range(0..4),
            field: rng.random_range(0..2),
            from: rng.random_bool(0.5).then(|| rng.random_range(0..TERMS)),
            to: rng.random_bool(0.5).then(|| rng.random_range(0..TERMS)),
            chunk: rng.random_range(1..4),
        },
        80..84 => Step::TakeSnapshot {
            slot: rng.random_range(0..3),
            lease_micros: rng
                .random_bool(0.4)
                .then(|| rng.random_range(1..8) * TICK_MICROS),
        },
        84..93 => Step::Fold {
            slot: Some(rng.random_range(0..3)),
            fold: fold(rng),
        },
        93..95 => Step::DropSnapshot {
            slot: rng.random_range(0..3),
        },
        95..97 => Step::Advance {
            micros: rng.random_range(1..6) * TICK_MICROS,
        },
        97..99 => Step::Backup,
        _ => Step::Erase,
    }
}

fn changing_step(rng: &mut ChaCha8Rng) -> Step {
    match rng.random_range(0..100) {
        0..62 => put(rng),
        62..66 => Step::AwaitTickets,
        66..72 => Step::Sync,
        72..86 => Step::Maintain {
            pick: rng.random_range(0..8),
            budget_bytes: [1, 64, 700, 5_000, 1 << 20][rng.random_range(0..5)],
        },
        86..92 => Step::MaintainAll,
        92..96 => Step::Reopen,
        96..98 => Step::DropAndReopen,
        _ => Step::Advance {
            micros: rng.random_range(1..6) * TICK_MICROS,
        },
    }
}

fn put(rng: &mut ChaCha8Rng) -> Step {
    let writes = match rng.random_range(0..10) {
        0..7 => 1,
        7..9 => rng.random_range(2..5),
        _ => rng.random_range(0..12),
    };
    let durability = match rng.random_range(0..4) {
        0 => Durability::Grouped,
        1 => Durability::BackendDefault,
        _ => Durability::Buffered,
    };
    Step::Put {
        writes: (0..writes).map(|_| write(rng)).collect(),
        durability,
        is_awaited: rng.random_bool(0.5),
    }
}

fn write(rng: &mut ChaCha8Rng) -> PlannedWrite {
    let key = rng.random_range(0..KEYS);
    if rng.random_bool(0.2) {
        return PlannedWrite::remove(key);
    }
    let body_bytes = match rng.random_range(0..10) {
        0 => 0,
        1..8 => rng.random_range(0..200),
        _ => rng.random_range(200..4_000),
    };
    PlannedWrite {
        key,
        value: Some(PlannedValue {
            segment: rng.random_range(0..4),
            age_micros: rng.random_range(0..4) * TICK_MICROS,
            expires_in_micros: rng
                .random_bool(0.25)
                .then(|| rng.random_range(0..10) * TICK_MICROS),
            tag: rng.random_range(0..3),
            head_bytes: rng.random_range(4..60),
            body_bytes,
            terms: (0..rng.random_range(0..3))
                .map(|_| rng.random_range(0..TERMS))
                .collect(),
        }),
    }
}

fn fold(rng: &mut ChaCha8Rng) -> PlannedFold {
    let details = [FoldDetail::Keys, FoldDetail::Heads, FoldDetail::Entries];
    PlannedFold {
        detail: details[rng.random_range(0..3)],
        from: bound(rng),
        to: bound(rng),
        bucket: rng.random_bool(0.3).then(|| rng.random_range(0..4)),
        age_micros_max: rng
            .random_bool(0.3)
            .then(|| rng.random_range(0..8) * TICK_MICROS),
        segments: rng.random_bool(0.3).then(|| {
            let first = rng.random_range(0..4);
            segment_filter(first..rng.random_range(first..5))
        }),
        chunk: if rng.random_bool(0.5) {
            rng.random_range(1..5)
        } else {
            usize::MAX
        },
    }
}

/// Whole segments, or leaves of a tree with four leaves. A leaf is the low bits of its segments.
fn segment_filter(numbers: std::ops::Range<u32>) -> SegmentFilter {
    match numbers.start % 2 {
        0 => SegmentFilter::Segments(numbers.collect()),
        _ => SegmentFilter::Leaves {
            leaves: 4,
            wanted: numbers.filter(|it| *it < 4).collect(),
        },
    }
}

fn bound(rng: &mut ChaCha8Rng) -> PlannedBound {
    match rng.random_range(0..4) {
        0 => PlannedBound::At(rng.random_range(0..KEYS)),
        1 => PlannedBound::Beside(rng.random_range(0..KEYS)),
        _ => PlannedBound::Open,
    }
}
