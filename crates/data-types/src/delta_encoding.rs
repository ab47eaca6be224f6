//! Deltas as bytes, for the wire.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::causal::Part;
use crate::clock::Clock;
use crate::clock_encoding::{ActorTable, put_clock, read_clock};
use crate::decode_error::DecodeError;
use crate::delta::{Delta, Touched};
use crate::dot::Dot;
use crate::dot_store::{DotStore as _, Dots};
use crate::encoding::{VERSION, check_end, check_version};
use crate::field::Field;
use crate::field_name::FieldName;
use crate::part_encoding::{
    put_bytes, put_deferred, put_field, put_name, read_bytes, read_deferred, read_field, read_name,
};

const REMOVED: u8 = 0;
const PRESENT: u8 = 1;

/// The written form of a delta's parts and their names.
pub trait DeltaPart: Part {
    /// Writes a part's name.
    fn put_part_name(out: &mut Vec<u8>, name: &Self::Name);
    /// Reads a part's name.
    fn read_part_name(reader: &mut ByteReader<'_>) -> Result<Self::Name, Truncated>;
    /// Writes a part.
    fn put_part(&self, out: &mut Vec<u8>, actors: &ActorTable);
    /// Reads a part of this name.
    fn read_part(
        name: &Self::Name,
        reader: &mut ByteReader<'_>,
        actors: &ActorTable,
    ) -> Result<Self, Truncated>;
}

impl DeltaPart for Dots {
    fn put_part_name(out: &mut Vec<u8>, name: &Bytes) {
        put_bytes(out, name);
    }

    fn read_part_name(reader: &mut ByteReader<'_>) -> Result<Bytes, Truncated> {
        read_bytes(reader)
    }

    fn put_part(&self, out: &mut Vec<u8>, actors: &ActorTable) {
        actors.put_dots(out, self);
    }

    fn read_part(
        _: &Bytes,
        reader: &mut ByteReader<'_>,
        actors: &ActorTable,
    ) -> Result<Self, Truncated> {
        actors.read_dots(reader)
    }
}

impl DeltaPart for Field {
    fn put_part_name(out: &mut Vec<u8>, name: &FieldName) {
        put_name(out, name);
    }

    fn read_part_name(reader: &mut ByteReader<'_>) -> Result<FieldName, Truncated> {
        read_name(reader)
    }

    fn put_part(&self, out: &mut Vec<u8>, actors: &ActorTable) {
        put_field(out, self, actors);
    }

    fn read_part(
        name: &FieldName,
        reader: &mut ByteReader<'_>,
        actors: &ActorTable,
    ) -> Result<Self, Truncated> {
        read_field(reader, name.kind, actors, 0)
    }
}

impl<E: DeltaPart> Delta<E::Name, E> {
    /// The bytes of the delta.
    ///
    /// ```text
    /// delta    = version   u8      1
    ///            needs     clock
    ///            actors    clock   of all dots below
    ///            dot
    ///            removes   deferred
    ///            count     varint
    ///            part*             by strictly ascending name
    /// part     = name              a member: length varint, bytes; a field: see `put_name`
    ///            replaced  dots
    ///            state     u8      0 removed, 1 present
    ///            part              if present: a member's dots, or a field
    /// ```
    pub fn encode(&self) -> Bytes {
        let clock = self.dots();
        let actors = ActorTable::of(&clock);
        let mut out = vec![VERSION];
        put_clock(&mut out, &self.needs);
        put_clock(&mut out, &clock);
        actors.put_dot(&mut out, self.dot);
        put_deferred(&mut out, &self.removes);
        put_varint(&mut out, self.parts.len() as u64);
        for (name, touched) in &self.parts {
            E::put_part_name(&mut out, name);
            actors.put_dots(&mut out, &touched.replaced);
            match &touched.part {
                None => out.put_u8(REMOVED),
                Some(part) => {
                    out.put_u8(PRESENT);
                    part.put_part(&mut out, &actors);
                }
            }
        }
        out.into()
    }

    /// Reads what [`Delta::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        let needs = read_clock(&mut reader)?;
        let actors = ActorTable::of(&read_clock(&mut reader)?);
        let dot = actors.read_dot(&mut reader)?;
        let removes = read_deferred(&mut reader)?;
        let parts = read_parts(&mut reader, &actors)?;
        check_end(&reader)?;
        let delta = Self {
            dot,
            needs,
            parts,
            removes,
        };
        match delta.is_consistent() {
            true => Ok(delta),
            false => Err(DecodeError::Malformed { offset: 1 }),
        }
    }

    /// All dots of the delta, as the clock that covers them.
    fn dots(&self) -> Clock {
        let mut clock = Clock::new();
        clock.observe(self.dot);
        for touched in self.parts.values() {
            touched.replaced.each_dot(&mut |dot| clock.observe(dot));
            if let Some(part) = &touched.part {
                part.each_dot(&mut |dot| clock.observe(dot));
            }
        }
        clock
    }

    /// True if after joining the delta a replica holds only dots that it has seen: parts have their
    /// dots from before, and that of the update.
    fn is_consistent(&self) -> bool {
        let is_needed = |dot: Dot| self.needs.contains(dot);
        self.parts.values().all(|touched| {
            let mut is_known = touched
                .replaced
                .as_slice()
                .iter()
                .all(|dot| is_needed(*dot));
            if let Some(part) = &touched.part {
                part.each_dot(&mut |dot| is_known &= dot == self.dot || is_needed(dot));
            }
            is_known
        })
    }
}

fn read_parts<E: DeltaPart>(
    reader: &mut ByteReader<'_>,
    actors: &ActorTable,
) -> Result<BTreeMap<E::Name, Touched<E>>, Truncated> {
    let count = reader.varint_len()?;
    let mut parts = BTreeMap::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let name = E::read_part_name(reader)?;
        let replaced = actors.read_dots(reader)?;
        let part = match reader.u8()? {
            REMOVED => None,
            PRESENT => Some(E::read_part(&name, reader, actors)?),
            _ => return Err(malformed),
        };
        let is_next = parts.last_key_value().is_none_or(|(last, _)| *last < name);
        if !is_next || part.as_ref().is_some_and(E::is_empty) {
            return Err(malformed);
        }
        parts.insert(name, Touched { replaced, part });
    }
    Ok(parts)
}
