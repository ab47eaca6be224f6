//! The settings of the server: plain values, grouped by owner.
//!
//! Only the tables of keys write these structs (see `honoured`), so that a default is in one place.
//! Every field names its key; the key's help describes the effect.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// All settings of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The node, its directories and its partitions.
    pub node: NodeSettings,
    /// Listeners for clients and other nodes.
    pub listeners: ListenerSettings,
    /// Encryption between nodes.
    pub cluster_tls: TlsSettings,
    /// The protocol buffers server.
    pub protobuf: ProtobufSettings,
    /// The HTTP server.
    pub http: HttpSettings,
    /// The request path.
    pub requests: RequestSettings,
    /// Limits of objects.
    pub objects: ObjectLimits,
    /// Properties of buckets without a type.
    pub buckets: BucketDefaults,
    /// `durability` and `durability.interval`: the default of every backend.
    pub durability: Durability,
    /// The value log.
    pub value_log: ValueLogSettings,
    /// The bitcask backend.
    pub bitcask: BitcaskSettings,
    /// The leveldb backend.
    pub leveldb: LeveldbSettings,
    /// The leveled backend.
    pub leveled: LeveledSettings,
    /// The hanoidb backend.
    pub hanoidb: HanoidbSettings,
    /// The innostore backend.
    pub innostore: InnostoreSettings,
    /// The memory backend.
    pub memory: MemorySettings,
    /// Several backends on one node.
    pub multi: MultiSettings,
    /// Anti-entropy.
    pub anti_entropy: AntiEntropySettings,
    /// Background work.
    pub maintenance: MaintenanceSettings,
    /// Logs.
    pub log: LogSettings,
}

/// The node, its directories and its partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// `nodename`: name@host.
    pub nodename: String,
    /// `cluster_name`.
    pub cluster_name: String,
    /// `worker_threads`; `None` is one for each core.
    pub worker_threads: Option<u64>,
    /// `ring_size`: partitions, a power of two.
    pub ring_size: u64,
    /// `ring.state_dir`.
    pub ring_state_dir: PathBuf,
    /// `platform_data_dir`.
    pub data_dir: PathBuf,
    /// `platform_log_dir`.
    pub log_dir: PathBuf,
    /// `storage_backend`.
    pub storage_backend: StorageBackend,
    /// `colocated_replicas`.
    pub colocated_replicas: bool,
}

/// An engine that this build has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageBackend {
    /// Append-only segments and a key directory in memory.
    #[default]
    Bitcask,
    /// A merge tree of sorted tables.
    Leveldb,
    /// A journal of whole entries, and a merge tree of their keys and heads.
    Leveled,
    /// A merge tree of doubling levels, in which each put pays a bounded share of merging.
    Hanoidb,
    /// A tree of pages, for data that is read far more than written.
    Innostore,
    /// Nothing survives a stop.
    Memory,
    /// Several of the others, each for some buckets.
    Multi,
}

impl StorageBackend {
    /// Its name, as a value of `storage_backend`.
    pub fn name(self) -> &'static str {
        match self {
            StorageBackend::Bitcask => "bitcask",
            StorageBackend::Leveldb => "leveldb",
            StorageBackend::Leveled => "leveled",
            StorageBackend::Hanoidb => "hanoidb",
            StorageBackend::Innostore => "innostore",
            StorageBackend::Memory => "memory",
            StorageBackend::Multi => "multi",
        }
    }
}

/// Several backends on one node: `multi_backend`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MultiSettings {
    /// `multi_backend.default`: the name of the backend of all buckets that name none; empty for the first.
    pub default: String,
    /// `storage_backend = prefix_multi`: the prefix of a bucket's name overrides its property.
    pub goes_by_prefix: bool,
    /// In the order of their names.
    pub backends: Vec<NamedBackend>,
}

/// One of several backends.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedBackend {
    /// `NAME` in `multi_backend.NAME`.
    pub name: String,
    /// `multi_backend.NAME.bucket_prefix`: beginnings of the names of buckets.
    pub bucket_prefixes: Vec<String>,
    /// The node's settings, overridden by the backend's own.
    pub settings: Settings,
}

impl MultiSettings {
    /// The number of the backend of all buckets that name none.
    pub fn default_number(&self) -> usize {
        let is_default = |it: &NamedBackend| it.name == self.default;
        self.backends.iter().position(is_default).unwrap_or(0)
    }
}

/// Listeners for clients and other nodes, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerSettings {
    /// `listener.protobuf.$name`.
    pub protobuf: BTreeMap<String, SocketAddr>,
    /// `listener.http.$name`.
    pub http: BTreeMap<String, SocketAddr>,
    /// `listener.peer.$name`.
    pub peer: BTreeMap<String, SocketAddr>,
    /// `peer.advertised_address`: the address that other nodes get in place of the first of `peer`.
    pub peer_advertised: Option<SocketAddr>,
}

/// Encryption between nodes: `cluster.tls`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `cluster.tls` itself.
    pub mode: TlsMode,
    /// `certfile`.
    pub certificate: PathBuf,
    /// `keyfile`.
    pub key: PathBuf,
    /// `cacertfile`.
    pub authority: PathBuf,
}

/// Encryption of connections between nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No connection is encrypted.
    #[default]
    Off,
    /// Connections with nodes that support encryption are encrypted.
    Optional,
    /// All connections are encrypted.
    On,
}

/// The protocol buffers server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtobufSettings {
    /// `protobuf.backlog`: connections that wait to be accepted.
    pub backlog: u32,
    /// `protobuf.nagle`: true if small answers may be held back to be sent together.
    pub nagle: bool,
    /// `protobuf.keepalive`: true if connections are probed for lost clients.
    pub keepalive: bool,
    /// `protobuf.frame_bytes_max`.
    pub frame_bytes_max: u64,
}

/// The HTTP server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// `http.body_bytes_max`.
    pub body_bytes_max: u64,
    /// `secure_referer_check`.
    pub secure_referer_check: bool,
}

/// The request path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// `max_concurrent_requests`: of each kind; `None` means no limit.
    pub concurrent_max: Option<u64>,
    /// `slow_request_threshold`: `None` logs no request as slow.
    pub slow_threshold: Option<Duration>,
    /// `gets_compare`: each get compares all replicas of its key.
    pub compares_all_on_get: bool,
    /// `secondary_index_timeout`: `None` means none.
    pub secondary_index_timeout: Option<Duration>,
    /// `delete_mode`.
    pub delete_mode: DeleteMode,
    /// `cluster.job.*`.
    pub jobs: JobSettings,
}

/// The fate of a tombstone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeleteMode {
    /// It stays.
    #[default]
    Keep,
    /// It is removed with the delete, as soon as all replicas have it.
    Immediate,
    /// It is removed this long after all replicas had it.
    After(Duration),
}

/// `cluster.job.riak_kv.*`: which expensive requests are answered at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobSettings {
    /// `list_buckets`.
    pub list_buckets: bool,
    /// `stream_list_buckets`.
    pub stream_list_buckets: bool,
    /// `list_keys`.
    pub list_keys: bool,
    /// `stream_list_keys`.
    pub stream_list_keys: bool,
    /// `secondary_index`.
    pub secondary_index: bool,
    /// `stream_secondary_index`.
    pub stream_secondary_index: bool,
    /// `map_reduce`.
    pub map_reduce: bool,
}

/// Limits of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectLimits {
    /// `object.size.warning_threshold`, bytes.
    pub size_warning_bytes: u64,
    /// `object.size.maximum`, bytes.
    pub size_max_bytes: u64,
    /// `object.siblings.warning_threshold`.
    pub siblings_warning: u64,
    /// `object.siblings.maximum`.
    pub siblings_max: u64,
}

/// Properties of buckets without a type: `buckets.default.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketDefaults {
    /// `n_val`.
    pub n_val: u32,
    /// `r`.
    pub r: QuorumValue,
    /// `w`.
    pub w: QuorumValue,
    /// `dw`.
    pub dw: QuorumValue,
    /// `rw`.
    pub rw: QuorumValue,
    /// `pr`.
    pub pr: QuorumValue,
    /// `pw`.
    pub pw: QuorumValue,
    /// `node_confirms`.
    pub node_confirms: u32,
    /// `notfound_ok`.
    pub notfound_ok: bool,
    /// `basic_quorum`.
    pub basic_quorum: bool,
    /// `allow_mult`.
    pub allow_mult: bool,
    /// `last_write_wins`.
    pub last_write_wins: bool,
    /// `merge_strategy`: 2 is `true`.
    pub dvv_enabled: bool,
    /// `sync_on_write`.
    pub sync_on_write: SyncOnWrite,
    /// `chash_keyfun`.
    pub chash_keyfun: KeyFunction,
}

/// The replicas that flush before they acknowledge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncOnWrite {
    /// As in the backend's own settings.
    Backend,
    /// The coordinating replica.
    #[default]
    One,
    /// All replicas.
    All,
}

/// The part of an address that decides the place on the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyFunction {
    /// Bucket and key.
    #[default]
    Standard,
    /// Only the bucket.
    BucketOnly,
}

/// Number of replicas that have to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QuorumValue {
    /// One.
    #[default]
    One,
    /// More than half of `n_val`.
    Quorum,
    /// `n_val`.
    All,
    /// This number.
    Count(u32),
}

/// The moment at which a write counts as done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durability {
    /// The promise.
    pub mode: DurabilityMode,
    /// The time between syncs; used only in [`DurabilityMode::Interval`].
    pub interval: Duration,
}

/// The promise of an acknowledgement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DurabilityMode {
    /// The write is on stable storage; concurrent writes share a sync.
    #[default]
    Grouped,
    /// The write is with the operating system, and is synced at intervals.
    Interval,
    /// The write is with the operating system.
    None,
}

/// The value log: `value_log.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueLogSettings {
    /// `segment_bytes`.
    pub segment_bytes: u64,
    /// `bytes_max`.
    pub bytes_max: u64,
}

/// The bitcask backend: `bitcask.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitcaskSettings {
    /// `data_root`.
    pub data_root: PathBuf,
    /// `sync.strategy`; `None` follows `durability`. Ask [`Settings::bitcask_durability`].
    pub sync_strategy: Option<DurabilityMode>,
    /// `sync.interval`.
    pub sync_interval: Duration,
    /// `max_file_size`.
    pub file_bytes_max: u64,
    /// `compression`.
    pub compression: Compression,
    /// `read_cache`, bytes for all partitions together; `None` leaves it to the node.
    pub read_cache_bytes: Option<u64>,
    /// `merge.policy`.
    pub merge_policy: MergePolicy,
    /// `merge.garbage_share_max`, percent.
    pub merge_garbage_share_max_percent: u8,
    /// `merge.window.start`: hour of the day, 0 to 23.
    pub merge_window_start_hour: u8,
    /// `merge.window.end`: hour of the day, 0 to 23, itself within the window.
    pub merge_window_end_hour: u8,
    /// `merge.triggers.fragmentation`: per cent of garbage keys.
    pub merge_trigger_fragmentation_percent: u8,
    /// `merge.triggers.dead_bytes`.
    pub merge_trigger_garbage_bytes: u64,
    /// `merge.thresholds.fragmentation`: per cent of garbage keys.
    pub merge_threshold_fragmentation_percent: u8,
    /// `merge.thresholds.dead_bytes`.
    pub merge_threshold_garbage_bytes: u64,
    /// `merge.thresholds.small_file`, bytes; `None` is disabled.
    pub merge_threshold_small_file_bytes: Option<u64>,
    /// `expiry`; `None` is off.
    pub expiry: Option<Duration>,
    /// `expiry.grace_time`.
    pub expiry_grace: Duration,
}

/// Compression of values on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Values are not compressed.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// The times at which merges may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergePolicy {
    /// At any hour.
    #[default]
    Always,
    /// At no hour.
    Never,
    /// In the hours of `bitcask.merge.window`.
    Window,
}

/// The leveldb backend: `leveldb.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeveldbSettings {
    /// `data_root`.
    pub data_root: PathBuf,
    /// `sync_on_write`; `None` follows `durability`. Ask [`Settings::leveldb_durability`].
    pub sync_on_write: Option<DurabilityMode>,
    /// `maximum_memory`, bytes for the whole node; `None` leaves it to the percentage.
    pub memory_bytes_max: Option<u64>,
    /// `maximum_memory.percent`: of the memory of the machine or the container.
    pub memory_percent_max: u8,
    /// `limited_developer_mem`.
    pub limited_developer_memory: bool,
    /// `write_buffer_size_min`: each partition draws its size from here to the next.
    pub write_buffer_bytes_min: u64,
    /// `write_buffer_size_max`.
    pub write_buffer_bytes_max: u64,
    /// `bloomfilter`.
    pub bloomfilter: bool,
    /// `block.size`.
    pub block_bytes: u64,
    /// `block.restart_interval`: keys.
    pub block_restart_interval: u64,
    /// `compression`.
    pub compression: bool,
    /// `compression.algorithm`; used only with `compression`.
    pub compression_algorithm: Compression,
    /// `compaction.trigger.tombstone_count`; `None` is off.
    pub tombstones_trigger: Option<u64>,
    /// `expiration`.
    pub expiration: bool,
    /// `expiration.retention_time`; `None` is unlimited. Ask [`LeveldbSettings::expiry`].
    pub retention: Option<Duration>,
    /// `expiration.mode`: expiry only removes tables in which everything is expired.
    pub expires_whole_files: bool,
    /// `tiered`: tables of this level and those below it are old; `None` is off.
    pub tiered_from_level: Option<u64>,
    /// `tiered.path.fast`.
    pub tiered_path_fast: Option<PathBuf>,
    /// `tiered.path.slow`. Ask [`LeveldbSettings::tiers`].
    pub tiered_path_slow: Option<PathBuf>,
}

/// Two places for the stores of leveldb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeveldbTiers {
    /// Tables of this level and those below it are in the slow one.
    pub from_level: u64,
    /// The directory of the stores.
    pub fast_root: PathBuf,
    /// The directory of their old tables.
    pub slow_root: PathBuf,
}

/// The leveled backend: `leveled.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeveledSettings {
    /// `data_root`.
    pub data_root: PathBuf,
    /// `sync_strategy`; `None` follows `durability`. Ask [`Settings::leveled_durability`].
    pub sync_strategy: Option<DurabilityMode>,
    /// `maximum_memory`, bytes for the whole node; `None` leaves it to the percentage.
    pub memory_bytes_max: Option<u64>,
    /// `maximum_memory.percent`: of the memory of the machine or the container.
    pub memory_percent_max: u8,
    /// `ledger_buffer`: bytes of heads and index entries of a partition that wait for a table.
    pub ledger_buffer_bytes: u64,
    /// `compression_method`: of bodies.
    pub compression: Compression,
    /// `compression_point` is `on_compact`.
    pub compresses_when_collected: bool,
    /// `ledger_compression`; `None` means as for bodies.
    pub ledger_compression: Option<Compression>,
    /// `compression_level`: the first level with compressed tables.
    pub compressed_from_level: u64,
    /// `max_run_length`: journal files that are rewritten together.
    pub run_files_max: u64,
    /// `singlefile_compactionpercentage`: the live share up to which a file is rewritten alone.
    pub single_file_percent: u8,
    /// `maxrunlength_compactionpercentage`: the same for a run of `run_files_max` files.
    pub longest_run_percent: u8,
    /// `compaction_low_hour`, UTC.
    pub compaction_first_hour: u8,
    /// `compaction_top_hour`, UTC, itself included.
    pub compaction_last_hour: u8,
}

/// The hanoidb backend: `hanoidb.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HanoidbSettings {
    /// `data_root`.
    pub data_root: PathBuf,
    /// `sync_strategy`; `None` follows `durability`. Ask [`Settings::hanoidb_durability`].
    pub sync_strategy: Option<DurabilityMode>,
    /// `sync_interval`.
    pub sync_interval: Duration,
    /// `maximum_memory`, bytes for the whole node; `None` leaves it to the percentage.
    pub memory_bytes_max: Option<u64>,
    /// `maximum_memory.percent`: of the memory of the machine or the container.
    pub memory_percent_max: u8,
    /// `top_level`: the unit of the levels is 16 KiB times two to this power.
    pub top_level: u64,
    /// `compress`.
    pub compression: Compression,
    /// `expiry_secs`; 0 is never. Ask [`HanoidbSettings::expiry`].
    pub expiry_seconds: u64,
    /// `block_size`.
    pub block_bytes: u64,
}

/// The innostore backend: `innostore.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InnostoreSettings {
    /// `data_home_dir`.
    pub data_home_dir: PathBuf,
    /// `flush_log_at_trx_commit`; `None` follows `durability`. Ask [`Settings::innostore_durability`].
    pub flush_log: Option<DurabilityMode>,
    /// `buffer_pool_size`, bytes for the whole node; `None` leaves it to the percentage.
    pub pool_bytes_max: Option<u64>,
    /// `buffer_pool_size.percent`: of the memory of the machine or the container.
    pub pool_percent_max: u8,
    /// `max_dirty_pages_pct`: of that, for entries that are in no page yet.
    pub dirty_percent_max: u8,
    /// `page_size`.
    pub page_bytes: u64,
    /// `expiry_secs`; 0 is never. Ask [`InnostoreSettings::expiry`].
    pub expiry_seconds: u64,
}

/// The memory backend: `memory_backend.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySettings {
    /// `ttl`; `None` is off.
    pub ttl: Option<Duration>,
    /// `max_memory_per_vnode`, bytes; `None` means no limit.
    pub per_vnode_bytes_max: Option<u64>,
    /// `max_memory`, bytes for the whole node; `None` means no limit.
    pub bytes_max: Option<u64>,
}

/// Anti-entropy: `tictacaae_*` and `anti_entropy.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AntiEntropySettings {
    /// `tictacaae_active`.
    pub is_active: bool,
    /// `tictacaae_exchangetick`.
    pub interval: Duration,
    /// `anti_entropy.concurrency_limit`: exchanges at once.
    pub exchanges_max: u64,
    /// `tictacaae_maxresults`.
    pub leaves_max: u64,
    /// `tictacaae_repairloops`.
    pub loops_max: u64,
    /// `tictacaae_rebuildwait`.
    pub rebuild_wait: Duration,
    /// `tictacaae_rebuilddelay`.
    pub rebuild_delay: Duration,
    /// `tictacaae_repairs_per_second_max`; `None` for no bound.
    pub repairs_per_second_max: Option<u64>,
}

/// Background work: `maintenance.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// `transfer_limit`: transfers at once in each direction.
    pub transfer_limit: u64,
    /// `handoff.inbound`.
    pub handoff_inbound: bool,
    /// `handoff.outbound`.
    pub handoff_outbound: bool,
    /// `io_bytes_per_second_max`; `None` means no ceiling.
    pub io_bytes_per_second_max: Option<u64>,
    /// `cpu_share_max`: per cent of all cores.
    pub cpu_share_max_percent: u8,
    /// `step_time`.
    pub step_time: Duration,
    /// `memory_bytes_max`; `None` follows the machine.
    pub memory_bytes_max: Option<u64>,
    /// `open_files_max`; `None` follows the process's limit.
    pub open_files_max: Option<u64>,
    /// `scrub.period`; `None` for no scrubbing.
    pub scrub_period: Option<Duration>,
}

/// Logs: `logger.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// `logger.level`.
    pub level: LogLevel,
    /// `logger.output`; if not set: both if `logger.file` is set, else the console.
    pub output: LogOutput,
    /// `logger.file`.
    pub file: PathBuf,
    /// `logger.format`.
    pub format: LogFormat,
    /// `logger.max_file_size`: a file of this length is rotated. Bytes.
    pub file_bytes_max: u64,
    /// `logger.max_files`: rotated files that are kept.
    pub files_max: u64,
}

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `name=value` pairs, texts in quotes.
    #[default]
    Logfmt,
    /// An object.
    Json,
}

/// The least severe event that is logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Normal operation.
    #[default]
    Info,
    /// An operator should look at it.
    Warning,
    /// Something failed.
    Error,
    /// Nothing.
    None,
}

/// The output of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogOutput {
    /// Nowhere.
    Off,
    /// To standard error.
    #[default]
    Console,
    /// To the file.
    File,
    /// To both.
    Both,
}

/// Size of an entry, the unit of the original's `hanoidb.top_level`, in bytes.
const HANOIDB_ENTRY_BYTES: u64 = 16 << 10;

impl Settings {
    /// The moment at which a write counts as done, for each engine: the node's only one, or those of
    /// several backends.
    pub fn durabilities(&self) -> Vec<Durability> {
        match self.node.storage_backend {
            StorageBackend::Multi => {
                let backends = self.multi.backends.iter();
                backends
                    .map(|it| it.settings.backend_durability())
                    .collect()
            }
            _ => vec![self.backend_durability()],
        }
    }

    /// The moment at which a write to the configured backend counts as done; with several backends, to
    /// the default one.
    pub fn backend_durability(&self) -> Durability {
        match self.node.storage_backend {
            StorageBackend::Bitcask => self.bitcask_durability(),
            StorageBackend::Leveldb => self.leveldb_durability(),
            StorageBackend::Leveled => self.leveled_durability(),
            StorageBackend::Hanoidb => self.hanoidb_durability(),
            StorageBackend::Innostore => self.innostore_durability(),
            StorageBackend::Memory => self.durability_with(Some(DurabilityMode::None)),
            StorageBackend::Multi => match self.multi.backends.get(self.multi.default_number()) {
                Some(default) => default.settings.backend_durability(),
                None => self.durability,
            },
        }
    }

    /// The moment at which a write to the leveldb backend counts as done: `leveldb.sync_on_write` if it
    /// is set, else `durability`.
    pub fn leveldb_durability(&self) -> Durability {
        self.durability_with(self.leveldb.sync_on_write)
    }

    /// The moment at which a write to the leveled backend counts as done: `leveled.sync_strategy` if it
    /// is set, else `durability`.
    pub fn leveled_durability(&self) -> Durability {
        self.durability_with(self.leveled.sync_strategy)
    }

    /// The moment at which a write to the hanoidb backend counts as done: `hanoidb.sync_strategy` if it
    /// is set, else `durability`.
    pub fn hanoidb_durability(&self) -> Durability {
        match self.hanoidb.sync_strategy {
            None => self.durability,
            Some(mode) => Durability {
                mode,
                interval: self.hanoidb.sync_interval,
            },
        }
    }

    /// The moment at which a write to the innostore backend counts as done:
    /// `innostore.flush_log_at_trx_commit` if it is set, else `durability`.
    pub fn innostore_durability(&self) -> Durability {
        self.durability_with(self.innostore.flush_log)
    }

    fn durability_with(&self, own: Option<DurabilityMode>) -> Durability {
        Durability {
            mode: own.unwrap_or(self.durability.mode),
            ..self.durability
        }
    }

    /// The moment at which a write to the bitcask backend counts as done: `bitcask.sync.strategy` if it
    /// is set, else `durability`.
    pub fn bitcask_durability(&self) -> Durability {
        match self.bitcask.sync_strategy {
            None => self.durability,
            Some(mode) => Durability {
                mode,
                interval: self.bitcask.sync_interval,
            },
        }
    }

    /// Fields before any key was applied; never seen outside this crate.
    pub(crate) fn blank() -> Settings {
        Settings {
            node: NodeSettings::default(),
            listeners: ListenerSettings::default(),
            cluster_tls: TlsSettings::default(),
            protobuf: ProtobufSettings::default(),
            http: HttpSettings::default(),
            requests: RequestSettings::default(),
            objects: ObjectLimits::default(),
            buckets: BucketDefaults::default(),
            durability: Durability::default(),
            value_log: ValueLogSettings::default(),
            bitcask: BitcaskSettings::default(),
            leveldb: LeveldbSettings::default(),
            leveled: LeveledSettings::default(),
            hanoidb: HanoidbSettings::default(),
            innostore: InnostoreSettings::default(),
            memory: MemorySettings::default(),
            multi: MultiSettings::default(),
            anti_entropy: AntiEntropySettings::default(),
            maintenance: MaintenanceSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl HanoidbSettings {
    /// Time from an object's last change to its expiry; `None` for never.
    pub fn expiry(&self) -> Option<Duration> {
        (self.expiry_seconds > 0).then(|| Duration::from_secs(self.expiry_seconds))
    }

    /// Joint size at which two runs of level 0 are merged, and half of the maximum of a run of
    /// level 1. Bytes.
    pub fn unit_bytes(&self) -> u64 {
        let doubled = u32::try_from(self.top_level).ok();
        let unit = doubled.and_then(|it| HANOIDB_ENTRY_BYTES.checked_shl(it));
        unit.unwrap_or(u64::MAX)
    }
}

impl InnostoreSettings {
    /// Time from an object's last change to its expiry; `None` for never.
    pub fn expiry(&self) -> Option<Duration> {
        (self.expiry_seconds > 0).then(|| Duration::from_secs(self.expiry_seconds))
    }
}

impl LeveldbSettings {
    /// Time from an object's last change to its expiry; `None` for never.
    pub fn expiry(&self) -> Option<Duration> {
        self.retention.filter(|_| self.expiration)
    }

    /// The two places, if there are two: each path with `data_root` behind it, as in Riak.
    pub fn tiers(&self) -> Option<LeveldbTiers> {
        let behind = |path: &Path| {
            let named = self.data_root.components();
            let named =
                named.filter(|it| matches!(it, Component::Normal(_) | Component::ParentDir));
            path.join(named.collect::<PathBuf>())
        };
        Some(LeveldbTiers {
            from_level: self.tiered_from_level?,
            fast_root: behind(self.tiered_path_fast.as_ref()?),
            slow_root: behind(self.tiered_path_slow.as_ref()?),
        })
    }
}
