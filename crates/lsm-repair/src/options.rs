//! How a store is repaired.

use kvorum_lsm::LsmSettings;

/// Settings of a repair.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Say what would be done and write nothing.
    pub is_dry_run: bool,
    /// Serve older entries where a newer one or a removal may have been lost.
    pub keeps_doubtful: bool,
    /// Pieces of work of about this many bytes, where tables are merged anew.
    pub unit_bytes: u64,
    /// How tables are written.
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
