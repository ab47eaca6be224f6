//! Keys of the bitcask backend that cannot apply, each with its reason.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Bitcask backend",
    keys: KEYS,
};

const CHECKED: &str = "what may be merged is looked for about every second, at times of its own for \
                       each partition, and one arbiter for all of them says which goes next";

const FOLDS: &str = "every fold reads a snapshot of its own moment, which costs writers nothing; \
                     none waits for another, and none shares an older one";

const KEYS: &[RiakKey] = &[
    ignored(
        "bitcask.open_timeout",
        "nobody else may read a directory that a server has open, so that there is no loading by \
         another process to be waited for: a second server is refused at once",
    ),
    ignored(
        "bitcask.io_mode",
        "files are read and written by system calls of the server itself; there is no second way",
    ),
    ignored(
        "bitcask.hintfile_checksums",
        "every part of a hint file carries a checksum, which is always checked",
    ),
    ignored("bitcask.fold.max_age", FOLDS),
    ignored("bitcask.fold.max_puts", FOLDS),
    ignored("bitcask.merge_check_interval", CHECKED),
    ignored("bitcask.merge_check_jitter", CHECKED),
    ignored(
        "bitcask.max_merge_size",
        "files are merged one after the other, so that a merge is as large as one file, which \
         `bitcask.max_file_size` bounds",
    ),
];
