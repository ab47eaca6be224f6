//! What a data directory should hold and does not: the stores that its record names, the
//! log that stores speak of. A check of what is there finds none of that.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kvorum_backend::{Belonging, FoundStore, StoreId};
use kvorum_disk::Disk;
use kvorum_inspect::Checked;
use kvorum_member::{RecordedStores, known_stores};
use kvorum_segment::list_segments;

use crate::data_directory::{EngineFile, read_engine};
use crate::store_roots::noted_root;

/// Where a node has its card and the record of its stores, unless `ring.state_dir` says otherwise.
const RING_NAME: &str = "ring";
/// Engines that keep files.
const WITH_FILES: [&str; 2] = ["bitcask", "leveldb"];
const VALUE_LOG_NAME: &str = "value_log";

/// Looks for what is missing in a data directory; in any other there is nothing to be found. `is_live` is
/// true where a node runs there: what changes meanwhile is no finding.
pub(crate) fn check(disk: &dyn Disk, directory: &Path, is_live: bool) -> anyhow::Result<Checked> {
    let mut checked = Checked::default();
    let ring = directory.join(RING_NAME);
    if is_live || disk.info(&ring)?.is_none() {
        return Ok(checked);
    }
    let looked = || format!("look into {}", ring.display());
    let recorded = known_stores(disk, &ring).with_context(looked)?;
    if let Some(recorded) = recorded {
        check_stores(disk, directory, &recorded, &mut checked)?;
    }
    Ok(checked)
}

fn check_stores(
    disk: &dyn Disk,
    directory: &Path,
    recorded: &RecordedStores,
    checked: &mut Checked,
) -> anyhow::Result<()> {
    let noted = match read_engine(disk, directory)? {
        EngineFile::Whole(left) => Some(left.engine),
        EngineFile::Missing | EngineFile::Damaged => None,
    };
    let engines = noted.map_or_else(|| WITH_FILES.map(str::to_owned).to_vec(), |it| vec![it]);
    let mut found = None;
    for engine in engines {
        // Where nothing says which engine it is, its directory does.
        found = engine_of(disk, directory, &engine)?;
        if matches!(&found, Some((_, root)) if disk.info(root)?.is_some()) {
            break;
        }
    }
    let Some((find, root)) = found else {
        return Ok(());
    };
    if disk.info(&root)?.is_none() && !recorded.names_node {
        // A version before this one kept no note of another place.
        let note = format!("{} is not there: stores were not compared", root.display());
        checked.notes.push(note);
        return Ok(());
    }
    let mut has_entries_in_log = false;
    for (partition, known) in &recorded.stores {
        let index = partition.index_decimal(recorded.size);
        let path = root.join(&index);
        let belonging = Belonging {
            label: index,
            identity: Some(*known),
        };
        let found = find(disk, &path, &belonging);
        let what = match found {
            Ok(found) => {
                has_entries_in_log |= matches!(found, FoundStore::Store { log, .. } if log != 0);
                what_is_wrong(&found, *known)
            }
            Err(error) => Some(format!("cannot be looked at: {error}")),
        };
        let number = partition.number();
        if let Some(what) = what {
            let name = path.strip_prefix(directory).unwrap_or(&path);
            let what = format!("the store of partition {number} {what}");
            checked.find(&name.to_string_lossy(), 0, 0, what);
        }
    }
    let value_log = directory.join(VALUE_LOG_NAME);
    let is_log_there =
        disk.info(&value_log)?.is_some() && !list_segments(disk, &value_log)?.is_empty();
    if has_entries_in_log && !is_log_there {
        let what = "stores have entries in the value log, and no segment of it is there";
        checked.find(VALUE_LOG_NAME, 0, 0, what);
    }
    Ok(())
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

type Find = fn(&dyn Disk, &Path, &Belonging) -> Result<FoundStore, kvorum_backend::BackendError>;

/// How stores of an engine are looked at, and where they are.
fn engine_of(
    disk: &dyn Disk,
    directory: &Path,
    engine: &str,
) -> anyhow::Result<Option<(Find, PathBuf)>> {
    let find: Find = match engine {
        "bitcask" => kvorum_backend_bitcask::check::find_store,
        "leveldb" => kvorum_backend_leveldb::find_store,
        _ => return Ok(None),
    };
    let noted = noted_root(disk, directory, engine)?;
    let root = noted.unwrap_or_else(|| directory.join(engine));
    Ok(Some((find, root)))
}
