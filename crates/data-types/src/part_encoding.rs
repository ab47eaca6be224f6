//! The parts of sets and maps as bytes.

use bytes::{BufMut, Bytes};
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::clock_encoding::{ActorTable, put_clock, put_sum, read_clock, read_sum};
use crate::counter::{Counter, Tally};
use crate::deferred::{Deferred, Removal, Target};
use crate::field::{Content, Field, Fields, Members};
use crate::field_name::{FieldKind, FieldName};
use crate::operation::DEPTH_MAX;
use crate::register::{Assignment, Register};

/// Writes the length of a byte string, and its bytes.
pub(crate) fn put_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

pub(crate) fn read_bytes(reader: &mut ByteReader<'_>) -> Result<Bytes, Truncated> {
    reader.take_prefixed().map(Bytes::copy_from_slice)
}

/// Writes members.
///
/// ```text
/// members  = count     varint
///            member*           strictly ascending
/// member   = length    varint
///            bytes
///            dots              see `ActorTable::put_dots`
/// ```
pub(crate) fn put_members(out: &mut impl BufMut, members: &Members, actors: &ActorTable) {
    put_varint(out, members.len() as u64);
    for (member, dots) in members {
        put_bytes(out, member);
        actors.put_dots(out, dots);
    }
}

/// Reads what [`put_members`] wrote.
pub(crate) fn read_members(
    reader: &mut ByteReader<'_>,
    actors: &ActorTable,
) -> Result<Members, Truncated> {
    let count = reader.varint_len()?;
    let mut members = Members::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let member = read_bytes(reader)?;
        let is_next = members
            .last_key_value()
            .is_none_or(|(last, _)| *last < member);
        let dots = actors.read_dots(reader)?;
        if !is_next || dots.as_slice().is_empty() {
            return Err(malformed);
        }
        members.insert(member, dots);
    }
    Ok(members)
}

/// Writes fields.
///
/// ```text
/// fields   = count     varint
///            field*            by strictly ascending name and kind
/// field    = name              see `put_name`
///            presence  dots
///            content           by the name's kind:
///                              counter   count varint, tally*
///                              register  count varint, assignment*
///                              flag      dots
///                              set       members
///                              map       fields
/// tally    = dot       increments sum    decrements sum
/// assignment = dot     micros varint     length varint     bytes
/// ```
pub(crate) fn put_fields(out: &mut impl BufMut, fields: &Fields, actors: &ActorTable) {
    put_varint(out, fields.len() as u64);
    for (name, field) in fields {
        put_name(out, name);
        put_field(out, field, actors);
    }
}

/// Writes a field without its name.
pub(crate) fn put_field(out: &mut impl BufMut, field: &Field, actors: &ActorTable) {
    actors.put_dots(out, &field.presence);
    match &field.content {
        Content::Counter(counter) => put_counter(out, counter, actors),
        Content::Register(register) => put_register(out, register, actors),
        Content::Flag(dots) => actors.put_dots(out, dots),
        Content::Set(members) => put_members(out, members, actors),
        Content::Map(fields) => put_fields(out, fields, actors),
    }
}

/// Reads what [`put_fields`] wrote; the fields are `depth` maps deep.
pub(crate) fn read_fields(
    reader: &mut ByteReader<'_>,
    actors: &ActorTable,
    depth: usize,
) -> Result<Fields, Truncated> {
    let count = reader.varint_len()?;
    let mut fields = Fields::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let name = read_name(reader)?;
        let is_next = fields.last_key_value().is_none_or(|(last, _)| *last < name);
        let field = read_field(reader, name.kind, actors, depth)?;
        if !is_next || crate::dot_store::DotStore::is_empty(&field) {
            return Err(malformed);
        }
        fields.insert(name, field);
    }
    Ok(fields)
}

/// Reads what [`put_field`] wrote.
pub(crate) fn read_field(
    reader: &mut ByteReader<'_>,
    kind: FieldKind,
    actors: &ActorTable,
    depth: usize,
) -> Result<Field, Truncated> {
    if depth > DEPTH_MAX {
        return Err(Truncated {
            offset: reader.offset(),
        });
    }
    let presence = actors.read_dots(reader)?;
    let content = match kind {
        FieldKind::Counter => Content::Counter(read_counter(reader, actors)?),
        FieldKind::Register => Content::Register(read_register(reader, actors)?),
        FieldKind::Flag => Content::Flag(actors.read_dots(reader)?),
        FieldKind::Set => Content::Set(read_members(reader, actors)?),
        FieldKind::Map => Content::Map(read_fields(reader, actors, depth + 1)?),
    };
    Ok(Field { presence, content })
}

/// Writes the tallies of a counter.
pub(crate) fn put_counter(out: &mut impl BufMut, counter: &Counter, actors: &ActorTable) {
    put_varint(out, counter.tallies().len() as u64);
    for tally in counter.tallies() {
        actors.put_dot(out, tally.dot);
        put_sum(out, tally.increments);
        put_sum(out, tally.decrements);
    }
}

/// Reads what [`put_counter`] wrote.
pub(crate) fn read_counter(
    reader: &mut ByteReader<'_>,
    actors: &ActorTable,
) -> Result<Counter, Truncated> {
    let count = reader.varint_len()?;
    let mut tallies = Vec::<Tally>::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let tally = Tally {
            dot: actors.read_dot(reader)?,
            increments: read_sum(reader)?,
            decrements: read_sum(reader)?,
        };
        let last = tallies.last().map(|last| last.dot.actor);
        if last.is_some_and(|last| last >= tally.dot.actor) {
            return Err(malformed);
        }
        tallies.push(tally);
    }
    Ok(Counter::from_tallies(tallies))
}

fn put_register(out: &mut impl BufMut, register: &Register, actors: &ActorTable) {
    put_varint(out, register.assignments().len() as u64);
    for assignment in register.assignments() {
        actors.put_dot(out, assignment.dot);
        put_varint(out, assignment.micros);
        put_bytes(out, &assignment.value);
    }
}

fn read_register(reader: &mut ByteReader<'_>, actors: &ActorTable) -> Result<Register, Truncated> {
    let count = reader.varint_len()?;
    let mut assignments = Vec::<Assignment>::new();
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let assignment = Assignment {
            dot: actors.read_dot(reader)?,
            micros: reader.varint()?,
            value: read_bytes(reader)?,
        };
        let last = assignments.last().map(|last| last.dot);
        if last.is_some_and(|last| last >= assignment.dot) {
            return Err(malformed);
        }
        assignments.push(assignment);
    }
    Ok(Register::from_assignments(assignments))
}

/// Writes a field's name.
///
/// ```text
/// name     = length    varint
///            bytes
///            kind      u8      1 counter, 2 register, 3 map, 4 flag, 5 set
/// ```
pub(crate) fn put_name(out: &mut impl BufMut, name: &FieldName) {
    put_bytes(out, &name.name);
    out.put_u8(kind_number(name.kind));
}

/// Reads what [`put_name`] wrote.
pub(crate) fn read_name(reader: &mut ByteReader<'_>) -> Result<FieldName, Truncated> {
    let name = read_bytes(reader)?;
    let malformed = Truncated {
        offset: reader.offset(),
    };
    let number = reader.u8()?;
    let mut kinds = FieldKind::ALL.into_iter();
    let kind = kinds.find(|kind| kind_number(*kind) == number);
    Ok(FieldName {
        name,
        kind: kind.ok_or(malformed)?,
    })
}

fn kind_number(kind: FieldKind) -> u8 {
    match kind {
        FieldKind::Counter => 1,
        FieldKind::Register => 2,
        FieldKind::Map => 3,
        FieldKind::Flag => 4,
        FieldKind::Set => 5,
    }
}

/// Writes removes that wait.
///
/// ```text
/// deferred = count     varint
///            waiting*
/// waiting  = clock
///            count     varint
///            target*
/// target   = count     varint
///            name*             the path
///            removal   u8      1 member, 2 field, 3 flag
///            member: length varint, bytes; field: name
/// ```
pub(crate) fn put_deferred(out: &mut impl BufMut, deferred: &Deferred) {
    put_varint(out, deferred.iter().len() as u64);
    for (context, targets) in deferred.iter() {
        put_clock(out, context);
        put_varint(out, targets.len() as u64);
        for target in targets {
            put_target(out, target);
        }
    }
}

/// Reads what [`put_deferred`] wrote.
pub(crate) fn read_deferred(reader: &mut ByteReader<'_>) -> Result<Deferred, Truncated> {
    let mut deferred = Deferred::default();
    for _ in 0..reader.varint_len()? {
        let context = read_clock(reader)?;
        for _ in 0..reader.varint_len()? {
            deferred.insert(context.clone(), read_target(reader)?);
        }
    }
    Ok(deferred)
}

const MEMBER: u8 = 1;
const FIELD: u8 = 2;
const FLAG: u8 = 3;

fn put_target(out: &mut impl BufMut, target: &Target) {
    put_varint(out, target.path.len() as u64);
    for name in &target.path {
        put_name(out, name);
    }
    match &target.removal {
        Removal::Member(member) => {
            out.put_u8(MEMBER);
            put_bytes(out, member);
        }
        Removal::Field(name) => {
            out.put_u8(FIELD);
            put_name(out, name);
        }
        Removal::Flag => out.put_u8(FLAG),
    }
}

fn read_target(reader: &mut ByteReader<'_>) -> Result<Target, Truncated> {
    let mut path = Vec::new();
    for _ in 0..reader.varint_len()? {
        path.push(read_name(reader)?);
    }
    let malformed = Truncated {
        offset: reader.offset(),
    };
    let removal = match reader.u8()? {
        MEMBER => Removal::Member(read_bytes(reader)?),
        FIELD => Removal::Field(read_name(reader)?),
        FLAG => Removal::Flag,
        _ => return Err(malformed),
    };
    match path.len() <= DEPTH_MAX {
        true => Ok(Target { path, removal }),
        false => Err(malformed),
    }
}
