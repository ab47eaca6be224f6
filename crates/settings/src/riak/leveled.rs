//! Keys of the leveled backend.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Leveled backend",
    keys: KEYS,
};

const LEVELED: &str = "the leveled backend is not built in yet";

const KEYS: &[RiakKey] = &[
    ignored("leveled.data_root", LEVELED),
    ignored("leveled.sync_strategy", LEVELED),
    ignored("leveled.cache_size", LEVELED),
    ignored("leveled.cache_multiple", LEVELED),
    ignored("leveled.penciller_cache_size", LEVELED),
    ignored("leveled.compression_method", LEVELED),
    ignored("leveled.ledger_compression", LEVELED),
    ignored("leveled.compression_point", LEVELED),
    ignored("leveled.compression_level", LEVELED),
    ignored("leveled.log_level", LEVELED),
    ignored("leveled.journal_size", LEVELED),
    ignored("leveled.journal_objectcount", LEVELED),
    ignored("leveled.ledger_pagecachelevel", LEVELED),
    ignored("leveled.compaction_runs_perday", LEVELED),
    ignored("leveled.compaction_scores_perday", LEVELED),
    ignored("leveled.compaction_low_hour", LEVELED),
    ignored("leveled.compaction_top_hour", LEVELED),
    ignored("leveled.max_run_length", LEVELED),
    ignored("leveled.maxrunlength_compactionpercentage", LEVELED),
    ignored("leveled.singlefile_compactionpercentage", LEVELED),
    ignored("leveled.snapshot_timeout_short", LEVELED),
    ignored("leveled.snapshot_timeout_long", LEVELED),
    ignored("leveled.stats_percentage", LEVELED),
    ignored("leveled.stats_logfrequency", LEVELED),
    ignored("leveled_reload_recalc", LEVELED),
];
