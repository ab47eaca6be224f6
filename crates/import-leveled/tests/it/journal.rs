//! A small writer of journal files. It shares no code with the reader under test.

use crate::riak_objects::{atom, binary, integer, list, term, tuple};

const FRONT_BYTES: usize = 2048;
/// Seconds from the year 0 to the Unix epoch.
const UNIX_EPOCH: u64 = 62_167_219_200;

/// The key of an object in a bucket without a type.
pub(crate) fn key(bucket: &str, name: &str) -> Vec<u8> {
    ledger_key("o_rkv", &binary(bucket), name)
}

/// The key of an object in a bucket with a type.
pub(crate) fn typed_key(bucket_type: &str, bucket: &str, name: &str) -> Vec<u8> {
    let bucket = tuple(&[binary(bucket_type), binary(bucket)]);
    ledger_key("o_rkv", &bucket, name)
}

/// A key of any tag.
pub(crate) fn ledger_key(tag: &str, bucket: &[u8], name: &str) -> Vec<u8> {
    tuple(&[atom(tag), bucket.to_vec(), binary(name), atom("null")])
}

/// The flags of an object that is a binary and not compressed.
const PLAIN: u8 = 2;

/// A journal file being written.
#[derive(Clone)]
pub(crate) struct Journal {
    /// Content of the active file.
    pub(crate) bytes: Vec<u8>,
    /// Hashes of the keys, and the offsets of their records.
    records: Vec<(u32, u32)>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            bytes: vec![0; FRONT_BYTES],
            records: Vec::new(),
        }
    }
}

impl Journal {
    /// Writes an object.
    pub(crate) fn put(&mut self, sequence: u32, key: &[u8], object: &[u8]) {
        self.put_packed(sequence, key, object, PLAIN);
    }

    /// Writes an object in the packing of `flags`.
    pub(crate) fn put_packed(&mut self, sequence: u32, key: &[u8], packed: &[u8], flags: u8) {
        let value = value(packed, &no_changes(), flags);
        self.record(sequence, "stnd", key, &value);
    }

    /// Writes an object that expires after a second, counted from the Unix epoch.
    pub(crate) fn put_until(&mut self, sequence: u32, key: &[u8], object: &[u8], last_secs: u64) {
        let changes = changes_until(last_secs);
        self.record(sequence, "stnd", key, &value(object, &changes, PLAIN));
    }

    pub(crate) fn delete(&mut self, sequence: u32, key: &[u8]) {
        let object = term(&atom("delete"));
        self.record(sequence, "tomb", key, &value(&object, &no_changes(), 0));
    }

    /// Writes the remains of a replaced object after compaction.
    pub(crate) fn index_changes(&mut self, sequence: u32, key: &[u8]) {
        let object = term(&atom("null"));
        self.record(sequence, "keyd", key, &value(&object, &no_changes(), 0));
    }

    /// Writes the remains of a replaced object that expires after a second.
    pub(crate) fn index_changes_until(&mut self, sequence: u32, key: &[u8], last_secs: u64) {
        let object = term(&atom("null"));
        let changes = changes_until(last_secs);
        self.record(sequence, "keyd", key, &value(&object, &changes, 0));
    }

    /// Writes a batch of head-only entries.
    pub(crate) fn batch(&mut self, sequence: u32, entries: usize) {
        let entry = tuple(&[
            atom("add"),
            binary("b"),
            binary("k"),
            atom("null"),
            binary("v"),
        ]);
        let changes = term(&tuple(&[list(&vec![entry; entries]), atom("infinity")]));
        let object = term(&atom("head_only"));
        self.record(
            sequence,
            "mput",
            &atom("dummy"),
            &value(&object, &changes, 0),
        );
    }

    /// Writes any record.
    pub(crate) fn record(&mut self, sequence: u32, kind: &str, ledger_key: &[u8], value: &[u8]) {
        let key = term(&tuple(&[
            integer(sequence),
            atom(kind),
            ledger_key.to_vec(),
        ]));
        let start = self.bytes.len();
        let checksum = crc32(&[&key[..], value].concat());
        self.bytes.extend(sized(key.len()));
        self.bytes.extend(sized(value.len() + 4));
        self.bytes.extend(&key);
        self.bytes.extend(checksum.to_be_bytes());
        self.bytes.extend(value);
        self.records
            .push((hash(&key), u32::try_from(start).unwrap()));
    }

    /// Offsets of the records.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let starts = self.records.iter().map(|(_, start)| *start as usize);
        starts.collect()
    }

    /// The content of the completed file, with hash tables at its end and their places in front.
    pub(crate) fn completed(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for table in 0..256u32 {
            let records = self.records.iter().filter(|(hash, _)| hash & 255 == table);
            let records: Vec<_> = records.collect();
            let mut slots = vec![(0, 0); records.len() * 2];
            for (hash, start) in records {
                let mut slot = (hash >> 8) as usize % slots.len();
                while slots[slot] != (0, 0) {
                    slot = (slot + 1) % slots.len();
                }
                slots[slot] = (*hash, *start);
            }
            let front = [sized(bytes.len()), sized(slots.len())].concat();
            bytes[table as usize * 8..][..8].copy_from_slice(&front);
            for (hash, start) in slots {
                bytes.extend(hash.to_le_bytes());
                bytes.extend(start.to_le_bytes());
            }
        }
        bytes
    }
}

fn value(object: &[u8], changes: &[u8], flags: u8) -> Vec<u8> {
    let len = u32::try_from(changes.len()).unwrap().to_be_bytes();
    [object, changes, &len, &[flags]].concat()
}

fn no_changes() -> Vec<u8> {
    term(&tuple(&[list(&[]), atom("infinity")]))
}

fn changes_until(last_secs: u64) -> Vec<u8> {
    let seconds = (last_secs + UNIX_EPOCH).to_le_bytes();
    let seconds = [&[110, 8, 0], &seconds[..]].concat();
    term(&tuple(&[list(&[]), seconds]))
}

fn sized(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap().to_le_bytes()
}

fn hash(key: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33) ^ u32::from(*byte);
    key.iter().fold(5381, step)
}

/// CRC-32, computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}
