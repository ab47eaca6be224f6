//! Erlang's external term format, as far as Riak's objects use it.
//!
//! Not the `eetf` crate: it reserves memory by the lengths that it reads, up to 4 billion elements,
//! and follows nesting without a limit, so that eleven damaged bytes end the process. Here every
//! length is compared with the available bytes, and depth, number of terms and inflated size are
//! limited. Binaries share the buffer from which they were read.

use std::io::Read;

use bytes::Bytes;

/// The first byte of every encoded term.
pub const FORMAT_BYTE: u8 = 131;
const COMPRESSED: u8 = 80;
const DEPTH_MAX: usize = 64;
const TERMS_MAX: usize = 1 << 20;
/// The most that a compressed term may inflate to, in bytes.
const INFLATED_BYTES_MAX: u64 = 256 << 20;
/// The longest integers, in bytes; longer ones do not occur in Riak's objects.
const INTEGER_BYTES_MAX: usize = 16;

/// A decoded term. Terms that never occur in Riak's objects (processes, functions, references) are
/// an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// An integer.
    Integer(i128),
    /// A float.
    Float(f64),
    /// An atom's name.
    Atom(Bytes),
    /// A binary.
    Binary(Bytes),
    /// A list of small integers that was written as a string.
    Text(Bytes),
    /// A tuple.
    Tuple(Vec<Term>),
    /// A list, and its tail if that is not an empty list.
    List(Vec<Term>, Option<Box<Term>>),
    /// A map's pairs, in the order in which they were written.
    Map(Vec<(Term, Term)>),
}

/// Failure to decode a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermError {
    /// The bytes end within the term.
    #[error("term is cut off at byte {offset}")]
    Cut {
        /// The offset of the missing bytes.
        offset: usize,
    },
    /// A tag that does not occur in objects.
    #[error("unexpected tag {tag} at byte {offset}")]
    Tag {
        /// The tag.
        tag: u8,
        /// Its offset.
        offset: usize,
    },
    /// Bytes follow the term.
    #[error("bytes follow the term at byte {offset}")]
    Trailing {
        /// The offset of the first.
        offset: usize,
    },
    /// More nesting, terms or inflated bytes than in any object.
    #[error("term is too large or too deep")]
    TooLarge,
    /// The compressed form does not inflate to its stated length.
    #[error("compressed term cannot be inflated")]
    Compression,
}

impl Term {
    /// Decodes a term that begins with the format byte.
    ///
    /// # Errors
    /// [`TermError`] for anything but one whole term.
    pub fn decode(bytes: &Bytes) -> Result<Self, TermError> {
        match bytes.get(..2) {
            Some([FORMAT_BYTE, _]) => decode_bare(&inflated(bytes)?, 1),
            Some([tag, _]) => Err(TermError::Tag {
                tag: *tag,
                offset: 0,
            }),
            _ => Err(TermError::Cut {
                offset: bytes.len(),
            }),
        }
    }

    /// A tuple's elements.
    pub fn as_tuple(&self) -> Option<&[Term]> {
        match self {
            Self::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// A binary's bytes.
    pub fn as_binary(&self) -> Option<&Bytes> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// True if this is the atom of this name.
    pub fn is_atom(&self, name: &str) -> bool {
        matches!(self, Self::Atom(found) if found == name.as_bytes())
    }

    /// The elements of a proper list.
    pub fn into_list(self) -> Option<Vec<Term>> {
        match self {
            Self::List(elements, None) => Some(elements),
            Self::Text(bytes) => {
                let numbers = bytes.iter().map(|byte| Self::Integer((*byte).into()));
                Some(numbers.collect())
            }
            _ => None,
        }
    }

    /// The bytes of terms that Erlang code treats as text: a binary, an atom, or a list of
    /// characters. Characters above 255 become UTF-8.
    pub fn to_text(&self) -> Option<Bytes> {
        match self {
            Self::Binary(bytes) | Self::Text(bytes) | Self::Atom(bytes) => Some(bytes.clone()),
            Self::List(elements, None) => {
                let characters = elements.iter().map(|element| match element {
                    Self::Integer(value) => u32::try_from(*value).ok(),
                    _ => None,
                });
                let characters: Vec<u32> = characters.collect::<Option<_>>()?;
                let bytes: Result<Vec<u8>, _> =
                    characters.iter().map(|c| u8::try_from(*c)).collect();
                bytes.map(Bytes::from).ok().or_else(|| {
                    let text = characters.into_iter().map(char::from_u32);
                    text.collect::<Option<String>>().map(Bytes::from)
                })
            }
            _ => None,
        }
    }
}

impl Term {
    /// The term's bytes, uncompressed, behind the format byte. A list of characters that was read
    /// as [`Term::Text`] is written as one.
    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT_BYTE];
        put_term(&mut out, self);
        out.into()
    }
}

fn put_term(out: &mut Vec<u8>, term: &Term) {
    match term {
        Term::Integer(value) => put_integer(out, *value),
        Term::Float(value) => {
            out.push(70);
            out.extend_from_slice(&value.to_be_bytes());
        }
        Term::Atom(name) => put_short(out, 118, name),
        Term::Text(text) => put_short(out, 107, text),
        Term::Binary(bytes) => {
            put_count(out, 109, bytes.len());
            out.extend_from_slice(bytes);
        }
        Term::Tuple(elements) => {
            match u8::try_from(elements.len()) {
                Ok(count) => out.extend([104, count]),
                Err(_) => put_count(out, 105, elements.len()),
            }
            elements.iter().for_each(|element| put_term(out, element));
        }
        Term::List(elements, None) if elements.is_empty() => out.push(106),
        Term::List(elements, tail) => {
            put_count(out, 108, elements.len());
            elements.iter().for_each(|element| put_term(out, element));
            match tail {
                Some(tail) => put_term(out, tail),
                None => out.push(106),
            }
        }
        Term::Map(pairs) => {
            put_count(out, 116, pairs.len());
            for (key, value) in pairs {
                put_term(out, key);
                put_term(out, value);
            }
        }
    }
}

fn put_integer(out: &mut Vec<u8>, value: i128) {
    if let Ok(small) = u8::try_from(value) {
        out.extend([97, small]);
    } else if let Ok(word) = i32::try_from(value) {
        out.push(98);
        out.extend_from_slice(&word.to_be_bytes());
    } else {
        let magnitude = value.unsigned_abs().to_le_bytes();
        let unused = magnitude.iter().rev().take_while(|byte| **byte == 0);
        let len = magnitude.len() - unused.count();
        let len_byte = u8::try_from(len).unwrap_or(u8::MAX);
        out.extend([110, len_byte, u8::from(value < 0)]);
        out.extend_from_slice(&magnitude[..len]);
    }
}

/// # Panics
/// If there are more than 4 billion items.
fn put_count(out: &mut Vec<u8>, tag: u8, count: usize) {
    let count = u32::try_from(count);
    assert!(
        count.is_ok(),
        "a term has no more than 2^32 elements or bytes"
    );
    out.push(tag);
    out.extend_from_slice(&count.unwrap_or(0).to_be_bytes());
}

/// # Panics
/// If an atom or a text is longer than 65,535 bytes, the limit in Erlang.
fn put_short(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    let len = u16::try_from(bytes.len());
    assert!(
        len.is_ok(),
        "an atom or a text has no more than 65,535 bytes"
    );
    out.push(tag);
    out.extend_from_slice(&len.unwrap_or(0).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The stated inflated length of a compressed term, in bytes; none for any other term.
pub fn inflated_len(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(&[FORMAT_BYTE, COMPRESSED])?;
    rest.first_chunk().map(|len| u32::from_be_bytes(*len))
}

/// A term in its uncompressed form, with its format byte in front. [`inflated_len`] bounds the
/// memory of the result.
///
/// # Errors
/// [`TermError`] for a compressed term that does not inflate to its stated length, or states a
/// length beyond that of any object.
pub fn inflated(bytes: &Bytes) -> Result<Bytes, TermError> {
    let Some(compressed) = bytes.strip_prefix(&[FORMAT_BYTE, COMPRESSED]) else {
        return Ok(bytes.clone());
    };
    let (len, compressed) = compressed
        .split_first_chunk::<4>()
        .ok_or(TermError::Cut { offset: 2 })?;
    let len = u64::from(u32::from_be_bytes(*len));
    if len > INFLATED_BYTES_MAX {
        return Err(TermError::TooLarge);
    }
    let mut inflated = vec![FORMAT_BYTE];
    let read = flate2::read::ZlibDecoder::new(compressed)
        .take(len + 1)
        .read_to_end(&mut inflated)
        .map_err(|_| TermError::Compression)?;
    match read as u64 == len {
        true => Ok(inflated.into()),
        false => Err(TermError::Compression),
    }
}

/// Decodes a term from `start`, with nothing behind the term.
fn decode_bare(bytes: &Bytes, start: usize) -> Result<Term, TermError> {
    let mut reader = TermReader {
        bytes,
        offset: start,
        terms: 0,
    };
    let term = reader.term(0)?;
    match reader.offset == bytes.len() {
        true => Ok(term),
        false => Err(TermError::Trailing {
            offset: reader.offset,
        }),
    }
}

/// Reads a term piece by piece, for uses of its beginning only.
#[derive(Debug)]
pub struct TermReader<'a> {
    bytes: &'a Bytes,
    offset: usize,
    terms: usize,
}

impl<'a> TermReader<'a> {
    /// Begins behind the format byte; a compressed term is an error.
    ///
    /// # Errors
    /// [`TermError`] if there is no format byte.
    pub fn begin(bytes: &'a Bytes) -> Result<Self, TermError> {
        match bytes.first() {
            Some(&FORMAT_BYTE) => Ok(Self {
                bytes,
                offset: 1,
                terms: 0,
            }),
            Some(&tag) => Err(TermError::Tag { tag, offset: 0 }),
            None => Err(TermError::Cut { offset: 0 }),
        }
    }

    /// Enters a tuple, and returns the number of its elements, which come next.
    ///
    /// # Errors
    /// [`TermError`] if the next term is not a tuple.
    pub fn tuple(&mut self) -> Result<usize, TermError> {
        let offset = self.offset;
        let [tag] = self.array()?;
        match tag {
            104 => self.u8(),
            105 => self.u32(),
            tag => Err(TermError::Tag { tag, offset }),
        }
    }

    /// The next whole term.
    ///
    /// # Errors
    /// [`TermError`] if there is none.
    pub fn next_term(&mut self) -> Result<Term, TermError> {
        self.term(0)
    }
}

impl TermReader<'_> {
    fn take(&mut self, count: usize) -> Result<Bytes, TermError> {
        let offset = self.offset;
        let end = offset
            .checked_add(count)
            .filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(TermError::Cut { offset })?;
        self.offset = end;
        Ok(self.bytes.slice(offset..end))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TermError> {
        let offset = self.offset;
        let found = self.bytes.get(offset..).and_then(|rest| rest.first_chunk());
        let found = *found.ok_or(TermError::Cut { offset })?;
        self.offset += N;
        Ok(found)
    }

    fn u8(&mut self) -> Result<usize, TermError> {
        Ok(usize::from(u8::from_be_bytes(self.array()?)))
    }

    fn u16(&mut self) -> Result<usize, TermError> {
        Ok(usize::from(u16::from_be_bytes(self.array()?)))
    }

    fn u32(&mut self) -> Result<usize, TermError> {
        usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| TermError::TooLarge)
    }

    fn term(&mut self, depth: usize) -> Result<Term, TermError> {
        self.terms += 1;
        if depth > DEPTH_MAX || self.terms > TERMS_MAX {
            return Err(TermError::TooLarge);
        }
        let offset = self.offset;
        let [tag] = self.array()?;
        match tag {
            97 => Ok(Term::Integer(self.u8()?.try_into().unwrap_or(0))),
            98 => Ok(Term::Integer(i32::from_be_bytes(self.array()?).into())),
            110 => self.u8().and_then(|len| self.big_integer(len)),
            111 => self.u32().and_then(|len| self.big_integer(len)),
            70 => Ok(Term::Float(f64::from_be_bytes(self.array()?))),
            99 => self.old_float(offset),
            100 | 118 => self.u16().and_then(|len| self.take(len)).map(Term::Atom),
            115 | 119 => self.u8().and_then(|len| self.take(len)).map(Term::Atom),
            107 => self.u16().and_then(|len| self.take(len)).map(Term::Text),
            109 => self.u32().and_then(|len| self.take(len)).map(Term::Binary),
            104 => self
                .u8()
                .and_then(|count| self.terms(count, depth))
                .map(Term::Tuple),
            105 => self
                .u32()
                .and_then(|count| self.terms(count, depth))
                .map(Term::Tuple),
            106 => Ok(Term::List(Vec::new(), None)),
            108 => self.list(depth),
            116 => self.map(depth),
            tag => Err(TermError::Tag { tag, offset }),
        }
    }

    fn terms(&mut self, count: usize, depth: usize) -> Result<Vec<Term>, TermError> {
        let mut terms = Vec::new();
        for _ in 0..count {
            terms.push(self.term(depth + 1)?);
        }
        Ok(terms)
    }

    fn list(&mut self, depth: usize) -> Result<Term, TermError> {
        let count = self.u32()?;
        let elements = self.terms(count, depth)?;
        Ok(match self.term(depth + 1)? {
            Term::List(rest, None) if rest.is_empty() => Term::List(elements, None),
            tail => Term::List(elements, Some(Box::new(tail))),
        })
    }

    fn map(&mut self, depth: usize) -> Result<Term, TermError> {
        let count = self.u32()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.term(depth + 1)?, self.term(depth + 1)?));
        }
        Ok(Term::Map(pairs))
    }

    fn big_integer(&mut self, len: usize) -> Result<Term, TermError> {
        let [sign] = self.array()?;
        let digits = self.take(len)?;
        if len > INTEGER_BYTES_MAX {
            return Err(TermError::TooLarge);
        }
        let magnitude = digits
            .iter()
            .rev()
            .fold(0u128, |value, digit| value << 8 | u128::from(*digit));
        let magnitude = i128::try_from(magnitude).map_err(|_| TermError::TooLarge)?;
        Ok(Term::Integer(if sign == 0 {
            magnitude
        } else {
            -magnitude
        }))
    }

    /// A float as 31 characters, as in old releases.
    fn old_float(&mut self, offset: usize) -> Result<Term, TermError> {
        let text = self.take(31)?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let value = text.trim_end_matches('\0').parse();
        value
            .map(Term::Float)
            .map_err(|_| TermError::Tag { tag: 99, offset })
    }
}

#[cfg(test)]
#[path = "external_term_test.rs"]
mod tests;
