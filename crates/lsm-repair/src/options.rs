//! Options of a repair.

use kvorum_lsm::LsmSettings;

/// Settings of a repair.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Report the work and write nothing.
    pub is_dry_run: bool,
    /// Serve older entries of keys that may have lost a newer entry or a removal.
    pub keeps_doubtful: bool,
    /// The approximate size of a piece of work when tables are merged again.
    pub unit_bytes: u64,
    /// The settings of new tables.
    pub settings: LsmSettings,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self {
            is_dry_run: false,
            keeps_doubtful: false,
            unit_bytes: 64 << 20,
            settings: LsmSettings::default(),
        }
    }
}
