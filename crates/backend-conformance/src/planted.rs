//! Tests of the suite itself: an engine with a planted defect has to be detected.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::{EngineUnderTest, Group, Plan, Violation, run};

/// Plants `defect`, runs the groups that should find it, and returns their findings, or a message
/// if they missed it.
pub fn expect_caught(
    engine: &dyn EngineUnderTest,
    defect: PlantedDefect,
    plan: &Plan,
) -> Result<Violation, String> {
    let _planted = plant(defect);
    for group in groups_for(defect) {
        if let Err(violation) = run(engine, *group, plan) {
            return Ok(violation);
        }
    }
    Err(format!(
        "{} has the planted defect {defect:?} and passes {:?} with seed {}",
        engine.name(),
        groups_for(defect),
        plan.seed
    ))
}

fn groups_for(defect: PlantedDefect) -> &'static [Group] {
    match defect {
        PlantedDefect::DirectoryNotSynced
        | PlantedDefect::RenameBeforeSync
        | PlantedDefect::GroupNotAwaited => &[Group::Crash],
        PlantedDefect::StaleHintTrusted => &[Group::Damage, Group::Crash],
        PlantedDefect::LiveRecordNotCollected => &[Group::Model, Group::Crash],
        PlantedDefect::TombstoneDroppedTooEarly => &[Group::Sentences, Group::Model, Group::Crash],
        PlantedDefect::ExpiredEntryReturned | PlantedDefect::SnapshotSeesLaterWrites => {
            &[Group::Sentences, Group::Model]
        }
        PlantedDefect::OlderRecordFolded => &[Group::Sentences],
        // The simulator finds defects of a node; tests of the engine find those that show after
        // two losses of a ledger.
        _ => &[],
    }
}
