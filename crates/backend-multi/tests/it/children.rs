//! Stores of several engines with settings so small that a few writes fill files.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{Backend, Belonging, FoundStore, Result, StoreId};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_backend_multi::{
    Child, DrawNumber, IndexEntriesOf, MultiBackend, Routes, known_children,
};
use kvorum_disk::Disk;

/// An engine of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Bitcask,
    Hanoidb,
    Leveldb,
    Memory,
}

/// Opens a store with these children, by name and engine, in which nothing moves by itself.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    children: &[(&str, Engine)],
    routes: Arc<dyn Routes>,
    draw: &DrawNumber,
) -> Result<MultiBackend> {
    open_with(disk, directory, children, routes, draw, None)
}

/// The same, perhaps with moves.
pub(crate) fn open_with(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    children: &[(&str, Engine)],
    routes: Arc<dyn Routes>,
    draw: &DrawNumber,
    moves: Option<Box<IndexEntriesOf>>,
) -> Result<MultiBackend> {
    let belonging = Belonging::default();
    let known = known_children(&**disk, directory, &belonging)?;
    let mut opened = Vec::new();
    for (name, engine) in children {
        let known = known.iter().find(|it| it.name == *name);
        let known = known.map(|it| it.identity);
        opened.push(open_child(disk, directory, name, *engine, known, draw)?);
    }
    let (disk, draw) = (disk.clone(), draw.clone());
    MultiBackend::open(disk, directory, &belonging, opened, routes, draw, moves)
}

fn open_child(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    name: &str,
    engine: Engine,
    known: Option<StoreId>,
    draw: &DrawNumber,
) -> Result<Child> {
    let place = directory.join(name);
    let belonging = Belonging {
        label: String::new(),
        identity: known,
    };
    let found = match engine {
        Engine::Bitcask => kvorum_backend_bitcask::check::find_store(&**disk, &place, &belonging)?,
        Engine::Hanoidb => kvorum_backend_hanoidb::find_store(&**disk, &place, &belonging)?,
        Engine::Leveldb => kvorum_backend_leveldb::find_store(&**disk, &place, &belonging)?,
        Engine::Memory => FoundStore::Nothing,
    };
    let erased = match found {
        FoundStore::Store { erased, .. } => erased,
        _ => StoreId(0),
    };
    let store = open_store(disk, &place, engine, belonging, draw)?;
    Ok(Child {
        name: name.to_owned(),
        store,
        erased,
    })
}

fn open_store(
    disk: &Arc<dyn Disk>,
    place: &Path,
    engine: Engine,
    belonging: Belonging,
    draw: &DrawNumber,
) -> Result<Arc<dyn Backend>> {
    let (disk, draw) = (disk.clone(), draw.clone());
    Ok(match engine {
        Engine::Bitcask => {
            let settings = BitcaskSettings {
                file_bytes_max: 4096,
                checkpoint_after_bytes: 8192,
                belonging,
                ..BitcaskSettings::default()
            };
            Arc::new(Bitcask::open(disk, place, settings, draw, None)?)
        }
        Engine::Leveldb => {
            let settings = LeveldbSettings {
                write_buffer_bytes: 3_000,
                block_bytes: 300,
                blob_threshold_bytes: 600,
                belonging,
                ..LeveldbSettings::default()
            };
            let shared = Shared::new(64 << 10, 1 << 20);
            Arc::new(Leveldb::open(disk, place, &settings, shared, draw, None)?)
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
            let shared = Shared::new(64 << 10, 1 << 20);
            Arc::new(Hanoidb::open(disk, place, &settings, shared, draw, None)?)
        }
        Engine::Memory => Arc::new(MemoryBackend::new(Settings::default(), move || draw())),
    })
}
