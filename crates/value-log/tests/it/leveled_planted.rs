//! Each defect that can be planted in leveled is found: by the suite, or by repeated loss of the
//! ledger.

use std::panic::catch_unwind;

use kvorum_backend_conformance::{Plan, expect_caught};
use kvorum_planted_defects::{PlantedDefect, plant};

use crate::leveled_lost_ledger::run_lives;
use crate::leveled_tenant::LeveledTenant;

fn is_caught(defect: PlantedDefect) {
    let caught = expect_caught(&LeveledTenant, defect, &Plan::quick(11));
    assert!(caught.is_ok(), "{caught:?}");
}

/// True when one of these runs finds an error.
fn is_caught_in_lives(defect: PlantedDefect) -> bool {
    (0..40).any(|seed| {
        let lived = catch_unwind(|| {
            let _planted = plant(defect);
            run_lives(seed);
        });
        lived.is_err()
    })
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
fn a_removal_that_is_dropped_too_early() {
    is_caught(PlantedDefect::TombstoneDroppedTooEarly);
}

#[test]
fn an_expired_entry_that_is_returned() {
    is_caught(PlantedDefect::ExpiredEntryReturned);
}

#[test]
fn a_collection_that_skips_a_live_record() {
    is_caught(PlantedDefect::LiveRecordNotCollected);
}

#[test]
fn a_removal_that_is_left_to_the_journal() {
    assert!(is_caught_in_lives(PlantedDefect::RemovalLeftToJournal));
}

#[test]
fn an_older_record_that_a_fold_shows() {
    is_caught(PlantedDefect::OlderRecordFolded);
}

#[test]
fn an_older_record_that_is_taken_for_the_newest() {
    assert!(is_caught_in_lives(PlantedDefect::OlderRecordRebuilt));
}
