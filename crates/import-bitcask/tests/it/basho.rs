//! A small writer of Basho's files: data files, hint files and keys of all versions. It shares no
//! code with the decoders under test.

use crate::riak_objects::{binary, sized16, term, tuple};

/// CRC-32 with zlib's polynomial, bit by bit.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (0u32.wrapping_sub(crc & 1)))
        })
    })
}

/// Default time of the writer's records.
pub(crate) const WRITTEN_AT: u32 = 1_700_000_000;

/// One data file and its hint file.
#[derive(Clone, Default)]
pub(crate) struct CaskFile {
    pub(crate) data: Vec<u8>,
    hints: Vec<u8>,
}

impl CaskFile {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> u64 {
        self.record(key, value, WRITTEN_AT, false)
    }

    pub(crate) fn put_at(&mut self, key: &[u8], value: &[u8], written_at: u32) -> u64 {
        self.record(key, value, written_at, false)
    }

    /// A deletion mark of version 0, 1 or 2.
    pub(crate) fn delete(&mut self, key: &[u8], version: u8) -> u64 {
        self.delete_in(key, version, 7)
    }

    /// A deletion mark with the id of a file, which marks of version 0 lack.
    pub(crate) fn delete_in(&mut self, key: &[u8], version: u8, file_id: u32) -> u64 {
        let mut value = b"bitcask_tombstone".to_vec();
        if version > 0 {
            value.push(b'0' + version);
            value.extend(file_id.to_be_bytes());
        }
        self.record(key, &value, WRITTEN_AT, true)
    }

    fn record(&mut self, key: &[u8], value: &[u8], written_at: u32, is_tombstone: bool) -> u64 {
        let offset = self.data.len() as u64;
        let mut body = written_at.to_be_bytes().to_vec();
        body.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(key);
        body.extend(value);
        self.data.extend(crc32(&body).to_be_bytes());
        self.data.extend(&body);
        self.hints.extend(written_at.to_be_bytes());
        self.hints
            .extend(u16::try_from(key.len()).unwrap().to_be_bytes());
        self.hints
            .extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        self.hints
            .extend((u64::from(is_tombstone) << 63 | offset).to_be_bytes());
        self.hints.extend(key);
        offset
    }

    /// The hint file of a clean close.
    pub(crate) fn hint(&self) -> Vec<u8> {
        let mut hint = self.hints.clone();
        hint.extend([0; 6]);
        hint.extend(crc32(&self.hints).to_be_bytes());
        hint.extend((u64::MAX >> 1).to_be_bytes());
        hint
    }
}

/// A key of version 1 without a type.
pub(crate) fn key(bucket: &str, key: &str) -> Vec<u8> {
    [&[2], &sized16(bucket.as_bytes())[..], key.as_bytes()].concat()
}

/// A key of version 1 with a type.
pub(crate) fn typed_key(bucket_type: &str, bucket: &str, key: &str) -> Vec<u8> {
    let (bucket_type, bucket) = (sized16(bucket_type.as_bytes()), sized16(bucket.as_bytes()));
    [&[3], &bucket_type[..], &bucket, key.as_bytes()].concat()
}

/// A key of version 0: an external term.
pub(crate) fn old_key(bucket: &str, key: &str) -> Vec<u8> {
    term(&tuple(&[binary(bucket), binary(key)]))
}
