//! Backups: made while the store is in use, restored to a disk of their own, and checked at once
//! and again after the store has changed.

use std::path::{Path, PathBuf};

use kvorum_backend::Backend;
use kvorum_disk::{Disk, EntryKind, MemoryDisk, create_directory_durably};

use super::{HeldBackup, Trial};
use crate::script::PlannedWrite;
use crate::violation::MustSucceed;
use crate::{Checked, EngineUnderTest, Opening, Violation};

impl Trial<'_> {
    /// Makes a backup, and checks the previous one again.
    pub(super) fn backup(&mut self) -> Checked {
        if self.store()?.backups().is_none() {
            return Ok(());
        }
        self.backups_made += 1;
        let directory = PathBuf::from(format!("backups/{}", self.backups_made));
        make_backup(self.store()?, &directory)?;
        let made = HeldBackup {
            directory,
            state: self.state.clone(),
        };
        self.check_backup(&made)?;
        if let Some(before) = self.backup.replace(made) {
            self.check_backup(&before)?;
        }
        Ok(())
    }

    /// Checks the last backup again.
    pub(super) fn check_last_backup(&self) -> Checked {
        match &self.backup {
            Some(backup) => self.check_backup(backup),
            None => Ok(()),
        }
    }

    fn check_backup(&self, backup: &HeldBackup) -> Checked {
        let (opening, store) = restore(self.engine, &self.opening, &backup.directory)?;
        let mut copy = Trial::over(self.engine, opening, store);
        copy.now = self.now;
        copy.state = backup.state.clone();
        let check = |copy: &mut Trial<'_>| {
            copy.check_all()?;
            // The copy is a store like any other.
            let batch = copy.batch(&[PlannedWrite::put(1, 30), PlannedWrite::remove(2)]);
            let receipt = copy
                .store()?
                .put(&batch, kvorum_backend::Durability::Grouped);
            let sequence = receipt.must("a put to a restored backup")?.sequence;
            copy.state.apply(&batch, Some(sequence));
            copy.maintain_all()?;
            copy.reopen(true)
        };
        let in_context =
            |violation: Violation| violation.after(backup.directory.display().to_string());
        check(&mut copy).map_err(in_context)
    }
}

/// Makes a backup of a store that supports backups.
pub(crate) fn make_backup(store: &dyn Backend, directory: &Path) -> Checked {
    let Some(backups) = store.backups() else {
        return Ok(());
    };
    backups.backup(directory).must("a backup").map(drop)
}

/// Opens a copy of a backup, on an otherwise empty disk.
pub(crate) fn restore(
    engine: &dyn EngineUnderTest,
    opening: &Opening,
    backup: &Path,
) -> Checked<(Opening, Box<dyn Backend>)> {
    let disk = MemoryDisk::new();
    copy_tree(&*opening.disk, backup, &disk, &opening.directory)
        .map_err(|error| Violation::of_method(format!("copying a backup failed: {error}")))?;
    let opening = opening.on(disk);
    let store = engine.open(&opening).must("opening a restored backup")?;
    Ok((opening, store))
}

fn copy_tree(
    from: &dyn Disk,
    source: &Path,
    to: &dyn Disk,
    target: &Path,
) -> kvorum_disk::Result<()> {
    create_directory_durably(to, target)?;
    for entry in from.list(source)? {
        let (source, target) = (source.join(&entry.name), target.join(&entry.name));
        match entry.kind {
            EntryKind::Directory => copy_tree(from, &source, to, &target)?,
            EntryKind::File => {
                let bytes = kvorum_disk::read_file(from, &source, u64::MAX)?;
                kvorum_disk::replace_file(to, &target, &bytes)?;
            }
        }
    }
    Ok(())
}
