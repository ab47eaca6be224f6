//! Operations as clients of Riak's HTTP interface send them, with Riak's error texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::ascii_json::put_value;
use crate::clock::Clock;
use crate::context::decode_context;
use crate::decode_error::DecodeError;
use crate::field_name::{FieldKind, FieldName};
use crate::kind::Kind;
use crate::operation::{FieldChange, FieldOperation, Operation, SetChange};

/// A body that is not an operation. The texts are Riak's; the request is refused with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The body is not JSON, or has another shape.
    #[error("Couldn't decode JSON: {detail}")]
    Decode {
        /// The error.
        detail: String,
    },
    /// The operation is not one of the type.
    #[error("Invalid operation on datatype '{kind}': {operation}")]
    Operation {
        /// The type, or the kind of a field.
        kind: &'static str,
        /// The operation, as it was sent.
        operation: String,
    },
    /// A field's name does not end with a kind of field.
    #[error("Invalid map field name '{name}'")]
    FieldName {
        /// The name.
        name: String,
    },
    /// The context is not one that a server gave.
    #[error("Invalid context: {0}")]
    Context(#[from] DecodeError),
}

/// Reads an operation on a type, and the context that came with it.
///
/// # Errors
/// [`JsonError`] with Riak's text.
pub fn operation_from_json(
    kind: Kind,
    body: &[u8],
) -> Result<(Operation, Option<Clock>), JsonError> {
    if let Some(by) = whole_number(body).filter(|_| kind == Kind::Counter) {
        return Ok((Operation::Counter(by), None));
    }
    let parsed = serde_json::from_slice(body);
    let mut json: Value = parsed.map_err(|error| decode_error(error.to_string()))?;
    let context = take_context(&mut json)?;
    let operation = match kind {
        Kind::Counter => Operation::Counter(counter_operation(&json)?),
        Kind::Set => Operation::Set(set_changes(&json)?),
        Kind::GrowSet => Operation::GrowSet(additions(&json, kind.name())?),
        Kind::HyperLogLog => Operation::HyperLogLog(additions(&json, kind.name())?),
        Kind::Map => Operation::Map(map_changes(&json)?),
    };
    let context = context.filter(|_| kind.has_context());
    let context = context.map(|bytes| decode_context(&bytes)).transpose()?;
    Ok((operation, context))
}

fn decode_error(detail: impl Into<String>) -> JsonError {
    JsonError::Decode {
        detail: detail.into(),
    }
}

fn printed(json: &Value) -> String {
    let mut out = String::new();
    put_value(&mut out, json);
    out
}

fn invalid(kind: &'static str, json: &Value) -> JsonError {
    JsonError::Operation {
        kind,
        operation: printed(json),
    }
}

/// A body that is a single number. It may have more digits than other numbers in JSON.
fn whole_number(body: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(body).ok()?.trim_ascii();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = digits == "0" || !digits.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_whole)
}

fn take_context(json: &mut Value) -> Result<Option<Bytes>, JsonError> {
    let found = json
        .as_object_mut()
        .and_then(|it| it.shift_remove("context"));
    let Some(context) = found else {
        return Ok(None);
    };
    let Some(text) = context.as_str() else {
        return Err(decode_error("function_clause"));
    };
    match STANDARD.decode(text) {
        Ok(decoded) => Ok(Some(decoded.into())),
        Err(_) => Err(decode_error(base64_failure(text.as_bytes()))),
    }
}

/// Erlang's error for a text that is not base64: for a character in a group of four, or for the remainder.
fn base64_failure(text: &[u8]) -> &'static str {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let has_others = |group: &[u8]| !group.iter().all(is_letter);
    match text.chunks_exact(4).any(has_others) {
        true => "badarg",
        false => "function_clause",
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The strings of a list; `None` if it has other values.
fn strings(json: &Value) -> Option<Vec<Bytes>> {
    let elements = json.as_array()?.iter();
    elements
        .map(|element| element.as_str().map(bytes))
        .collect()
}

fn counter_operation(json: &Value) -> Result<i128, JsonError> {
    let by = match json {
        Value::Number(number) => number.as_i128(),
        Value::String(text) if text == "increment" => Some(1),
        Value::String(text) if text == "decrement" => Some(-1),
        Value::Object(members) => only_member(members).and_then(|(name, value)| {
            let by = value.as_number()?.as_i128()?;
            match name {
                "increment" => Some(by),
                "decrement" => Some(-by),
                _ => None,
            }
        }),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
    };
    by.ok_or_else(|| invalid("counter", json))
}

fn only_member(members: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut members = members.iter();
    match (members.next(), members.next()) {
        (Some((name, value)), None) => Some((name, value)),
        _ => None,
    }
}

fn set_changes(json: &Value) -> Result<Vec<SetChange>, JsonError> {
    let changes = json.as_object().and_then(set_changes_of);
    changes.ok_or_else(|| invalid("set", json))
}

fn set_changes_of(members: &Map<String, Value>) -> Option<Vec<SetChange>> {
    let mut changes = Vec::new();
    for (verb, value) in members {
        match verb.as_str() {
            "add" => changes.push(SetChange::Add(bytes(value.as_str()?))),
            "remove" => changes.push(SetChange::Remove(bytes(value.as_str()?))),
            "add_all" => changes.extend(strings(value)?.into_iter().map(SetChange::Add)),
            "remove_all" => changes.extend(strings(value)?.into_iter().map(SetChange::Remove)),
            "update" => changes.extend(set_changes_of(value.as_object()?)?),
            _ => return None,
        }
    }
    Some(changes)
}

/// The additions to a set that only grows, or to a sketch.
fn additions(json: &Value, kind: &'static str) -> Result<Vec<Bytes>, JsonError> {
    let added = json.as_object().and_then(additions_of);
    added.ok_or_else(|| invalid(kind, json))
}

fn additions_of(members: &Map<String, Value>) -> Option<Vec<Bytes>> {
    let mut added = Vec::new();
    for (verb, value) in members {
        match verb.as_str() {
            "add" => added.push(bytes(value.as_str()?)),
            "add_all" => added.extend(strings(value)?),
            "update" => added.extend(additions_of(value.as_object()?)?),
            _ => return None,
        }
    }
    Some(added)
}

/// Removes come before updates, whatever their order in the text.
fn map_changes(json: &Value) -> Result<Vec<FieldChange>, JsonError> {
    let members = json.as_object().ok_or_else(|| invalid("map", json))?;
    let is_verb = |verb: &&String| !matches!(verb.as_str(), "update" | "remove");
    if let Some(verb) = members.keys().find(is_verb) {
        return Err(invalid("map", &Value::String(verb.clone())));
    }
    let mut changes = match members.get("remove") {
        None => Vec::new(),
        Some(removes) => field_removes(removes, json)?,
    };
    if let Some(updates) = members.get("update") {
        let mismatch = || decode_error(format!("{{badmatch,{}}}", printed(updates)));
        for (name, operation) in updates.as_object().ok_or_else(mismatch)? {
            changes.push(field_update(name, operation)?);
        }
    }
    Ok(changes)
}

fn field_removes(removes: &Value, whole: &Value) -> Result<Vec<FieldChange>, JsonError> {
    let removed = |name: &str| field_name(name).map(FieldChange::Remove);
    match removes {
        Value::String(name) => Ok(vec![removed(name)?]),
        Value::Array(names) => {
            let names = names.iter().map(|name| {
                let name = name.as_str();
                removed(name.ok_or_else(|| decode_error("function_clause"))?)
            });
            names.collect()
        }
        _ => Err(invalid("map", whole)),
    }
}

fn field_update(name: &str, json: &Value) -> Result<FieldChange, JsonError> {
    let FieldName { name, kind } = field_name(name)?;
    let operation = match kind {
        FieldKind::Counter => FieldOperation::Counter(counter_operation(json)?),
        FieldKind::Register => FieldOperation::Register(assigned(json)?),
        FieldKind::Flag => FieldOperation::Flag(enabled(json)?),
        FieldKind::Set => FieldOperation::Set(set_changes(json)?),
        FieldKind::Map => FieldOperation::Map(map_changes(json)?),
    };
    Ok(FieldChange::Update { name, operation })
}

/// A field's name, from the form in JSON: the name, an underscore and the kind.
fn field_name(text: &str) -> Result<FieldName, JsonError> {
    let parts = text.rsplit_once('_').and_then(|(name, kind)| {
        let mut kinds = FieldKind::ALL.into_iter();
        let kind = kinds.find(|it| it.name() == kind)?;
        Some(FieldName::new(bytes(name), kind))
    });
    parts.ok_or_else(|| JsonError::FieldName {
        name: text.to_owned(),
    })
}

fn assigned(json: &Value) -> Result<Bytes, JsonError> {
    let value = match json {
        Value::Object(members) => only_member(members)
            .filter(|(verb, _)| *verb == "assign")
            .and_then(|(_, value)| value.as_str()),
        _ => json.as_str(),
    };
    value.map(bytes).ok_or_else(|| invalid("register", json))
}

fn enabled(json: &Value) -> Result<bool, JsonError> {
    match json.as_str() {
        Some("enable") => Ok(true),
        Some("disable") => Ok(false),
        _ => Err(invalid("flag", json)),
    }
}
