//! The hanoidb engine's settings from `hanoidb.*`: memory for all of its stores, and the settings of
//! each store.

use std::path::Path;

use anyhow::bail;
use kvorum_backend_hanoidb::HanoidbSettings;
use kvorum_disk::Disk;
use kvorum_settings::{self as settings, Settings};

use super::shared_settings::{compression_of, segments_behind_max, sync_strategy};
use super::tree_memory::{Allowance, Memory};

/// The memory that the settings allow. Stores draw the sizes of their buffers at random, up to a
/// unit, so that not all write tables at once.
pub(super) fn allowance(hanoidb: &settings::HanoidbSettings) -> Allowance {
    let unit = hanoidb.unit_bytes();
    Allowance {
        percent_max: hanoidb.memory_percent_max,
        bytes_max: hanoidb.memory_bytes_max,
        limit: u64::MAX,
        buffer: (unit - unit / 4, unit),
    }
}

/// The settings of one store; `drawn` is a random number.
pub(super) fn settings_of(settings: &Settings, memory: &Memory, drawn: u64) -> HanoidbSettings {
    let hanoidb = &settings.hanoidb;
    HanoidbSettings {
        sync: sync_strategy(&settings.hanoidb_durability()),
        expiry: hanoidb.expiry(),
        scrub_period: settings.maintenance.scrub_period,
        unit_bytes: hanoidb.unit_bytes(),
        write_buffer_bytes: memory.buffer_of(drawn),
        log_segments_behind_max: segments_behind_max(settings, drawn >> 32),
        block_bytes: usize::try_from(hanoidb.block_bytes).unwrap_or(usize::MAX),
        compression: compression_of(hanoidb.compression),
        ..HanoidbSettings::default()
    }
}

/// Refuses the directory of a store of the original, whose files would be mixed with ours.
pub(super) fn refuse_original(disk: &dyn Disk, directory: &Path) -> anyhow::Result<()> {
    if disk.info(directory)?.is_none() {
        return Ok(());
    }
    let entries = disk.list(directory)?;
    if let Some(found) = entries.iter().find(|it| is_of_original(&it.name)) {
        bail!(
            "{} has {}, a file of HanoiDB, whose stores are not imported: name another directory as \
             hanoidb.data_root, and put the objects there as a client does",
            directory.display(),
            found.name
        );
    }
    Ok(())
}

/// `nursery.log`, and the runs of levels, such as `A-12.data`.
fn is_of_original(name: &str) -> bool {
    let level = name.strip_suffix(".data").and_then(|it| it.split_once('-'));
    let is_run = level.is_some_and(|(run, level)| {
        let is_level = !level.is_empty() && level.bytes().all(|it| it.is_ascii_digit());
        ["A", "B", "C", "M", "X"].contains(&run) && is_level
    });
    name == "nursery.log" || is_run
}

#[cfg(test)]
#[path = "hanoidb_test.rs"]
mod tests;
