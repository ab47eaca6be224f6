//! Repair of a damaged store of this engine, without opening it.

pub use kvorum_lsm_repair::check::has_store_files;
pub use kvorum_lsm_repair::{
    Doubt, Problem, Repair, RepairOptions, RepairReport, RepairUnit, RepairVerdict,
};

use crate::LeveledSettings;

/// Options for repairing stores of this engine. Tables are written with default settings; merges
/// rewrite them with the node's settings.
pub fn options(is_dry_run: bool, keeps_doubtful: bool) -> RepairOptions {
    RepairOptions {
        is_dry_run,
        keeps_doubtful,
        settings: (&LeveledSettings::default()).into(),
        ..RepairOptions::default()
    }
}
