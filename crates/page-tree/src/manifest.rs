//! The manifest: the valid root, and the files of its tree. It is kept twice.
//!
//! It is small, and written whole at each change, to two files one after the other. The first write
//! is the moment of change; an opening that finds a difference finishes the second. Each copy names
//! its store, so that a copy of another store is not mistaken for a newer one.

use std::path::Path;

use kvorum_backend::{
    Belonging, ChosenCopy, ReadCopy, Result, StoreCopy, Written, begin_copy, choose_copy, end_copy,
    open_copy, put_label, settle_two_copies, take_label, write_two_copies,
};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_ordered_tree::DoubtRecord;

use crate::file::{FileRecord, number_of, store_of_file};
use crate::place::PagePlace;
use crate::tree::Root;

/// The names of the two copies.
pub const NAMES: [&str; 2] = ["root-0", "root-1"];
pub(crate) const MAGIC: [u8; 8] = *b"KVptroot";
const VERSION: u8 = 1;
pub(crate) const BYTES_MAX: u64 = 64 << 20;
const HAS_EXTRAS: u8 = 1;
const HAS_ROOT: u8 = 1 << 1;

/// The parts of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Counts the writes of this file.
    pub generation: u64,
    /// The identity of the contents; pages are bound to it.
    pub identity: u64,
    /// The identity before the last erasure.
    pub erased: u64,
    /// No file has this number or a higher one.
    pub next_number: u64,
    /// The id of the log with batches that are not in the tree.
    pub value_log: u64,
    /// Bytes of bodies on pages of their own, which a rewrite leaves in their places.
    pub body_bytes: u64,
    /// Every batch up to this one is in the tree.
    pub sequence: u64,
    /// Entries with extra bytes were put since the store was created or erased.
    pub has_extras: bool,
    /// The root of the tree; `None` for one without keys.
    pub root: Option<Root>,
    /// Files in ascending order of their numbers.
    pub files: Vec<FileRecord>,
    /// Ranges of keys that damage has met.
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
    /// 8       magic "KVptroot"
    /// 1       format version, 1
    /// 3       zero
    /// 4       masked CRC-32C of the bytes before and behind
    /// 8       generation
    /// 8       identity
    /// 8       identity before the last erasure
    /// varint  next number
    /// 8       id of the value log
    /// varint  bytes of bodies on pages of their own
    /// varint  sequence
    /// 1       flags: 0 has extras, 1 has a root
    ///         with flag 1: the root's place as `PagePlace::encode` draws it, a byte for its level, and the
    ///         varint number of keys
    /// varint  number of files, and for each varints: number, length, live bytes
    ///         doubts as `DoubtRecord::encode` draws them
    /// 1       length of the label, and the label
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin_copy(MAGIC, VERSION, self);
        put_varint(&mut out, self.next_number);
        out.extend_from_slice(&self.value_log.to_le_bytes());
        put_varint(&mut out, self.body_bytes);
        put_varint(&mut out, self.sequence);
        let extras = if self.has_extras { HAS_EXTRAS } else { 0 };
        let root = if self.root.is_some() { HAS_ROOT } else { 0 };
        out.push(extras | root);
        if let Some(root) = &self.root {
            root.place.encode(&mut out);
            out.push(root.level);
            put_varint(&mut out, root.keys);
        }
        put_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            for number in [file.number, file.len, file.live_bytes] {
                put_varint(&mut out, number);
            }
        }
        self.doubts.encode(&mut out);
        put_label(&mut out, &self.label);
        end_copy(out)
    }

    /// `Ok(None)` for damaged bytes.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::NewerFormat`] for an unknown version.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, MAGIC, VERSION, path)?;
        Ok(opened.and_then(|(_, fields)| Self::decode_fields(fields).ok()))
    }

    fn decode_fields(bytes: &[u8]) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let mut manifest = Self {
            generation: reader.u64()?,
            identity: reader.u64()?,
            erased: reader.u64()?,
            next_number: reader.varint()?,
            value_log: reader.u64()?,
            body_bytes: reader.varint()?,
            sequence: reader.varint()?,
            ..Self::default()
        };
        let flags = reader.u8()?;
        manifest.has_extras = flags & HAS_EXTRAS != 0;
        if flags & HAS_ROOT != 0 {
            manifest.root = Some(Root {
                place: PagePlace::decode(&mut reader)?,
                level: reader.u8()?,
                keys: reader.varint()?,
            });
        }
        for _ in 0..reader.varint_len()? {
            manifest.files.push(FileRecord {
                number: reader.varint()?,
                len: reader.varint()?,
                live_bytes: reader.varint()?,
            });
        }
        manifest.doubts = DoubtRecord::decode(&mut reader)?;
        manifest.label = take_label(&mut reader)?;
        Ok(manifest)
    }
}

/// The result of choosing between the copies.
pub type FoundManifest = ChosenCopy<Manifest>;

/// Reads both copies, and chooses the valid one.
///
/// # Errors
/// Those of the disk, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn read(disk: &dyn Disk, directory: &Path, belonging: &Belonging) -> Result<FoundManifest> {
    let copies = [
        read_copy(disk, &directory.join(NAMES[0]))?,
        read_copy(disk, &directory.join(NAMES[1]))?,
    ];
    let is_witnessed = |identity| is_witnessed(disk, directory, identity);
    choose_copy(directory, NAMES, copies, belonging, &is_witnessed)
}

fn read_copy(disk: &dyn Disk, path: &Path) -> Result<ReadCopy<Manifest>> {
    if disk.info(path)?.is_none() {
        return Ok(ReadCopy::Missing);
    }
    let read = || Manifest::decode(&read_file(disk, path, BYTES_MAX)?, path);
    // A device may fail once, and without this copy the store may be older.
    let decoded = match read()? {
        Some(manifest) => Some(manifest),
        None => read()?,
    };
    Ok(decoded.map_or(ReadCopy::Damaged, ReadCopy::Whole))
}

/// True when a file of pages in the directory belongs to the store of this identity.
fn is_witnessed(disk: &dyn Disk, directory: &Path, identity: u64) -> Result<bool> {
    for entry in disk.list(directory)? {
        let is_pages = number_of(&entry.name).is_some();
        if is_pages && store_of_file(disk, &directory.join(&entry.name))? == Some(identity) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name of a file in the directory that only a store with a manifest has.
///
/// # Errors
/// Those of the disk.
pub fn name_of_data(disk: &dyn Disk, directory: &Path) -> Result<Option<String>> {
    let names = disk.list(directory)?.into_iter().map(|it| it.name);
    Ok(names.into_iter().find(|name| number_of(name).is_some()))
}

/// Writes both copies.
pub fn write(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Written {
    write_two_copies(disk, directory, NAMES, &manifest.encode())
}

/// Writes both copies when a store is opened.
///
/// # Errors
/// Those of the disk, but for a full one.
pub fn settle(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<()> {
    settle_two_copies(disk, directory, NAMES, &manifest.encode())
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::KeyRange;
    use kvorum_golden::assert_bytes;
    use kvorum_ordered_tree::DoubtKind;

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            generation: 4,
            identity: 7,
            erased: 6,
            next_number: 300,
            value_log: 0xf0ab_bf51,
            body_bytes: 1_000_000,
            sequence: 1 << 40,
            has_extras: true,
            root: Some(Root {
                place: PagePlace {
                    file: 299,
                    offset: 32,
                    len: 100,
                    check: 9,
                },
                level: 2,
                keys: 1_000,
            }),
            files: vec![FileRecord {
                number: 299,
                len: 5_000,
                live_bytes: 4_000,
            }],
            doubts: DoubtRecord {
                open: vec![(DoubtKind::Lost, KeyRange::everything())],
                blocks: Vec::new(),
            },
            label: "137".to_owned(),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("magic \"KVptroot\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("masked CRC-32C of the bytes before and behind", 4),
            ("generation", 8),
            ("identity", 8),
            ("identity before the last erasure", 8),
            ("next number", 2),
            ("id of the value log", 8),
            ("bytes of bodies on pages of their own", 3),
            ("sequence", 6),
            ("flags: 0 has extras, 1 has a root", 1),
            ("place of the root: file", 2),
            ("offset", 1),
            ("length", 1),
            ("checksum", 4),
            ("level of the root", 1),
            ("number of keys", 2),
            ("number of files", 1),
            ("number", 2),
            ("length", 2),
            ("live bytes", 2),
            ("ranges in doubt", 1),
            ("kind: lost", 1),
            ("range: length of the first key", 1),
            ("no end", 1),
            ("damaged blocks", 1),
            ("length of the label", 1),
            ("label", 3),
        ];
        assert_bytes("manifest.hex", &drawing, &manifest().encode());
    }

    #[test]
    fn manifests_come_back_with_a_root_and_without() {
        let rootless = Manifest {
            root: None,
            has_extras: false,
            ..manifest()
        };
        for manifest in [manifest(), rootless] {
            let decoded = Manifest::decode(&manifest.encode(), Path::new("m"));
            assert_eq!(decoded.unwrap(), Some(manifest));
        }
    }

    #[test]
    fn any_flip_or_cut_is_refused() {
        let good = manifest().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let decoded = Manifest::decode(&bad, Path::new("m"));
            assert!(!matches!(decoded, Ok(Some(_))), "byte {at}");
            let cut = Manifest::decode(&good[..at], Path::new("m"));
            assert!(!matches!(cut, Ok(Some(_))), "cut at {at}");
        }
    }
}
