//! Making a damaged store of this engine whole again, without opening it.

pub use kvorum_lsm_repair::check::has_store_files;
pub use kvorum_lsm_repair::{
    Doubt, Problem, Repair, RepairOptions, RepairReport, RepairUnit, RepairVerdict,
};

use crate::HanoidbSettings;

/// How stores of this engine are repaired. Tables are written as with no setting changed; merges write
/// them again as the node's settings say.
pub fn options(is_dry_run: bool, keeps_doubtful: bool) -> RepairOptions {
    RepairOptions {
        is_dry_run,
        keeps_doubtful,
        settings: (&HanoidbSettings::default()).into(),
        ..RepairOptions::default()
    }
}
