//! Whole values as bytes.
//!
//! The bytes are the value of an object's sibling. Engines check their reads against checksums of their
//! own, so there is none here.

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::causal::{Map, Set};
use crate::clock_encoding::{ActorTable, put_clock, read_clock};
use crate::data_type::DataType;
use crate::decode_error::DecodeError;
use crate::grow_set::GrowSet;
use crate::hyper_log_log::HyperLogLog;
use crate::kind::Kind;
use crate::part_encoding::{
    put_bytes, put_counter, put_deferred, put_fields, put_members, read_bytes, read_counter,
    read_deferred, read_fields, read_members,
};

/// The version of all forms of this crate that are stored.
pub(crate) const VERSION: u8 = 1;
/// A sketch in which fewer than one register in this many is set is written as a list.
const SPARSE_SHARE: usize = 4;
const SPARSE: u8 = 0;
const DENSE: u8 = 1;

impl DataType {
    /// The bytes to store.
    ///
    /// ```text
    /// value    = version   u8      1
    ///            kind      u8      1 counter, 2 set, 3 gset, 4 map, 5 hll
    /// counter    clock, count varint, tally*
    /// set        clock, deferred, members
    /// gset       count varint, (length varint, bytes)*   strictly ascending
    /// map        clock, deferred, fields
    /// hll        precision u8, form u8
    ///   form 0   count varint, (distance varint, rank u8)*   distance to the register before, not 0;
    ///            the first from one before the first register
    ///   form 1   rank u8, for each register
    /// ```
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION, kind_number(self.kind())];
        match self {
            Self::Counter(counter) => {
                let clock = counter.clock();
                put_clock(&mut out, &clock);
                put_counter(&mut out, counter, &ActorTable::of(&clock));
            }
            Self::Set(set) => {
                put_clock(&mut out, &set.clock);
                put_deferred(&mut out, &set.deferred);
                put_members(&mut out, &set.parts, &ActorTable::of(&set.clock));
            }
            Self::GrowSet(set) => {
                put_varint(&mut out, set.members().len() as u64);
                set.members().for_each(|member| put_bytes(&mut out, member));
            }
            Self::Map(map) => {
                put_clock(&mut out, &map.clock);
                put_deferred(&mut out, &map.deferred);
                put_fields(&mut out, &map.parts, &ActorTable::of(&map.clock));
            }
            Self::HyperLogLog(sketch) => put_sketch(&mut out, sketch),
        }
        out.into()
    }

    /// Reads what [`DataType::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        let number = reader.u8()?;
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|kind| kind_number(*kind) == number);
        let kind = kind.ok_or(DecodeError::Malformed { offset: 1 })?;
        let value = read_value(&mut reader, kind)?;
        check_end(&reader)?;
        Ok(value)
    }
}

/// Reads the version byte, which all forms begin with.
pub(crate) fn check_version(reader: &mut ByteReader<'_>) -> Result<(), DecodeError> {
    match reader.u8()? {
        VERSION => Ok(()),
        got => Err(DecodeError::Version {
            got,
            expected: VERSION,
        }),
    }
}

/// Fails unless everything was read.
pub(crate) fn check_end(reader: &ByteReader<'_>) -> Result<(), DecodeError> {
    match reader.is_empty() {
        true => Ok(()),
        false => Err(DecodeError::Malformed {
            offset: reader.offset(),
        }),
    }
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Counter => 1,
        Kind::Set => 2,
        Kind::GrowSet => 3,
        Kind::Map => 4,
        Kind::HyperLogLog => 5,
    }
}

fn read_value(reader: &mut ByteReader<'_>, kind: Kind) -> Result<DataType, Truncated> {
    Ok(match kind {
        Kind::Counter => {
            let actors = ActorTable::of(&read_clock(reader)?);
            DataType::Counter(read_counter(reader, &actors)?)
        }
        Kind::Set => DataType::Set(read_set(reader)?),
        Kind::GrowSet => DataType::GrowSet(read_grow_set(reader)?),
        Kind::Map => DataType::Map(read_map(reader)?),
        Kind::HyperLogLog => DataType::HyperLogLog(read_sketch(reader)?),
    })
}

fn read_set(reader: &mut ByteReader<'_>) -> Result<Set, Truncated> {
    let clock = read_clock(reader)?;
    let deferred = read_deferred(reader)?;
    let parts = read_members(reader, &ActorTable::of(&clock))?;
    Ok(Set {
        clock,
        parts,
        deferred,
    })
}

fn read_map(reader: &mut ByteReader<'_>) -> Result<Map, Truncated> {
    let clock = read_clock(reader)?;
    let deferred = read_deferred(reader)?;
    let parts = read_fields(reader, &ActorTable::of(&clock), 0)?;
    Ok(Map {
        clock,
        parts,
        deferred,
    })
}

fn read_grow_set(reader: &mut ByteReader<'_>) -> Result<GrowSet, Truncated> {
    let count = reader.varint_len()?;
    let mut members = Vec::<Bytes>::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let member = read_bytes(reader)?;
        if members.last().is_some_and(|last| *last >= member) {
            return Err(malformed);
        }
        members.push(member);
    }
    Ok(members.into_iter().collect())
}

fn put_sketch(out: &mut Vec<u8>, sketch: &HyperLogLog) {
    out.put_u8(sketch.precision());
    let ranks = sketch.registers().iter().zip(1u64..);
    let set: Vec<(u64, u8)> = ranks
        .filter(|(rank, _)| **rank > 0)
        .map(|(rank, place)| (place, *rank))
        .collect();
    if set.len() * SPARSE_SHARE >= sketch.registers().len() {
        out.put_u8(DENSE);
        out.put_slice(sketch.registers());
        return;
    }
    out.put_u8(SPARSE);
    put_varint(out, set.len() as u64);
    let mut before = 0;
    for (place, rank) in set {
        put_varint(out, place - before);
        out.put_u8(rank);
        before = place;
    }
}

fn read_sketch(reader: &mut ByteReader<'_>) -> Result<HyperLogLog, Truncated> {
    let malformed = Truncated {
        offset: reader.offset(),
    };
    let precision = reader.u8()?;
    let empty = HyperLogLog::new(precision);
    if empty.precision() != precision {
        return Err(malformed);
    }
    let count = empty.registers().len();
    let registers = match reader.u8()? {
        DENSE => reader.take(count)?.to_vec(),
        SPARSE => read_sparse(reader, count)?,
        _ => return Err(malformed),
    };
    HyperLogLog::from_registers(registers).ok_or(malformed)
}

fn read_sparse(reader: &mut ByteReader<'_>, count: usize) -> Result<Vec<u8>, Truncated> {
    let mut registers = vec![0; count];
    let mut place = 0usize;
    for _ in 0..reader.varint_len()? {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let distance = usize::try_from(reader.varint()?).map_err(|_| malformed)?;
        let rank = reader.u8()?;
        place = place.checked_add(distance).ok_or(malformed)?;
        let register = place.checked_sub(1).and_then(|it| registers.get_mut(it));
        let register = register.ok_or(malformed)?;
        if distance == 0 || rank == 0 {
            return Err(malformed);
        }
        *register = rank;
    }
    Ok(registers)
}
