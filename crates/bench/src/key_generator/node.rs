//! Nodes: the sources and wrappers that make up a generator.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use bytes::Bytes;
use md4::Digest as _;

use super::external_term::external_term;
use super::format::Format;
use super::key::{Key, Kind};
use super::line_file::LineFile;
use super::sequence::Sequence;
use crate::random::WorkerRandom;
use crate::value_generator::{Value, ValueGenerator};

/// The generator has no further keys; the worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// Makes the keys of one worker.
#[derive(Debug)]
pub struct KeyGenerator {
    pub(super) node: Node,
}

impl KeyGenerator {
    /// The next key.
    pub fn next(&mut self, random: &mut WorkerRandom) -> Result<Key, Exhausted> {
        self.node.next(random)
    }
}

#[derive(Debug)]
pub(super) enum Node {
    Constant(Key),
    Uniform {
        start: i64,
        count: u64,
    },
    EightyTwenty {
        step: u64,
    },
    Pareto {
        scale: f64,
        max: Option<i64>,
    },
    Sequence(Sequence),
    Uuid,
    UuidText(String),
    TimestampMs,
    DynamoStyle,
    Lines(Arc<LineFile>),
    Value(Box<ValueGenerator>),
    IntegerToBinary {
        bytes: usize,
        big_endian: bool,
        inner: Box<Node>,
    },
    IntegerToString(Box<Node>),
    Formatted {
        format: Format,
        kind: Kind,
        inner: Box<Node>,
    },
    Recast {
        kind: Kind,
        inner: Box<Node>,
    },
    Base64(Box<Node>),
    Hash {
        algorithm: HashAlgorithm,
        inner: Box<Node>,
    },
    Concatenation(Box<Node>, Box<Node>),
    TermToBinary(Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashAlgorithm {
    Md4,
    Md5,
    Ripemd160,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Node {
    pub(super) fn sequence(start: i64, end: i64) -> Self {
        Self::Sequence(Sequence::new(start, end))
    }

    fn next(&mut self, random: &mut WorkerRandom) -> Result<Key, Exhausted> {
        Ok(match self {
            Self::Constant(key) => key.clone(),
            Self::Uniform { start, count } => {
                Key::Integer(start.saturating_add_unsigned(random.uniform(*count) - 1))
            }
            Self::EightyTwenty { step } => Key::Integer(eighty_twenty(*step, random)),
            Self::Pareto { scale, max } => {
                let key = pareto(*scale, random);
                Key::Integer(max.map_or(key, |max| key.min(max)))
            }
            Self::Sequence(sequence) => Key::Integer(sequence.next().ok_or(Exhausted)?),
            Self::Uuid => Key::Binary(uuid(random)),
            Self::UuidText(separator) => Key::String(uuid_text(&uuid(random), separator)),
            Self::TimestampMs => Key::Integer(milliseconds_now()),
            Self::TermToBinary(inner) => Key::Binary(external_term(&inner.next(random)?)),
            Self::DynamoStyle => Key::String(dynamo_style(random)),
            Self::Lines(file) => Key::Binary(file.next().ok_or(Exhausted)?),
            Self::Value(generator) => match generator.next(random) {
                Value::Integer(value) => Key::Integer(value),
                Value::Bytes(bytes) if generator.makes_strings() => Key::String(bytes),
                Value::Bytes(bytes) => Key::Binary(bytes),
            },
            Self::IntegerToBinary {
                bytes,
                big_endian,
                inner,
            } => Key::Binary(integer_bytes(
                inner.next(random)?.integer(),
                *bytes,
                *big_endian,
            )),
            Self::IntegerToString(inner) => Key::String(inner.next(random)?.into_bytes()),
            Self::Formatted {
                format,
                kind,
                inner,
            } => kind.key(Bytes::from(format.apply(&inner.next(random)?))),
            Self::Recast { kind, inner } => kind.key(inner.next(random)?.into_bytes()),
            Self::Base64(inner) => {
                let encoder = base64::engine::general_purpose::STANDARD;
                Key::Binary(Bytes::from(
                    encoder.encode(inner.next(random)?.into_bytes()),
                ))
            }
            Self::Hash { algorithm, inner } => {
                Key::Binary(algorithm.digest(&inner.next(random)?.into_bytes()))
            }
            Self::Concatenation(first, second) => {
                let mut bytes = first.next(random)?.into_bytes().to_vec();
                bytes.extend_from_slice(&second.next(random)?.into_bytes());
                Key::Binary(Bytes::from(bytes))
            }
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Constant(Key::Integer(_))
            | Self::Uniform { .. }
            | Self::EightyTwenty { .. }
            | Self::Pareto { .. }
            | Self::TimestampMs
            | Self::Sequence(_) => Kind::Integer,
            Self::Constant(Key::String(_))
            | Self::DynamoStyle
            | Self::UuidText(_)
            | Self::IntegerToString(_) => Kind::String,
            Self::Formatted { kind, .. } | Self::Recast { kind, .. } => *kind,
            Self::Value(generator) if generator.makes_integers() => Kind::Integer,
            Self::Value(generator) if generator.makes_strings() => Kind::String,
            Self::Constant(Key::Binary(_))
            | Self::Value(_)
            | Self::Uuid
            | Self::Lines(_)
            | Self::IntegerToBinary { .. }
            | Self::Base64(_)
            | Self::Hash { .. }
            | Self::TermToBinary(_)
            | Self::Concatenation(..) => Kind::Binary,
        }
    }
}

impl HashAlgorithm {
    fn digest(self, bytes: &[u8]) -> Bytes {
        match self {
            Self::Md4 => Bytes::copy_from_slice(&md4::Md4::digest(bytes)),
            Self::Md5 => Bytes::copy_from_slice(&md5::Md5::digest(bytes)),
            Self::Ripemd160 => Bytes::copy_from_slice(&ripemd::Ripemd160::digest(bytes)),
            Self::Sha1 => Bytes::copy_from_slice(&sha1::Sha1::digest(bytes)),
            Self::Sha224 => Bytes::copy_from_slice(&sha2::Sha224::digest(bytes)),
            Self::Sha256 => Bytes::copy_from_slice(&sha2::Sha256::digest(bytes)),
            Self::Sha384 => Bytes::copy_from_slice(&sha2::Sha384::digest(bytes)),
            Self::Sha512 => Bytes::copy_from_slice(&sha2::Sha512::digest(bytes)),
        }
    }
}

/// Four of five keys are uniform in the first fifth, the others in the rest.
fn eighty_twenty(step: u64, random: &mut WorkerRandom) -> i64 {
    let key = if random.unit() < 0.8 {
        random.uniform(step)
    } else {
        step + random.uniform(4 * step)
    };
    i64::try_from(key).unwrap_or(i64::MAX)
}

/// A Pareto law of shape 1.5, shifted to begin at 0 (a Lomax law), without an upper bound.
#[expect(
    clippy::cast_possible_truncation,
    reason = "truncation is the definition"
)]
fn pareto(scale: f64, random: &mut WorkerRandom) -> i64 {
    const EXPONENT: f64 = -1.0 / 1.5;
    (((1.0 - random.unit()).powf(EXPONENT) - 1.0) * scale) as i64
}

/// Sixteen random bytes with the bits of version 4.
fn uuid(random: &mut WorkerRandom) -> Bytes {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Bytes::copy_from_slice(&bytes)
}

/// The identifier's text: five groups of hexadecimal digits.
fn uuid_text(bytes: &[u8], separator: &str) -> Bytes {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push_str(separator);
        }
        push_hexadecimal(*byte, &mut text);
    }
    Bytes::from(text)
}

fn push_hexadecimal(byte: u8, text: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
    }
}

/// The wall clock, in milliseconds since 1970.
fn milliseconds_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// Four groups of sixteen random hexadecimal digits, joined by dashes: 67 characters.
fn dynamo_style(random: &mut WorkerRandom) -> Bytes {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    let mut text = String::with_capacity(67);
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 && index % 8 == 0 {
            text.push('-');
        }
        push_hexadecimal(*byte, &mut text);
    }
    Bytes::from(text)
}

/// The low bytes of the number in two's complement.
pub(super) fn integer_bytes(value: i64, width: usize, big_endian: bool) -> Bytes {
    let fill = if value < 0 { 0xff } else { 0 };
    let little = value.to_le_bytes();
    let mut bytes: Vec<u8> = little
        .into_iter()
        .chain(std::iter::repeat(fill))
        .take(width)
        .collect();
    if big_endian {
        bytes.reverse();
    }
    Bytes::from(bytes)
}
