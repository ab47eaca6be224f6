//! Opens the store of hints, whose damage must not keep a node from starting.
//!
//! It holds copies of objects for nodes that were down, and nothing that this node answers with. A
//! damaged one is therefore repaired; if that does not help it is set aside (in `hints/lost`) and an
//! empty one takes its place. Its objects are lost to their nodes unless other replicas have them: that
//! is an error in the log. A store that merely cannot be opened at present (no permission, no file
//! handle, a failing device) does not count as damaged, and the start is refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use kvorum_backend::{Backend, BackendError, ErrorKind, FoundStore, HINTS_LABEL, StoreId};
use kvorum_backend_leveldb::repair::{Repair, has_store_files};
use kvorum_disk::{Disk, create_directory_durably};

use kvorum_value_log::ValueLog;

use crate::engines::{Engines, LOST_NAME, free_name};

/// See the module's description.
pub(crate) struct HintsOpening<'a> {
    pub(crate) disk: &'a Arc<dyn Disk>,
    pub(crate) engines: &'a Engines,
    pub(crate) log: Option<&'a ValueLog>,
    /// Stores of partitions: a copy of one of them is no store of hints, and the value log keeps the
    /// partition's entries.
    pub(crate) recorded: BTreeSet<StoreId>,
}

impl HintsOpening<'_> {
    /// Opens the store and has `admit` bring it up to date. Blocks.
    pub(crate) fn open(
        &self,
        admit: impl Fn(&Arc<dyn Backend>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let is_partitions = self.is_copy_of_partition();
        let error = match is_partitions {
            true => anyhow::Error::from(BackendError::new(
                ErrorKind::Corrupt,
                "it is a copy of the store of a partition of this node",
            )),
            false => match self.attempt(&admit) {
                Ok(hints) => return Ok(hints),
                Err(error) => error,
            },
        };
        let Some(directory) = self.engines.hints_directory() else {
            return Err(error);
        };
        if kind_of(&error) == Some(ErrorKind::Denied) {
            // The reason names the remedy; moving the directory away would lose its hints for nothing.
            bail!(
                "open the store of hints in {}: {error:#}",
                directory.display()
            );
        }
        if !is_damage(&error) {
            return Err(error).with_context(|| {
                format!(
                    "open the store of hints in {}; if it cannot be opened for good, move that directory \
                     away, and with it the objects that it keeps for other nodes",
                    directory.display()
                )
            });
        }
        let reason = format!("{error:#}");
        let repaired = match is_partitions {
            true => Ok(false),
            false => self.repaired(&directory),
        };
        match repaired {
            Ok(true) => {
                if let Ok(hints) = self.attempt(&admit) {
                    let directory = directory.display();
                    tracing::error!(event = "hints_store_repaired", %directory, %reason);
                    return Ok(hints);
                }
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(event = "hints_store_not_repaired", error = %format!("{error:#}"));
            }
        }
        let kept_as = self.set_aside(&directory)?;
        tracing::error!(
            event = "hints_store_set_aside",
            directory = %directory.display(),
            kept_as = %kept_as.display(),
            %reason,
            "objects that it kept for other nodes are not handed over; those nodes have to get them from \
             other replicas",
        );
        let opened = self.attempt(&admit);
        opened.with_context(|| format!("open an empty store of hints in {}", directory.display()))
    }

    /// True for a copy of the store of one of this node's partitions, whichever label it has.
    fn is_copy_of_partition(&self) -> bool {
        // One copy of the identity may be another store's: then the label decides which one counts.
        let of_label = |label| match self.engines.find_hints(label) {
            Ok(Some(FoundStore::Store { identity, .. })) => Some(identity),
            _ => None,
        };
        let identity = of_label(HINTS_LABEL).or_else(|| of_label(""));
        identity.is_some_and(|it| self.recorded.contains(&it))
    }

    fn attempt(
        &self,
        admit: impl Fn(&Arc<dyn Backend>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let hints = self.engines.open_hints(self.log)?;
        admit(&hints)?;
        Ok(hints)
    }

    /// Repairs a store that can be repaired without being opened. Returns true if there was something
    /// to repair.
    fn repaired(&self, directory: &Path) -> anyhow::Result<bool> {
        if !has_store_files(&**self.disk, directory)? {
            return Ok(false);
        }
        let repair = Repair::begin(self.disk.clone(), directory, self.engines.repair_options())?;
        loop {
            for unit in repair.units() {
                repair.run(unit, &|_| {})?;
            }
            if !repair.next_stage()? {
                return Ok(true);
            }
        }
    }

    /// Moves the store away, and has the value log keep nothing for it any more, unless a partition's is a
    /// copy of it.
    fn set_aside(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let disk = &**self.disk;
        let identity = self.engines.hints_identity_left();
        let identity = identity.filter(|it| !self.recorded.contains(it));
        let lost = directory.with_file_name(LOST_NAME);
        create_directory_durably(disk, &lost)?;
        let kept_as = free_name(disk, &lost, &format!("{}-", self.engines.name()))?;
        if let (Some(log), Some(store)) = (self.log, identity) {
            log.announce_erasure(store)?;
        }
        let moved = || format!("move {} to {}", directory.display(), kept_as.display());
        disk.rename(directory, &kept_as).with_context(moved)?;
        disk.sync_directory(&lost)?;
        disk.sync_directory(lost.parent().unwrap_or(Path::new(".")))?;
        if let (Some(log), Some(store)) = (self.log, identity) {
            log.forget(store, store)?;
        }
        Ok(kept_as)
    }
}

fn is_damage(error: &anyhow::Error) -> bool {
    kind_of(error) == Some(ErrorKind::Corrupt)
}

fn kind_of(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref::<BackendError>().map(BackendError::kind)
}
