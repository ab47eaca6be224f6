//! Keys of the bitcask backend that have no counterpart.

use super::{Family, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Bitcask backend",
    keys: KEYS,
};

const ARBITER: &str = "merges run in small steps whenever the node has time for them";

const FOLDS: &str = "every fold reads its own snapshot, whose age bothers nobody";

const KEYS: &[super::RiakKey] = &[
    ignored(
        "bitcask.open_timeout",
        "a second server on the same directory is refused at once",
    ),
    ignored("bitcask.io_mode", "there is one way to write files"),
    ignored(
        "bitcask.hintfile_checksums",
        "every hint file carries a checksum, which is always checked",
    ),
    ignored("bitcask.fold.max_age", FOLDS),
    ignored("bitcask.fold.max_puts", FOLDS),
    ignored("bitcask.merge_check_interval", ARBITER),
    ignored("bitcask.merge_check_jitter", ARBITER),
    ignored("bitcask.max_merge_size", ARBITER),
];
