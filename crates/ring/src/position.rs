//! The position of a key on the circle: SHA-1 over the bytes that Riak hashes.
//!
//! The hash is Riak's own, to the byte, so that partitions, preference lists and data directories
//! of a migrated cluster mean the same thing on both sides.

use kvorum_encoding::{Bucket, BucketType, Key};
use sha1::{Digest, Sha1};

use crate::partition::{Partition, RingSize};

/// A position on the circle of 2^160, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position([u8; 20]);

/// The part of an address that is hashed; the bucket property `chash_keyfun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyHash {
    /// Bucket and key (`chash_std_keyfun`): the keys of a bucket spread over the whole ring.
    #[default]
    Standard,
    /// The bucket alone (`chash_bucketonly_keyfun`): all its keys share one preference list.
    BucketOnly,
}

/// Tags of the Erlang external term format that an address needs.
const TERM_VERSION: u8 = 131;
const PAIR: [u8; 2] = [104, 2];
const BINARY: u8 = 109;

/// The position of a key.
///
/// ```text
/// hashed, untyped:     version 131 | pair 104,2 | bucket | key
/// hashed, typed:       version 131 | pair 104,2 | pair 104,2 | type | bucket | key
/// hashed, bucket only: version 131 | bucket,  or  version 131 | pair 104,2 | type | bucket
/// each name:           109 | length, 4 bytes big-endian | bytes
/// ```
pub fn position(bucket_type: &BucketType, bucket: &Bucket, key: &Key, hash: KeyHash) -> Position {
    let mut sha = Sha1::new();
    sha.update([TERM_VERSION]);
    if hash == KeyHash::Standard {
        sha.update(PAIR);
    }
    if !bucket_type.is_default() {
        sha.update(PAIR);
        update_binary(&mut sha, bucket_type.as_bytes());
    }
    update_binary(&mut sha, bucket.as_bytes());
    if hash == KeyHash::Standard {
        update_binary(&mut sha, key.as_bytes());
    }
    Position(sha.finalize().into())
}

fn update_binary(sha: &mut Sha1, bytes: &[u8]) {
    // The format has 32 bits for the length; the protocols limit names to far less.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut head = [BINARY, 0, 0, 0, 0];
    head[1..].copy_from_slice(&length.to_be_bytes());
    sha.update(head);
    sha.update(bytes);
}

impl Position {
    /// The position with these bytes, big-endian.
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// The bytes, big-endian.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// A position whose keys have `first` as the partition of their first replica.
    pub fn before(size: RingSize, first: Partition) -> Self {
        let slice = size.before(first, 1).number() << (16 - size.bits());
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&slice.to_be_bytes());
        Self(bytes)
    }

    /// The owner partition, which has the first replica: the partition that *follows* the position.
    pub fn owner(&self, size: RingSize) -> Partition {
        let [first, second, ..] = self.0;
        let slice = u16::from_be_bytes([first, second]) >> (16 - size.bits());
        size.wrap(slice.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(position: Position) -> String {
        position
            .as_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[test]
    fn a_position_before_a_partition_has_it_as_its_owner() {
        for partitions in [8, 64, 4096] {
            let size = RingSize::new(partitions).unwrap();
            for partition in size.partitions() {
                let position = Position::before(size, partition);
                assert_eq!(position.owner(size), partition);
            }
        }
    }

    fn at(bucket_type: &'static str, hash: KeyHash) -> Position {
        position(
            &BucketType::from(bucket_type),
            &Bucket::from("b"),
            &Key::from("k"),
            hash,
        )
    }

    #[test]
    fn the_hash_covers_the_external_term() {
        // Made with sha1sum from the bytes in the drawing above, written by hand.
        let untyped = "6c38d93a9b70c325a8294365c4150ff68fe1a214";
        assert_eq!(hex(at("default", KeyHash::Standard)), untyped);
        assert_eq!(hex(at("", KeyHash::Standard)), untyped);
        assert_eq!(
            hex(at("t", KeyHash::Standard)),
            "8b06349aa84e04044860ead307a70d0e8ff9ce65"
        );
        assert_eq!(
            hex(at("", KeyHash::BucketOnly)),
            "fc6165dfb7ce20e2068ddc3c35e844ce8e6b2cd9"
        );
        assert_eq!(
            hex(at("t", KeyHash::BucketOnly)),
            "852a221c9d03adfb3a399318b615c70be043a3b5"
        );
    }

    #[test]
    fn the_owner_is_the_partition_after_the_position() {
        let size = RingSize::new(64).unwrap();
        let with_top = |top: u8| {
            let mut bytes = [0; 20];
            bytes[0] = top;
            Position::from_bytes(bytes).owner(size).number()
        };
        assert_eq!(with_top(0), 1);
        assert_eq!(with_top(3), 1);
        assert_eq!(with_top(4), 2);
        assert_eq!(with_top(0xfb), 63);
        assert_eq!(with_top(0xff), 0);
        let largest = RingSize::new(4096).unwrap();
        assert_eq!(Position::from_bytes([0xff; 20]).owner(largest).number(), 0);
        assert_eq!(Position::from_bytes([0; 20]).owner(largest).number(), 1);
    }
}
