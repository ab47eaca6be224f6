//! The hello: a node's identity, its cluster, and its versions. A pure codec and a pure verdict.
//!
//! Both sides send a hello before anything else; the callee answers with its verdict. A node
//! answers only members of its own cluster, except that a node without a cluster may ask to join:
//! the service decides which of its requests are answered.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kvorum_ring::NodeId;

use crate::lane::Lane;

/// The protocol's versions that this build supports.
pub const VERSIONS: std::ops::RangeInclusive<u16> = 1..=1;

const MAGIC: &[u8; 8] = b"KvPeer\r\n";
const NAME_BYTES_MAX: usize = 255;
/// The longest hello: every field and the longest name.
pub(crate) const HELLO_BYTES_MAX: usize = 8 + 2 + 2 + 2 + 1 + 16 * 3 + 1 + NAME_BYTES_MAX + 4;
/// The verdict's length.
pub(crate) const VERDICT_BYTES: usize = 1 + 2 + 16 + 4;

/// Length of the start of a hello, up to the caller's identity.
pub const CALLER_BYTES: usize = 8 + 2 + 2 + 2 + 1 + 16 + 16;

/// The caller in the first bytes of a hello; `None` when these begin no hello. For a relay between
/// two nodes; checks only the beginning of the hello.
#[must_use]
pub fn caller(start: &[u8; CALLER_BYTES]) -> Option<NodeId> {
    start.starts_with(MAGIC).then_some(())?;
    let node = start.last_chunk::<16>()?;
    Some(NodeId::from_bytes(*node))
}

/// A node's introduction of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The cluster's identity, or the zero identity of a node without a cluster.
    pub cluster: NodeId,
    /// The cluster's name, as configured. It reveals a misconfigured node; two clusters of one name
    /// differ in their identities.
    pub cluster_name: String,
    /// The node.
    pub node: NodeId,
}

/// A hello: an introduction, the lane, the expected node at the other end, and the versions spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) introduction: Introduction,
    pub(crate) lane: Lane,
    /// The called node; zero when its identity is not known yet.
    pub(crate) expected: NodeId,
    pub(crate) lowest: u16,
    pub(crate) highest: u16,
}

/// The decision about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A member of this cluster.
    Member,
    /// A node without a cluster, which may ask to join.
    Stranger,
    /// Not admitted.
    Refused(Refusal),
}

/// The reason why a caller is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller belongs to another cluster.
    #[error("it belongs to another cluster")]
    OtherCluster,
    /// The caller's configuration names another cluster.
    #[error("its cluster has another name; check `cluster_name` on both sides")]
    OtherName,
    /// The caller was removed from this cluster.
    #[error("this node was removed from the cluster")]
    Removed,
    /// The caller expected another node.
    #[error("another node listens there")]
    OtherNode,
    /// No common version.
    #[error("it speaks other versions of the protocol; upgrade one step at a time")]
    NoCommonVersion,
    /// The caller sent no hello.
    #[error("it does not speak this protocol")]
    NoHello,
    /// The connection is not encrypted, and has to be.
    #[error(
        "the connection is not encrypted, and has to be; set `cluster.tls` to on on both sides"
    )]
    NotEncrypted,
    /// The certificate is another node's.
    #[error("the caller's certificate has another name; see the log of the node that was called")]
    OtherCertificate,
}

impl Refusal {
    const ALL: [Self; 8] = [
        Self::OtherCluster,
        Self::OtherName,
        Self::Removed,
        Self::OtherNode,
        Self::NoCommonVersion,
        Self::NoHello,
        Self::NotEncrypted,
        Self::OtherCertificate,
    ];

    /// True when certificates or settings of TLS are at fault.
    pub(crate) fn is_about_encryption(self) -> bool {
        matches!(self, Self::NotEncrypted | Self::OtherCertificate)
    }

    fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|refusal| *refusal == self);
        place
            .and_then(|place| u8::try_from(place).ok())
            .unwrap_or(0)
            + 2
    }

    fn from_code(code: u8) -> Option<Self> {
        let place = usize::from(code.checked_sub(2)?);
        Self::ALL.get(place).copied()
    }
}

/// The callee's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) admission: Admission,
    /// The version to use: the highest that both support.
    pub(crate) version: u16,
    /// The node that was reached.
    pub(crate) node: NodeId,
}

pub(crate) const NO_NODE: NodeId = NodeId::from_bytes([0; 16]);

impl Hello {
    pub(crate) fn new(introduction: Introduction, lane: Lane, expected: NodeId) -> Self {
        Self {
            introduction,
            lane,
            expected,
            lowest: *VERSIONS.start(),
            highest: *VERSIONS.end(),
        }
    }

    /// The highest version that both sides support.
    pub(crate) fn common_version(&self) -> Option<u16> {
        let highest = self.highest.min(*VERSIONS.end());
        (highest >= self.lowest.max(*VERSIONS.start())).then_some(highest)
    }

    /// Appends a hello:
    ///
    /// ```text
    /// size  field
    /// 8     "KvPeer\r\n"
    /// 2     length of what follows, checksum included
    /// 2     lowest version
    /// 2     highest version
    /// 1     lane
    /// 16    cluster
    /// 16    node
    /// 16    node expected at the other end, or zero
    /// 1     length of the cluster's name, then the name
    /// 4     CRC-32C of everything before
    /// ```
    pub(crate) fn encode(&self) -> Bytes {
        let name = self.introduction.cluster_name.as_bytes();
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let mut out = BytesMut::with_capacity(HELLO_BYTES_MAX);
        out.put_slice(MAGIC);
        let length = 2 + 2 + 1 + 16 * 3 + 1 + name.len() + 4;
        out.put_u16_le(u16::try_from(length).unwrap_or(u16::MAX));
        out.put_u16_le(self.lowest);
        out.put_u16_le(self.highest);
        out.put_u8(self.lane.code());
        out.put_slice(self.introduction.cluster.as_bytes());
        out.put_slice(self.introduction.node.as_bytes());
        out.put_slice(self.expected.as_bytes());
        out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.put_slice(name);
        let checksum = crc32c::crc32c(&out);
        out.put_u32_le(checksum);
        out.freeze()
    }

    /// Number of bytes of a hello after its first ten; `None` when these begin no hello.
    pub(crate) fn rest_of(start: &[u8; 10]) -> Option<usize> {
        let (magic, length) = start.split_at(8);
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let is_possible = (58..=HELLO_BYTES_MAX - 10).contains(&length);
        (magic == MAGIC && is_possible).then_some(length)
    }

    /// Decodes a whole hello.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        if rest.len() < 2 + 2 + 2 + 1 + 16 * 3 + 1 {
            return None;
        }
        rest.advance(2);
        let (lowest, highest) = (rest.get_u16_le(), rest.get_u16_le());
        let lane = Lane::from_code(rest.get_u8())?;
        let (cluster, node, expected) = (id(&mut rest), id(&mut rest), id(&mut rest));
        let name_len = usize::from(rest.get_u8());
        if rest.len() != name_len {
            return None;
        }
        Some(Self {
            introduction: Introduction {
                cluster,
                cluster_name: String::from_utf8(rest.to_vec()).ok()?,
                node,
            },
            lane,
            expected,
            lowest,
            highest,
        })
    }
}

impl Verdict {
    /// Appends a verdict:
    ///
    /// ```text
    /// size  field
    /// 1     0 member, 1 stranger, 2 and up a refusal
    /// 2     version to speak
    /// 16    node that was reached
    /// 4     CRC-32C of everything before
    /// ```
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(VERDICT_BYTES);
        out.put_u8(match self.admission {
            Admission::Member => 0,
            Admission::Stranger => 1,
            Admission::Refused(refusal) => refusal.code(),
        });
        out.put_u16_le(self.version);
        out.put_slice(self.node.as_bytes());
        let checksum = crc32c::crc32c(&out);
        out.put_u32_le(checksum);
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8; VERDICT_BYTES]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = content;
        let admission = match rest.get_u8() {
            0 => Admission::Member,
            1 => Admission::Stranger,
            code => Admission::Refused(Refusal::from_code(code)?),
        };
        Some(Self {
            admission,
            version: rest.get_u16_le(),
            node: id(&mut rest),
        })
    }
}

/// Takes an identity from the front; the caller has checked that it is there.
fn id(rest: &mut &[u8]) -> NodeId {
    let mut bytes = [0; 16];
    rest.copy_to_slice(&mut bytes);
    NodeId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn hello() -> Hello {
        let introduction = Introduction {
            cluster: NodeId::from_bytes([1; 16]),
            cluster_name: "orders".into(),
            node: NodeId::from_bytes([2; 16]),
        };
        Hello::new(introduction, Lane::Bulk, NodeId::from_bytes([3; 16]))
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("\"KvPeer\", a carriage return and a newline", 8),
            ("length of what follows", 2),
            ("lowest version", 2),
            ("highest version", 2),
            ("lane", 1),
            ("cluster", 16),
            ("node", 16),
            ("node expected at the other end", 16),
            ("length of the cluster's name", 1),
            ("name", 6),
            ("CRC-32C of everything before", 4),
        ];
        assert_bytes("hello.hex", &drawing, &hello().encode());
        let verdict = Verdict {
            admission: Admission::Refused(Refusal::OtherNode),
            version: 1,
            node: NodeId::from_bytes([9; 16]),
        };
        let drawing = [
            ("2 and up: a refusal", 1),
            ("version to speak", 2),
            ("node that was reached", 16),
            ("CRC-32C of everything before", 4),
        ];
        assert_bytes("hello.verdict.hex", &drawing, &verdict.encode());
    }

    #[test]
    fn a_hello_survives_its_way_and_no_flipped_bit() {
        let encoded = hello().encode();
        let start = encoded.first_chunk::<10>().unwrap();
        assert_eq!(Hello::rest_of(start), Some(encoded.len() - 10));
        assert_eq!(Hello::decode(&encoded), Some(hello()));
        let start = encoded.first_chunk::<CALLER_BYTES>().unwrap();
        assert_eq!(caller(start), Some(hello().introduction.node));
        assert_eq!(caller(&[0; CALLER_BYTES]), None);
        for at in 0..encoded.len() {
            for bit in 0..8 {
                let mut flipped = encoded.to_vec();
                flipped[at] ^= 1 << bit;
                assert_eq!(Hello::decode(&flipped), None);
            }
            assert_eq!(Hello::decode(&encoded[..at]), None);
        }
    }

    #[test]
    fn every_verdict_survives_its_way() {
        let refusals = Refusal::ALL.map(Admission::Refused);
        for admission in [Admission::Member, Admission::Stranger]
            .into_iter()
            .chain(refusals)
        {
            let verdict = Verdict {
                admission,
                version: 1,
                node: NodeId::from_bytes([9; 16]),
            };
            let encoded = verdict.encode();
            let encoded = encoded.first_chunk::<VERDICT_BYTES>().unwrap();
            assert_eq!(Verdict::decode(encoded), Some(verdict));
            let mut flipped = *encoded;
            flipped[0] ^= 0x80;
            assert_eq!(Verdict::decode(&flipped), None);
        }
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        let speaking = |lowest, highest| Hello {
            lowest,
            highest,
            ..hello()
        };
        assert_eq!(speaking(1, 7).common_version(), Some(1));
        assert_eq!(speaking(2, 7).common_version(), None);
        assert_eq!(speaking(0, 0).common_version(), None);
    }
}
