//! Settings of several backends on one node that have no effect, and the reasons.
//!
//! Such a setting has its effect only on a node of several backends, and only if it is a key of its
//! backend's engine. The rest is reported as ignored: calling it honoured would hide a misspelt
//! name.

use crate::catalogue::{self, BUCKET_PREFIX};
use crate::name::Name;
use crate::settings::{Settings, StorageBackend};

/// Memory shared by several backends; the settings of the first backend by name apply.
struct SharedMemory {
    /// Its description.
    what: &'static str,
    /// The keys that size it.
    keys: &'static [&'static str],
    /// True for the settings of a backend that has a part of it.
    has_part: fn(&Settings) -> bool,
}

const SHARED_MEMORY: [SharedMemory; 3] = [
    SharedMemory {
        what: "leveldb, leveled and hanoidb",
        keys: &[
            "leveldb.maximum_memory",
            "leveldb.maximum_memory.percent",
            "leveldb.limited_developer_mem",
            "leveldb.write_buffer_size_min",
            "leveldb.write_buffer_size_max",
            "leveled.maximum_memory",
            "leveled.maximum_memory.percent",
            "leveled.ledger_buffer",
            "hanoidb.maximum_memory",
            "hanoidb.maximum_memory.percent",
        ],
        has_part: |settings| {
            matches!(
                settings.node.storage_backend,
                StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb
            )
        },
    },
    SharedMemory {
        what: "innostore",
        keys: &[
            "innostore.buffer_pool_size",
            "innostore.buffer_pool_size.percent",
            "innostore.max_dirty_pages_pct",
        ],
        has_part: |settings| settings.node.storage_backend == StorageBackend::Innostore,
    },
    SharedMemory {
        what: "bitcask",
        keys: &["bitcask.read_cache"],
        has_part: |settings| {
            let is_bitcask = settings.node.storage_backend == StorageBackend::Bitcask;
            is_bitcask && settings.bitcask.read_cache_bytes != Some(0)
        },
    },
];

/// The reason why `multi_backend.default` has no effect, if so; fits after "ignored because".
pub(crate) fn default_without_effect(settings: &Settings) -> Option<String> {
    let engine = settings.node.storage_backend;
    (engine != StorageBackend::Multi).then(|| one_engine(engine))
}

/// The reason why `multi_backend.NAME.REST` has no effect, if so; fits after "ignored because".
pub(crate) fn without_effect(name: &str, rest: &Name, settings: &Settings) -> Option<String> {
    default_without_effect(settings).or_else(|| match &*rest.to_string() {
        "storage_backend" => None,
        BUCKET_PREFIX => (!settings.multi.goes_by_prefix).then(|| GOES_BY_PREFIX.to_owned()),
        _ => of_another_engine(name, rest, settings)
            .or_else(|| of_memory_sized_by_another(name, rest, settings)),
    })
}

const GOES_BY_PREFIX: &str =
    "`storage_backend` is multi, and prefixes of bucket names count only with prefix_multi";

fn one_engine(engine: StorageBackend) -> String {
    format!(
        "`storage_backend` is {}: several backends count with multi and prefix_multi alone",
        engine.name()
    )
}

fn of_another_engine(name: &str, rest: &Name, settings: &Settings) -> Option<String> {
    let backend = settings.multi.backends.iter().find(|it| it.name == name)?;
    let engine = backend.settings.node.storage_backend;
    let family = rest.words().first()?;
    (family != family_of(engine)).then(|| {
        format!(
            "`multi_backend.{name}.storage_backend` is {}, to which keys of `{family}` mean nothing",
            engine.name()
        )
    })
}

fn of_memory_sized_by_another(name: &str, rest: &Name, settings: &Settings) -> Option<String> {
    let (key, _) = catalogue::key_of_backend(rest)?;
    let shared = SHARED_MEMORY.iter().find(|it| it.keys.contains(&key))?;
    let backends = settings.multi.backends.iter();
    let mut with_part = backends.filter(|it| (shared.has_part)(&it.settings));
    let first = with_part.next()?;
    let has_part = first.name == name || with_part.any(|it| it.name == name);
    (has_part && first.name != name).then(|| {
        format!(
            "backends of {} share one memory, whose sizes are those of the first by name, `{}`",
            shared.what, first.name
        )
    })
}

/// The first word of an engine's keys.
fn family_of(engine: StorageBackend) -> &'static str {
    match engine {
        StorageBackend::Memory => "memory_backend",
        engine => engine.name(),
    }
}
