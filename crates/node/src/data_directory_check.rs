//! The part of `kvorum verify` that knows what has to be in a data directory.
//!
//! The checksums of files are checked without that (`kvorum_inspect`). Here it is found out what is missing,
//! what is older than the rest, and what belongs to another node: the small files that decide, the agreed
//! log, and the directories that the file `engine` names.

use std::path::{Path, PathBuf};

use kvorum_disk::Disk;
use kvorum_inspect::Checked;

use crate::backup::MARK_NAME;
use crate::data_directory::{ENGINE_FILE, EngineFile, FORMAT_NAME, layout_of, read_engine};
use crate::store_roots;

/// The directory of the agreed state, unless `engine` names another one.
const RING_NAME: &str = "ring";

/// Adds what is found in a data directory. Another directory is left to the rest of the check.
///
/// # Errors
/// The disk does not say what is there.
pub(crate) fn add(disk: &dyn Disk, directory: &Path, checked: &mut Checked) -> anyhow::Result<()> {
    let is_there = |path: &Path| -> anyhow::Result<bool> { Ok(disk.info(path)?.is_some()) };
    let (format, engine) = (directory.join(FORMAT_NAME), directory.join(ENGINE_FILE));
    let has_mark = !kvorum_member::check::second_marks(disk, directory).is_empty();
    if !(is_there(&format)? || is_there(&engine)? || has_mark) {
        return Ok(());
    }
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    match is_there(&format)? {
        true => {
            if let Err(error) = layout_of(disk, directory) {
                found.push((format, format!("{error:#}")));
            }
        }
        false => found.push((
            format,
            "missing: it names the layout of the directory".into(),
        )),
    }
    let is_backup = is_there(&directory.join(MARK_NAME))?;
    let mut ring = directory.join(RING_NAME);
    match read_engine(disk, directory)? {
        EngineFile::Whole(left) => {
            // The first of them is the directory of the agreed state.
            if let Some(part) = left.parts.first() {
                ring = directory.join(part);
            }
            for part in &left.parts {
                let path = directory.join(part);
                if !is_there(&path)? {
                    let what = "missing: the directory was there when the node ran last";
                    found.push((path, what.to_owned()));
                }
            }
        }
        EngineFile::Damaged => {
            let what = "it is not what was written: it says whose stores are here; a start finds that out \
                        by the stores and writes it anew";
            found.push((engine, what.to_owned()));
        }
        EngineFile::Missing if !is_backup && is_there(&ring.join("card"))? => {
            let what = "missing: it says whose stores are here";
            found.push((engine, what.to_owned()));
        }
        EngineFile::Missing => {}
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
    Ok(())
}
