//! Values that a worker writes, of the configured size and content.
//!
//! Values are slices of one large block that all workers share, so a value of any size costs a
//! reference and two random draws.

mod source_block;

#[cfg(test)]
mod distribution_test;
#[cfg(test)]
mod value_generator_test;

use bytes::Bytes;

use crate::random::WorkerRandom;
use kvorum_erlang_terms::Term;

pub use source_block::{BlockSettings, SEMI_COMPRESSIBLE_BLOCK_BYTES, SourceBlocks};

/// The largest value: sizes are offsets in a block in memory.
const SIZE_MAX: i128 = 1 << 32;

/// A generated value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes to store.
    Bytes(Bytes),
    /// A number, for counters or as a key.
    Integer(i64),
}

impl Value {
    /// The value as bytes to store: a number becomes decimal text.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Integer(value) => Bytes::from(value.to_string()),
        }
    }
}

/// Makes the values of one worker.
#[derive(Debug, Clone)]
pub struct ValueGenerator {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Constant(Bytes),
    Characters(usize),
    Integer {
        base: i64,
        count: u64,
    },
    Slice {
        size: Size,
        block: Bytes,
    },
    /// One of a number of values that are side by side in the block.
    Member {
        size: usize,
        count: u64,
        block: Bytes,
    },
}

/// The law of a slice's size.
#[derive(Debug, Clone, Copy)]
enum Size {
    Fixed(u64),
    /// The size min + uniform(span), so min itself never occurs.
    Uniform {
        min: u64,
        span: u64,
    },
    Exponential {
        min: u64,
        mean: f64,
    },
    /// An exponential law whose minimum and mean are multiplied with the given probability.
    MixedExponential {
        min: u64,
        mean: f64,
        multiplier: u64,
        probability: f64,
    },
    /// A Poisson law with this mean.
    Poisson(f64),
}

impl ValueGenerator {
    /// Builds the generator that a term describes. The error is a text about the term.
    pub fn build(term: &Term, blocks: &SourceBlocks) -> Result<Self, String> {
        let elements = term.as_tuple().ok_or_else(|| unknown(term))?;
        let (tag, arguments) = elements.split_first().ok_or_else(|| unknown(term))?;
        let kind = match (tag.as_atom().unwrap_or_default(), arguments) {
            ("function" | "external", _) => return Err(function_refusal()),
            ("fixed_bin", [size]) => Kind::random(Size::Fixed(size_of(size)?), blocks)?,
            ("fixed_bin", [size, byte]) => constant(size_of(size)?, byte)?,
            ("fixed_char", [size]) => Kind::Characters(to_usize(size_of(size)?)),
            ("exponential_bin", [min, mean]) => Kind::random(
                Size::Exponential {
                    min: size_of(min)?,
                    mean: mean_of(mean)?,
                },
                blocks,
            )?,
            ("uniform_bin", [min, max]) => {
                let (min, max) = (size_of(min)?, size_of(max)?);
                if min >= max {
                    return Err("expected {uniform_bin, Min, Max} with Min below Max".to_owned());
                }
                Kind::random(
                    Size::Uniform {
                        min,
                        span: max - min,
                    },
                    blocks,
                )?
            }
            ("uniform_int", [max]) => integers(0, integer_of(max)?)?,
            ("uniform_int", [min, max]) => integers(integer_of(min)?, integer_of(max)?)?,
            ("poisson_bin", [lambda]) => {
                Kind::random(Size::Poisson(poisson_mean(lambda)?), blocks)?
            }
            ("constant_bin" | "highly_compressible_bin", [size]) => {
                constant(size_of(size)?, &Term::Integer(i128::from(b'a')))?
            }
            ("fixed_bin_set", [size, count]) => member(size_of(size)?, integer_of(count)?, blocks)?,
            ("random_int", [max]) => integers(0, integer_of(max)?)?,
            ("timeseries_data", _) => {
                return Err("it makes rows of Riak's time series tables".to_owned());
            }
            ("semi_compressible", [min, mean]) => Kind::semi(
                Size::Exponential {
                    min: size_of(min)?,
                    mean: mean_of(mean)?,
                },
                blocks,
            )?,
            ("semi_compressible", [min, mean, multiplier, probability]) => {
                Kind::semi(mixed(min, mean, multiplier, probability)?, blocks)?
            }
            _ => return Err(unknown(term)),
        };
        Ok(Self { kind })
    }

    /// The next value.
    pub fn next(&self, random: &mut WorkerRandom) -> Value {
        match &self.kind {
            Kind::Constant(bytes) => Value::Bytes(bytes.clone()),
            Kind::Characters(size) => {
                Value::Bytes((0..*size).map(|_| random.printable()).collect())
            }
            Kind::Integer { base, count } => {
                let draw = i64::try_from(random.uniform(*count)).unwrap_or(i64::MAX);
                Value::Integer(base.saturating_add(draw))
            }
            Kind::Member { size, count, block } => {
                let start = to_usize(random.uniform(*count) - 1) * size;
                Value::Bytes(block.slice(start..start + size))
            }
            Kind::Slice { size, block } => {
                let size = to_usize(size.draw(random));
                Value::Bytes(slice(block, size, random))
            }
        }
    }

    /// True if values are numbers.
    pub fn makes_integers(&self) -> bool {
        matches!(self.kind, Kind::Integer { .. })
    }

    /// True if values are strings in Erlang (lists of characters).
    pub fn makes_strings(&self) -> bool {
        matches!(self.kind, Kind::Characters(_))
    }
}

impl Kind {
    fn random(size: Size, blocks: &SourceBlocks) -> Result<Self, String> {
        Ok(Self::Slice {
            size,
            block: blocks.random()?,
        })
    }

    fn semi(size: Size, blocks: &SourceBlocks) -> Result<Self, String> {
        Ok(Self::Slice {
            size,
            block: blocks.semi_compressible()?,
        })
    }
}

impl Size {
    fn draw(self, random: &mut WorkerRandom) -> u64 {
        match self {
            Self::Fixed(size) => size,
            Self::Uniform { min, span } => min + random.uniform(span),
            Self::Exponential { min, mean } => min + truncate(random.exponential(mean)),
            Self::Poisson(mean) => random.poisson(mean),
            Self::MixedExponential {
                min,
                mean,
                multiplier,
                probability,
            } => {
                if random.unit() < probability {
                    let factor = float(multiplier);
                    min * multiplier + truncate(random.exponential(mean * factor))
                } else {
                    min + truncate(random.exponential(mean))
                }
            }
        }
    }
}

/// A slice at an offset from 1 to the block's length minus the size; the whole block if it is too
/// short.
fn slice(block: &Bytes, size: usize, random: &mut WorkerRandom) -> Bytes {
    let Some(room) = block.len().checked_sub(size).filter(|room| *room > 0) else {
        return block.clone();
    };
    let offset = to_usize(random.uniform(room as u64));
    block.slice(offset..offset + size)
}

fn mixed(min: &Term, mean: &Term, multiplier: &Term, probability: &Term) -> Result<Size, String> {
    let multiplier = multiplier
        .as_integer()
        .filter(|value| (1..=10_000).contains(value))
        .and_then(|value| u64::try_from(value).ok())
        .ok_or("expected a whole XLMult from 1 to 10000")?;
    let probability = probability
        .as_number()
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or("expected an XLProb from 0 to 1")?;
    Ok(Size::MixedExponential {
        min: size_of(min)?,
        mean: mean_of(mean)?,
        multiplier,
        probability,
    })
}

fn constant(size: u64, byte: &Term) -> Result<Kind, String> {
    let byte = byte
        .as_integer()
        .and_then(|byte| u8::try_from(byte).ok())
        .ok_or("expected {fixed_bin, Size, Byte} with a byte from 0 to 255")?;
    Ok(Kind::Constant(Bytes::from(vec![byte; to_usize(size)])))
}

fn poisson_mean(term: &Term) -> Result<f64, String> {
    term.as_number()
        .filter(|mean| *mean > 0.0 && *mean <= 1e6)
        .ok_or_else(|| format!("expected a mean size above 0 and up to 1000000, not {term}"))
}

/// One of `count` values of this size.
fn member(size: u64, count: i64, blocks: &SourceBlocks) -> Result<Kind, String> {
    let block = blocks.random()?;
    let room = block.len() as u64 / size.max(1);
    let count = u64::try_from(count)
        .ok()
        .filter(|count| (1..=room).contains(count))
        .ok_or_else(|| {
            format!(
                "expected {{fixed_bin_set, Size, Count}} with a count of 1 to {room}, as \
                 value_generator_source_size has room for"
            )
        })?;
    Ok(Kind::Member {
        size: to_usize(size),
        count,
        block,
    })
}

fn integers(min: i64, max: i64) -> Result<Kind, String> {
    let count = max
        .checked_sub(min)
        .and_then(|count| u64::try_from(count).ok());
    let count = count
        .filter(|count| *count > 0)
        .ok_or("expected a range that is not empty")?;
    Ok(Kind::Integer { base: min, count })
}

fn integer_of(term: &Term) -> Result<i64, String> {
    term.as_integer()
        .and_then(|value| i64::try_from(value).ok())
        .ok_or_else(|| format!("expected an integer of 64 bits, not {term}"))
}

fn size_of(term: &Term) -> Result<u64, String> {
    term.as_integer()
        .filter(|size| (0..=SIZE_MAX).contains(size))
        .and_then(|size| u64::try_from(size).ok())
        .ok_or_else(|| format!("expected a size in bytes from 0 to {SIZE_MAX}, not {term}"))
}

fn mean_of(term: &Term) -> Result<f64, String> {
    term.as_number()
        .filter(|mean| *mean > 0.0 && *mean <= float(1 << 32))
        .ok_or_else(|| format!("expected a mean size in bytes above 0, not {term}"))
}

fn unknown(term: &Term) -> String {
    if term.as_tuple().is_none() && term.as_atom().is_none() {
        return format!("expected a value generator, a tuple, not {term}");
    }
    "expected {fixed_bin, Size}, {fixed_bin, Size, Byte}, {fixed_char, Size}, \
     {exponential_bin, Min, Mean}, {uniform_bin, Min, Max}, {uniform_int, Max}, \
     {uniform_int, Min, Max}, {poisson_bin, Lambda}, {constant_bin, Size}, \
     {fixed_bin_set, Size, Count} or {semi_compressible, Min, Mean, XLMult, XLProb}"
        .to_owned()
}

/// The reason why a generator that names an Erlang function is refused.
pub(crate) fn function_refusal() -> String {
    "it names a function of an Erlang module, and there is no Erlang here to run it; \
     choose one of the built-in generators"
        .to_owned()
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncation is the definition of the size, and floats saturate"
)]
fn truncate(value: f64) -> u64 {
    value as u64
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
