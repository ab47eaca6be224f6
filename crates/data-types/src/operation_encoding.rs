//! Operations as bytes, for the way from the receiving node to the coordinating replica.

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::clock_encoding::{put_sum, read_sum};
use crate::decode_error::DecodeError;
use crate::encoding::{VERSION, check_end, check_version};
use crate::field_name::FieldKind;
use crate::operation::{DEPTH_MAX, FieldChange, FieldOperation, Operation, SetChange};
use crate::part_encoding::{put_bytes, put_name, read_bytes, read_name};

const COUNTER: u8 = 1;
const SET: u8 = 2;
const GROW_SET: u8 = 3;
const MAP: u8 = 4;
const HYPER_LOG_LOG: u8 = 5;

const REMOVE: u8 = 0;
const ADD: u8 = 1;
const UPDATE: u8 = 1;

impl Operation {
    /// The bytes to send.
    ///
    /// ```text
    /// operation = version  u8      1
    ///             kind     u8      1 counter, 2 set, 3 gset, 4 map, 5 hll
    /// counter     by
    /// set         set changes
    /// gset, hll   count varint, (length varint, bytes)*
    /// map         map changes
    /// by          sign u8          0 adds, 1 takes away; sum, see `put_sum`
    /// set changes = count varint, (verb u8, length varint, bytes)*   0 remove, 1 add
    /// map changes = count varint, (verb u8, name, of 1 the change)*  0 remove, 1 update
    ///             name             see `put_name`; the change by its kind:
    ///                              counter by, register length varint and bytes, flag u8,
    ///                              set set changes, map map changes
    /// ```
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Counter(by) => {
                out.put_u8(COUNTER);
                put_by(&mut out, *by);
            }
            Self::Set(changes) => {
                out.put_u8(SET);
                put_set_changes(&mut out, changes);
            }
            Self::GrowSet(members) => {
                out.put_u8(GROW_SET);
                put_all(&mut out, members);
            }
            Self::Map(changes) => {
                out.put_u8(MAP);
                put_map_changes(&mut out, changes);
            }
            Self::HyperLogLog(values) => {
                out.put_u8(HYPER_LOG_LOG);
                put_all(&mut out, values);
            }
        }
        out.into()
    }

    /// Reads what [`Operation::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        let operation = match reader.u8()? {
            COUNTER => Self::Counter(read_by(&mut reader)?),
            SET => Self::Set(read_set_changes(&mut reader)?),
            GROW_SET => Self::GrowSet(read_all(&mut reader)?),
            MAP => Self::Map(read_map_changes(&mut reader, 0)?),
            HYPER_LOG_LOG => Self::HyperLogLog(read_all(&mut reader)?),
            _ => return Err(DecodeError::Malformed { offset: 1 }),
        };
        check_end(&reader)?;
        Ok(operation)
    }
}

fn malformed(reader: &ByteReader<'_>) -> Truncated {
    Truncated {
        offset: reader.offset(),
    }
}

fn put_by(out: &mut Vec<u8>, by: i128) {
    out.put_u8(u8::from(by < 0));
    put_sum(out, by.unsigned_abs());
}

fn read_by(reader: &mut ByteReader<'_>) -> Result<i128, Truncated> {
    let is_negative = read_flag(reader)?;
    let sum = read_sum(reader)?;
    let by = match is_negative {
        true => 0i128.checked_sub_unsigned(sum),
        false => 0i128.checked_add_unsigned(sum),
    };
    by.ok_or_else(|| malformed(reader))
}

fn read_flag(reader: &mut ByteReader<'_>) -> Result<bool, Truncated> {
    let malformed = malformed(reader);
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(malformed),
    }
}

fn put_all(out: &mut Vec<u8>, all: &[Bytes]) {
    put_varint(out, all.len() as u64);
    all.iter().for_each(|one| put_bytes(out, one));
}

fn read_all(reader: &mut ByteReader<'_>) -> Result<Vec<Bytes>, Truncated> {
    read_list(reader, read_bytes)
}

fn put_set_changes(out: &mut Vec<u8>, changes: &[SetChange]) {
    put_varint(out, changes.len() as u64);
    for change in changes {
        out.put_u8(match change {
            SetChange::Remove(_) => REMOVE,
            SetChange::Add(_) => ADD,
        });
        put_bytes(out, change.member());
    }
}

fn read_set_changes(reader: &mut ByteReader<'_>) -> Result<Vec<SetChange>, Truncated> {
    read_list(reader, |reader| {
        let is_added = read_flag(reader)?;
        let member = read_bytes(reader)?;
        Ok(match is_added {
            true => SetChange::Add(member),
            false => SetChange::Remove(member),
        })
    })
}

fn put_map_changes(out: &mut Vec<u8>, changes: &[FieldChange]) {
    put_varint(out, changes.len() as u64);
    for change in changes {
        match change {
            FieldChange::Remove(name) => {
                out.put_u8(REMOVE);
                put_name(out, name);
            }
            FieldChange::Update { operation, .. } => {
                out.put_u8(UPDATE);
                put_name(out, &change.field());
                put_field_operation(out, operation);
            }
        }
    }
}

fn put_field_operation(out: &mut Vec<u8>, operation: &FieldOperation) {
    match operation {
        FieldOperation::Counter(by) => put_by(out, *by),
        FieldOperation::Register(value) => put_bytes(out, value),
        FieldOperation::Flag(enable) => out.put_u8(u8::from(*enable)),
        FieldOperation::Set(changes) => put_set_changes(out, changes),
        FieldOperation::Map(changes) => put_map_changes(out, changes),
    }
}

/// Reads the changes of a map that is `depth` maps deep.
fn read_map_changes(
    reader: &mut ByteReader<'_>,
    depth: usize,
) -> Result<Vec<FieldChange>, Truncated> {
    if depth > DEPTH_MAX {
        return Err(malformed(reader));
    }
    read_list(reader, |reader| {
        let is_update = read_flag(reader)?;
        let field = read_name(reader)?;
        if !is_update {
            return Ok(FieldChange::Remove(field));
        }
        let operation = read_field_operation(reader, field.kind, depth)?;
        let name = field.name;
        Ok(FieldChange::Update { name, operation })
    })
}

fn read_field_operation(
    reader: &mut ByteReader<'_>,
    kind: FieldKind,
    depth: usize,
) -> Result<FieldOperation, Truncated> {
    Ok(match kind {
        FieldKind::Counter => FieldOperation::Counter(read_by(reader)?),
        FieldKind::Register => FieldOperation::Register(read_bytes(reader)?),
        FieldKind::Flag => FieldOperation::Flag(read_flag(reader)?),
        FieldKind::Set => FieldOperation::Set(read_set_changes(reader)?),
        FieldKind::Map => FieldOperation::Map(read_map_changes(reader, depth + 1)?),
    })
}

/// Reads items behind their number. Each takes a byte at least, so that a false number reserves nothing.
fn read_list<T>(
    reader: &mut ByteReader<'_>,
    mut read: impl FnMut(&mut ByteReader<'_>) -> Result<T, Truncated>,
) -> Result<Vec<T>, Truncated> {
    let count = reader.varint_len()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(reader)?);
    }
    Ok(items)
}
