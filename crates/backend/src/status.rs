//! A store's status, for operators, metrics and the arbiter.

/// A range of stored bytes that could not be read and was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The file, relative to the store's directory.
    pub file: String,
    /// The first byte.
    pub offset: u64,
    /// Its length.
    pub len: u64,
    /// A description of its known contents.
    pub held: String,
}

impl LostRange {
    /// A range of a file, and its known contents.
    pub fn new(file: impl Into<String>, offset: u64, len: u64, held: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            offset,
            len,
            held: held.into(),
        }
    }
}

/// Sizes, counts and the backlog of a store. Bytes unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The engine's name, as in `storage_backend`.
    pub engine: &'static str,
    /// Keys, expired ones that were not collected yet included.
    pub keys: u64,
    /// Bytes of live entries on disk.
    pub live_bytes: u64,
    /// Bytes of overwritten, removed and expired entries on disk.
    pub garbage_bytes: u64,
    /// Bytes of all files of the store.
    pub disk_bytes: u64,
    /// Files of the store.
    pub files: u64,
    /// Memory held by the store: key directory, memtables, caches of its own.
    pub memory_bytes: u64,
    /// Bytes on disk that only a snapshot or a backup still reads.
    pub pinned_bytes: u64,
    /// Maintenance that is due.
    pub backlog_bytes: u64,
    /// Payload bytes that were put since opening.
    pub put_bytes: u64,
    /// Bytes written to files since opening: divided by `put_bytes`, the write amplification.
    pub written_bytes: u64,
    /// Reads that met a damaged entry since opening.
    pub corrupt_reads: u64,
    /// Damaged ranges that were set aside since the store was created.
    pub lost: Vec<LostRange>,
    /// Facts of this engine only, as (name, value), for `vnode-status`.
    pub details: Vec<(&'static str, String)>,
}
