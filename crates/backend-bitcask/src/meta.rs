//! The identity of a store and the data that must outlive its other files, kept twice.
//!
//! Without the identity no record could be checked and no fingerprint made, so it is written to two
//! files, one after the other. Each file has all data; the first write makes the change, and an
//! opening that finds a difference writes the second file. Each names its store, so that a copy of
//! another store is not mistaken for a newer one.

use std::path::Path;

use kvorum_backend::{
    BackendError, Belonging, ChosenCopy, ErrorKind, FoundStore, LostRange, ReadCopy, Result,
    StoreCopy, StoreId, Written, begin_copy, choose_copy, end_copy, open_copy, put_label,
    set_copy_aside, settle_two_copies, take_label, write_two_copies,
};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{ByteReader, Truncated};
use kvorum_segment::{SegmentAnatomy, file_name, list_segments};
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint::{self, CHECKPOINT_NAME};
use crate::log_hint::log_hint_number;
use crate::lost::LostLog;

pub(crate) const NAMES: [&str; 2] = ["store-0", "store-1"];
pub(crate) const MAGIC: [u8; 8] = *b"KVbitcsk";
/// Version 1 had no log, version 2 no label.
const VERSION: u8 = 3;
const VERSION_WITH_LOG: u8 = 2;
/// The most bytes of a copy: far more retired segments than two checkpoints can have between them.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// The store's identity and notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Counts the writes of this file.
    pub(crate) generation: u64,
    /// The identity of the contents, which is also the id of the log.
    pub(crate) identity: u64,
    /// The identity before the last erasure; files with it are leftovers.
    pub(crate) erased: u64,
    /// The secret under which fingerprints are made.
    pub(crate) secret: (u64, u64),
    /// No batch without remaining records has a higher sequence, unless a later checkpoint is lost.
    pub(crate) sequence: u64,
    /// A number above those of all removed segments, so that none is reused.
    pub(crate) next_segment: u32,
    /// Segments removed since the last checkpoint; one that still exists is a leftover.
    pub(crate) retired: Vec<u32>,
    /// The value log that holds entries of the store; 0 for none.
    pub(crate) value_log: u64,
    /// The store's label on its node, as in [`Belonging::label`]; empty until one is given.
    pub(crate) label: String,
}

impl StoreCopy for Meta {
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

impl Meta {
    /// Encodes it:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVbitcsk"
    ///      8     1  format version: 1, 2 with a log and no label, or 3
    ///      9     3  zero
    ///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
    ///     16     8  generation
    ///     24     8  identity
    ///     32     8  identity before the last erasure
    ///     40    16  secret of fingerprints
    ///     56     8  sequence
    ///     64     4  next segment
    ///     68     4  number of retired segments (r)
    ///     72   4*r  retired segments
    /// 72+4*r     8  id of the value log, from version 2 on; 0 for none
    /// 80+4*r     1  length of the label (l), from version 3 on
    /// 81+4*r     l  label
    /// ```
    fn encode(&self) -> Vec<u8> {
        let version = match (self.label.is_empty(), self.value_log) {
            (false, _) => VERSION,
            (true, 0) => 1,
            (true, _) => VERSION_WITH_LOG,
        };
        let mut out = begin_copy(MAGIC, version, self);
        for number in [self.secret.0, self.secret.1, self.sequence] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.next_segment.to_le_bytes());
        let retired = u32::try_from(self.retired.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&retired.to_le_bytes());
        for number in &self.retired {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if version >= VERSION_WITH_LOG {
            out.extend_from_slice(&self.value_log.to_le_bytes());
        }
        if version >= VERSION {
            put_label(&mut out, &self.label);
        }
        end_copy(out)
    }

    /// `Ok(None)` for damaged bytes.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, MAGIC, VERSION, path)?;
        Ok(opened.and_then(|(version, fields)| Self::decode_fields(fields, version).ok()))
    }

    fn decode_fields(bytes: &[u8], version: u8) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let mut meta = Self {
            generation: reader.u64()?,
            identity: reader.u64()?,
            erased: reader.u64()?,
            secret: (reader.u64()?, reader.u64()?),
            sequence: reader.u64()?,
            next_segment: reader.u32()?,
            retired: Vec::new(),
            value_log: 0,
            label: String::new(),
        };
        let retired = reader.u32()? as usize;
        let listed = reader.take(retired.saturating_mul(4))?;
        let numbers = listed.chunks_exact(4).filter_map(|it| it.try_into().ok());
        meta.retired = numbers.map(u32::from_le_bytes).collect();
        if version >= VERSION_WITH_LOG {
            meta.value_log = reader.u64()?;
        }
        if version >= VERSION {
            meta.label = take_label(&mut reader)?;
        }
        Ok(meta)
    }
}

/// The result of choosing between the copies.
pub(crate) type FoundMeta = ChosenCopy<Meta>;

/// The identity of a store, which is also the id of its log; `None` if no copy can be read.
pub fn identity_of(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
    let read = read(disk, directory, &Belonging::by_directory(directory))?;
    Ok(read.content.map(|meta| meta.identity))
}

/// Reads both copies, and selects the valid one.
pub(crate) fn read(disk: &dyn Disk, directory: &Path, belonging: &Belonging) -> Result<FoundMeta> {
    let read_copy = |name: &str| -> Result<ReadCopy<Meta>> {
        let path = directory.join(name);
        if disk.info(&path).into_backend()?.is_none() {
            return Ok(ReadCopy::Missing);
        }
        let bytes = read_file(disk, &path, BYTES_MAX).into_backend()?;
        let decoded = Meta::decode(&bytes, &path)?;
        Ok(decoded.map_or(ReadCopy::Damaged, ReadCopy::Whole))
    };
    let copies = [read_copy(NAMES[0])?, read_copy(NAMES[1])?];
    let is_witnessed = |identity| is_witnessed(disk, directory, identity);
    choose_copy(directory, NAMES, copies, belonging, &is_witnessed)
}

/// True when the checkpoint or a segment in the directory belongs to the store of this identity.
fn is_witnessed(disk: &dyn Disk, directory: &Path, identity: u64) -> Result<bool> {
    if checkpoint::log_id_of(disk, directory).into_backend()? == Some(identity) {
        return Ok(true);
    }
    for number in list_segments(disk, directory).into_backend()? {
        let header = SegmentAnatomy::header_id(disk, &directory.join(file_name(number)));
        if header
            .into_backend()?
            .is_some_and(|it| it.log_id == identity)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The store in a directory, compared with an expected one. Writes nothing.
///
/// # Errors
/// Those of the disk, and [`ErrorKind::NewerFormat`].
pub fn find_store(disk: &dyn Disk, directory: &Path, belonging: &Belonging) -> Result<FoundStore> {
    if disk.info(directory).into_backend()?.is_none() {
        return Ok(FoundStore::Nothing);
    }
    let found = read(disk, directory, belonging)?;
    if let Some(meta) = found.content {
        return Ok(FoundStore::Store {
            identity: StoreId(meta.identity),
            erased: StoreId(meta.erased),
            log: meta.value_log,
            is_labelled: !meta.label.is_empty() && meta.label == belonging.label,
        });
    }
    Ok(match (found.refusal, name_of_data(disk, directory)?) {
        (Some(refusal), _) => FoundStore::Unusable(refusal),
        (None, Some(name)) => FoundStore::Unusable(without_copies(directory, &name)),
        (None, None) => FoundStore::Nothing,
    })
}

/// The name of a file in the directory that only a store with an identity has.
pub(crate) fn name_of_data(disk: &dyn Disk, directory: &Path) -> Result<Option<String>> {
    if let Some(number) = list_segments(disk, directory).into_backend()?.first() {
        return Ok(Some(file_name(*number)));
    }
    let entries = disk.list(directory).into_backend()?;
    let is_data = |name: &str| name == CHECKPOINT_NAME || log_hint_number(name).is_some();
    let found = entries.into_iter().find(|it| is_data(&it.name));
    Ok(found.map(|it| it.name))
}

fn without_copies(directory: &Path, data: &str) -> String {
    let (directory, [one, other]) = (directory.display(), NAMES);
    format!(
        "{directory} has {data} and no readable copy of the store's identity: {one} and {other} are \
         missing; restore one of them from a backup of this directory"
    )
}

/// Writes both copies.
pub(crate) fn write(disk: &dyn Disk, directory: &Path, meta: &Meta) -> Written {
    write_two_copies(disk, directory, NAMES, &meta.encode())
}

/// Writes both copies at an opening, which needs no space.
pub(crate) fn settle(disk: &dyn Disk, directory: &Path, meta: &Meta) -> Result<()> {
    settle_two_copies(disk, directory, NAMES, &meta.encode())
}

/// The store's identity and notes, or a new identity for a new store.
pub(crate) fn read_or_create(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
    draw: &dyn Fn() -> u64,
    lost: &mut LostLog,
) -> Result<Meta> {
    let found = read(disk, directory, belonging)?;
    if let Some(mut meta) = found.content {
        for name in found.damaged {
            let len = disk
                .info(&directory.join(name))
                .into_backend()?
                .map_or(0, |it| it.len);
            let held = "one of two copies of the store's identity; nothing is lost";
            lost.add(disk, LostRange::new(name, 0, len, held));
        }
        for foreign in found.foreign {
            set_copy_aside(disk, directory, foreign.name)?;
            let held = format!(
                "a copy of the store's identity that belongs to {} and was set aside; nothing is lost",
                foreign.of
            );
            lost.add(disk, LostRange::new(foreign.name, 0, 0, held));
        }
        let is_unbound = meta.label != belonging.label && !belonging.label.is_empty();
        if is_unbound {
            meta.label.clone_from(&belonging.label);
        }
        if found.is_uneven || is_unbound {
            meta.generation += 1;
            settle(disk, directory, &meta)?;
        }
        return Ok(meta);
    }
    let data = name_of_data(disk, directory)?;
    let data = data.map(|name| without_copies(directory, &name));
    if let Some(refusal) = found.refusal.or(data) {
        return Err(BackendError::new(ErrorKind::Corrupt, refusal));
    }
    let meta = Meta {
        generation: 1,
        identity: draw(),
        secret: (draw(), draw()),
        next_segment: 1,
        label: belonging.label.clone(),
        ..Meta::default()
    };
    write(disk, directory, &meta).both()?;
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode, replace_file};
    use kvorum_golden::assert_bytes;

    use kvorum_encoding::{checksum, checksum_append, mask_checksum};

    use super::*;

    fn meta() -> Meta {
        Meta {
            generation: 3,
            identity: 4,
            erased: 5,
            secret: (6, 7),
            sequence: 8,
            next_segment: 9,
            retired: vec![1, 2],
            value_log: 10,
            label: "1370".to_owned(),
        }
    }

    fn read_of(disk: &MemoryDisk) -> FoundMeta {
        read(disk, Path::new(""), &Belonging::default()).unwrap()
    }

    #[test]
    fn the_bytes_are_as_drawn_and_older_ones_are_read() {
        let drawing = [
            ("magic \"KVbitcsk\"", 8),
            ("format version, 3", 1),
            ("zero", 3),
            ("masked CRC-32C of bytes 0..12 and 16 to the end", 4),
            ("generation", 8),
            ("identity", 8),
            ("identity before the last erasure", 8),
            ("secret of fingerprints", 16),
            ("sequence", 8),
            ("next segment", 4),
            ("number of retired segments", 4),
            ("retired segment", 4),
            ("retired segment", 4),
            ("id of the value log", 8),
            ("length of the label", 1),
            ("label", 4),
        ];
        assert_bytes("meta.hex", &drawing, &meta().encode());
        for (value_log, version) in [(0, 1), (10, 2)] {
            let older = Meta {
                label: String::new(),
                value_log,
                ..meta()
            };
            let bytes = older.encode();
            assert_eq!(bytes[8], version);
            let decoded = Meta::decode(&bytes, Path::new("x")).unwrap();
            assert_eq!(decoded, Some(older));
        }
    }

    fn unhex(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    /// A copy written by the server of version 0.1.0, which had no labels.
    #[test]
    fn a_recorded_copy_of_version_2_is_read_and_bound() {
        let recorded = unhex(
            "4b5662697463736b02000000687429c20200000000000000361c7644c564de270000000000000000\
             ff8e8b61a4768c951647a58bf0f90fa20a00000000000000010000000000000039060bfb617129d5",
        );
        let disk = MemoryDisk::new();
        for name in NAMES {
            replace_file(&disk, Path::new(name), &recorded).unwrap();
        }
        let belonging = Belonging {
            label: "1370".to_owned(),
            identity: Some(StoreId(0x27de_64c5_4476_1c36)),
        };
        let mut lost = LostLog::open(&disk, Path::new(""));
        let draw = || panic!("nothing is drawn for a store that is there");
        let bound = read_or_create(&disk, Path::new(""), &belonging, &draw, &mut lost).unwrap();
        assert_eq!((bound.generation, bound.sequence), (3, 10));
        assert_eq!(bound.value_log, 0xd529_7161_fb0b_0639);
        assert_eq!(bound.label, "1370");
        assert!(lost.ranges().is_empty());
        assert_eq!(read_of(&disk).content, Some(bound));
    }

    #[test]
    fn any_damage_to_one_copy_leaves_the_other() {
        let len = meta().encode().len();
        for at in 0..len as u64 {
            let disk = MemoryDisk::new();
            write(&disk, Path::new(""), &meta()).both().unwrap();
            let file = disk.open(Path::new(NAMES[0]), OpenMode::ReadWrite).unwrap();
            file.write_at(&[0xa5], at).unwrap();
            let found = read_of(&disk);
            assert_eq!(found.content, Some(meta()), "byte {at}");
            assert!(found.is_uneven);
        }
    }

    #[test]
    fn the_newer_copy_counts() {
        let disk = MemoryDisk::new();
        write(&disk, Path::new(""), &meta()).both().unwrap();
        let newer = Meta {
            generation: 4,
            ..meta()
        };
        replace_file(&disk, Path::new(NAMES[0]), &newer.encode()).unwrap();
        let found = read_of(&disk);
        assert_eq!(found.content, Some(newer));
        assert!(found.is_uneven);
    }

    #[test]
    fn a_newer_version_is_refused() {
        let mut bytes = meta().encode();
        bytes[8] = VERSION + 1;
        let check = checksum_append(checksum(&bytes[..12]), &bytes[16..]);
        bytes[12..16].copy_from_slice(&mask_checksum(check).to_le_bytes());
        let error = Meta::decode(&bytes, Path::new("x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
    }
}
