//! The progress of a repair: a small file in the store's directory, so that a killed repair
//! continues where it stopped.
//!
//! The file gets a record for each piece of work that is done and durable. It is valid while the
//! directory is the same as at the beginning of the repair.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_disk::{Disk, DiskFile, OpenMode, read_file, remove_if_there};
use kvorum_encoding::{
    ByteReader, Truncated, checksum, checksum_append, mask_checksum, put_varint,
};
use kvorum_sst::{BadRange, Properties};
use kvorum_storage_errors::IntoBackend;
use parking_lot::Mutex;

use crate::examine::{Examined, Verdict};
use crate::listing::{FileKind, Listing};
use crate::work::{Done, Doubt, Output, Unit};

/// The file's name.
pub(crate) const NAME: &str = "repair.progress";
const MAGIC: [u8; 8] = *b"KVlsmrpr";
const VERSION: u8 = 1;
const BYTES_MAX: u64 = 1 << 30;
const HEADER_BYTES: usize = 8;

const BEGIN: u8 = 1;
const EXAMINED: u8 = 2;
const DONE: u8 = 3;
const INSTALLING: u8 = 4;

/// Contents of a journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journaled {
    pub(crate) listing: Option<Listing>,
    pub(crate) keeps_doubtful: bool,
    pub(crate) unit_bytes: u64,
    pub(crate) examined: BTreeMap<(FileKind, u64), Examined>,
    pub(crate) done: BTreeMap<Unit, Done>,
    /// The generation of the new manifest, once the repair begins to install it.
    pub(crate) installing: Option<u64>,
}

/// An open journal.
pub(crate) struct Journal {
    file: Arc<dyn DiskFile>,
    end: Mutex<u64>,
}

pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Reads a journal up to its first damaged record.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<(Journaled, u64)>> {
    let path = path(directory);
    if disk.info(&path).into_backend()?.is_none() {
        return Ok(None);
    }
    let bytes = read_file(disk, &path, BYTES_MAX).into_backend()?;
    let mut journaled = Journaled::default();
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Ok(Some((journaled, 0)));
    }
    let mut at = MAGIC.len();
    while let Some(payload) = record_at(&bytes, at) {
        if journaled.take(payload).is_err() {
            break;
        }
        at += HEADER_BYTES + payload.len();
    }
    Ok(Some((journaled, at as u64)))
}

fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let header = bytes.get(at..at + HEADER_BYTES)?;
    let (len, stored) = header.split_at(4);
    let len = usize::try_from(u32::from_le_bytes(len.try_into().ok()?)).ok()?;
    let from = at + HEADER_BYTES;
    let payload = bytes.get(from..from.checked_add(len)?)?;
    let got = record_checksum(at as u64, payload);
    (got.to_le_bytes() == stored).then_some(payload)
}

fn record_checksum(at: u64, payload: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&at.to_le_bytes()), payload))
}

impl Journal {
    /// Begins a new journal, and replaces an existing file.
    pub(crate) fn create(disk: &dyn Disk, directory: &Path, journaled: &Journaled) -> Result<Self> {
        let path = path(directory);
        remove_if_there(disk, &path).into_backend()?;
        let file = disk.open(&path, OpenMode::CreateNew).into_backend()?;
        file.write_at(&MAGIC, 0).into_backend()?;
        let journal = Self {
            file,
            end: Mutex::new(MAGIC.len() as u64),
        };
        let mut payload = vec![BEGIN, VERSION, u8::from(journaled.keeps_doubtful)];
        put_varint(&mut payload, journaled.unit_bytes);
        if let Some(listing) = &journaled.listing {
            listing.encode(&mut payload);
        }
        journal.append(&payload)?;
        disk.sync_directory(directory).into_backend()?;
        Ok(journal)
    }

    /// Continues a journal that is whole up to `end`.
    pub(crate) fn resume(disk: &dyn Disk, directory: &Path, end: u64) -> Result<Self> {
        let file = disk
            .open(&path(directory), OpenMode::ReadWrite)
            .into_backend()?;
        file.truncate(end).into_backend()?;
        // The name may not be durable yet.
        disk.sync_directory(directory).into_backend()?;
        Ok(Self {
            file,
            end: Mutex::new(end),
        })
    }

    pub(crate) fn examined(&self, kind: FileKind, number: u64, it: &Examined) -> Result<()> {
        let mut payload = vec![EXAMINED];
        encode_examined(&mut payload, kind, number, it);
        self.append(&payload)
    }

    pub(crate) fn done(&self, unit: Unit, done: &Done) -> Result<()> {
        let mut payload = vec![DONE];
        encode_done(&mut payload, unit, done);
        self.append(&payload)
    }

    pub(crate) fn installing(&self, generation: u64) -> Result<()> {
        let mut payload = vec![INSTALLING];
        put_varint(&mut payload, generation);
        self.append(&payload)
    }

    /// Appends a record and syncs it:
    ///
    /// ```text
    /// size  field
    /// 4     length of the payload
    /// 4     masked CRC-32C of: offset of the record (not stored), the payload
    ///       the payload: a byte for its kind (1 begin, 2 examined, 3 done, 4 installing), its fields
    /// ```
    ///
    /// The file begins with 8 bytes of magic, "KVlsmrpr". The first record is the beginning: a byte
    /// for the format version, 1, a byte 1 if doubtful entries are kept, varint bytes of a unit,
    /// the listing. The last is varint generation.
    fn append(&self, payload: &[u8]) -> Result<()> {
        let mut end = self.end.lock();
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut record = len.to_le_bytes().to_vec();
        record.extend_from_slice(&record_checksum(*end, payload).to_le_bytes());
        record.extend_from_slice(payload);
        self.file.write_at(&record, *end).into_backend()?;
        self.file.sync().into_backend()?;
        *end += record.len() as u64;
        Ok(())
    }
}

impl Journaled {
    fn take(&mut self, payload: &[u8]) -> std::result::Result<(), Truncated> {
        let refused = Truncated { offset: 0 };
        let mut reader = ByteReader::new(payload);
        match reader.u8()? {
            BEGIN => {
                if reader.u8()? != VERSION {
                    return Err(refused);
                }
                self.keeps_doubtful = reader.u8()? != 0;
                self.unit_bytes = reader.varint()?;
                self.listing = Some(Listing::decode(&mut reader)?);
            }
            EXAMINED => {
                let (kind, number, examined) = decode_examined(&mut reader)?;
                self.examined.insert((kind, number), examined);
            }
            DONE => {
                let (unit, done) = decode_done(&mut reader)?;
                self.done.insert(unit, done);
            }
            INSTALLING => self.installing = Some(reader.varint()?),
            _ => return Err(refused),
        }
        Ok(())
    }
}

/// A byte for the kind, varint number, a byte for the verdict, varints file length, bytes of data and
/// entries, the properties, varint number of bad ranges with varints offset and length and the
/// text.
fn encode_examined(out: &mut Vec<u8>, kind: FileKind, number: u64, it: &Examined) {
    out.push(kind as u8);
    put_varint(out, number);
    out.push(it.verdict as u8);
    for value in [it.file_len, it.data_bytes, it.entries] {
        put_varint(out, value);
    }
    out.push(u8::from(it.has_properties));
    it.properties.encode(out);
    put_varint(out, it.bad.len() as u64);
    for bad in &it.bad {
        put_varint(out, bad.offset);
        put_varint(out, bad.len);
        put_bytes(out, bad.found.as_bytes());
    }
}

fn decode_examined(
    reader: &mut ByteReader<'_>,
) -> std::result::Result<(FileKind, u64, Examined), Truncated> {
    let refused = Truncated { offset: 0 };
    let kind = FileKind::of_byte(reader.u8()?).ok_or(refused)?;
    let number = reader.varint()?;
    let verdict = Verdict::of_byte(reader.u8()?).ok_or(refused)?;
    let (file_len, data_bytes, entries) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let has_properties = reader.u8()? != 0;
    let properties = Properties::decode(reader)?;
    let mut bad = Vec::new();
    for _ in 0..reader.varint_len()? {
        bad.push(BadRange {
            offset: reader.varint()?,
            len: reader.varint()?,
            found: take_text(reader)?,
        });
    }
    let examined = Examined {
        verdict,
        file_len,
        data_bytes,
        entries,
        has_properties,
        properties,
        bad,
    };
    Ok((kind, number, examined))
}

/// The unit (a byte and a varint), varint number of outputs with varints number, file length and bytes
/// of blocks and the properties, varints entries, hidden entries and lost bodies, varint number of
/// doubts with two keys and a text, varint number of keys without their bodies and the keys.
fn encode_done(out: &mut Vec<u8>, unit: Unit, done: &Done) {
    let (kind, number) = unit.to_numbers();
    out.push(kind);
    put_varint(out, number);
    put_varint(out, done.outputs.len() as u64);
    for output in &done.outputs {
        for value in [output.number, output.file_len, output.block_bytes] {
            put_varint(out, value);
        }
        output.properties.encode(out);
    }
    for value in [done.entries, done.hidden, done.lost_bodies] {
        put_varint(out, value);
    }
    put_varint(out, done.doubts.len() as u64);
    for doubt in &done.doubts {
        put_bytes(out, &doubt.from);
        put_bytes(out, &doubt.to);
        put_bytes(out, doubt.why.as_bytes());
    }
    put_varint(out, done.bodiless.len() as u64);
    for key in &done.bodiless {
        put_bytes(out, key);
    }
}

fn decode_done(reader: &mut ByteReader<'_>) -> std::result::Result<(Unit, Done), Truncated> {
    let refused = Truncated { offset: 0 };
    let kind = reader.u8()?;
    let unit = Unit::of_numbers(kind, reader.varint()?).ok_or(refused)?;
    let mut done = Done::default();
    for _ in 0..reader.varint_len()? {
        done.outputs.push(Output {
            number: reader.varint()?,
            file_len: reader.varint()?,
            block_bytes: reader.varint()?,
            properties: Properties::decode(reader)?,
        });
    }
    done.entries = reader.varint()?;
    done.hidden = reader.varint()?;
    done.lost_bodies = reader.varint()?;
    for _ in 0..reader.varint_len()? {
        done.doubts.push(Doubt {
            from: take_bytes(reader)?,
            to: take_bytes(reader)?,
            why: take_text(reader)?,
        });
    }
    for _ in 0..reader.varint_len()? {
        done.bodiless.push(take_bytes(reader)?);
    }
    Ok((unit, done))
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes(reader: &mut ByteReader<'_>) -> std::result::Result<Bytes, Truncated> {
    reader.take_prefixed().map(Bytes::copy_from_slice)
}

fn take_text(reader: &mut ByteReader<'_>) -> std::result::Result<String, Truncated> {
    let bytes = reader.take_prefixed()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;

    use crate::listing::PresentFile;

    use super::*;

    fn journaled() -> Journaled {
        let table = PresentFile {
            kind: FileKind::Table,
            number: 7,
            len: 5_000,
        };
        Journaled {
            listing: Some(Listing {
                identity: 0x0102,
                manifest: None,
                damaged_manifests: 3,
                is_uneven: false,
                files: vec![table],
                base: 9,
            }),
            unit_bytes: 300,
            ..Journaled::default()
        }
    }

    fn examined() -> Examined {
        let bad = BadRange {
            offset: 300,
            len: 70,
            found: "damaged".to_owned(),
        };
        Examined {
            verdict: Verdict::Damaged,
            file_len: 5_000,
            data_bytes: 400,
            entries: 6,
            has_properties: true,
            properties: Properties::default(),
            bad: vec![bad],
        }
    }

    fn done() -> Done {
        Done {
            outputs: vec![Output {
                number: 9,
                file_len: 4_000,
                block_bytes: 0,
                properties: Properties::default(),
            }],
            entries: 5,
            hidden: 1,
            lost_bodies: 0,
            doubts: vec![Doubt {
                from: Bytes::from_static(b"a"),
                to: Bytes::from_static(b"d"),
                why: "lost".to_owned(),
            }],
            bodiless: vec![Bytes::from_static(b"b")],
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let disk = MemoryDisk::new();
        let directory = Path::new("s");
        disk.create_directory(directory).unwrap();
        let journal = Journal::create(&disk, directory, &journaled()).unwrap();
        journal.examined(FileKind::Table, 7, &examined()).unwrap();
        journal.done(Unit::Table(7), &done()).unwrap();
        journal.installing(300).unwrap();
        let bytes = read_file(&disk, &path(directory), BYTES_MAX).unwrap();
        let mut drawing = vec![("magic \"KVlsmrpr\"", MAGIC.len())];
        let mut at = MAGIC.len();
        for kind in ["begin", "examined", "done", "installing"] {
            let payload = record_at(&bytes, at).unwrap().len();
            at += HEADER_BYTES + payload;
            drawing.extend([
                ("length of the payload", 4),
                ("masked CRC-32C of the record's offset and the payload", 4),
                (kind, payload),
            ]);
        }
        assert_bytes("journal.hex", &drawing, &bytes);
        let (read, end) = read(&disk, directory).unwrap().unwrap();
        assert_eq!(
            (read.listing, end),
            (journaled().listing, bytes.len() as u64)
        );
        assert_eq!(read.examined[&(FileKind::Table, 7)], examined());
        assert_eq!(read.done[&Unit::Table(7)], done());
        assert_eq!((read.unit_bytes, read.installing), (300, Some(300)));
    }
}
