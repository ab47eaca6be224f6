//! Each defect that can be planted in innostore is found by the suite.

use kvorum_backend_conformance::{Plan, expect_caught};
use kvorum_planted_defects::PlantedDefect;

use crate::innostore_tenant::InnostoreTenant;

fn is_caught(defect: PlantedDefect) {
    let caught = expect_caught(&InnostoreTenant, defect, &Plan::quick(11));
    assert!(caught.is_ok(), "{caught:?}");
}

#[test]
fn a_directory_that_is_not_synced() {
    is_caught(PlantedDefect::DirectoryNotSynced);
}

#[test]
fn an_acknowledgement_before_the_sync() {
    is_caught(PlantedDefect::GroupNotAwaited);
}

#[test]
fn an_expired_entry_that_is_returned() {
    is_caught(PlantedDefect::ExpiredEntryReturned);
}

#[test]
fn a_snapshot_that_sees_later_writes() {
    is_caught(PlantedDefect::SnapshotSeesLaterWrites);
}
