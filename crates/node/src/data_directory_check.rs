//! The part of `kvorum verify` that checks a data directory for its required files.
//!
//! Checksums of files are checked elsewhere (`kvorum_inspect`). This part finds files that are
//! missing, older than the rest, or of another node: the essential small files, the agreed log, the
//! directories that the file `engine` names, and the stores of the record.

mod recorded_stores;

use std::path::{Path, PathBuf};

use kvorum_backup::MARK_NAME;
use kvorum_disk::Disk;
use kvorum_inspect::Checked;

use crate::data_directory::{ENGINE_FILE, EngineFile, FORMAT_NAME, layout_of, read_engine};
use crate::store_roots;

/// The directory of the agreed state, unless `engine` names another one.
const RING_NAME: &str = "ring";

type Findings = Vec<(PathBuf, String)>;

/// Adds the findings in a data directory. Another directory is left to the rest of the check.
///
/// # Errors
/// The disk cannot be read.
pub(crate) fn add(disk: &dyn Disk, directory: &Path, checked: &mut Checked) -> anyhow::Result<()> {
    if !is_data_directory(disk, directory)? {
        return Ok(());
    }
    let is_backup = disk.info(&directory.join(MARK_NAME))?.is_some();
    let left = read_engine(disk, directory)?;
    let (mut ring, mut engine) = (directory.join(RING_NAME), None);
    if let EngineFile::Whole(left) = &left {
        engine = Some(&*left.engine);
        // The first of them is the directory of the agreed state.
        if let Some(part) = left.parts.first() {
            ring = directory.join(part);
        }
    }
    let mut found = Findings::new();
    check_format(disk, directory, &mut found)?;
    check_engine(disk, directory, &left, &mut found)?;
    let is_node = disk.info(&ring.join("card"))?.is_some();
    if left == EngineFile::Missing && is_node && !is_backup {
        let file = directory.join(ENGINE_FILE);
        found.push((file, "missing: it names the stores' engine".to_owned()));
    }
    found.extend(store_roots::check_notes(disk, directory));
    found.extend(kvorum_member::check::check_ring(
        disk, &ring, directory, is_backup,
    ));
    for (path, what) in found {
        let name = path.strip_prefix(directory).unwrap_or(&path);
        let name = name.to_string_lossy();
        if !checked.findings.iter().any(|it| it.file == name) {
            checked.find(&name, 0, 0, what);
        }
    }
    recorded_stores::check(disk, directory, &ring, engine, checked)
}

/// True if the directory has an entry that only the data directory of a node has.
fn is_data_directory(disk: &dyn Disk, directory: &Path) -> anyhow::Result<bool> {
    for name in [FORMAT_NAME, ENGINE_FILE, "ring/card", "ring/stores"] {
        if disk.info(&directory.join(name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(!kvorum_member::check::second_marks(disk, directory).is_empty())
}

fn check_format(disk: &dyn Disk, directory: &Path, found: &mut Findings) -> anyhow::Result<()> {
    let file = directory.join(FORMAT_NAME);
    if disk.info(&file)?.is_none() {
        let what = "missing: it names the layout of the directory; a start writes it again";
        found.push((file, what.to_owned()));
    } else if let Err(error) = layout_of(disk, directory) {
        found.push((file, format!("{error:#}")));
    }
    Ok(())
}

fn check_engine(
    disk: &dyn Disk,
    directory: &Path,
    left: &EngineFile,
    found: &mut Findings,
) -> anyhow::Result<()> {
    match left {
        EngineFile::Whole(left) => {
            for part in &left.parts {
                let path = directory.join(part);
                if disk.info(&path)?.is_none() {
                    let what = "missing: the directory was there when the node ran last";
                    found.push((path, what.to_owned()));
                }
            }
        }
        EngineFile::Damaged => {
            let what = "it is damaged: it names the engine of the stores; a start finds the \
             engine by the stores and writes the file again";
            found.push((directory.join(ENGINE_FILE), what.to_owned()));
        }
        EngineFile::Missing => {}
    }
    Ok(())
}
