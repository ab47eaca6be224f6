//! The files of a store taken apart for display: the manifest, the list of losses, and fronts of
//! the log's records. Tables and blob files are `kvorum_sst::anatomy`'s.
//!
//! Every layout is drawn above its encoder; checksums are checked as the decoders check them.

use std::path::Path;

use kvorum_backend::{LOST_INDEX_BYTES_MAX, Result, lost_index_piece};
use kvorum_disk::anatomy::{Check, Dissection, Field, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::ByteReader;
use kvorum_segment::RecordFront;
use kvorum_sst::Properties;
use kvorum_sst::anatomy::ShowKey;

use crate::journal::place_named;
use crate::{Entry, log, lost, manifest};

/// The kind in the headers of a store's log segments.
pub const LOG_KIND: u8 = log::KIND_LOG;

/// Kinds of a store's files other than tables and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LsmFile {
    /// A copy of the manifest.
    Manifest,
    /// The list of losses.
    LostIndex,
    /// The card with the path of the store's other directory.
    TierCard,
}

impl LsmFile {
    /// The kind of a file by its first 8 bytes.
    pub fn of_magic(magic: &[u8]) -> Option<Self> {
        match magic {
            _ if magic == manifest::MAGIC => Some(Self::Manifest),
            _ if magic == lost::MAGIC => Some(Self::LostIndex),
            _ if magic == kvorum_tiers::MAGIC => Some(Self::TierCard),
            _ => None,
        }
    }

    /// The kind of a file by its name in a store's directory.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            lost::INDEX => Some(Self::LostIndex),
            kvorum_tiers::CARD_OF_FAST | kvorum_tiers::CARD_OF_SLOW => Some(Self::TierCard),
            _ if manifest::NAMES.contains(&name) => Some(Self::Manifest),
            _ => None,
        }
    }

    /// Takes a file apart.
    pub fn piece(
        self,
        disk: &dyn Disk,
        path: &Path,
        show_key: ShowKey,
    ) -> kvorum_disk::Result<Piece> {
        Ok(match self {
            Self::Manifest => {
                manifest_piece(&read_file(disk, path, manifest::BYTES_MAX)?, show_key)
            }
            Self::TierCard => {
                kvorum_tiers::card_piece(&read_file(disk, path, kvorum_tiers::CARD_BYTES_MAX)?)
            }
            Self::LostIndex => {
                lost_index_piece(&read_file(disk, path, LOST_INDEX_BYTES_MAX)?, lost::MAGIC)
            }
        })
    }
}

/// The identity of a store, to which its tables and logs are bound; `None` if no copy of the
/// manifest can be read. The directory may be a store's slow one.
pub fn identity_of(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
    let fast = kvorum_tiers::fast_of(disk, directory)?;
    let found = manifest::read_in(disk, fast.as_deref().unwrap_or(directory))?;
    Ok(found.content.map(|it| it.identity))
}

/// The name of a record in a journal file as text: the place where it was logged.
pub fn place_shown(name: &[u8]) -> String {
    match place_named(name) {
        Some((segment, offset)) => format!("segment {segment}, byte {offset}"),
        None => kvorum_disk::anatomy::shown(name),
    }
}

/// Takes the front of a store's record in the value log apart; `None` for records of other engines.
pub fn dissect_logged_front(front: &RecordFront<'_>, show_key: ShowKey) -> Option<Vec<Field>> {
    let kind = log::own_kind(front.kind)?;
    dissect_log_front(&RecordFront { kind, ..*front }, show_key)
}

/// Takes the front of a record of a store's log apart.
pub fn dissect_log_front(front: &RecordFront<'_>, show_key: ShowKey) -> Option<Vec<Field>> {
    let mut fields = Dissection::new(front.bytes, front.offset);
    if !matches!(front.kind, log::KIND_ENTRY | log::KIND_RANGE) {
        return None;
    }
    let len = usize::try_from(varint(&mut fields, "length of the key")?).ok()?;
    let at = fields.position();
    let shown = show_key(front.bytes.get(at..at.checked_add(len)?)?);
    fields.field("key", len, shown, Check::Covered)?;
    let rest = front.bytes.slice(fields.position()..);
    if front.kind == log::KIND_RANGE {
        fields.field("key behind", rest.len(), show_key(&rest), Check::Covered);
        return Some(fields.finish("").fields);
    }
    let entry = Entry::decode(&rest).ok()?;
    fields.number("flags", 1);
    varint(&mut fields, "sequence, of no meaning here")?;
    if let Some(value) = &entry.value {
        varint(&mut fields, "anti-entropy segment")?;
        varint(&mut fields, "last modified")?;
        if value.fields.expiry.is_some() {
            varint(&mut fields, "expiry")?;
        }
        fields.number("tag", 1);
        if !value.extra.is_empty() {
            varint(&mut fields, "length of the extra bytes")?;
            fields.bytes("extra bytes", value.extra.len());
        }
        varint(&mut fields, "length of the head")?;
        fields.bytes("head", value.head.len());
    }
    fields.nothing_more();
    Some(fields.finish("").fields)
}

fn manifest_piece(bytes: &[u8], show_key: ShowKey) -> Piece {
    let mut fields = kvorum_backend::dissect_copy(bytes, &manifest::MAGIC);
    // A list that ends early is followed by its unread bytes.
    let _whole_or_cut = manifest_lists(&mut fields, bytes, show_key);
    let rest = fields.remaining();
    if rest > 0 {
        let expected = "the end".to_owned();
        let got = format!("{rest} bytes more");
        fields.field("rest", rest, String::new(), Check::Bad { got, expected });
    }
    fields.finish("manifest")
}

fn manifest_lists(fields: &mut Dissection<'_>, bytes: &[u8], show_key: ShowKey) -> Option<()> {
    for name in ["next number", "last sequence in tables", "first log"] {
        varint(fields, name)?;
    }
    fields.number("flags", 1);
    for _ in 0..varint(fields, "number of tables")? {
        for name in ["level", "number of the table", "length of its file"] {
            varint(fields, name)?;
        }
        let len = usize::try_from(varint(fields, "length of its properties")?).ok()?;
        let at = fields.position();
        let own = bytes.get(at..at.checked_add(len)?)?;
        let shown = properties_shown(own, show_key);
        fields.field("its properties", len, shown, Check::Covered)?;
    }
    for _ in 0..varint(fields, "number of blob files")? {
        for name in [
            "blob file",
            "number of its file",
            "length of its file",
            "bytes of bodies",
        ] {
            varint(fields, name)?;
        }
    }
    if bytes.get(8).is_some_and(|version| *version > 2) {
        fields.identity("identity of the value log", 8);
    }
    if bytes.get(8).is_some_and(|version| *version > 1) {
        manifest_doubts(fields, bytes, show_key)?;
    }
    if bytes.get(8).is_some_and(|version| *version > 3) {
        let len = usize::try_from(fields.number("length of the label", 1)).ok()?;
        let at = fields.position();
        let label = String::from_utf8_lossy(bytes.get(at..at.checked_add(len)?)?).into_owned();
        let _shown = fields.field("label of the store", len, label, Check::Covered)?;
    }
    if bytes.get(8).is_some_and(|version| *version > 4) {
        manifest_journal(fields)?;
    }
    Some(())
}

fn manifest_journal(fields: &mut Dissection<'_>) -> Option<()> {
    for _ in 0..varint(fields, "number of journal files")? {
        for name in [
            "number of the journal file",
            "length of its file",
            "bytes of its records in the value log",
            "sequence up to which it is clean",
        ] {
            varint(fields, name)?;
        }
        for _ in 0..varint(fields, "number of segments")? {
            varint(fields, "distance to the segment")?;
        }
    }
    Some(())
}

fn manifest_doubts(fields: &mut Dissection<'_>, bytes: &[u8], show_key: ShowKey) -> Option<()> {
    for _ in 0..varint(fields, "number of ranges in doubt")? {
        fields.number("kind: 0 lost, 1 replaced", 1);
        key_range(fields, bytes, show_key)?;
    }
    for _ in 0..varint(fields, "number of damaged blocks")? {
        for name in ["number of the table", "offset of the block"] {
            varint(fields, name)?;
        }
        key_range(fields, bytes, show_key)?;
    }
    Some(())
}

fn key_range(fields: &mut Dissection<'_>, bytes: &[u8], show_key: ShowKey) -> Option<()> {
    let key = |fields: &mut Dissection<'_>, names: [&str; 2]| {
        let len = usize::try_from(varint(fields, names[0])?).ok()?;
        let at = fields.position();
        let shown = show_key(bytes.get(at..at.checked_add(len)?)?);
        let _shown = fields.field(names[1], len, shown, Check::Covered)?;
        Some(())
    };
    key(fields, ["length of the first key", "first key"])?;
    let has_end = *bytes.get(fields.position())? != 0;
    fields.number("has a key behind", 1);
    if has_end {
        key(fields, ["length of the key behind", "key behind"])?;
    }
    Some(())
}

fn properties_shown(bytes: &[u8], show_key: ShowKey) -> String {
    match Properties::decode(&mut ByteReader::new(bytes)) {
        Ok(it) => format!(
            "{} entries, {} of them removals, {} to {}",
            it.entries,
            it.removals,
            show_key(&it.smallest),
            show_key(&it.largest)
        ),
        Err(_) => "not understood".to_owned(),
    }
}

fn varint(fields: &mut Dissection<'_>, name: &str) -> Option<u64> {
    fields.varying(name, |bytes| {
        let mut reader = ByteReader::new(bytes);
        let value = reader.varint().ok()?;
        Some((value, reader.offset()))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::manifest::{JournalFileRecord, Manifest};
    use kvorum_encoding::KeyRange;
    use kvorum_ordered_tree::{BadBlock, DoubtKind, DoubtRecord};

    #[test]
    fn a_manifest_with_all_that_it_may_have_is_taken_apart_to_its_last_byte() {
        let range = KeyRange {
            from: Bytes::from("a"),
            to: Some(Bytes::from("b")),
        };
        let manifest = Manifest {
            has_journal: true,
            journal: vec![JournalFileRecord {
                number: 300,
                file_len: 7000,
                logged_bytes: 6000,
                clean_to: 5,
                segments: vec![2, 900],
            }],
            value_log: 9,
            doubts: DoubtRecord {
                open: vec![
                    (DoubtKind::Lost, KeyRange::everything()),
                    (DoubtKind::Replaced, range.clone()),
                ],
                blocks: vec![BadBlock {
                    table: 300,
                    offset: 7,
                    range,
                }],
            },
            ..Manifest::default()
        };
        let bytes = manifest.encode();
        let piece = manifest_piece(&bytes, kvorum_disk::anatomy::shown);
        let is_bad = |field: &&Field| matches!(field.check, Check::Bad { .. });
        assert_eq!(piece.fields.iter().find(is_bad), None);
        let shown: u64 = piece.fields.iter().map(|it| it.len).sum();
        assert_eq!(shown, bytes.len() as u64);
    }
}
