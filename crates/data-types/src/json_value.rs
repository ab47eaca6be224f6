//! Values as the answers of Riak's HTTP interface.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::ascii_json::{put_list, put_string};
use crate::clock::Clock;
use crate::context::encode_context;
use crate::field_name::FieldName;
use crate::kind::Kind;
use crate::value::{FieldValue, Value};

/// JSON cannot carry the value: a member, a register or a field's name is not UTF-8. Protocol buffers
/// can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value holds bytes that are not UTF-8, which JSON cannot carry")]
pub struct NotText;

/// The answer to a fetch: type, value, and the context, if any.
///
/// # Errors
/// [`NotText`] when JSON cannot carry the value.
pub fn fetched_json(value: &Value, context: Option<&Clock>) -> Result<String, NotText> {
    let mut out = format!("{{\"type\":\"{}\",\"value\":", kind_of(value));
    put_top(&mut out, value)?;
    if let Some(clock) = context {
        let encoded = STANDARD.encode(encode_context(clock));
        out.push_str(",\"context\":\"");
        out.push_str(&encoded);
        out.push('"');
    }
    out.push('}');
    Ok(out)
}

/// The answer for a missing key.
pub fn not_found_json(kind: Kind) -> String {
    format!("{{\"type\":\"{kind}\",\"error\":\"notfound\"}}")
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Counter(_) => Kind::Counter,
        Value::Set(_) => Kind::Set,
        Value::GrowSet(_) => Kind::GrowSet,
        Value::Map(_) => Kind::Map,
        Value::HyperLogLog(_) => Kind::HyperLogLog,
    }
}

fn put_top(out: &mut String, value: &Value) -> Result<(), NotText> {
    match value {
        Value::Counter(value) => out.push_str(&value.to_string()),
        Value::HyperLogLog(estimate) => out.push_str(&estimate.to_string()),
        Value::Set(members) | Value::GrowSet(members) => put_members(out, members)?,
        Value::Map(fields) => put_fields(out, fields)?,
    }
    Ok(())
}

fn text(bytes: &Bytes) -> Result<&str, NotText> {
    std::str::from_utf8(bytes).map_err(|_| NotText)
}

fn put_members(out: &mut String, members: &[Bytes]) -> Result<(), NotText> {
    let texts: Vec<&str> = members.iter().map(text).collect::<Result<_, _>>()?;
    put_list(out, "[", texts, "]", put_string);
    Ok(())
}

fn put_fields(out: &mut String, fields: &[(FieldName, FieldValue)]) -> Result<(), NotText> {
    let mut all = Ok(());
    put_list(out, "{", fields, "}", |out, field| {
        if all.is_ok() {
            all = put_field(out, field);
        }
    });
    all
}

fn put_field(out: &mut String, (name, value): &(FieldName, FieldValue)) -> Result<(), NotText> {
    put_string(out, &format!("{}_{}", text(&name.name)?, name.kind.name()));
    out.push(':');
    match value {
        FieldValue::Counter(value) => out.push_str(&value.to_string()),
        FieldValue::Register(value) => put_string(out, text(value)?),
        FieldValue::Flag(value) => out.push_str(if *value { "true" } else { "false" }),
        FieldValue::Set(members) => put_members(out, members)?,
        FieldValue::Map(fields) => put_fields(out, fields)?,
    }
    Ok(())
}
