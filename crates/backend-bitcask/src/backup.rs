//! A copy of a store while it serves: second names for its files, none of which is written any
//! more.
//!
//! The copy equals the store after a crash at this moment, without later batches. The active
//! segment is closed first, so that nothing is appended to a file with a second name; the next put
//! begins another segment.

use std::path::Path;

use kvorum_backend::{BackedUp, BackendError, ErrorKind, Result};
use kvorum_disk::{EntryKind, create_directory_durably};
use kvorum_segment::file_name;
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint::CHECKPOINT_NAME;
use crate::contents::Contents;
use crate::hint::hint_path;
use crate::home::Home;
use crate::lost;
use crate::meta;

/// Refuses to copy to a path that exists.
pub(crate) fn check_absent(home: &Home, directory: &Path) -> Result<()> {
    if home.disk.info(directory).into_backend()?.is_none() {
        return Ok(());
    }
    let detail = format!("{} exists", directory.display());
    Err(BackendError::new(ErrorKind::Misuse, detail))
}

/// Makes the directory of a copy, with second names for the files of a store. The caller holds
/// upkeep's lock, so that nothing is merged, removed or covered, and has ended the segments that
/// were appended to.
pub(crate) fn link_files(home: &Home, contents: &Contents, directory: &Path) -> Result<BackedUp> {
    let disk = &*home.disk;
    let mut files = BackedUp::default();
    create_directory_durably(disk, directory).into_backend()?;
    let mut link = |name: &Path| {
        let (from, to) = (home.directory.join(name), directory.join(name));
        files.link(disk, &from, &to).into_backend()
    };
    // These files are replaced as a whole, and never written to.
    for name in meta::NAMES {
        link(Path::new(name))?;
    }
    link(Path::new(CHECKPOINT_NAME))?;
    let catalog = contents.catalog.read();
    let sealed = catalog.segments.iter().filter(|(_, it)| it.is_sealed);
    let numbers: Vec<u32> = sealed.map(|(number, _)| *number).collect();
    drop(catalog);
    for number in numbers {
        // A missing segment was reported at the opening, and the copy reports it too.
        let _is_there = link(Path::new(&file_name(u64::from(number))))?;
        let _is_there = link(&hint_path(Path::new(""), number))?;
    }
    let lost = Path::new(lost::DIRECTORY);
    if disk
        .info(&home.directory.join(lost))
        .into_backend()?
        .is_some()
    {
        create_directory_durably(disk, &directory.join(lost)).into_backend()?;
        // Nothing is set aside while this lock is held.
        let _lost = home.lost();
        for entry in disk.list(&home.directory.join(lost)).into_backend()? {
            if entry.kind == EntryKind::File {
                link(&lost.join(entry.name))?;
            }
        }
        disk.sync_directory(&directory.join(lost)).into_backend()?;
    }
    Ok(files)
}
