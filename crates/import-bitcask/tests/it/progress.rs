//! Views of the progress of an import while it runs.

use std::sync::Arc;
use std::time::Duration;

use kvorum_import_bitcask::{Progress, ProgressView, WorkStage};
use parking_lot::Mutex;

use crate::world::World;

const KEYS: usize = 4000;
const PARTITIONS: u64 = 3;
const ENTRIES: u64 = KEYS as u64 * PARTITIONS;
/// The assumed age of the import at a view: simulated time does not pass during an import.
const ELAPSED: Duration = Duration::from_secs(60);

fn filled() -> World {
    let world = World::new();
    world.fill(KEYS);
    world
}

/// Imports, and takes a view before each put.
fn views_of(world: &World, is_whole: bool) -> (Vec<ProgressView>, ProgressView) {
    let progress = Arc::new(Progress::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let moment = world.now().plus(ELAPSED);
    assert_eq!(progress.view(moment), None);
    let (looked_at, into) = (progress.clone(), seen.clone());
    world.server.store.lock().on_put = Some(Box::new(move || {
        into.lock().extend(looked_at.view(moment));
    }));
    assert_eq!(world.import_with(&progress).is_ok(), is_whole);
    world.server.store.lock().on_put = None;
    let seen = std::mem::take(&mut *seen.lock());
    (seen, progress.view(moment).unwrap())
}

#[test]
fn the_progress_of_a_running_import_grows_to_its_total_and_has_an_estimate() {
    let (seen, last) = views_of(&filled(), true);
    assert_eq!(seen.len(), KEYS);
    for pair in seen.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        assert!(before.done <= after.done && before.counts.objects <= after.counts.objects);
        assert!(before.left.is_none_or(|left| after.left <= Some(left)));
    }
    for view in &seen {
        assert_eq!((view.stage, view.total), (WorkStage::Transfer, ENTRIES));
        // Counts include finished work.
        assert!(
            view.counts.objects * PARTITIONS <= view.done + PARTITIONS,
            "{view:?}"
        );
    }
    assert_eq!((seen[0].done, seen[0].left), (0, None));
    let middle = seen.iter().find(|view| view.done > 0).unwrap();
    assert!(middle.done < ENTRIES, "{middle:?}");
    let rest = (ENTRIES - middle.done) as f64 / middle.done as f64;
    let left = middle.left.unwrap().as_secs_f64();
    assert!((left - 60.0 * rest).abs() < 0.1, "{middle:?}");
    assert_eq!((last.done, last.left), (ENTRIES, Some(Duration::ZERO)));
    assert_eq!(last.counts.objects, KEYS as u64);
    let shown = last.to_string();
    assert_eq!(
        shown,
        "import 100 %: 4000 objects, 0 MB, about 0:00:00 left"
    );
}

#[test]
fn an_import_that_goes_on_begins_where_it_was_and_estimates_by_its_own_pace() {
    let world = filled();
    world.server.store.lock().overload_after = Some(KEYS * 3 / 4);
    let (_, broken_off) = views_of(&world, false);
    assert!(broken_off.done > 0 && broken_off.done < ENTRIES);
    world.server.store.lock().overload_after = None;
    let (seen, last) = views_of(&world, true);
    let first = seen[0];
    assert!(first.done > 0, "{first:?}");
    assert_eq!(first.left, None);
    assert_eq!(last.done, ENTRIES);
}
