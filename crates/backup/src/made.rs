//! `kvorum admin backup`: the whole node as a directory that a node can be started on.
//!
//! Files that never change are linked into the backup, and small ones that change are copied. The
//! stores are linked one by one, with a rest after each; then the value log, with the segments held
//! for every store's copy; then the agreed state. No put waits. The copy of a store is its state as
//! after a crash at some moment of the backup, without later batches.
//!
//! A backup must not have the vnodes' dot leases. A lease asserts that its vnode has lost nothing
//! since, and a restored copy lacks all later writes. Without leases all vnodes take fresh actors.
//! A directory that a restore overwrites may have leases, so the backup's mark makes the next start
//! remove them. The notes of rounds are in the backup: a restored replica whose mark is still the
//! watermark's continues as a source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kvorum_backend::{BackedUp, Backend};
use kvorum_cluster::AgreedState as _;
use kvorum_disk::{Disk, EntryKind, ErrorKind, copy_file, create_directory_durably, replace_file};
use kvorum_maintenance::StopSignal;
use kvorum_member::Member;
use kvorum_runtime::{Moment, Runtime};
use kvorum_value_log::ValueLog;
use kvorum_vnode::{LEASES_NAME, NOTES_NAME};
use parking_lot::Mutex;

use crate::copied::PLACE_NAME;
use crate::names::{MARK_NAME, MEMBERS_WORD, UNFINISHED_NAME};

/// The longest rest after each store; it lasts as long as the store's part took.
const REST_MAX: Duration = Duration::from_millis(200);

/// The parts of a node that backups copy.
pub struct Parts {
    /// The runtime, for its clock and for rests.
    pub runtime: Runtime,
    /// The disk of the data and of backups.
    pub disk: Arc<dyn Disk>,
    /// The member, with the stores and the agreed state.
    pub member: Arc<Member>,
    /// The log of all stores, if there is one.
    pub log: Option<ValueLog>,
    /// The value of `storage_backend`.
    pub engine: &'static str,
    /// Absolute or relative to the working directory.
    pub data_directory: PathBuf,
    /// The directory of the agreed state.
    pub ring_directory: PathBuf,
    /// The name of the file with the format of the data directory.
    pub format_name: &'static str,
    /// The directories of the engine's stores of partitions.
    pub store_roots: Vec<PathBuf>,
}

/// Makes backups of a running node, one at a time.
pub struct Backups {
    pub(crate) parts: Parts,
    under_way: Mutex<()>,
    stop: StopSignal,
}

/// The contents of a backup.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// The numbers of linked and copied files.
    pub files: BackedUp,
    /// The time from the call to the end.
    pub took: Duration,
}

impl Backups {
    /// No backup is made yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            under_way: Mutex::new(()),
            stop: StopSignal::default(),
        }
    }

    /// Makes a backup in a directory that is empty or missing. Blocks.
    ///
    /// # Errors
    /// A text for the operator. The directory is then left empty.
    pub fn make(&self, directory: &Path) -> anyhow::Result<Made> {
        let Some(_under_way) = self.under_way.try_lock() else {
            bail!("another backup is being made; wait for it");
        };
        let begun = self.parts.runtime.now();
        self.check(directory)?;
        match self.fill(directory, begun) {
            Ok(made) => {
                self.keep(directory)?;
                Ok(made)
            }
            Err(error) => {
                let _removed_or_failing_disk = self.empty(directory);
                Err(error)
            }
        }
    }

    fn check(&self, directory: &Path) -> anyhow::Result<()> {
        let (disk, data) = (&self.parts.disk, &self.parts.data_directory);
        ensure!(
            directory.is_absolute(),
            "{} is no absolute path",
            directory.display()
        );
        let is_inside = std::path::absolute(data).is_ok_and(|data| directory.starts_with(data));
        ensure!(
            !is_inside,
            "{} is inside the data directory {}; name one beside it",
            directory.display(),
            data.display()
        );
        let found = disk.info(directory)?;
        if found.is_some_and(|it| it.kind == EntryKind::File) {
            bail!("{} is a file", directory.display());
        }
        let is_empty = found.is_none() || disk.list(directory)?.is_empty();
        ensure!(
            is_empty,
            "{} is not empty; name a directory of its own for each backup",
            directory.display()
        );
        let stores = self.stores()?;
        if stores.iter().any(|(_, store)| store.backups().is_none()) {
            let engine = self.parts.engine;
            bail!("the {engine} backend keeps nothing on disk: there is nothing to back up");
        }
        Ok(())
    }

    /// Every store and its place in a data directory.
    fn stores(&self) -> anyhow::Result<Vec<(PathBuf, Arc<dyn Backend>)>> {
        let member = &self.parts.member;
        let readiness = member.vnodes().readiness();
        ensure!(
            readiness.is_complete(),
            "{} vnodes are still being opened and {} could not be: a backup has to have them all; \
             see `kvorum admin ring-status`",
            readiness.opening,
            readiness.failed
        );
        let engine = Path::new(self.parts.engine);
        let size = member.state().current().ring().size();
        let hints = member.hints().vnode().store_for_upkeep().clone();
        let mut stores = vec![(Path::new("hints").join(engine), hints)];
        for vnode in member.vnodes().all() {
            let index = vnode.partition().index_decimal(size);
            stores.push((engine.join(index), vnode.store_for_upkeep().clone()));
        }
        Ok(stores)
    }

    fn fill(&self, directory: &Path, begun: Moment) -> anyhow::Result<Made> {
        let (runtime, disk) = (&self.parts.runtime, &*self.parts.disk);
        create_directory_durably(disk, directory)?;
        let unfinished = directory.join(UNFINISHED_NAME);
        replace_file(disk, &unfinished, b"this backup is not whole\n")?;
        let mut files = BackedUp::default();
        self.link_format(directory, &mut files)?;
        self.copy_notes(directory, &mut files)?;

        let stores = self.stores()?;
        // Holds the log's segments that the copies need.
        let mut held = Vec::new();
        for (place, store) in &stores {
            let from = runtime.now();
            let Some(backups) = store.backups() else {
                continue;
            };
            if let Some(parent) = place.parent() {
                create_directory_durably(disk, &directory.join(parent))?;
            }
            let made = backups.backup(&directory.join(place));
            let made = made
                .map_err(anyhow::Error::new)
                .with_context(|| format!("back up {}", place.display()))?;
            files += made.files;
            held.extend(made.held);
            self.stop.rest(runtime.now().since(from).min(REST_MAX));
        }
        if let Some(log) = &self.parts.log {
            files += log.backup(&directory.join("value_log"))?;
            drop(held);
            log.usage_changed();
        }
        self.copy_ring(directory, &mut files)?;
        let before: BTreeSet<PathBuf> = stores.into_iter().map(|(place, _)| place).collect();
        let after: BTreeSet<PathBuf> = self.stores()?.into_iter().map(|(place, _)| place).collect();
        ensure!(
            before == after,
            "partitions came to this node or left it meanwhile; try again when `kvorum admin \
             transfers` shows none"
        );
        let mark = self.mark();
        replace_file(disk, &directory.join(MARK_NAME), mark.as_bytes())?;
        files.count_copy(mark.len() as u64);
        disk.remove_file(&unfinished)?;
        disk.sync_directory(directory)?;
        Ok(Made {
            files,
            took: runtime.now().since(begun),
        })
    }

    /// The first link, which shows whether links are possible there.
    fn link_format(&self, directory: &Path, files: &mut BackedUp) -> anyhow::Result<()> {
        let (data, name) = (&self.parts.data_directory, self.parts.format_name);
        let (from, to) = (data.join(name), directory.join(name));
        match files.link(&*self.parts.disk, &from, &to) {
            Err(error) if error.kind() == ErrorKind::OtherFilesystem => bail!(
                "{} is on another filesystem than the data directory {}; a backup consists of hard \
                 links: name a directory on the same filesystem, and copy it from there",
                directory.display(),
                data.display()
            ),
            linked => Ok(linked.map(drop)?),
        }
    }

    /// Copies the notes of rounds before the stores: a note is void for a store without the last
    /// batch that it names.
    fn copy_notes(&self, directory: &Path, files: &mut BackedUp) -> anyhow::Result<()> {
        let notes = self.parts.data_directory.join(NOTES_NAME);
        if self.parts.disk.info(&notes)?.is_none() {
            return Ok(());
        }
        let copied = self.copy_tree(&notes, &directory.join(NOTES_NAME), files);
        copied.context("copy the notes of rounds")
    }

    /// Copies the card, the record of stores, and the agreed log. The mark of a log's end precedes
    /// the log, which may be longer. A log precedes its snapshots, which may be newer.
    fn copy_ring(&self, directory: &Path, files: &mut BackedUp) -> anyhow::Result<()> {
        let (disk, data) = (&*self.parts.disk, &self.parts.data_directory);
        for mark in kvorum_member::check::second_marks(disk, data) {
            if let Some(name) = mark.file_name() {
                files.count_copy(copy_file(disk, &mark, &directory.join(name))?);
            }
        }
        let target = directory.join("ring");
        let copied = self.copy_tree(&self.parts.ring_directory, &target, files);
        copied.context("copy the agreed state")
    }

    fn copy_tree(&self, from: &Path, to: &Path, files: &mut BackedUp) -> anyhow::Result<()> {
        let disk = &*self.parts.disk;
        create_directory_durably(disk, to)?;
        for entry in disk.list(from)? {
            let (source, target) = (from.join(&entry.name), to.join(&entry.name));
            match entry.kind {
                // Transfers start again, since the stores may have less than their notes say.
                EntryKind::Directory if entry.name == "transfers" => {}
                EntryKind::Directory => self.copy_tree(&source, &target, files)?,
                EntryKind::File if is_left_out(&entry.name) => {}
                EntryKind::File => match copy_file(disk, &source, &target) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    copied => files.count_copy(copied?),
                },
            }
        }
        disk.sync_directory(to)?;
        Ok(())
    }

    fn mark(&self) -> String {
        let member = &self.parts.member;
        let seconds = self.parts.runtime.wall_time().micros() / 1_000_000;
        let (name, version) = (&member.settings().name, env!("CARGO_PKG_VERSION"));
        let members = member.state().current().members().len();
        format!("kvorum {version}\nnode {name}\nmade {seconds}\n{MEMBERS_WORD} {members}\n")
    }

    fn empty(&self, directory: &Path) -> kvorum_disk::Result<()> {
        let disk = &*self.parts.disk;
        // The mark of an incomplete backup is removed last.
        for entry in disk.list(directory)? {
            let path = directory.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => disk.remove_directory(&path)?,
                EntryKind::File if entry.name == UNFINISHED_NAME => {}
                EntryKind::File => disk.remove_file(&path)?,
            }
        }
        disk.sync_directory(directory)?;
        disk.remove_file(&directory.join(UNFINISHED_NAME))
    }
}

fn is_left_out(name: &str) -> bool {
    name == LEASES_NAME || name == PLACE_NAME || name.ends_with(".tmp")
}
