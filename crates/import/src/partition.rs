//! Indexes of partitions, which are names of directories, and their ring.
//!
//! A ring of `N` partitions, a power of two, has the indexes `K * 2^160 / N`. So a directory with
//! any other number, such as `20240131`, is no partition of any ring.

use std::path::Path;

use bytes::Bytes;
use kvorum_disk::Disk;
use kvorum_erlang_terms::external_term::TermReader;

/// Bytes of an index: indexes are below 2^160.
const INDEX_BYTES: usize = 20;
/// Exponent of a ring size far above the largest that Riak supports.
const RING_POWER_MAX: u32 = 16;
/// Maximum length of a ring's file, with entries for all partitions and buckets, in bytes.
const RING_FILE_BYTES_MAX: u64 = 256 << 20;
const RING_FILE_PREFIX: &str = "riak_core_ring.";

/// The index of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionIndex {
    /// Big-endian.
    bytes: [u8; INDEX_BYTES],
}

impl PartitionIndex {
    /// Reads a directory's name; `None` if no ring has its number.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let is_plain = name == "0" || !name.starts_with('0');
        if name.is_empty() || !is_plain {
            return None;
        }
        let mut bytes = [0; INDEX_BYTES];
        for digit in name.bytes() {
            if !digit.is_ascii_digit() {
                return None;
            }
            let mut carry = u32::from(digit - b'0');
            for byte in bytes.iter_mut().rev() {
                let value = u32::from(*byte) * 10 + carry;
                *byte = value.to_le_bytes()[0];
                carry = value >> 8;
            }
            if carry > 0 {
                return None;
            }
        }
        let index = Self { bytes };
        (index.ring_power() <= RING_POWER_MAX).then_some(index)
    }

    /// The smallest ring that has this index, as a power of two.
    fn ring_power(&self) -> u32 {
        let bits = self.bytes.iter().rposition(|byte| *byte != 0);
        bits.map_or(0, |last| {
            let before = u32::try_from(last).unwrap_or(u32::MAX) * 8;
            before + 8 - self.bytes[last].trailing_zeros()
        })
    }

    /// True if a ring of this many partitions has this index.
    pub(crate) fn is_in_ring_of(&self, partitions: u64) -> bool {
        1_u64 << self.ring_power() <= partitions
    }
}

/// The number of partitions in the newest readable ring file in a node's data directory; `None`
/// without such a file.
pub(crate) fn ring_of(disk: &dyn Disk, node: &Path) -> Option<u64> {
    let directory = node.join("ring");
    let entries = disk.list(&directory).ok()?;
    let names = entries.iter().map(|entry| &*entry.name);
    // `riak_core_ring.CLUSTER.YYYYMMDDhhmmss`
    let rings = names.filter(|name| name.starts_with(RING_FILE_PREFIX));
    let dated = rings.filter_map(|name| {
        let (_, date) = name.rsplit_once('.')?;
        Some((date.parse::<u64>().ok()?, name))
    });
    let (_, newest) = dated.max()?;
    let bytes = kvorum_disk::read_file(disk, &directory.join(newest), RING_FILE_BYTES_MAX).ok()?;
    partitions(&Bytes::from(bytes))
}

/// The number of partitions in `{chstate_v2, Node, VectorClock, {Partitions, Owners}, ...}`.
fn partitions(ring: &Bytes) -> Option<u64> {
    let mut reader = TermReader::begin(ring).ok()?;
    if reader.tuple().ok()? < 4 {
        return None;
    }
    let record = reader.next_term().ok()?;
    if !record.is_atom("chstate_v2") && !record.is_atom("chstate") {
        return None;
    }
    reader.next_term().ok()?;
    reader.next_term().ok()?;
    if reader.tuple().ok()? != 2 {
        return None;
    }
    let partitions = reader.next_term().ok()?.as_u64()?;
    partitions.is_power_of_two().then_some(partitions)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode};

    use super::*;

    /// A file that a node of Riak 3.2 with `ring_size = 8` wrote.
    const RING: &[u8] =
        include_bytes!("../tests/fixtures/riak-3.2/riak_core_ring.default.20261126010837");

    #[test]
    fn an_index_is_a_multiple_of_a_ring_s_step() {
        for (name, power) in [
            ("0", 0),
            ("730750818665451459101842416358141509827966271488", 1),
            ("1096126227998177188652763624537212264741949407232", 2),
            ("22835963083295358096932575511191922182123945984", 6),
            ("1438665674247607560106752257205091097473808596992", 6),
            ("22300745198530623141535718272648361505980416", 16),
        ] {
            let index = PartitionIndex::of_name(name).unwrap();
            assert_eq!(index.ring_power(), power, "{name}");
            assert!(index.is_in_ring_of(1 << power) && index.is_in_ring_of(1 << 16));
            assert!(power == 0 || !index.is_in_ring_of(1 << (power - 1)));
        }
        for name in [
            "",
            "1",
            "17",
            "20240131",
            "00",
            "007",
            "x",
            "+0",
            "0.old",
            "0-1382",
            // Half of the last step, a wrong digit, and 2^160 with additional digits.
            "11150372599265311570767859136324180752990208",
            "22835963083295358096932575511191922182123945985",
            "1461501637330902918203684832716283019655932542976",
            "14386656742476075601067522572050910974738085969920",
        ] {
            assert_eq!(PartitionIndex::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_newest_file_of_the_ring_says_how_many_partitions_there_are() {
        let disk = MemoryDisk::new();
        assert_eq!(ring_of(&disk, Path::new("riak")), None);
        disk.create_directory(Path::new("riak/ring")).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = Path::new("riak/ring").join(name);
            let file = disk.open(&path, OpenMode::CreateNew).unwrap();
            file.write_at(bytes, 0).unwrap();
        };
        write("riak_core_ring.default.20261126010837", RING);
        assert_eq!(ring_of(&disk, Path::new("riak")), Some(8));
        let mut larger = RING.to_vec();
        let at = larger
            .windows(4)
            .position(|it| it == b"h\x02a\x08")
            .unwrap();
        larger[at + 3] = 16;
        write("riak_core_ring.default.20261126010838", &larger);
        write("riak_core_ring.default.bak", b"");
        write("card", b"");
        assert_eq!(ring_of(&disk, Path::new("riak")), Some(16));
        write("riak_core_ring.default.20261126010839", &RING[..40]);
        assert_eq!(ring_of(&disk, Path::new("riak")), None);
        larger[at + 3] = 15;
        assert_eq!(partitions(&larger.into()), None);
    }
}
