//! The conformance suite over the memory engine, and over the same engine with planted defects.

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_conformance::{
    EngineUnderTest, Opening, Replies, conformance_suite, expect_caught, play_golden_scripts,
};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_planted_defects::{PlantedDefect, plant};

struct Memory;

impl EngineUnderTest for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: false,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: false,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = Settings {
            // A bound that is never reached, for the code paths of a bounded store.
            memory_bytes_max: (opening.variation == 1).then_some(1 << 40),
            ..Settings::default()
        };
        let draw = opening.draw.clone();
        Ok(Box::new(MemoryBackend::new(settings, move || draw())))
    }

    fn variations(&self) -> u32 {
        2
    }
}

conformance_suite!(Memory);

#[test]
fn planted_defects_are_caught() {
    for defect in [
        PlantedDefect::ExpiredEntryReturned,
        PlantedDefect::SnapshotSeesLaterWrites,
    ] {
        let violation = expect_caught(&Memory, defect, &conformance_plan()).unwrap();
        let sentences: &[u8] = match defect {
            PlantedDefect::ExpiredEntryReturned => &[13],
            // With a concurrent writer, such a snapshot also shows parts of batches.
            _ => &[4, 14],
        };
        let found = violation.sentence.unwrap_or_default();
        assert!(sentences.contains(&found), "{violation}");
    }
}

#[test]
fn planted_defects_fail_golden_scripts() {
    for (defect, script) in [
        (
            PlantedDefect::ExpiredEntryReturned,
            "bucket_folds_pass_what_is_expired.txt",
        ),
        (
            PlantedDefect::SnapshotSeesLaterWrites,
            "snapshots_stand_still.txt",
        ),
    ] {
        let _planted = plant(defect);
        let difference = play_golden_scripts(&Memory, Replies::Compare).unwrap_err();
        let place = format!("script {script}, line ");
        assert!(difference.starts_with(&place), "{difference}");
    }
}
