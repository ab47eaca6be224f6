//! Syncs of many stores are few rounds.

use std::time::Duration;

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn stores_that_want_a_sync_at_the_same_time_share_rounds() {
    let mut world = World::new(Settings::default());
    world.run(SECOND);
    for store in &mut world.stores {
        store.wants_sync = true;
    }
    world.run(SECOND * 11);
    assert!(world.stores.iter().all(|store| store.synced == 1));
    assert_eq!(world.rounds.iter().sum::<usize>(), 64);
    assert!(world.rounds.len() <= 5, "{:?}", world.rounds);
}
