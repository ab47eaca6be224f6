//! Riak's objects in the form of the stores: versions 0 and 1 of the binary form.

use bytes::Bytes;

use crate::metadata::RiakMetadata;
use crate::version_vector::VersionVector;
use kvorum_erlang_terms::external_term::{FORMAT_BYTE, Term, TermError};

const MAGIC: u8 = 53;
const VERSION: u8 = 1;
const TAG_TERM: u8 = 0;
const TAG_BINARY: u8 = 1;
/// The vtag of an object that has none.
const NO_VTAG: &[u8] = b"e";

/// An object: a clock and its siblings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RiakObject {
    /// Clock of the object.
    pub clock: VersionVector,
    /// The siblings; there is at least one.
    pub siblings: Vec<RiakSibling>,
}

/// One version of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct RiakSibling {
    /// Metadata of the value.
    pub metadata: RiakMetadata,
    /// The value.
    pub value: Bytes,
    /// Form of the value.
    pub form: ValueForm,
}

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// Bytes that a client wrote.
    Raw,
    /// Erlang term: the value is its external form, format byte included.
    Term,
    /// Bytes in an encoding that Riak numbers.
    Encoded(u8),
}

/// Failure to decode an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The first bytes have no known version.
    #[error("no object of version 0 or 1")]
    Version,
    /// The bytes end within the object.
    #[error("object is cut off at byte {offset}")]
    Cut {
        /// Offset of the missing bytes.
        offset: usize,
    },
    /// Bytes follow the object.
    #[error("bytes follow the object at byte {offset}")]
    Trailing {
        /// Offset of the first such byte.
        offset: usize,
    },
    /// A part is a term that cannot be decoded.
    #[error("{part}: {source}")]
    Term {
        /// The part.
        part: &'static str,
        /// The defect.
        source: TermError,
    },
    /// A term has another shape than Riak gives it.
    #[error("{part} has an unexpected shape")]
    Shape {
        /// The part.
        part: &'static str,
    },
    /// There is no sibling.
    #[error("object without a value")]
    Empty,
    /// The bytes are the head of an object without its value.
    #[error("a head without its value")]
    HeadOnly,
}

impl RiakObject {
    /// Decodes an object of either version.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, ObjectError> {
        let object = match bytes.get(..2) {
            Some([MAGIC, VERSION]) => decode_version_1(bytes)?,
            Some([FORMAT_BYTE, _]) => decode_version_0(bytes)?,
            _ => return Err(ObjectError::Version),
        };
        match object.siblings.is_empty() {
            true => Err(ObjectError::Empty),
            false => Ok(object),
        }
    }
}

fn term(part: &'static str, bytes: &Bytes) -> Result<Term, ObjectError> {
    Term::decode(bytes).map_err(|source| ObjectError::Term { part, source })
}

/// Version 0 is an external term:
///
/// ```text
/// {r_object, Bucket, Key, [{r_content, Metadata, Value}], Clock, UpdateMetadata, UpdateValue}
/// ```
fn decode_version_0(bytes: &Bytes) -> Result<RiakObject, ObjectError> {
    let shape = |part| ObjectError::Shape { part };
    let Term::Tuple(fields) = term("object", bytes)? else {
        return Err(shape("object"));
    };
    let mut fields = fields.into_iter();
    let is_object = fields.next().is_some_and(|name| name.is_atom("r_object"));
    // Bucket and key are taken from the store's own key.
    let (_bucket, _key, contents, clock) =
        (fields.next(), fields.next(), fields.next(), fields.next());
    let (Some(contents), Some(clock), true) = (contents, clock, is_object) else {
        return Err(shape("object"));
    };
    let clock = VersionVector::from_term(clock).ok_or(shape("clock"))?;
    let contents = contents.into_list().ok_or(shape("contents"))?;
    let siblings = contents.into_iter().map(|content| {
        let Term::Tuple(fields) = content else {
            return Err(shape("content"));
        };
        let [name, metadata, value]: [Term; 3] = fields.try_into().map_err(|_| shape("content"))?;
        if !name.is_atom("r_content") {
            return Err(shape("content"));
        }
        let metadata = RiakMetadata::from_dictionary(metadata).ok_or(shape("metadata"))?;
        let Term::Binary(value) = value else {
            // The value's external form would have to be encoded again.
            return Err(shape("value"));
        };
        let form = ValueForm::Raw;
        Ok(RiakSibling {
            metadata,
            value,
            form,
        })
    });
    let siblings = siblings.collect::<Result<_, _>>()?;
    Ok(RiakObject { clock, siblings })
}

/// Version 1, big-endian:
///
/// ```text
/// object   = 53  1  u32 length of clock  clock as an external term  u32 count of siblings  sibling*
/// sibling  = u32 length of value  value  u32 length of metadata  metadata
/// value    = u8 form (1 bytes, 0 external term, other: encoding)  bytes
/// metadata = u32 megaseconds  u32 seconds  u32 microseconds  u8 length of vtag  vtag  u8 deleted  pair*
/// pair     = u32 length  tagged  u32 length  tagged
/// tagged   = u8 form (1 bytes, 0 external term)  bytes
/// ```
fn decode_version_1(bytes: &Bytes) -> Result<RiakObject, ObjectError> {
    let mut reader = Reader { bytes, offset: 2 };
    let clock_len = reader.u32()?;
    let clock = reader.take(clock_len)?;
    let clock = VersionVector::from_term(term("clock", &clock)?);
    let clock = clock.ok_or(ObjectError::Shape { part: "clock" })?;
    let count = reader.u32()?;
    let mut siblings = Vec::new();
    for _ in 0..count {
        siblings.push(read_sibling(&mut reader)?);
    }
    match reader.offset == bytes.len() {
        true => Ok(RiakObject { clock, siblings }),
        false => Err(ObjectError::Trailing {
            offset: reader.offset,
        }),
    }
}

fn read_sibling(reader: &mut Reader<'_>) -> Result<RiakSibling, ObjectError> {
    let value_len = reader.u32()?;
    if value_len == 0 {
        return Err(ObjectError::HeadOnly);
    }
    let tagged = reader.take(value_len)?;
    let value = tagged.slice(1..);
    let form = match tagged[0] {
        TAG_TERM => ValueForm::Term,
        TAG_BINARY => ValueForm::Raw,
        encoding => ValueForm::Encoded(encoding),
    };
    let metadata_len = reader.u32()?;
    let metadata = reader.take(metadata_len)?;
    let metadata = read_metadata(&metadata)?;
    Ok(RiakSibling {
        metadata,
        value,
        form,
    })
}

fn read_metadata(bytes: &Bytes) -> Result<RiakMetadata, ObjectError> {
    let mut reader = Reader { bytes, offset: 0 };
    let mut metadata = RiakMetadata::default();
    let (mega, seconds, micros) = (reader.u32()?, reader.u32()?, reader.u32()?);
    metadata.set_last_modified(mega as u64, seconds as u64, micros as u64);
    let vtag_len = reader.u8()?;
    let vtag = reader.take(usize::from(vtag_len))?;
    if vtag != NO_VTAG {
        metadata.vtag = vtag;
    }
    metadata.deleted = reader.u8()? != 0;
    while reader.offset < bytes.len() {
        let name_len = reader.u32()?;
        let name = tagged_term(&reader.take(name_len)?)?;
        let value_len = reader.u32()?;
        let value = tagged_term(&reader.take(value_len)?)?;
        metadata.set(&name, value);
    }
    Ok(metadata)
}

fn tagged_term(bytes: &Bytes) -> Result<Term, ObjectError> {
    match bytes.first() {
        Some(&TAG_BINARY) => Ok(Term::Binary(bytes.slice(1..))),
        Some(&TAG_TERM) => term("metadata", &bytes.slice(1..)),
        _ => Err(ObjectError::Shape { part: "metadata" }),
    }
}

struct Reader<'a> {
    bytes: &'a Bytes,
    offset: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<Bytes, ObjectError> {
        let offset = self.offset;
        let end = offset
            .checked_add(count)
            .filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(ObjectError::Cut { offset })?;
        self.offset = end;
        Ok(self.bytes.slice(offset..end))
    }

    fn u8(&mut self) -> Result<u8, ObjectError> {
        let offset = self.offset;
        let found = self.bytes.get(offset).ok_or(ObjectError::Cut { offset })?;
        self.offset += 1;
        Ok(*found)
    }

    fn u32(&mut self) -> Result<usize, ObjectError> {
        let offset = self.offset;
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let found = rest.first_chunk().ok_or(ObjectError::Cut { offset })?;
        self.offset += 4;
        usize::try_from(u32::from_be_bytes(*found)).map_err(|_| ObjectError::Cut { offset })
    }
}

#[cfg(test)]
#[path = "riak_object_test.rs"]
mod tests;
