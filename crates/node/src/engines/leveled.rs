//! The leveled engine's settings from `leveled.*`: memory for all of its ledgers, and the settings of
//! each store.

use kvorum_backend::DayHours;
use kvorum_backend_leveled::{CompressionPoint, JournalPolicy, LeveledSettings};
use kvorum_settings::{self as settings, Settings};

use super::object_kinds;
use super::shared_settings::{compression_of, segments_behind_max, sync_strategy};
use super::tree_memory::{Allowance, Memory};

/// The memory that the settings allow. Stores draw the sizes of their buffers, so that not all write tables
/// at once.
pub(super) fn allowance(leveled: &settings::LeveledSettings) -> Allowance {
    let most = leveled.ledger_buffer_bytes;
    Allowance {
        percent_max: leveled.memory_percent_max,
        bytes_max: leveled.memory_bytes_max,
        limit: u64::MAX,
        buffer: (most - most / 4, most),
    }
}

/// The settings of one store; `drawn` is a random number.
pub(super) fn settings_of(settings: &Settings, memory: &Memory, drawn: u64) -> LeveledSettings {
    let leveled = &settings.leveled;
    let ledger = leveled.ledger_compression.unwrap_or(leveled.compression);
    let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
    LeveledSettings {
        sync: sync_strategy(&settings.leveled_durability()),
        scrub_period: settings.maintenance.scrub_period,
        log_segments_behind_max: segments_behind_max(settings, drawn >> 32),
        ledger_buffer_bytes: memory.buffer_of(drawn),
        compression: compression_of(leveled.compression),
        compression_point: match leveled.compresses_when_collected {
            true => CompressionPoint::OnCompact,
            false => CompressionPoint::OnReceipt,
        },
        ledger_compression: compression_of(ledger),
        ledger_compressed_from_level: count(leveled.compressed_from_level),
        journal_policy: JournalPolicy {
            run_files_max: count(leveled.run_files_max),
            single_file_percent: leveled.single_file_percent,
            longest_run_percent: leveled.longest_run_percent,
            hours: DayHours {
                first: leveled.compaction_first_hour,
                last: leveled.compaction_last_hour,
            },
        },
        forgotten: object_kinds::is_forgotten,
        recalculated: object_kinds::recalculated,
        ..LeveledSettings::default()
    }
}

#[cfg(test)]
#[path = "leveled_test.rs"]
mod tests;
