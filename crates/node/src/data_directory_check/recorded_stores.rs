//! Compares the stores that the record of a node names (`ring/stores`) with those on the disk.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kvorum_backend::{Belonging, FoundStore, StoreId};
use kvorum_disk::Disk;
use kvorum_inspect::Checked;
use kvorum_member::{RecordedStores, known_stores};
use kvorum_settings::StorageBackend;

use crate::data_directory::VALUE_LOG_NAME;
use crate::engine_names::{Find, WITH_FILES, find_of, name_of};
use crate::store_roots::noted_root;
use crate::value_log_check::{LogNote, NamedLogs, compare};

/// Adds stores that are missing or exchanged. `engine` is the name in the file `engine`, if it has one.
pub(super) fn check(
    disk: &dyn Disk,
    data: &Path,
    ring: &Path,
    engine: Option<&str>,
    checked: &mut Checked,
) -> anyhow::Result<()> {
    if disk.info(ring)?.is_none() {
        return Ok(());
    }
    let context = || format!("look into {}", ring.display());
    let Some(recorded) = known_stores(disk, ring).with_context(context)? else {
        return Ok(());
    };
    let Some((find, root)) = place_of_stores(disk, data, engine)? else {
        return Ok(());
    };
    if disk.info(&root)?.is_none() && !recorded.names_node {
        // Earlier versions kept no note of another place.
        let note = format!("{} is not there: stores were not compared", root.display());
        checked.notes.push(note);
        return Ok(());
    }
    let logs = check_stores(disk, data, (find, &root), &recorded, checked);
    let note = LogNote::read(disk, data)?;
    if let Some((_, what)) = compare(disk, &data.join(VALUE_LOG_NAME), &logs, &note)? {
        checked.find(VALUE_LOG_NAME, 0, 0, what);
    }
    Ok(())
}

/// Checks every recorded store. Returns the logs with entries of these stores.
fn check_stores(
    disk: &dyn Disk,
    data: &Path,
    (find, root): (Find, &Path),
    recorded: &RecordedStores,
    checked: &mut Checked,
) -> NamedLogs {
    let mut logs = NamedLogs::default();
    for (partition, known) in &recorded.stores {
        let index = partition.index_decimal(recorded.size);
        let path = root.join(&index);
        let belonging = Belonging {
            label: index,
            identity: Some(*known),
        };
        let what = match find(disk, &path, &belonging) {
            Ok(found) => {
                logs.add(&path, &found, Some(*known));
                what_is_wrong(&found, *known)
            }
            Err(error) => Some(format!("cannot be looked at: {error}")),
        };
        if let Some(what) = what {
            let name = path.strip_prefix(data).unwrap_or(&path);
            let what = format!("the store of partition {} {what}", partition.number());
            checked.find(&name.to_string_lossy(), 0, 0, what);
        }
    }
    logs
}

fn what_is_wrong(found: &FoundStore, known: StoreId) -> Option<String> {
    match found {
        FoundStore::Nothing => Some(format!(
            "is missing: by ring/stores it is {:#018x}; put its directory back",
            known.0
        )),
        FoundStore::Store {
            identity, erased, ..
        } if *identity == known || *erased == known => None,
        FoundStore::Store { identity, .. } => Some(format!(
            "is another one: its identity is {:#018x}, and by ring/stores {:#018x}; put back the \
             directory that belongs here",
            identity.0, known.0
        )),
        FoundStore::Unusable(why) => Some(format!("cannot be opened: {why}")),
    }
}

/// The function that inspects the stores, and their directory; `None` for an engine that has no files.
/// Without the engine's name, the existing directory decides.
fn place_of_stores(
    disk: &dyn Disk,
    data: &Path,
    engine: Option<&str>,
) -> anyhow::Result<Option<(Find, PathBuf)>> {
    let is_named = |it: &StorageBackend| engine.is_none_or(|engine| engine == name_of(*it));
    let candidates = WITH_FILES.into_iter().filter(is_named);
    let mut place = None;
    for engine in candidates {
        let Some(find) = find_of(engine) else {
            continue;
        };
        let noted = noted_root(disk, data, name_of(engine))?;
        let root = noted.unwrap_or_else(|| data.join(name_of(engine)));
        let is_there = disk.info(&root)?.is_some();
        place = Some((find, root));
        if is_there {
            break;
        }
    }
    Ok(place)
}
