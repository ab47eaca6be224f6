//! Tests of the suite itself: an engine that is wrong on purpose has to be found out.

use kvorum_backend::PlantedDefect;

use crate::{EngineUnderTest, Group, Plan, Violation, run};

/// Runs the groups that should find `defect`, which `engine` was told to have, and returns what they
/// found, or a sentence saying that nobody noticed.
pub fn expect_caught(
    engine: &dyn EngineUnderTest,
    defect: PlantedDefect,
    plan: &Plan,
) -> Result<Violation, String> {
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
        | PlantedDefect::AcknowledgedBeforeSync => &[Group::Crash],
        PlantedDefect::StaleHintTrusted => &[Group::Damage, Group::Crash],
        PlantedDefect::TombstoneDroppedTooEarly => &[Group::Sentences, Group::Model, Group::Crash],
        PlantedDefect::ExpiredEntryReturned | PlantedDefect::SnapshotSeesLaterWrites => {
            &[Group::Sentences, Group::Model]
        }
    }
}
