//! The kind of a file: by its first bytes, or by its name if these are damaged.

use std::path::Path;

use kvorum_backend::{LOST_INDEX_BYTES_MAX, lost_index_piece};
use kvorum_backend_bitcask::anatomy::{SEGMENT_KINDS, StoreFile, dissect_front};
use kvorum_backend_innostore::check::{LOST_PAGES, LOST_PAGES_MAGIC};
use kvorum_backend_multi::anatomy::MultiFile;
use kvorum_disk::anatomy::{Check, Dissection, Field, Piece, Pieces};
use kvorum_disk::{Disk, EntryKind, OpenMode, Reading, read_file};
use kvorum_index_entries::keyspace::key_shown;
use kvorum_lsm::anatomy::{
    LOG_KIND, LsmFile, dissect_log_front, dissect_logged_front, place_shown,
};
use kvorum_page_tree::anatomy::PageTreeFile;
use kvorum_segment::{RecordFront, SegmentAnatomy, SegmentId, list_segments, parse_file_name};
use kvorum_tiers::is_table_name;

use kvorum_sst::TableId;
use kvorum_sst::anatomy::{TABLE_MAGIC, TableAnatomy};
use kvorum_value_log::anatomy::{VALUE_LOG_KIND, ValueLogFile, dissect_value_log_front};

use crate::{InspectError, Result};

/// Longer than the first line of any file of text.
const BEGIN_BYTES: usize = 64;
/// Files that are for people.
const TEXT_BYTES_MAX: u64 = 64 << 10;
const REPAIR_PROGRESS_BYTES_MAX: u64 = 1 << 30;

/// The file of an unfinished `kvorum repair` in the directory of a store.
pub(crate) const REPAIR_PROGRESS: &str = "repair.progress";

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment of a store or of a log.
    Segment,
    /// Another file of a store of the bitcask engine.
    Store(StoreFile),
    /// A table, a blob file or a file of the journal of an engine over merge trees.
    Table,
    /// Another file of one.
    Lsm(LsmFile),
    /// A file of a store of the innostore engine.
    PageTree(PageTreeFile),
    /// The list of such a store's losses.
    LostPages,
    /// A small file of the value log.
    ValueLog(ValueLogFile),
    /// The table of dot leases.
    Leases,
    /// The hash trees of a vnode.
    HashTrees,
    /// The notes of rounds of a vnode or of a store of hints.
    RoundNotes,
    /// A generation of the cluster's state.
    ClusterState,
    /// A small text of the node's own: its card, its stores, its generation.
    CheckedText,
    /// The log that the nodes of a cluster agree on.
    AgreedLog,
    /// The mark of its durable end.
    AgreedEnd,
    /// A snapshot of the agreed state.
    AgreedSnapshot,
    /// The version of a data directory's layout.
    Format,
    /// The engine of the stores in a data directory.
    Engine,
    /// The progress of a repair of a leveldb store.
    RepairProgress,
    /// A file of a store of several backends.
    Multi(MultiFile),
    /// A lock or a mark: its text is for people.
    Text,
}

/// Finds the kind of a file.
pub fn recognise(disk: &dyn Disk, path: &Path) -> Result<Kind> {
    let missing = || InspectError::Missing {
        path: path.to_owned(),
    };
    let unknown = || InspectError::Unknown {
        path: path.to_owned(),
    };
    let info = disk.info(path)?.ok_or_else(missing)?;
    if info.kind == EntryKind::Directory {
        return Err(unknown());
    }
    let file = disk.open(path, OpenMode::Read)?;
    let mut begin = [0; BEGIN_BYTES];
    let read = file.read_at(&mut begin, 0, Reading::MayBlock)?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    match by_begin(&begin[..read]) {
        // Hints of a bitcask store are tables.
        Some(Kind::Table) if let Some(file) = StoreFile::of_name(name) => {
            return Ok(Kind::Store(file));
        }
        Some(kind) => return Ok(kind),
        None => {}
    }
    match by_name(name) {
        Some(Kind::AgreedLog) if is_beside_segments(disk, path)? => {
            Ok(Kind::ValueLog(ValueLogFile::Identity))
        }
        known => known.ok_or_else(unknown),
    }
}

/// Two kinds of logs have a file of the same name.
fn is_beside_segments(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let directory = path.parent().unwrap_or(Path::new("."));
    Ok(!list_segments(disk, directory)?.is_empty())
}

fn by_begin(begin: &[u8]) -> Option<Kind> {
    let magic = begin.get(..8).unwrap_or(begin);
    let is_text_of = |title: &str| begin.starts_with(title.as_bytes());
    if magic == kvorum_segment::SEGMENT_MAGIC {
        return Some(Kind::Segment);
    }
    if magic == TABLE_MAGIC {
        return Some(Kind::Table);
    }
    if let Some(file) = LsmFile::of_magic(magic) {
        return Some(Kind::Lsm(file));
    }
    if let Some(file) = MultiFile::of_magic(magic) {
        return Some(Kind::Multi(file));
    }
    if let Some(file) = PageTreeFile::of_magic(magic) {
        return Some(Kind::PageTree(file));
    }
    if magic == LOST_PAGES_MAGIC {
        return Some(Kind::LostPages);
    }
    if magic == kvorum_vnode::anatomy::LEASE_TABLE_MAGIC {
        return Some(Kind::Leases);
    }
    if magic == kvorum_vnode::anatomy::KEPT_TREES_MAGIC {
        return Some(Kind::HashTrees);
    }
    if begin.starts_with(&kvorum_vnode::anatomy::ROUND_NOTES_MAGIC) {
        return Some(Kind::RoundNotes);
    }
    if magic == kvorum_agreement::anatomy::LOG_MAGIC {
        return Some(Kind::AgreedLog);
    }
    if magic == kvorum_agreement::anatomy::END_MAGIC {
        return Some(Kind::AgreedEnd);
    }
    if is_text_of(kvorum_agreement::anatomy::SNAPSHOT_TITLE) {
        return Some(Kind::AgreedSnapshot);
    }
    if is_text_of(kvorum_cluster::anatomy::STATE_TITLE) {
        return Some(Kind::ClusterState);
    }
    if kvorum_cluster::checked_text::begins(begin) {
        return Some(Kind::CheckedText);
    }
    let of_store = StoreFile::of_magic(magic).map(Kind::Store);
    of_store.or_else(|| ValueLogFile::of_magic(magic).map(Kind::ValueLog))
}

fn by_name(name: &str) -> Option<Kind> {
    match name {
        "lock" | "LOCK" | "suspect" | "backup" | "backups" | "scrub" | "leveldb_stores"
        | "leveled_stores" | "hanoidb_stores" | "innostore_stores" | "bitcask_stores" => {
            Some(Kind::Text)
        }
        "format" => Some(Kind::Format),
        REPAIR_PROGRESS => Some(Kind::RepairProgress),
        "engine" => Some(Kind::Engine),
        "log" => Some(Kind::AgreedLog),
        "end" => Some(Kind::AgreedEnd),
        "dot_leases" | "dot_leases.unreadable" => Some(Kind::Leases),
        "card" | "card.copy" | "stores" | "stores.copy" | "generation" | "generation.copy"
        | "place" | "others" => Some(Kind::CheckedText),
        "cluster" | "cluster.previous" => Some(Kind::ClusterState),
        "snapshot" | "snapshot.previous" => Some(Kind::AgreedSnapshot),
        _ if name.starts_with("agreed_log-") => Some(Kind::AgreedEnd),
        _ if MultiFile::of_name(name).is_some() => MultiFile::of_name(name).map(Kind::Multi),
        _ if ValueLogFile::of_name(name).is_some() => {
            ValueLogFile::of_name(name).map(Kind::ValueLog)
        }
        _ if parse_file_name(name).is_some() => Some(Kind::Segment),
        _ if is_table_name(name) => Some(Kind::Table),
        _ if LsmFile::of_name(name).is_some() => LsmFile::of_name(name).map(Kind::Lsm),
        _ if PageTreeFile::of_name(name).is_some() => {
            PageTreeFile::of_name(name).map(Kind::PageTree)
        }
        LOST_PAGES => Some(Kind::LostPages),
        _ => StoreFile::of_name(name).map(Kind::Store),
    }
}

/// Takes a file apart. Pieces of large files that end at or before `from` may be left out.
pub fn open_pieces(disk: &dyn Disk, path: &Path, kind: Kind, from: u64) -> Result<Pieces> {
    let one = |piece: Piece| -> Pieces { Box::new(std::iter::once(Ok(piece))) };
    Ok(match kind {
        Kind::Segment => Box::new(SegmentAnatomy::open(
            disk,
            path,
            fallback_id(disk, path)?,
            from,
            dissect,
        )?),
        Kind::Store(file) => file.pieces(disk, path)?,
        Kind::Table => Box::new(TableAnatomy::open(
            disk,
            path,
            fallback_table(disk, path)?,
            from,
            match path.extension().is_some_and(|it| it == "journal") {
                true => place_shown,
                false => key_shown,
            },
        )?),
        Kind::Lsm(file) => one(file.piece(disk, path, key_shown)?),
        Kind::PageTree(file) => file.pieces(disk, path)?,
        Kind::LostPages => {
            let bytes = read_file(disk, path, LOST_INDEX_BYTES_MAX)?;
            one(lost_index_piece(&bytes, LOST_PAGES_MAGIC))
        }
        Kind::ValueLog(file) => one(file.piece(disk, path)?),
        Kind::Leases => one(kvorum_vnode::anatomy::lease_table_piece(disk, path)?),
        Kind::HashTrees => one(kvorum_vnode::anatomy::kept_trees_piece(disk, path)?),
        Kind::RoundNotes => one(kvorum_vnode::anatomy::round_notes_piece(disk, path)?),
        Kind::ClusterState => one(kvorum_cluster::anatomy::state_piece(disk, path)?),
        Kind::CheckedText => one(kvorum_cluster::checked_text::piece(disk, path)?),
        Kind::AgreedLog => {
            let pieces = kvorum_agreement::anatomy::log_pieces(disk, path)?;
            Box::new(pieces.into_iter().map(Ok))
        }
        Kind::AgreedEnd => one(kvorum_agreement::anatomy::end_piece(disk, path)?),
        Kind::AgreedSnapshot => one(kvorum_agreement::anatomy::snapshot_piece(disk, path)?),
        Kind::Format => one(format_piece(&read_file(disk, path, TEXT_BYTES_MAX)?)),
        Kind::Engine => one(engine_piece(&read_file(disk, path, TEXT_BYTES_MAX)?)),
        Kind::RepairProgress => one(progress_piece(disk, path)?),
        Kind::Multi(file) => one(file.piece(disk, path)?),
        Kind::Text => one(text_piece(&read_file(disk, path, TEXT_BYTES_MAX)?)),
    })
}

/// Fronts belong to the log's writer, which the file's header names.
fn dissect(front: &RecordFront<'_>) -> Option<Vec<Field>> {
    match front.file_kind {
        kind if SEGMENT_KINDS.contains(&kind) => dissect_front(front),
        LOG_KIND => dissect_log_front(front, key_shown),
        VALUE_LOG_KIND => dissect_value_log_front(front, dissect_engines_front),
        _ => None,
    }
}

/// The front of an engine's record in the value log. The record's kind names the engine.
fn dissect_engines_front(front: &RecordFront<'_>) -> Option<Vec<Field>> {
    dissect_logged_front(front, key_shown).or_else(|| dissect_front(front))
}

/// The identity for a segment with a damaged header: its number is in its name, and the log is that
/// of its neighbours or, with none of them, of the store in its directory.
pub(crate) fn fallback_id(disk: &dyn Disk, path: &Path) -> Result<Option<SegmentId>> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(number) = name.and_then(parse_file_name) else {
        return Ok(None);
    };
    for neighbour in list_segments(disk, directory)? {
        let beside = directory.join(kvorum_segment::file_name(neighbour));
        if let Some(id) = SegmentAnatomy::header_id(disk, &beside)? {
            return Ok(Some(SegmentId { number, ..id }));
        }
    }
    let identity = kvorum_backend_bitcask::check::identity_of(disk, directory)?;
    let of_tree = kvorum_lsm::anatomy::identity_of(disk, directory)?;
    let of_tree = of_tree.map(|log_id| (log_id, LOG_KIND));
    let own = identity.map(|log_id| (log_id, SEGMENT_KINDS[0]));
    Ok(own.or(of_tree).map(|(log_id, kind)| SegmentId {
        log_id,
        number,
        kind,
    }))
}

/// The identity for a table with a damaged header: its number is in its name, and its store's
/// identity in the manifest beside it.
pub(crate) fn fallback_table(disk: &dyn Disk, path: &Path) -> Result<Option<TableId>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.split_once('.')).map(|it| it.0);
    let Some(number) = digits.and_then(|digits| digits.parse().ok()) else {
        return Ok(None);
    };
    let store = kvorum_lsm::anatomy::identity_of(disk, path.parent().unwrap_or(Path::new(".")))?;
    Ok(store.map(|store| TableId { store, number }))
}

fn text_piece(bytes: &[u8]) -> Piece {
    let mut fields = Dissection::new(bytes, 0);
    let text = String::from_utf8_lossy(bytes)
        .trim_end()
        .escape_debug()
        .to_string();
    let name = "text for people only";
    fields.field(name, bytes.len(), text, Check::Covered);
    fields.finish("text")
}

/// It is used up to its first incomplete record, so nothing in it counts as damage.
fn progress_piece(disk: &dyn Disk, path: &Path) -> Result<Piece> {
    let bytes = read_file(disk, path, REPAIR_PROGRESS_BYTES_MAX)?;
    let mut fields = Dissection::new(&bytes, 0);
    fields.bytes("the progress of `kvorum repair`", bytes.len());
    Ok(fields.finish("progress of a repair"))
}

/// Layouts that were written without a checksum.
const UNCHECKED_FORMATS: [&str; 3] = ["1", "2", "3"];
/// Engines that were written without a checksum.
const UNCHECKED_ENGINES: [&str; 3] = ["bitcask", "leveldb", "memory"];

/// The check of a file without a checksum.
fn check_form(text: &str, is_right: bool, expected: &str) -> Check {
    if is_right {
        return Check::Covered;
    }
    Check::Bad {
        got: format!("{text:?}"),
        expected: expected.to_owned(),
    }
}

/// The format that earlier versions wrote: a number without a checksum.
fn format_piece(bytes: &[u8]) -> Piece {
    let text = String::from_utf8_lossy(bytes);
    let is_number = text
        .strip_suffix('\n')
        .is_some_and(|version| UNCHECKED_FORMATS.contains(&version));
    let expected = "a line with a checksum, or an early version and the end of the line";
    let check = check_form(&text, is_number, expected);
    let mut fields = Dissection::new(bytes, 0);
    let shown = text.trim().to_owned();
    fields.field("version of the layout", bytes.len(), shown, check);
    fields.finish("format of a data directory")
}

/// The engine that earlier versions wrote, without a checksum: only its form can be checked.
fn engine_piece(bytes: &[u8]) -> Piece {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.strip_prefix("engine ").and_then(|rest| {
        let (engine, hints) = rest.split_once("\nhints ")?;
        Some((engine, hints.strip_suffix('\n')?))
    });
    let is_formed = lines.is_some_and(|(engine, hints)| {
        UNCHECKED_ENGINES.contains(&engine) && (hints == "unknown" || hints.parse::<u64>().is_ok())
    });
    let expected = "a line with a checksum, or an engine and how many hints wait";
    let check = check_form(&text, is_formed, expected);
    let mut fields = Dissection::new(bytes, 0);
    let shown = text.trim_end().escape_debug().to_string();
    fields.field("engine and hints", bytes.len(), shown, check);
    fields.finish("engine of a data directory")
}
