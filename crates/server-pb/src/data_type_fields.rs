//! Operations and values of data types from and to messages.

use bytes::Bytes;
use kvorum_data_types::{
    DataType, FieldChange, FieldKind, FieldName, FieldOperation, FieldValue, Kind, Operation,
    SetChange, Value, encode_context,
};
use kvorum_protocol::pb;
use kvorum_protocol::pb::dt_fetch_resp::DataType as WireKind;
use kvorum_protocol::pb::map_field::MapFieldType;
use kvorum_protocol::pb::map_update::FlagOp;

use crate::refusal::Refusal;

/// The number that stands for a type in answers.
pub(crate) fn wire_kind(kind: Kind) -> i32 {
    let kind = match kind {
        Kind::Counter => WireKind::Counter,
        Kind::Set => WireKind::Set,
        Kind::Map => WireKind::Map,
        Kind::HyperLogLog => WireKind::Hll,
        Kind::GrowSet => WireKind::Gset,
    };
    kind.into()
}

/// The operation of a message. If there are several, the first in the order of the message's fields
/// counts.
pub(crate) fn operation_of(op: pb::DtOp) -> Result<Operation, Refusal> {
    if let Some(op) = op.counter_op {
        return Ok(Operation::Counter(increment(op)));
    }
    if let Some(op) = op.set_op {
        return Ok(Operation::Set(set_changes(op)));
    }
    if let Some(op) = op.map_op {
        return Ok(Operation::Map(map_changes(op)?));
    }
    if let Some(op) = op.hll_op {
        return Ok(Operation::HyperLogLog(op.adds));
    }
    match op.gset_op {
        Some(op) => Ok(Operation::GrowSet(op.adds)),
        None => Err(Refusal::InvalidOperation("no operation is given")),
    }
}

/// An operation without a number adds one.
fn increment(op: pb::CounterOp) -> i128 {
    op.increment.unwrap_or(1).into()
}

fn set_changes(op: pb::SetOp) -> Vec<SetChange> {
    let adds = op.adds.into_iter().map(SetChange::Add);
    adds.chain(op.removes.into_iter().map(SetChange::Remove))
        .collect()
}

/// Removes precede updates.
fn map_changes(op: pb::MapOp) -> Result<Vec<FieldChange>, Refusal> {
    let removes = op.removes.into_iter().map(|field| {
        let kind = field_kind(field.r#type)?;
        Ok(FieldChange::Remove(FieldName::new(field.name, kind)))
    });
    removes
        .chain(op.updates.into_iter().map(field_update))
        .collect()
}

fn field_update(update: pb::MapUpdate) -> Result<FieldChange, Refusal> {
    let kind = field_kind(update.field.r#type)?;
    let operation = match kind {
        FieldKind::Counter => update
            .counter_op
            .map(increment)
            .map(FieldOperation::Counter),
        FieldKind::Set => update.set_op.map(set_changes).map(FieldOperation::Set),
        FieldKind::Register => update.register_op.map(FieldOperation::Register),
        FieldKind::Flag => update.flag_op.map(enables).transpose()?,
        FieldKind::Map => {
            let changes = update.map_op.map(map_changes).transpose()?;
            changes.map(FieldOperation::Map)
        }
    };
    let missing = "a field has no operation of its type";
    Ok(FieldChange::Update {
        name: update.field.name,
        operation: operation.ok_or(Refusal::InvalidOperation(missing))?,
    })
}

fn enables(flag: i32) -> Result<FieldOperation, Refusal> {
    match FlagOp::try_from(flag) {
        Ok(FlagOp::Enable) => Ok(FieldOperation::Flag(true)),
        Ok(FlagOp::Disable) => Ok(FieldOperation::Flag(false)),
        Err(_) => Err(Refusal::InvalidOperation("a flag is enabled or disabled")),
    }
}

fn field_kind(wire: i32) -> Result<FieldKind, Refusal> {
    Ok(match MapFieldType::try_from(wire) {
        Ok(MapFieldType::Counter) => FieldKind::Counter,
        Ok(MapFieldType::Set) => FieldKind::Set,
        Ok(MapFieldType::Register) => FieldKind::Register,
        Ok(MapFieldType::Flag) => FieldKind::Flag,
        Ok(MapFieldType::Map) => FieldKind::Map,
        Err(_) => return Err(Refusal::InvalidOperation("a field has an unknown type")),
    })
}

fn wire_field(name: FieldName) -> pb::MapField {
    let kind = match name.kind {
        FieldKind::Counter => MapFieldType::Counter,
        FieldKind::Set => MapFieldType::Set,
        FieldKind::Register => MapFieldType::Register,
        FieldKind::Flag => MapFieldType::Flag,
        FieldKind::Map => MapFieldType::Map,
    };
    pb::MapField {
        name: name.name,
        r#type: kind.into(),
    }
}

/// A counter's value within the 64 bits that messages have for it.
pub(crate) fn within_64_bits(value: i128) -> i64 {
    let bound = if value < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(value).unwrap_or(bound)
}

/// The context for clients' removes, for the types that have it.
pub(crate) fn context_of(value: &DataType) -> Option<Bytes> {
    value.context().map(|clock| encode_context(&clock))
}

/// A value as an answer carries it.
pub(crate) fn wire_value(value: Value) -> pb::DtValue {
    let mut wire = pb::DtValue::default();
    match value {
        Value::Counter(value) => wire.counter_value = Some(within_64_bits(value)),
        Value::Set(members) => wire.set_value = members,
        Value::GrowSet(members) => wire.gset_value = members,
        Value::Map(fields) => wire.map_value = map_entries(fields),
        Value::HyperLogLog(estimate) => wire.hll_value = Some(estimate),
    }
    wire
}

fn map_entries(fields: Vec<(FieldName, FieldValue)>) -> Vec<pb::MapEntry> {
    fields.into_iter().map(map_entry).collect()
}

fn map_entry((name, value): (FieldName, FieldValue)) -> pb::MapEntry {
    let mut entry = pb::MapEntry {
        field: wire_field(name),
        ..pb::MapEntry::default()
    };
    match value {
        FieldValue::Counter(value) => entry.counter_value = Some(within_64_bits(value)),
        FieldValue::Register(value) => entry.register_value = Some(value),
        FieldValue::Flag(is_enabled) => entry.flag_value = Some(is_enabled),
        FieldValue::Set(members) => entry.set_value = members,
        FieldValue::Map(fields) => entry.map_value = map_entries(fields),
    }
    entry
}
