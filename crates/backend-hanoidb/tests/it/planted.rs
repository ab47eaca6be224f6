//! The suite finds each defect that can be planted in this engine.

use kvorum_backend_conformance::{Plan, expect_caught};
use kvorum_planted_defects::PlantedDefect;

use crate::engine::Engine;

fn is_caught(defect: PlantedDefect) {
    let caught = expect_caught(&Engine, defect, &Plan::quick(11));
    assert!(caught.is_ok(), "{caught:?}");
}

#[test]
fn a_directory_that_is_not_synced() {
    is_caught(PlantedDefect::DirectoryNotSynced);
}

#[test]
fn a_rename_before_the_sync() {
    is_caught(PlantedDefect::RenameBeforeSync);
}

#[test]
fn an_acknowledgement_before_the_sync() {
    is_caught(PlantedDefect::GroupNotAwaited);
}

#[test]
fn a_removal_that_is_dropped_too_early() {
    is_caught(PlantedDefect::TombstoneDroppedTooEarly);
}

#[test]
fn an_expired_entry_that_is_returned() {
    is_caught(PlantedDefect::ExpiredEntryReturned);
}

#[test]
fn a_snapshot_that_sees_later_writes() {
    is_caught(PlantedDefect::SnapshotSeesLaterWrites);
}
