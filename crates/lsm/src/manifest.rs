//! The manifest: the list of the store's files, kept twice.
//!
//! The manifest is small, and each change writes it whole to two files, one after the other. The
//! first write makes the change; an opening that finds a difference writes the second copy. So no
//! power cut leaves half an edit, and damage to one copy costs nothing. The manifest also has the
//! properties of tables, by which each opening decides which files may be dropped. Each copy names
//! its store, so that a copy of another store is not mistaken for a newer one.

use std::path::Path;

use kvorum_backend::{
    Belonging, ChosenCopy, FoundStore, ReadCopy, Result, StoreCopy, StoreId, Written, begin_copy,
    choose_copy, end_copy, open_copy, put_label, settle_two_copies, take_label, write_two_copies,
};
use kvorum_disk::{Disk, EntryKind, read_file};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_ordered_tree::DoubtRecord;
use kvorum_segment::SegmentAnatomy;
use kvorum_sst::anatomy::TableAnatomy;
use kvorum_sst::{KnownTable, Properties, TableId};
use kvorum_storage_errors::IntoBackend;

use crate::files::number_of;
use crate::policy::Layout;

/// The names of the two copies.
pub const NAMES: [&str; 2] = ["manifest-0", "manifest-1"];
pub(crate) const MAGIC: [u8; 8] = *b"KVlsmmft";
/// The version with doubling levels. A manifest has the lowest version with all of its parts: 5
/// with a journal, 4 with a label, 3 with bodies in the value log, 2 with doubts, and 1 without
/// any.
const VERSION: u8 = 6;
const VERSION_WITH_JOURNAL: u8 = 5;
const VERSION_WITH_LABEL: u8 = 4;
const VERSION_WITH_LOG: u8 = 3;
pub(crate) const BYTES_MAX: u64 = 1 << 30;
const HAS_EXTRAS: u8 = 1;
const HAS_JOURNAL: u8 = 1 << 1;
const HAS_DOUBLING_LEVELS: u8 = 1 << 2;

/// A table, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// The table's level.
    pub level: u64,
    /// Its number.
    pub number: u64,
    /// Its length, in bytes.
    pub file_len: u64,
    /// Sums over its entries.
    pub properties: Properties,
}

/// A blob file, as the manifest lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRecord {
    /// The number by which entries name it.
    pub file: u64,
    /// The number of the file that has its bodies now.
    pub number: u64,
    /// Its length, in bytes.
    pub file_len: u64,
    /// Bytes of its blocks.
    pub block_bytes: u64,
}

/// A journal file, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFileRecord {
    /// Its number.
    pub number: u64,
    /// Its length, in bytes.
    pub file_len: u64,
    /// Bytes of its records in the value log.
    pub logged_bytes: u64,
    /// Each record was the newest of its key in batches up to this one.
    pub clean_to: u64,
    /// The segments that its records come from, ascending.
    pub segments: Vec<u32>,
}

/// The properties with which a blob file or a journal file is opened: the written ones are not
/// recorded.
pub fn blob_properties() -> Properties {
    Properties {
        largest: vec![0xff; 20].into(),
        ..Properties::default()
    }
}

impl TableRecord {
    /// The known facts of the table, in the store of this identity.
    pub fn known(&self, store: u64) -> KnownTable {
        let number = self.number;
        KnownTable {
            id: TableId { store, number },
            file_len: self.file_len,
            properties: self.properties.clone(),
        }
    }
}

impl BlobRecord {
    /// The known facts of the blob file.
    pub fn known(&self, store: u64) -> KnownTable {
        let number = self.number;
        KnownTable {
            id: TableId { store, number },
            file_len: self.file_len,
            properties: blob_properties(),
        }
    }
}

impl JournalFileRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        let segments = self.segments.len() as u64;
        for number in [
            self.number,
            self.file_len,
            self.logged_bytes,
            self.clean_to,
            segments,
        ] {
            put_varint(out, number);
        }
        let mut before = 0;
        for segment in &self.segments {
            put_varint(out, u64::from(segment - before));
            before = *segment;
        }
    }

    fn decode(reader: &mut ByteReader<'_>) -> std::result::Result<Self, Truncated> {
        let mut file = Self {
            number: reader.varint()?,
            file_len: reader.varint()?,
            logged_bytes: reader.varint()?,
            clean_to: reader.varint()?,
            segments: Vec::new(),
        };
        let mut before = 0_u32;
        for _ in 0..reader.varint_len()? {
            let offset = reader.offset();
            let distance = u32::try_from(reader.varint()?).ok();
            let segment = distance.and_then(|it| before.checked_add(it));
            before = segment.ok_or(Truncated { offset })?;
            file.segments.push(before);
        }
        Ok(file)
    }

    /// The known facts of the journal file.
    pub fn known(&self, store: u64) -> KnownTable {
        let number = self.number;
        KnownTable {
            id: TableId { store, number },
            file_len: self.file_len,
            properties: blob_properties(),
        }
    }
}

/// The contents of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Counts the writes of this file.
    pub generation: u64,
    /// The identity of the contents, to which tables and logs are bound.
    pub identity: u64,
    /// The identity before the last erasure.
    pub erased: u64,
    /// No file has this number or a higher one.
    pub next_number: u64,
    /// Every batch up to this one is in the tables.
    pub sequence: u64,
    /// Log segments below this number are no longer needed.
    pub first_log: u64,
    /// Entries with extra bytes were put since the store was created or erased.
    pub has_extras: bool,
    /// The store keeps a journal, always or never: its first entry decides.
    pub has_journal: bool,
    /// The meaning of its levels, fixed by its first entry.
    pub layout: Layout,
    /// The value log in which entries have bodies; 0 for none.
    pub value_log: u64,
    /// Level 0 newest first, the others in key order.
    pub tables: Vec<TableRecord>,
    /// Blob files, in any order.
    pub blobs: Vec<BlobRecord>,
    /// Journal files, in any order.
    pub journal: Vec<JournalFileRecord>,
    /// Ranges of keys in which damage was found.
    pub doubts: DoubtRecord,
    /// The store's label on its node, as in [`Belonging::label`]; empty until one is given.
    pub label: String,
}

impl StoreCopy for Manifest {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn erased(&self) -> u64 {
        self.erased
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl Manifest {
    /// Encodes it:
    ///
    /// ```text
    /// size    field
    /// 8       magic "KVlsmmft"
    /// 1       format version: 1 without doubts, 2 with them, 3 with bodies in the value log, 4 with a
    ///         label, 5 with a journal, 6 with doubling levels
    /// 3       zero
    /// 4       masked CRC-32C of the bytes before and behind
    /// 8       generation
    /// 8       identity
    /// 8       identity before the last erasure
    /// varint  next number, sequence, first log (one each)
    /// 1       flags: 0 has extras, 1 has a journal, 2 has doubling levels
    /// varint  number of tables, and for each: varints level, number, file length, length of its
    ///         properties; the properties
    /// varint  number of blob files, and for each varints: file, number, file length, bytes of blocks
    /// 8       from version 3 on, the identity of the value log; 0 for none
    ///         from version 2 on, doubts as `DoubtRecord::encode` draws them
    /// 1       from version 4 on, the length of the label, and the label
    /// varint  from version 5 on, number of journal files, and for each varints: number, file length, bytes
    ///         in the log, sequence up to which it is clean, number of segments, and for each the distance
    ///         to the one before
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let version = match (self.value_log, self.doubts.is_empty()) {
            _ if self.layout == Layout::Doubling => VERSION,
            _ if self.has_journal || !self.journal.is_empty() => VERSION_WITH_JOURNAL,
            _ if !self.label.is_empty() => VERSION_WITH_LABEL,
            (0, true) => 1,
            (0, false) => 2,
            _ => VERSION_WITH_LOG,
        };
        let mut out = begin_copy(MAGIC, version, self);
        for number in [self.next_number, self.sequence, self.first_log] {
            put_varint(&mut out, number);
        }
        out.push(self.flags());
        put_varint(&mut out, self.tables.len() as u64);
        let mut properties = Vec::new();
        for table in &self.tables {
            properties.clear();
            table.properties.encode(&mut properties);
            let len = properties.len() as u64;
            for number in [table.level, table.number, table.file_len, len] {
                put_varint(&mut out, number);
            }
            out.extend_from_slice(&properties);
        }
        put_varint(&mut out, self.blobs.len() as u64);
        for blob in &self.blobs {
            for number in [blob.file, blob.number, blob.file_len, blob.block_bytes] {
                put_varint(&mut out, number);
            }
        }
        if version > 2 {
            out.extend_from_slice(&self.value_log.to_le_bytes());
        }
        if version > 1 {
            self.doubts.encode(&mut out);
        }
        if version >= VERSION_WITH_LABEL {
            put_label(&mut out, &self.label);
        }
        if version >= VERSION_WITH_JOURNAL {
            put_varint(&mut out, self.journal.len() as u64);
            self.journal.iter().for_each(|it| it.encode(&mut out));
        }
        end_copy(out)
    }

    fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.has_extras, HAS_EXTRAS)
            | flag(self.has_journal, HAS_JOURNAL)
            | flag(self.layout == Layout::Doubling, HAS_DOUBLING_LEVELS)
    }

    /// `Ok(None)` for damaged bytes.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, MAGIC, VERSION, path)?;
        Ok(opened.and_then(|(version, fields)| Self::decode_fields(fields, version).ok()))
    }

    /// A level below 0 on which two tables have keys in common, so that the newer table is unknown.
    /// The end of a table's marked range may be the first key of the next table.
    pub fn overlapping_level(&self) -> Option<u64> {
        let mut ranges: Vec<(u64, &Properties)> = Vec::new();
        let tables = self.tables.iter().filter(|it| it.level > 0);
        ranges.extend(tables.map(|it| (it.level, &it.properties)));
        ranges.sort_by(|a, b| (a.0, &a.1.smallest).cmp(&(b.0, &b.1.smallest)));
        let overlap = |pair: &&[(u64, &Properties)]| {
            pair[0].0 == pair[1].0 && pair[0].1.largest > pair[1].1.smallest
        };
        ranges.windows(2).find(overlap).map(|pair| pair[0].0)
    }

    fn decode_fields(bytes: &[u8], version: u8) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let mut manifest = Self {
            generation: reader.u64()?,
            identity: reader.u64()?,
            erased: reader.u64()?,
            next_number: reader.varint()?,
            sequence: reader.varint()?,
            first_log: reader.varint()?,
            has_extras: false,
            has_journal: false,
            layout: Layout::Multiples,
            value_log: 0,
            tables: Vec::new(),
            blobs: Vec::new(),
            journal: Vec::new(),
            doubts: DoubtRecord::default(),
            label: String::new(),
        };
        let flags = reader.u8()?;
        manifest.has_extras = flags & HAS_EXTRAS != 0;
        manifest.has_journal = flags & HAS_JOURNAL != 0;
        if flags & HAS_DOUBLING_LEVELS != 0 {
            manifest.layout = Layout::Doubling;
        }
        for _ in 0..reader.varint_len()? {
            let (level, number, file_len) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let properties = reader.take_prefixed()?;
            manifest.tables.push(TableRecord {
                level,
                number,
                file_len,
                properties: Properties::decode(&mut ByteReader::new(properties))?,
            });
        }
        for _ in 0..reader.varint_len()? {
            manifest.blobs.push(BlobRecord {
                file: reader.varint()?,
                number: reader.varint()?,
                file_len: reader.varint()?,
                block_bytes: reader.varint()?,
            });
        }
        if version > 2 {
            manifest.value_log = reader.u64()?;
        }
        if version > 1 {
            manifest.doubts = DoubtRecord::decode(&mut reader)?;
        }
        if version >= VERSION_WITH_LABEL {
            manifest.label = take_label(&mut reader)?;
        }
        if version >= VERSION_WITH_JOURNAL {
            for _ in 0..reader.varint_len()? {
                let file = JournalFileRecord::decode(&mut reader)?;
                manifest.journal.push(file);
            }
        }
        Ok(manifest)
    }
}

/// The result of choosing between the copies.
pub type FoundManifest = ChosenCopy<Manifest>;

/// Reads both copies, and selects the valid one.
pub(crate) fn read(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
) -> Result<FoundManifest> {
    let copies = [
        read_copy(disk, &directory.join(NAMES[0]))?,
        read_copy(disk, &directory.join(NAMES[1]))?,
    ];
    let is_witnessed = |identity| is_witnessed(disk, directory, identity);
    choose_copy(directory, NAMES, copies, belonging, &is_witnessed)
}

/// Reads both copies for a caller that has only the directory.
pub fn read_in(disk: &dyn Disk, directory: &Path) -> Result<FoundManifest> {
    read(disk, directory, &Belonging::by_directory(directory))
}

fn read_copy(disk: &dyn Disk, path: &Path) -> Result<ReadCopy<Manifest>> {
    if disk.info(path).into_backend()?.is_none() {
        return Ok(ReadCopy::Missing);
    }
    let read = || -> Result<Option<Manifest>> {
        let bytes = read_file(disk, path, BYTES_MAX).into_backend()?;
        Manifest::decode(&bytes, path)
    };
    // A device may fail once, and the other copy may be older.
    let decoded = match read()? {
        Some(manifest) => Some(manifest),
        None => read()?,
    };
    Ok(decoded.map_or(ReadCopy::Damaged, ReadCopy::Whole))
}

/// True when a table, a blob file or a log in the directory belongs to the store of this identity.
fn is_witnessed(disk: &dyn Disk, directory: &Path, identity: u64) -> Result<bool> {
    for entry in disk.list(directory).into_backend()? {
        if store_of_file(disk, directory, &entry.name)? == Some(identity) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The store named in the header of a table, a blob file or a log; `None` for other files and
/// damaged headers.
pub(crate) fn store_of_file(disk: &dyn Disk, directory: &Path, name: &str) -> Result<Option<u64>> {
    let path = directory.join(name);
    Ok(match number_of(name) {
        Some((_, "sst" | "blob")) => {
            let header = TableAnatomy::header_id(disk, &path).into_backend()?;
            header.map(|it| it.store)
        }
        Some(_) => {
            let header = SegmentAnatomy::header_id(disk, &path).into_backend()?;
            header.map(|it| it.log_id)
        }
        None => None,
    })
}

/// The store in a directory, compared with an expected one. Writes nothing.
///
/// # Errors
/// Those of the disk, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn find_store(disk: &dyn Disk, directory: &Path, belonging: &Belonging) -> Result<FoundStore> {
    if disk.info(directory).into_backend()?.is_none() {
        return Ok(FoundStore::Nothing);
    }
    let found = read(disk, directory, belonging)?;
    if let Some(manifest) = found.content {
        return Ok(FoundStore::Store {
            identity: StoreId(manifest.identity),
            erased: StoreId(manifest.erased),
            log: manifest.value_log,
            is_labelled: !manifest.label.is_empty() && manifest.label == belonging.label,
        });
    }
    Ok(match (found.refusal, name_of_data(disk, directory)?) {
        (Some(refusal), _) if found.foreign.is_empty() => {
            FoundStore::Unusable(unless_repaired(&refusal))
        }
        (Some(refusal), _) => FoundStore::Unusable(refusal),
        (None, Some(name)) => FoundStore::Unusable(without_copies(directory, &name)),
        (None, None) => FoundStore::Nothing,
    })
}

/// The name of a file in the directory that only a store with a manifest has.
pub fn name_of_data(disk: &dyn Disk, directory: &Path) -> Result<Option<String>> {
    let entries = disk.list(directory).into_backend()?;
    let is_data = |name: &str| number_of(name).is_some();
    let mut found = entries
        .into_iter()
        .filter(|it| it.kind == EntryKind::File && is_data(&it.name));
    Ok(found.next().map(|it| it.name))
}

/// The reason for refusing a store without a copy of its manifest.
pub(crate) fn without_copies(directory: &Path, data: &str) -> String {
    let (directory, [one, other]) = (directory.display(), NAMES);
    unless_repaired(&format!(
        "{directory} has {data} and no readable manifest: {one} and {other} are missing"
    ))
}

/// Adds to a refusal that the manifest can be rebuilt from the tables.
pub(crate) fn unless_repaired(refusal: &str) -> String {
    format!(
        "{refusal}; if both are lost for good, `kvorum repair` makes a manifest from the tables"
    )
}

/// Writes both copies, one after the other, and returns the progress.
pub fn write(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Written {
    write_two_copies(disk, directory, NAMES, &manifest.encode())
}

/// Writes both copies at an opening, which needs no space.
pub(crate) fn settle(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<()> {
    settle_two_copies(disk, directory, NAMES, &manifest.encode())
}

#[cfg(test)]
mod tests {
    use kvorum_backend::ErrorKind;
    use kvorum_disk::{MemoryDisk, OpenMode, replace_file};
    use kvorum_encoding::{KeyRange, checksum, checksum_append, mask_checksum};
    use kvorum_golden::assert_bytes;
    use kvorum_ordered_tree::DoubtKind;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            generation: 3,
            identity: 4,
            erased: 5,
            next_number: 600,
            sequence: 7,
            first_log: 8,
            has_extras: true,
            has_journal: false,
            layout: Layout::Multiples,
            value_log: 0,
            tables: vec![TableRecord {
                level: 1,
                number: 9,
                file_len: 1000,
                properties: Properties {
                    entries: 12,
                    ..Properties::default()
                },
            }],
            blobs: vec![BlobRecord {
                file: 10,
                number: 11,
                file_len: 12,
                block_bytes: 13,
            }],
            journal: Vec::new(),
            doubts: DoubtRecord {
                open: vec![(DoubtKind::Lost, KeyRange::everything())],
                blocks: Vec::new(),
            },
            label: String::new(),
        }
    }

    fn read_of(disk: &MemoryDisk) -> FoundManifest {
        read(disk, Path::new(""), &Belonging::default()).unwrap()
    }

    /// A copy written by the server of version 0.1.0, which had no labels.
    #[test]
    fn a_recorded_copy_of_version_3_is_read() {
        let recorded = "4b566c736d6d667403000000bec4caa00300000000000000acdd121324dfc0770000000000\
             00000005140300020004c10a2f0a00b5070b14c6f7a6d2dfa498038cf4afd2dfa49803000000096f0001620001\
             6b3131096f00016200016b393400000002c10a2f0a00b507010a85dca6d1dfa49803ebe3d8d1dfa49803000000\
             096f00016200016b3131096f00016200016b3934000000141465e851bfabf00000";
        let pairs = recorded.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect();
        let decoded = Manifest::decode(&bytes, Path::new("x")).unwrap().unwrap();
        assert_eq!((decoded.generation, decoded.sequence), (3, 20));
        assert_eq!(decoded.value_log, 0xf0ab_bf51_e865_1414);
        assert_eq!((decoded.tables.len(), &decoded.label[..]), (2, ""));
        assert_eq!(decoded.encode(), bytes);
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let manifest = Manifest {
            label: "1370".to_owned(),
            value_log: 77,
            tables: Vec::new(),
            ..manifest()
        };
        let drawing = [
            ("magic \"KVlsmmft\"", 8),
            ("format version: 4 with a label", 1),
            ("zero", 3),
            ("masked CRC-32C of the bytes before and behind", 4),
            ("generation", 8),
            ("identity", 8),
            ("identity before the last erasure", 8),
            ("next number", 2),
            ("sequence", 1),
            ("first log", 1),
            ("flags: 0 has extras", 1),
            ("number of tables", 1),
            ("number of blob files", 1),
            ("file, number, file length, bytes of blocks", 4),
            ("identity of the value log", 8),
            ("doubts", 5),
            ("length of the label", 1),
            ("label", 4),
        ];
        assert_bytes("manifest.hex", &drawing, &manifest.encode());
    }

    fn with_journal() -> Manifest {
        let journal = vec![JournalFileRecord {
            number: 1,
            file_len: 2,
            logged_bytes: 3,
            clean_to: 4,
            segments: vec![5, 7, 300],
        }];
        Manifest {
            has_journal: true,
            journal,
            ..manifest()
        }
    }

    #[test]
    fn a_journal_stands_behind_the_label() {
        let (bytes, before) = (with_journal().encode(), manifest().encode());
        assert_eq!((bytes[8], before[8]), (5, 2));
        assert!(bytes.ends_with(&[0, 1, 1, 2, 3, 4, 3, 5, 2, 0xa5, 2]));
        let decoded = Manifest::decode(&bytes, Path::new("x")).unwrap();
        assert_eq!(decoded, Some(with_journal()));
    }

    /// An older version must not mistake the store for one with levels of multiples.
    #[test]
    fn doubling_levels_are_a_flag_and_a_version_of_their_own() {
        let doubling = Manifest {
            layout: Layout::Doubling,
            ..manifest()
        };
        let bytes = doubling.encode();
        assert_eq!((bytes[8], bytes.last()), (6, Some(&0)));
        let decoded = Manifest::decode(&bytes, Path::new("x")).unwrap();
        assert_eq!(decoded, Some(doubling));
    }

    proptest! {
        /// With a right checksum, as an attacker would write it.
        #[test]
        fn hostile_fields_are_refused_or_come_back_as_they_were(
            changes in vec((any::<Index>(), any::<u8>()), 0..4),
            cut in any::<Index>(),
            version in 1..=VERSION,
        ) {
            let bytes = with_journal().encode();
            let mut fields = bytes[16..].to_vec();
            for (at, byte) in changes {
                let len = fields.len();
                fields[at.index(len)] = byte;
            }
            let len = fields.len();
            for end in [len, cut.index(len)] {
                if let Ok(decoded) = Manifest::decode_fields(&fields[..end], version) {
                    let again = Manifest::decode(&decoded.encode(), Path::new("x")).unwrap();
                    prop_assert_eq!(again, Some(decoded));
                }
            }
        }
    }

    #[test]
    fn without_what_is_new_it_is_as_older_versions_read_it() {
        let sound = Manifest {
            doubts: DoubtRecord::default(),
            ..manifest()
        };
        let logged = |doubts| Manifest {
            value_log: 77,
            doubts,
            ..manifest()
        };
        for (manifest, version) in [
            (sound, 1),
            (manifest(), 2),
            (logged(DoubtRecord::default()), 3),
            (logged(manifest().doubts), 3),
            (
                Manifest {
                    label: "1370".to_owned(),
                    ..Manifest::default()
                },
                4,
            ),
        ] {
            let bytes = manifest.encode();
            assert_eq!(bytes[8], version);
            let decoded = Manifest::decode(&bytes, Path::new("x")).unwrap();
            assert_eq!(decoded, Some(manifest));
        }
    }

    #[test]
    fn any_damage_to_one_copy_leaves_the_other() {
        let len = manifest().encode().len();
        for (at, name) in (0..len as u64).flat_map(|at| NAMES.map(|name| (at, name))) {
            let disk = MemoryDisk::new();
            assert!(matches!(
                write(&disk, Path::new(""), &manifest()),
                Written::Both
            ));
            let file = disk.open(Path::new(name), OpenMode::ReadWrite).unwrap();
            file.write_at(&[0xa5], at).unwrap();
            let found = read_of(&disk);
            assert_eq!(found.content, Some(manifest()), "byte {at}");
            assert_eq!((found.damaged, found.is_uneven), (vec![name], true));
        }
    }

    #[test]
    fn the_newer_copy_counts_and_a_newer_version_is_refused() {
        let disk = MemoryDisk::new();
        let _written = write(&disk, Path::new(""), &manifest());
        let newer = Manifest {
            generation: 4,
            ..manifest()
        };
        replace_file(&disk, Path::new(NAMES[0]), &newer.encode()).unwrap();
        let found = read_of(&disk);
        assert_eq!(found.content, Some(newer));
        assert!(found.is_uneven);
        let mut bytes = manifest().encode();
        bytes[8] = VERSION + 1;
        let check = mask_checksum(checksum_append(checksum(&bytes[..12]), &bytes[16..]));
        bytes[12..16].copy_from_slice(&check.to_le_bytes());
        let error = Manifest::decode(&bytes, Path::new("x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
    }
}
