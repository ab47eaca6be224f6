//! The backends for tests with kills and power cuts, and settings for small files.

/// A setting of a server.
pub(crate) type Setting = (&'static str, &'static str);

/// Logs of the smallest size, so that files are finished, merged and removed in every round.
pub(super) const SMALL_LOGS: &[Setting] = &[
    ("value_log.segment_bytes", "256KB"),
    ("value_log.bytes_max", "1MB"),
];

/// A backend under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backend {
    /// The value of `storage_backend`.
    pub(crate) name: &'static str,
    /// Settings with which files are finished, merged and removed in every round.
    small_files: &'static [Setting],
    /// Rounds with kills and power cuts, if no more are requested.
    pub(crate) kills: u32,
    pub(crate) cuts: u32,
}

/// All backends that keep data.
pub(crate) const BACKENDS: [Backend; 5] = [
    Backend {
        name: "bitcask",
        small_files: &[
            ("bitcask.max_file_size", "256KB"),
            ("bitcask.merge.triggers.dead_bytes", "64KB"),
            ("bitcask.merge.thresholds.dead_bytes", "16KB"),
        ],
        kills: 5,
        cuts: 3,
    },
    Backend {
        name: "leveldb",
        small_files: &[
            ("leveldb.write_buffer_size_min", "64KB"),
            ("leveldb.write_buffer_size_max", "96KB"),
            ("leveldb.maximum_memory", "32MB"),
        ],
        kills: 4,
        cuts: 2,
    },
    Backend {
        name: "leveled",
        small_files: &[
            ("leveled.ledger_buffer", "64KB"),
            ("leveled.maximum_memory", "32MB"),
        ],
        kills: 4,
        cuts: 2,
    },
    Backend {
        name: "hanoidb",
        small_files: &[
            ("hanoidb.top_level", "2"),
            ("hanoidb.maximum_memory", "32MB"),
        ],
        kills: 4,
        cuts: 2,
    },
    Backend {
        name: "innostore",
        small_files: &[
            ("innostore.buffer_pool_size", "16MB"),
            ("innostore.page_size", "4KB"),
        ],
        kills: 4,
        cuts: 2,
    },
];

impl Backend {
    /// The settings that choose the backend, and `more`.
    pub(crate) fn with(&self, more: &[Setting]) -> Vec<Setting> {
        let mut settings = vec![("storage_backend", self.name)];
        settings.extend_from_slice(more);
        settings
    }

    /// The settings that choose the backend, logs of these sizes, and equally small files.
    pub(crate) fn with_small_files(&self, logs: &[Setting]) -> Vec<Setting> {
        let mut settings = self.with(logs);
        settings.extend_from_slice(self.small_files);
        settings
    }
}
