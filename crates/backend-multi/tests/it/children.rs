//! Stores of several engines with settings so small that a few writes fill files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, BackendError, Belonging, ErrorKind, FoundStore, Result, StoreId};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::LeveledSettings;
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_backend_multi::{
    Child, DrawNumber, IndexEntriesOf, MultiBackend, Routes, known_children,
};
use kvorum_disk::Disk;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

/// An engine of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Bitcask,
    Hanoidb,
    Innostore,
    Leveldb,
    Leveled,
    Memory,
}

impl Engine {
    pub(crate) const ALL: [Self; 6] = [
        Self::Bitcask,
        Self::Hanoidb,
        Self::Innostore,
        Self::Leveldb,
        Self::Leveled,
        Self::Memory,
    ];

    /// True for engines that always need a value log.
    fn needs_log(self) -> bool {
        matches!(self, Self::Innostore | Self::Leveled)
    }
}

/// Opens a store with these children, by name and engine, without moves.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    children: &[(&str, Engine)],
    routes: Arc<dyn Routes>,
    draw: &DrawNumber,
) -> Result<MultiBackend> {
    open_with(disk, directory, children, routes, draw, None, false)
}

/// As before, optionally with moves. All children use one value log if one of them needs it or
/// `is_over_log` is set.
pub(crate) fn open_with(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    children: &[(&str, Engine)],
    routes: Arc<dyn Routes>,
    draw: &DrawNumber,
    moves: Option<Box<IndexEntriesOf>>,
    is_over_log: bool,
) -> Result<MultiBackend> {
    let belonging = Belonging::default();
    let known = known_children(&**disk, directory, &belonging)?;
    let has_log = is_over_log || children.iter().any(|(_, engine)| engine.needs_log());
    let log = match has_log {
        true => {
            let place = directory.with_extension("log");
            Some(ValueLog::open(disk.clone(), &place, draw(), LOG)?.0)
        }
        false => None,
    };
    let (mut opened, mut tenants) = (Vec::new(), Vec::new());
    for (name, engine) in children {
        let known = known.iter().find(|it| it.name == *name);
        let known = known.map(|it| it.identity);
        let opening = Opening {
            disk: disk.clone(),
            place: directory.join(name),
            draw: draw.clone(),
            log: log.clone(),
        };
        let (child, tenant) = opening.open_child(name, *engine, known)?;
        opened.push(child);
        tenants.extend(tenant);
    }
    if let Some(log) = &log {
        log.admit(&tenants)?;
    }
    let (disk, draw) = (disk.clone(), draw.clone());
    MultiBackend::open(disk, directory, &belonging, opened, routes, draw, moves)
}

/// Segments so small that there are several.
const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 16 << 10,
    garbage_percent_max: 30,
};

/// A child, and its tenant if it uses the value log.
type Opened = (Arc<dyn Backend>, Option<Arc<dyn Tenant>>);

/// The arguments of a child's opening.
struct Opening {
    disk: Arc<dyn Disk>,
    place: PathBuf,
    draw: DrawNumber,
    log: Option<ValueLog>,
}

impl Opening {
    fn open_child(
        self,
        name: &str,
        engine: Engine,
        known: Option<StoreId>,
    ) -> Result<(Child, Option<Arc<dyn Tenant>>)> {
        let belonging = Belonging {
            label: String::new(),
            identity: known,
        };
        let erased = match self.find(engine, &belonging)? {
            FoundStore::Store { erased, .. } => erased,
            _ => StoreId(0),
        };
        let (store, tenant) = self.open_store(engine, belonging)?;
        let child = Child {
            name: name.to_owned(),
            store,
            erased,
        };
        Ok((child, tenant))
    }

    fn find(&self, engine: Engine, belonging: &Belonging) -> Result<FoundStore> {
        let (disk, place) = (&*self.disk, &self.place);
        match engine {
            Engine::Bitcask => kvorum_backend_bitcask::check::find_store(disk, place, belonging),
            Engine::Hanoidb => kvorum_backend_hanoidb::find_store(disk, place, belonging),
            Engine::Innostore => kvorum_backend_innostore::find_store(disk, place, belonging),
            Engine::Leveldb => kvorum_backend_leveldb::find_store(disk, place, belonging),
            Engine::Leveled => kvorum_backend_leveled::find_store(disk, place, belonging),
            Engine::Memory => Ok(FoundStore::Nothing),
        }
    }

    fn open_store(self, engine: Engine, belonging: Belonging) -> Result<Opened> {
        let Self {
            disk,
            place,
            draw,
            log,
        } = self;
        let place = &*place;
        let is_logged = log.is_some();
        let shared = Shared::new(64 << 10, 1 << 20);
        Ok(match engine {
            Engine::Bitcask => {
                let settings = BitcaskSettings {
                    file_bytes_max: 4096,
                    checkpoint_after_bytes: 8192,
                    belonging,
                    ..BitcaskSettings::default()
                };
                let store = Arc::new(Bitcask::open(disk, place, settings, draw, log)?);
                (store.clone(), is_logged.then_some(store as Arc<dyn Tenant>))
            }
            Engine::Leveldb => {
                let settings = LeveldbSettings {
                    write_buffer_bytes: 3_000,
                    block_bytes: 300,
                    blob_threshold_bytes: 600,
                    belonging,
                    ..LeveldbSettings::default()
                };
                let store = Leveldb::open(disk, place, &settings, shared, draw, log)?;
                let tenant = is_logged.then(|| store.tenant());
                (Arc::new(store), tenant)
            }
            Engine::Hanoidb => {
                let settings = HanoidbSettings {
                    unit_bytes: 3_000,
                    write_buffer_bytes: 3_000,
                    block_bytes: 300,
                    blob_threshold_bytes: 600,
                    belonging,
                    ..HanoidbSettings::default()
                };
                let store = Hanoidb::open(disk, place, &settings, shared, draw, log)?;
                let tenant = is_logged.then(|| store.tenant());
                (Arc::new(store), tenant)
            }
            Engine::Innostore => {
                let settings = InnostoreSettings {
                    page_bytes: 300,
                    body_apart_bytes: 75,
                    dirty_bytes_max: 3_000,
                    file_bytes_max: 12_000,
                    belonging,
                    ..InnostoreSettings::default()
                };
                let shared = kvorum_backend_innostore::Shared::new(64 << 10);
                let log = log.ok_or_else(without_log)?;
                let store = Innostore::open(disk, place, &settings, shared, draw, log)?;
                let tenant = store.tenant();
                (Arc::new(store), Some(tenant))
            }
            Engine::Leveled => {
                let settings = LeveledSettings {
                    ledger_buffer_bytes: 3_000,
                    block_bytes: 300,
                    belonging,
                    ..LeveledSettings::default()
                };
                let log = log.ok_or_else(without_log)?;
                let store =
                    kvorum_backend_leveled::open(disk, place, &settings, shared, draw, log)?;
                let tenant = store.tenant();
                (Arc::new(store), Some(tenant))
            }
            Engine::Memory => {
                let store = MemoryBackend::new(Settings::default(), move || draw());
                (Arc::new(store), None)
            }
        })
    }
}

fn without_log() -> BackendError {
    BackendError::new(ErrorKind::Misuse, "the engine has no store without a log")
}
