//! Keys of the leveled backend that cannot apply, each with its reason.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Leveled backend",
    keys: KEYS,
};

const BYTES: &str = "what the ledger keeps in memory is bounded in bytes: `leveled.ledger_buffer`, and \
     `leveled.maximum_memory` for all partitions";

const JOURNAL_FILES: &str = "the journal begins in the value log, whose files have `commit_log.segment_bytes`, and goes on in \
     files that are cut where they may be rewritten on their own";

const WHEN_IT_PAYS: &str = "files are scored by exact counts whenever there is time for background work, and rewritten when it pays";

const SNAPSHOTS: &str = "a snapshot ends with the request that it is for";

const COUNTED: &str =
    "everything is counted, at no cost worth leaving some out: see the statistics";

const KEYS: &[RiakKey] = &[
    ignored("leveled.cache_size", BYTES),
    ignored("leveled.cache_multiple", BYTES),
    ignored("leveled.penciller_cache_size", BYTES),
    ignored(
        "leveled.compression_point",
        "bodies are packed when they are put, before they are written for the first time, and moved as \
         they are",
    ),
    ignored(
        "leveled.log_level",
        "the node has one level for everything: `logger.level`",
    ),
    ignored("leveled.journal_size", JOURNAL_FILES),
    ignored("leveled.journal_objectcount", JOURNAL_FILES),
    ignored(
        "leveled.ledger_pagecachelevel",
        "blocks of the ledger that are read often are in the node's own cache",
    ),
    ignored("leveled.compaction_runs_perday", WHEN_IT_PAYS),
    ignored("leveled.compaction_scores_perday", WHEN_IT_PAYS),
    ignored(
        "leveled.waste_retention_period",
        "files that are not needed go at once; backups have their own names for what they hold",
    ),
    ignored("leveled.snapshot_timeout_short", SNAPSHOTS),
    ignored("leveled.snapshot_timeout_long", SNAPSHOTS),
    ignored("leveled.stats_percentage", COUNTED),
    ignored("leveled.stats_logfrequency", COUNTED),
    ignored(
        "leveled_reload_recalc",
        "index entries of a ledger that is made again come from the objects themselves",
    ),
];
