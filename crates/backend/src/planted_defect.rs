//! Defects that an engine can be told to have, so that the conformance suite is tested too.
//!
//! Compiled with the feature `planted-defects` only, which tests enable and the binary never does.
//! An engine takes `Option<PlantedDefect>` among its settings and misbehaves in that one way.

/// One way of being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedDefect {
    /// A new file's directory entry is not synced before the file is relied on.
    DirectoryNotSynced,
    /// A file is renamed into place before its content is synced.
    RenameBeforeSync,
    /// A grouped put is acknowledged before its sync.
    AcknowledgedBeforeSync,
    /// A hint or checkpoint that does not match its data file is believed.
    StaleHintTrusted,
    /// A removal is forgotten while an older entry of the key is still on disk.
    TombstoneDroppedTooEarly,
    /// Expiry is not looked at when reading.
    ExpiredEntryReturned,
    /// A snapshot shows writes that came after it.
    SnapshotSeesLaterWrites,
}
