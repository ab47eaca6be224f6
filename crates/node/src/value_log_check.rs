//! Compares the value log with this node's record of it, before it is opened.
//!
//! Another node's log, or an empty directory in its place, was once opened. Stores recorded their
//! entries in their own log as lost or dropped, and acknowledged keys were not found, even after
//! the right directory was put back. So such a start is refused, with nothing changed.
//!
//! Stores name the log in which they have entries, from their first checkpoint or table on. The file
//! `value_logs` names it from the second start on, and the logs that an operator has given up:
//!
//! ```text
//! checked text "kvorum value logs of a data directory"
//!   log HEX     the one that was here last, if there was one
//!   lost HEX    one that is lost, and whose loss was accepted; any number of lines
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kvorum_backend::{Belonging, FoundStore, HINTS_LABEL, StoreId};
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, ErrorKind, read_file, replace_file};
use kvorum_member::{RecordedStores, known_stores};
use kvorum_settings::Settings;
use kvorum_value_log::find_log_id;

use crate::data_directory::{DataDirectory, EngineFile, VALUE_LOG_NAME};
use crate::engine_names::{Find, find_of, name_of};
use crate::store_roots::StoreRoots;

/// With a file of this name in the data directory, made by an operator, the next start continues
/// without the entries of a lost value log.
pub(crate) const ACCEPT_LOST_VALUE_LOG: &str = "accept_lost_value_log";

const NOTE_NAME: &str = "value_logs";
const NOTE_TITLE: &str = "kvorum value logs of a data directory";
const NOTE_BYTES_MAX: u64 = 1 << 20;
const LOG_WORD: &str = "log";
const LOST_WORD: &str = "lost";

/// The id for a store without entries in a log.
const NO_LOG: u64 = 0;

/// The ids of the expected logs, each with a file that names it.
#[derive(Default)]
pub(crate) struct NamedLogs(BTreeMap<u64, PathBuf>);

impl NamedLogs {
    /// Adds the log with a store's entries, if the store has that identity.
    pub(crate) fn add(&mut self, directory: &Path, found: &FoundStore, known: Option<StoreId>) {
        let FoundStore::Store {
            identity,
            erased,
            log,
            ..
        } = found
        else {
            return;
        };
        let is_it = known.is_none_or(|known| [*identity, *erased].contains(&known));
        if is_it && *log != NO_LOG {
            self.0.entry(*log).or_insert_with(|| directory.to_owned());
        }
    }

    /// Adds the logs of recorded stores.
    fn add_recorded(
        &mut self,
        disk: &dyn Disk,
        find: Find,
        root: &Path,
        recorded: &RecordedStores,
    ) {
        for (partition, known) in &recorded.stores {
            let label = partition.index_decimal(recorded.size);
            let directory = root.join(&label);
            let belonging = Belonging {
                label,
                identity: Some(*known),
            };
            // A store that cannot be inspected is reported when it is opened.
            if let Ok(found) = find(disk, &directory, &belonging) {
                self.add(&directory, &found, Some(*known));
            }
        }
    }
}

/// The content of the note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogNote {
    log: Option<u64>,
    lost: BTreeSet<u64>,
}

impl LogNote {
    /// Reads the note in a data directory. A damaged one counts as missing, since stores name their log too.
    pub(crate) fn read(disk: &dyn Disk, data: &Path) -> anyhow::Result<Self> {
        let path = data.join(NOTE_NAME);
        let bytes = match read_file(disk, &path, NOTE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => return Ok(Self::default()),
                _ => return Err(error).with_context(|| format!("read {}", path.display())),
            },
        };
        let note = decode(NOTE_TITLE, &bytes).and_then(|(_, body)| Self::parse(&body));
        if note.is_none() {
            tracing::warn!(event = "note_of_value_logs_damaged", file = %path.display());
        }
        Ok(note.unwrap_or_default())
    }

    fn parse(body: &str) -> Option<Self> {
        let mut note = Self::default();
        for line in body.lines() {
            let (word, id) = line.split_once(' ')?;
            let id = u64::from_str_radix(id, 16).ok()?;
            match word {
                LOG_WORD => note.log = Some(id),
                LOST_WORD => {
                    note.lost.insert(id);
                }
                _ => return None,
            }
        }
        Some(note)
    }

    fn write(&self, disk: &dyn Disk, data: &Path) -> Result<(), kvorum_disk::DiskError> {
        let line = |word, id: &u64| format!("{word} {id:016x}\n");
        let mut body: String = self.log.iter().map(|id| line(LOG_WORD, id)).collect();
        body.extend(self.lost.iter().map(|id| line(LOST_WORD, id)));
        replace_file(disk, &data.join(NOTE_NAME), &encode(NOTE_TITLE, 1, &body))
    }

    /// Logs whose loss was accepted.
    pub(crate) fn lost(&self) -> &BTreeSet<u64> {
        &self.lost
    }
}

/// Named logs other than the present one whose loss was not accepted; and the present one, as text.
pub(crate) fn compare(
    disk: &dyn Disk,
    value_log: &Path,
    named: &NamedLogs,
    note: &LogNote,
) -> anyhow::Result<Option<(BTreeSet<u64>, String)>> {
    let context = || format!("look into {}", value_log.display());
    let found = find_log_id(disk, value_log).with_context(context)?;
    let is_missed = |id: &u64| Some(*id) != found && !note.lost.contains(id);
    let missed: BTreeSet<u64> = named.0.keys().copied().filter(is_missed).collect();
    let Some(expected) = missed.first() else {
        return Ok(None);
    };
    let by = named.0[expected].display();
    let what = match found {
        Some(found) => format!(
            "stores have entries in another value log than this one: expected {expected:#018x}, \
             which {by} names, found {found:#018x}; put back the directory that belongs here"
        ),
        None => format!(
            "stores have entries in the value log, and no segment of it is there: expected \
             {expected:#018x}, which {by} names; put back the directory that belongs here (is its disk \
             mounted?)"
        ),
    };
    Ok(Some((missed, what)))
}

/// Refuses to start with another value log than the one that this node had, unless its loss is accepted.
pub(crate) fn settle(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
) -> anyhow::Result<()> {
    let engine = settings.node.storage_backend;
    let (Some(find), Some(roots)) = (find_of(engine), StoreRoots::of(settings)) else {
        return Ok(());
    };
    let (value_log, mut note) = (data.value_log(), LogNote::read(disk, data.path())?);
    // After a change of engine, the entries of the former stores are not needed any more.
    let is_same_engine = match data.engine_left(disk)? {
        EngineFile::Whole(left) => left.engine == name_of(engine),
        EngineFile::Missing | EngineFile::Damaged => true,
    };
    let mut named = NamedLogs::default();
    if let Some(log) = note.log.filter(|_| is_same_engine) {
        named.0.insert(log, data.path().join(NOTE_NAME));
    }
    // A record that cannot be read is reported when the member opens.
    if disk.info(&settings.node.ring_state_dir)?.is_some()
        && let Ok(Some(recorded)) = known_stores(disk, &settings.node.ring_state_dir)
    {
        named.add_recorded(disk, find, &roots.own, &recorded);
    }
    let hints = data.hints(name_of(engine));
    let belonging = Belonging {
        label: HINTS_LABEL.to_owned(),
        identity: None,
    };
    if let Ok(found) = find(disk, &hints, &belonging) {
        named.add(&hints, &found, None);
    }
    let accepting = data.path().join(ACCEPT_LOST_VALUE_LOG);
    let is_accepted = disk.info(&accepting)?.is_some();
    if let Some((missed, what)) = compare(disk, &value_log, &named, &note)? {
        if !is_accepted {
            bail!(
                "{}: {what}. Nothing was changed. If it is lost for good, make an empty file {} and start \
                 again: entries that only it had are lost then, unless other replicas have them",
                value_log.display(),
                accepting.display()
            );
        }
        tracing::error!(event = "value_log_given_up", directory = %value_log.display(), reason = %what);
        note.lost.extend(missed);
        note.log = None;
        note.write(disk, data.path()).with_context(|| {
            format!("note in {} that a value log is lost", data.path().display())
        })?;
    }
    if is_accepted {
        disk.remove_file(&accepting)?;
        disk.sync_directory(data.path())?;
    }
    note_present(disk, data)
}

/// Notes which value log is there, if there is one. On a full disk, a later start does it.
pub(crate) fn note_present(disk: &dyn Disk, data: &DataDirectory) -> anyhow::Result<()> {
    let mut note = LogNote::read(disk, data.path())?;
    let found = find_log_id(disk, &data.value_log())?;
    if found.is_none() || note.log == found {
        return Ok(());
    }
    note.log = found;
    match note.write(disk, data.path()) {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
        written => written.with_context(|| format!("note which {VALUE_LOG_NAME} is there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_reads_back_and_a_damaged_one_says_nothing() {
        let disk = kvorum_disk::MemoryDisk::new();
        let data = Path::new("data");
        kvorum_disk::create_directory_durably(&disk, data).unwrap();
        let read = || LogNote::read(&disk, data).unwrap();
        assert_eq!(read(), LogNote::default());
        let note = LogNote {
            log: Some(7),
            lost: [u64::MAX, 1].into(),
        };
        note.write(&disk, data).unwrap();
        assert_eq!(read(), note);
        let mut bytes = read_file(&disk, &data.join(NOTE_NAME), NOTE_BYTES_MAX).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        replace_file(&disk, &data.join(NOTE_NAME), &bytes).unwrap();
        assert_eq!(read(), LogNote::default());
    }
}
