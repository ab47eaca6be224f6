//! Opening a store: the manifest lists its files, and the log replays the contents of memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use kvorum_backend::{BackendError, ErrorKind, Intake, LostRange, Replays, Result, set_copy_aside};
use kvorum_disk::{Disk, DiskLock, EntryKind, create_directory_durably};
use kvorum_index_entries::keyspace::object_segment;
use kvorum_page_tree::manifest::{self, FoundManifest, Manifest};
use kvorum_page_tree::{FileRecord, PageFile, Tree, file_name, number_of, store_of_file};
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::expiry::Expiry;
use crate::losses::Losses;
use crate::overlay::Overlay;
use crate::pins::Pins;
use crate::settings::{DrawNumber, InnostoreSettings, Shared};
use crate::store::{Counters, LOCK_NAME, Store, WriteSide};
use crate::tree::OpenTree;
use crate::upkeep::Jobs;
use crate::version::Version;

/// The state of an opening.
pub(crate) struct Opening {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) settings: InnostoreSettings,
    pub(crate) shared: Shared,
    pub(crate) draw: DrawNumber,
    pub(crate) log: ValueLog,
}

/// Findings to be reported once the list of losses was read.
type Told = Vec<LostRange>;

impl Opening {
    pub(crate) fn run(self) -> Result<OpenTree> {
        let disk = &*self.disk;
        create_directory_durably(disk, &self.directory)?;
        let holder = format!("pid {}\n", std::process::id());
        let lock = disk.lock(&self.directory.join(LOCK_NAME), &holder)?;
        let mut told = Told::new();
        let manifest = self.read_manifest(&mut told)?;
        // The manifest may be in the page cache only, and unlisted files are removed next.
        disk.sync_directory(&self.directory)?;
        let next_number = self.tidy(&manifest, told.is_empty(), &mut told)?;
        let files = self.open_files(&manifest, &mut told)?;
        let losses = Losses::open(disk, &self.directory, &manifest.doubts);
        told.into_iter().for_each(|range| losses.note(range));
        let store = self.store(manifest, next_number, files, losses, lock);
        Ok(OpenTree {
            store: Arc::new(store),
            jobs: Mutex::new(Jobs::default()),
        })
    }

    fn store(
        self,
        manifest: Manifest,
        next_number: u64,
        files: BTreeMap<u64, Arc<PageFile>>,
        losses: Losses,
        lock: Box<dyn DiskLock>,
    ) -> Store {
        let cache = self.shared.cache.clone();
        let version = Version {
            overlay: Arc::new(Overlay::default()),
            frozen: None,
            tree: Tree::new(manifest.identity, manifest.root, files, cache),
            frozen_count: 0,
        };
        let reserve = Some(self.log.reserve().clone());
        let sequence = manifest.sequence;
        let live_bytes: u64 = manifest.files.iter().map(|it| it.live_bytes).sum();
        Store {
            intake: Intake::new(self.disk.clone(), self.directory.clone(), reserve),
            expiry: Expiry::of(self.settings.expiry),
            losses,
            writer: Mutex::new(WriteSide {
                last_sequence: sequence,
            }),
            version: ArcSwap::from_pointee(version),
            pins: Pins::default(),
            counters: Counters::default(),
            identity: AtomicU64::new(manifest.identity),
            next_number: AtomicU64::new(next_number),
            tree_bytes: AtomicU64::new(live_bytes.saturating_sub(manifest.body_bytes)),
            visible: AtomicU64::new(sequence),
            durable: AtomicU64::new(sequence),
            has_extras: AtomicBool::new(manifest.has_extras),
            manifest: Mutex::new(manifest),
            replays: Replays::new(object_segment),
            holds: Holds::default(),
            lock: Mutex::new(Some(lock)),
            disk: self.disk,
            directory: self.directory,
            log: self.log,
            settings: self.settings,
            shared: self.shared,
            draw: self.draw,
        }
    }

    fn read_manifest(&self, told: &mut Told) -> Result<Manifest> {
        let belonging = &self.settings.belonging;
        let found = manifest::read(&*self.disk, &self.directory, belonging)?;
        let Some(mut manifest) = found.content.clone() else {
            return self.first_manifest(found.refusal);
        };
        self.tell_of_copies(&found, told)?;
        let is_unbound = manifest.label != belonging.label && !belonging.label.is_empty();
        let known = manifest.value_log;
        let is_of_another_log = known != 0 && known != self.log.log_id();
        if is_of_another_log {
            let held = "what was put last, in a value log that is not there; another is";
            told.push(LostRange::new(
                format!("value_log/{known:016x}"),
                0,
                0,
                held,
            ));
            manifest.value_log = self.log.log_id();
        }
        if is_unbound {
            manifest.label.clone_from(&belonging.label);
        }
        if found.is_uneven || is_unbound || is_of_another_log {
            manifest.generation += 1;
            manifest::settle(&*self.disk, &self.directory, &manifest)?;
        }
        Ok(manifest)
    }

    fn tell_of_copies(&self, found: &FoundManifest, told: &mut Told) -> Result<()> {
        for name in &found.damaged {
            let info = self.disk.info(&self.directory.join(name))?;
            let held = "one of two copies of the manifest; nothing is lost";
            told.push(LostRange::new(*name, 0, info.map_or(0, |it| it.len), held));
        }
        for foreign in &found.foreign {
            set_copy_aside(&*self.disk, &self.directory, foreign.name)?;
            let of = &foreign.of;
            let held = format!(
                "a copy of the manifest that belongs to {of} and was set aside; nothing is lost"
            );
            told.push(LostRange::new(foreign.name, 0, 0, held));
        }
        Ok(())
    }

    /// The manifest of a new store; `refusal` is the reason why no existing copy is valid.
    fn first_manifest(&self, refusal: Option<String>) -> Result<Manifest> {
        let data = manifest::name_of_data(&*self.disk, &self.directory)?;
        let refusal = refusal.or_else(|| data.map(|name| without_copies(&self.directory, &name)));
        if let Some(refusal) = refusal {
            return Err(BackendError::new(ErrorKind::Corrupt, refusal));
        }
        let manifest = Manifest {
            generation: 1,
            identity: (self.draw)(),
            next_number: 1,
            label: self.settings.belonging.label.clone(),
            ..Manifest::default()
        };
        manifest::write(&*self.disk, &self.directory, &manifest).both()?;
        Ok(manifest)
    }

    /// Removes files that no manifest lists any more, and returns a number above all existing ones.
    /// If one copy of the manifest was damaged, the other may be older by a change: files that it
    /// does not list then stay.
    fn tidy(&self, manifest: &Manifest, is_whole: bool, told: &mut Told) -> Result<u64> {
        let mut next = manifest.next_number;
        for entry in self.disk.list(&self.directory)? {
            if entry.kind != EntryKind::File {
                continue;
            }
            let path = self.directory.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                self.disk.remove_file(&path)?;
                continue;
            }
            let Some(number) = number_of(&entry.name) else {
                continue;
            };
            next = next.max(number + 1);
            let is_listed = manifest.files.iter().any(|it| it.number == number);
            if is_listed || !is_whole {
                continue;
            }
            match store_of_file(&*self.disk, &path)? {
                // The file may be the only copy of another store's data, so it is not removed here.
                Some(store) if store != manifest.identity && store != manifest.erased => {
                    let held = format!("a file of another store ({store:#018x}), which stays");
                    told.push(LostRange::new(entry.name, 0, 0, held));
                }
                _ => self.disk.remove_file(&path)?,
            }
        }
        Ok(next)
    }

    /// A missing file degrades the store and does not fail the opening.
    fn open_files(
        &self,
        manifest: &Manifest,
        told: &mut Told,
    ) -> Result<BTreeMap<u64, Arc<PageFile>>> {
        use kvorum_disk::ErrorKind::NotFound;
        let mut files = BTreeMap::new();
        for record in &manifest.files {
            match PageFile::open(&*self.disk, &self.directory, record.number) {
                Ok(file) => _ = files.insert(record.number, Arc::new(file)),
                Err(error) if error.kind() == NotFound => told.push(missing(record)),
                Err(error) => return Err(BackendError::from(&error)),
            }
        }
        Ok(files)
    }
}

fn missing(record: &FileRecord) -> LostRange {
    let held = format!("pages, of which {} bytes counted", record.live_bytes);
    LostRange::new(file_name(record.number), 0, record.len, held)
}

pub(crate) fn without_copies(directory: &Path, data: &str) -> String {
    let (directory, [one, other]) = (directory.display(), manifest::NAMES);
    format!(
        "{directory} has {data} and no readable manifest: {one} and {other} are missing; \
         restore one of them from a backup of this directory"
    )
}
