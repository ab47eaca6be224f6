//! A small writer of stores in the format of Basho's LevelDB: tables, logs, manifests, keys. It
//! shares no code with the decoders under test.

/// CRC-32C, computed bit by bit, in LevelDB's masked form.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (0u32.wrapping_sub(crc & 1)))
        })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 128 {
        out.push(u8::try_from(value & 127).unwrap() | 128);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
    out
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u64)[..], bytes].concat()
}

/// Packs bits that are given as text.
fn packed(bits: &str) -> Vec<u8> {
    let bytes = bits.as_bytes().chunks(8).map(|chunk| {
        let digits = std::str::from_utf8(chunk).unwrap();
        u8::from_str_radix(digits, 2).unwrap()
    });
    bytes.collect()
}

fn sext_bytes(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return vec![8];
    }
    let bits: String = bytes.iter().map(|byte| format!("1{byte:08b}")).collect();
    let padding = "0".repeat(8 - bytes.len() % 8);
    [packed(&(bits + &padding)), vec![8]].concat()
}

fn sext_binary(bytes: &[u8]) -> Vec<u8> {
    [vec![18], sext_bytes(bytes)].concat()
}

fn sext_atom(name: &str) -> Vec<u8> {
    [vec![12], sext_bytes(name.as_bytes())].concat()
}

fn sext_tuple(elements: &[Vec<u8>]) -> Vec<u8> {
    let arity = u32::try_from(elements.len()).unwrap().to_be_bytes();
    [vec![16], arity.to_vec(), elements.concat()].concat()
}

/// An integer in sext; larger integers also in the form of Riak before 1.3.1.
pub(crate) fn sext_integer(value: i64, is_legacy: bool) -> Vec<u8> {
    let big = |magnitude: u64| {
        let bytes = magnitude.to_be_bytes();
        let digits = &bytes[usize::try_from(magnitude.leading_zeros() / 8).unwrap()..];
        // sext would read a first digit of 255 as two digits.
        let digits = &[if digits[0] == 255 { &[0][..] } else { &[] }, digits].concat()[..];
        match is_legacy {
            true => sext_bytes(digits),
            false => {
                let len = u8::try_from(digits.len()).unwrap();
                sext_bytes(&[&[255, len], digits].concat())
            }
        }
    };
    match value {
        0..=0x7fff_ffff => packed(&format!("00001010{value:031b}0")),
        0x8000_0000.. => {
            let magnitude = u64::try_from(value).unwrap();
            [vec![11], big(magnitude), vec![0]].concat()
        }
        -0x7fff_ffff..0 => packed(&format!("00001001{:031b}1", value + 0x7fff_ffff)),
        _ => {
            let missing = u64::MAX - value.unsigned_abs();
            [vec![8, 255, 255, 255, 254], big(missing), vec![255]].concat()
        }
    }
}

pub(crate) fn sext_text(value: &str) -> Vec<u8> {
    sext_binary(value.as_bytes())
}

fn sext_bucket(bucket_type: Option<&str>, bucket: &str) -> Vec<u8> {
    match bucket_type {
        Some(name) => sext_tuple(&[sext_text(name), sext_text(bucket)]),
        None => sext_text(bucket),
    }
}

/// The key of an object.
pub(crate) fn key(bucket: &str, key: &str) -> Vec<u8> {
    sext_tuple(&[sext_atom("o"), sext_bucket(None, bucket), sext_text(key)])
}

/// The key of an object in a typed bucket.
pub(crate) fn typed_key(bucket_type: &str, bucket: &str, key: &str) -> Vec<u8> {
    let bucket = sext_bucket(Some(bucket_type), bucket);
    sext_tuple(&[sext_atom("o"), bucket, sext_text(key)])
}

/// The key of an index entry, with an encoded term.
pub(crate) fn index_key(bucket: &str, field: &str, term: &[u8], key: &str) -> Vec<u8> {
    let (bucket, field) = (sext_text(bucket), sext_text(field));
    sext_tuple(&[sext_atom("i"), bucket, field, term.to_vec(), sext_text(key)])
}

/// The key of the note that Riak writes to every store with indexes.
pub(crate) fn note_key() -> Vec<u8> {
    sext_tuple(&[sext_atom("md"), sext_atom("fixed_indexes")])
}

/// A write.
#[derive(Clone)]
pub(crate) struct Write {
    pub(crate) key: Vec<u8>,
    sequence: u64,
    kind: u8,
    micros: u64,
    value: Vec<u8>,
}

impl Write {
    fn internal_key(&self) -> Vec<u8> {
        let mut out = self.key.clone();
        if self.kind >= 2 {
            out.extend(self.micros.to_le_bytes());
        }
        out.extend((self.sequence << 8 | u64::from(self.kind)).to_le_bytes());
        out
    }
}

/// Packing of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Plain,
    Snappy,
    Lz4,
    /// No compression, since it did not pay.
    GivenUp,
}

/// One store. Every write gets a higher sequence than all earlier ones.
#[derive(Clone, Default)]
pub(crate) struct LevelStore {
    sequence: u64,
    next_file: u64,
    /// Edits after the first one.
    edits: Vec<Vec<u8>>,
    /// Files by name, with their contents.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    log_number: u64,
    previous_log_number: u64,
}

/// Bytes of entries after which a block ends.
const BLOCK_BYTES: usize = 400;

impl LevelStore {
    fn write(&mut self, key: &[u8], kind: u8, micros: u64, value: &[u8]) -> Write {
        self.sequence += 1;
        Write {
            key: key.to_vec(),
            sequence: self.sequence,
            kind,
            micros,
            value: value.to_vec(),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Write {
        self.write(key, 1, 0, value)
    }

    pub(crate) fn put_at(&mut self, key: &[u8], value: &[u8], written_at: u64) -> Write {
        self.write(key, 2, written_at, value)
    }

    pub(crate) fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: u64) -> Write {
        self.write(key, 3, expires_at, value)
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Write {
        self.write(key, 0, 0, &[])
    }

    fn number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file + 4
    }

    /// Adds a table, and returns its name.
    pub(crate) fn table(&mut self, level: u32, writes: &[Write], packing: Packing) -> String {
        let mut writes = writes.to_vec();
        writes.sort_by_key(|write| (write.key.clone(), u64::MAX - write.sequence));
        let number = self.number();
        let bytes = table(&writes, packing);
        let (first, last) = (writes.first().unwrap(), writes.last().unwrap());
        let expires = writes.iter().any(|write| write.kind >= 2);
        let mut edit = varint(if expires { 11 } else { 7 });
        edit.extend(varint(level.into()));
        edit.extend(varint(number));
        edit.extend(varint(bytes.len() as u64));
        edit.extend(text(&first.internal_key()));
        edit.extend(text(&last.internal_key()));
        if expires {
            edit.extend([varint(0), varint(1 << 50), varint(0)].concat());
        }
        self.edits.push(edit);
        let name = format!("sst_{level}/{number:06}.sst");
        self.files.push((name.clone(), bytes));
        name
    }

    /// Removes a table from the store, but keeps its file.
    pub(crate) fn forget(&mut self, level: u32, number: u64) {
        let edit = [varint(6), varint(level.into()), varint(number)].concat();
        self.edits.push(edit);
    }

    /// Adds a log in which each batch is a record, and returns its name.
    pub(crate) fn log(&mut self, batches: &[Vec<Write>]) -> String {
        let records: Vec<Vec<u8>> = batches.iter().map(|writes| batch(writes)).collect();
        let number = self.number();
        let name = format!("{number:06}.log");
        self.files.push((name.clone(), framed(&records)));
        name
    }

    /// Marks all logs so far as being in tables, optionally except the last.
    pub(crate) fn logs_are_done(&mut self, keeps_last: bool) {
        if keeps_last {
            self.previous_log_number = self.next_file + 4;
        }
        self.log_number = self.next_file + 5;
    }

    /// All files: names and contents.
    pub(crate) fn all_files(&self) -> Vec<(String, Vec<u8>)> {
        let numbers = [
            varint(2),
            varint(self.log_number),
            varint(9),
            varint(self.previous_log_number),
            varint(3),
            varint(self.next_file + 100),
            varint(4),
            varint(self.sequence),
            varint(5),
            varint(1),
            text(b"anything"),
            varint(10),
            varint(1),
            varint(5),
            varint(4096),
        ];
        let first = [varint(1), text(b"leveldb.BytewiseComparator")].concat();
        let mut records = vec![first];
        records.extend(self.edits.iter().cloned());
        records.push(numbers.concat());
        let mut files = self.files.clone();
        files.push(("MANIFEST-000002".to_owned(), framed(&records)));
        files.push(("CURRENT".to_owned(), b"MANIFEST-000002\n".to_vec()));
        files.push(("LOCK".to_owned(), Vec::new()));
        files.push(("LOG".to_owned(), b"what LevelDB says".to_vec()));
        files
    }
}

fn batch(writes: &[Write]) -> Vec<u8> {
    let first = writes.first().map_or(1, |write| write.sequence);
    let mut out = first.to_le_bytes().to_vec();
    out.extend(u32::try_from(writes.len()).unwrap().to_le_bytes());
    for (number, write) in writes.iter().enumerate() {
        assert_eq!(write.sequence, first + number as u64);
        out.push(write.kind);
        out.extend(text(&write.key));
        if write.kind >= 2 {
            out.extend(varint(write.micros));
        }
        if write.kind >= 1 {
            out.extend(text(&write.value));
        }
    }
    out
}

/// Records in blocks of 32 KiB.
fn framed(records: &[Vec<u8>]) -> Vec<u8> {
    const BLOCK: usize = 32768;
    let mut out = Vec::new();
    for record in records {
        let mut rest = &record[..];
        let mut is_first = true;
        loop {
            let left = BLOCK - out.len() % BLOCK;
            if left < 7 {
                out.extend(vec![0; left]);
                continue;
            }
            let (piece, behind) = rest.split_at(rest.len().min(left - 7));
            let kind = match (is_first, behind.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            let covered = [&[kind], piece].concat();
            out.extend(masked_crc(&covered).to_le_bytes());
            out.extend(u16::try_from(piece.len()).unwrap().to_le_bytes());
            out.extend(covered);
            rest = behind;
            is_first = false;
            if rest.is_empty() {
                break;
            }
        }
    }
    out
}

/// A block under construction.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    count: usize,
    last: Vec<u8>,
}

impl Block {
    fn add(&mut self, key: &[u8], value: &[u8], restart_interval: usize) {
        let mut shared = 0;
        if self.count.is_multiple_of(restart_interval) {
            self.restarts.push(u32::try_from(self.bytes.len()).unwrap());
        } else {
            let pairs = self.last.iter().zip(key);
            shared = pairs.take_while(|(a, b)| a == b).count();
        }
        self.bytes.extend(varint(shared as u64));
        self.bytes.extend(varint((key.len() - shared) as u64));
        self.bytes.extend(varint(value.len() as u64));
        self.bytes.extend(&key[shared..]);
        self.bytes.extend(value);
        self.last = key.to_vec();
        self.count += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        for restart in &self.restarts {
            self.bytes.extend(restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap();
        self.bytes.extend(count.to_le_bytes());
        self.bytes
    }
}

/// Appends a block with its trailer, and returns its handle.
fn append(out: &mut Vec<u8>, contents: &[u8], packing: Packing) -> Vec<u8> {
    let (kind, packed) = match packing {
        Packing::Plain => (0, contents.to_vec()),
        Packing::GivenUp => (3, contents.to_vec()),
        Packing::Snappy => {
            let packed = snap::raw::Encoder::new().compress_vec(contents);
            (1, packed.unwrap())
        }
        Packing::Lz4 => {
            let len = u32::try_from(contents.len()).unwrap().to_le_bytes();
            let packed = lz4_flex::block::compress(contents);
            (2, [&len[..], &packed].concat())
        }
    };
    let handle = [varint(out.len() as u64), varint(packed.len() as u64)].concat();
    let covered = [&packed[..], &[kind]].concat();
    out.extend(&covered);
    out.extend(masked_crc(&covered).to_le_bytes());
    handle
}

/// A table of sorted writes.
fn table(writes: &[Write], packing: Packing) -> Vec<u8> {
    let mut out = Vec::new();
    let mut index = Block::default();
    let mut block = Block::default();
    for (number, write) in writes.iter().enumerate() {
        let key = write.internal_key();
        block.add(&key, &write.value, 16);
        if block.bytes.len() >= BLOCK_BYTES || number + 1 == writes.len() {
            let contents = std::mem::take(&mut block).finish();
            let handle = append(&mut out, &contents, packing);
            index.add(&key, &handle, 1);
        }
    }
    let filter = append(&mut out, b"bits that nobody needs \x1c", Packing::Plain);
    let counters: Vec<u8> = [1, 19].into_iter().chain([7; 19]).collect();
    let stats = append(&mut out, &counters, Packing::Plain);
    let mut others = Block::default();
    others.add(b"filter.leveldb.BuiltinBloomFilter2", &filter, 16);
    others.add(b"stats.sst1", &stats, 16);
    let others = append(&mut out, &others.finish(), Packing::Plain);
    let index = append(&mut out, &index.finish(), packing);
    let mut footer = [others, index].concat();
    footer.resize(40, 0);
    out.extend(footer);
    out.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    out
}
