//! The `inputs` of a job: keys, a bucket, its keys that pass filters, or a part of an index.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::filter::FilterChain;
use crate::input::Input;
use crate::iolist::iolist_of_json;
use crate::json::term_of_json;
use crate::object::BucketName;
use crate::refusal::Refusal;
use crate::term::Term;

/// The sources of a job's inputs.
#[derive(Debug)]
pub enum Inputs {
    /// Keys named by the client.
    Keys(Vec<Input>),
    /// All keys of a bucket.
    Bucket(BucketName),
    /// The keys of a bucket that pass the filters.
    Filtered(BucketName, FilterChain),
    /// The keys in a range of an index.
    Index(IndexRange),
}

/// A part of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The bucket of the index.
    pub bucket: BucketName,
    /// The index, with its ending; `$key` and `$bucket` are indexes too.
    pub index: String,
    /// The first term, as text; whole numbers in decimal.
    pub start: Bytes,
    /// The last term, inclusive; equal to the first in a query for equal terms.
    pub end: Bytes,
}

/// The forms of inputs, in the order of Riak's error.
const FORMS: &[&str] = &[
    "Valid formats are:\n",
    "\nKey List:\n",
    "  - Map/Reduce over the provided set of keys.\n",
    "  - {\"inputs\":[[\"mybucket\",\"mykey1\"], [\"mybucket\",\"mykey2\"], ...]}\n",
    "\n",
    "Key List with Key Data:\n",
    "  - Map/Reduce over the provided set of keys.\n",
    "  - {\"inputs\":[[\"mybucket\",\"mykey1\", \"mykeydata1\"], [\"mybucket\",\"mykey2\", \"mykeydata1\"], ...]}\n",
    "\n",
    "Index Query - Exact Match:\n",
    "  - Indexing backend must be enabled.\n",
    "  - {\"inputs\":{\"bucket\":\"mybucket\", \"index\":\"myindex_bin\", \"key\":\"mykey\"}}\n",
    "\n",
    "Index Query - Range Search:\n",
    "  - Indexing backend must be enabled.\n",
    "  - Use secondary indexes to generate a starting set of keys.\n",
    "  - {\"inputs\":{\"bucket\":\"mybucket\", \"index\":\"myindex_bin\", \"start\":\"key1\", \"end\":\"key2\"}}\n",
    "\n",
    "Search Query:\n",
    "  - Riak Search must be enabled and bucket hook installed.\n",
    "  - {\"inputs\":{\"bucket\":\"mybucket\", \"query\":\"foo OR bar\"}}\n",
    "\n",
    "Search Query With Filter:\n",
    "  - Riak Search must be enabled and bucket hook installed.\n",
    "  - {\"inputs\":{\"bucket\":\"mybucket\", \"query\":\"field1:(foo OR bar)\", \"filter\":\"field2:baz\"}}\n",
    "\n",
    "Bucket:\n",
    "  - Map/Reduce over all keys in the provided bucket.\n",
    "  - WARNING: THIS CAN BE A SLOW OPERATION!\n",
    "  - {\"inputs\":\"mybucket\"}\n\n",
    "Bucket With Key Filter:\n",
    "  - Filter keys in a bucket, then Map/Reduce.\n",
    "  - WARNING: THIS CAN BE A SLOW OPERATION!\n",
    "  - {\"inputs\":{\"bucket\":\"mybucket\", \"key_filters\":[[\"matches\", \"foo.*\"]]}}\n\n",
];

/// Reads the value of `inputs`.
pub(crate) fn inputs_of_json(inputs: &Value) -> Result<Inputs, Refusal> {
    match inputs {
        Value::String(bucket) => Ok(Inputs::Bucket(BucketName::new(None, text(bucket)))),
        Value::Array(parts) => match typed_bucket(parts) {
            Some(bucket) => Ok(Inputs::Bucket(bucket)),
            None => keys_of_json(parts),
        },
        Value::Object(members) => query_of_json(inputs, members),
        _ => Err(unrecognized(inputs)),
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn typed_bucket(parts: &[Value]) -> Option<BucketName> {
    match parts {
        [Value::String(bucket_type), Value::String(bucket)] => {
            Some(BucketName::new(Some(text(bucket_type)), text(bucket)))
        }
        _ => None,
    }
}

fn keys_of_json(entries: &[Value]) -> Result<Inputs, Refusal> {
    if entries.is_empty() {
        return Err(Refusal::Inputs(Term::characters(
            b"No inputs were given.\n",
        )));
    }
    let key = |entry: &Value| key_of_json(entry).ok_or_else(|| unrecognized(entry));
    let keys = entries.iter().map(key).collect::<Result<_, _>>()?;
    Ok(Inputs::Keys(keys))
}

fn key_of_json(entry: &Value) -> Option<Input> {
    let parts = entry.as_array()?;
    let bucket = text(parts.first()?.as_str()?);
    let key = text(parts.get(1)?.as_str()?);
    let (data, bucket_type) = match &parts[2..] {
        [] => (None, None),
        [data] => (Some(data), None),
        [data, bucket_type] => (Some(data), Some(text(bucket_type.as_str()?))),
        _ => return None,
    };
    Some(Input {
        bucket: BucketName::new(bucket_type, bucket),
        key,
        data: data.map(term_of_json),
    })
}

fn query_of_json(inputs: &Value, members: &Map<String, Value>) -> Result<Inputs, Refusal> {
    let has = |name| members.contains_key(name);
    if has("module") && has("function") && has("arg") {
        return Err(Refusal::InputsUnavailable);
    }
    if has("query") && (has("bucket") || has("index")) {
        return Err(Refusal::InputsUnavailable);
    }
    let bucket = members.get("bucket").and_then(bucket_of_json);
    let bucket = bucket.ok_or_else(|| unrecognized(inputs))?;
    let range = match (members.get("key"), members.get("start"), members.get("end")) {
        (Some(key), _, _) => Some((key, key)),
        (None, Some(start), Some(end)) => Some((start, end)),
        _ => None,
    };
    match (members.get("index"), range, members.get("key_filters")) {
        (Some(index), Some(range), _) => index_of_json(inputs, bucket, index, range),
        (_, _, Some(filters)) => filtered_of_json(inputs, bucket, filters),
        _ => Err(unrecognized(inputs)),
    }
}

fn bucket_of_json(bucket: &Value) -> Option<BucketName> {
    match bucket {
        Value::String(bucket) => Some(BucketName::new(None, text(bucket))),
        Value::Array(parts) => typed_bucket(parts),
        _ => None,
    }
}

fn filtered_of_json(
    inputs: &Value,
    bucket: BucketName,
    filters: &Value,
) -> Result<Inputs, Refusal> {
    match filters.as_array() {
        Some(filters) if !filters.is_empty() => {
            Ok(Inputs::Filtered(bucket, FilterChain::from_json(filters)?))
        }
        _ => Err(unrecognized(inputs)),
    }
}

fn index_of_json(
    inputs: &Value,
    bucket: BucketName,
    index: &Value,
    (start, end): (&Value, &Value),
) -> Result<Inputs, Refusal> {
    let index = index.as_str().ok_or_else(|| unrecognized(inputs))?;
    index_inputs(bucket, index, (start, end))
}

/// A part of an index, from one value to another.
pub(crate) fn index_inputs(
    bucket: BucketName,
    index: &str,
    (start, end): (&Value, &Value),
) -> Result<Inputs, Refusal> {
    Ok(Inputs::Index(IndexRange {
        bucket,
        index: index.to_string(),
        start: index_term(index, start)?,
        end: index_term(index, end)?,
    }))
}

/// The term of a value in the index of this name.
fn index_term(index: &str, value: &Value) -> Result<Bytes, Refusal> {
    let wanted = if index.ends_with("_int") {
        whole_number(value)
    } else if index.ends_with("_bin") || index == "$key" || index == "$bucket" {
        match value {
            Value::String(value) => Some(text(value)),
            Value::Number(number) => Some(text(&number.to_string())),
            _ => None,
        }
    } else {
        return Err(index_error("unknown_field_type", Term::text(index)));
    };
    wanted.ok_or_else(|| {
        let field = Term::pair(Term::text(index), term_of_json(value));
        index_error("field_parsing_failed", field)
    })
}

fn whole_number(value: &Value) -> Option<Bytes> {
    let number = match value {
        Value::Number(number) => number.to_string(),
        Value::String(number) => number.clone(),
        _ => return None,
    };
    let number: i128 = number.parse().ok()?;
    Some(text(&number.to_string()))
}

fn index_error(kind: &'static str, of: Term) -> Refusal {
    Refusal::Inputs(Term::List(vec![Term::pair(Term::atom(kind), of)]))
}

fn unrecognized(inputs: &Value) -> Refusal {
    let characters = |text: &str| Term::characters(text.as_bytes());
    let mut parts = vec![
        characters("Unrecognized format of \"inputs\" field:"),
        characters("   "),
        iolist_of_json(inputs),
        characters("\n\n"),
    ];
    parts.extend(FORMS.iter().copied().map(characters));
    Refusal::Inputs(Term::List(parts))
}
