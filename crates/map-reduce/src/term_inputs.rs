//! The inputs of a job in Erlang's terms.
//!
//! | form | inputs |
//! |---|---|
//! | `Bucket`, `{Type,Bucket}` | all keys of the bucket |
//! | `{Bucket,Filters}` | its keys that pass the filters |
//! | `[{Bucket,Key}, {{Bucket,Key},Data}, {{{Type,Bucket},Key},Data}, ...]` | these keys |
//! | `{index,Bucket,Index,Value}`, `{index,Bucket,Index,First,Last}` | the keys that the index has there |

use bytes::Bytes;
use serde_json::Value;

use crate::filter::FilterChain;
use crate::input::Input;
use crate::inputs::{Inputs, index_inputs};
use crate::object::BucketName;
use crate::refusal::Refusal;
use crate::term::Term;

const FORMS: &str = "Inputs must be a binary bucket, a tuple of bucket and key-filters, a list of target tuples, or a search, index, or modfun tuple:";

const TARGETS: &str = "Inputs target tuples must be {B,K} or {{B,K},KeyData}:";

/// Reads the value of `inputs`.
pub(crate) fn inputs_of_term(inputs: Option<&Term>) -> Result<Inputs, Refusal> {
    match inputs {
        Some(Term::Binary(bucket)) => Ok(Inputs::Bucket(BucketName::new(None, bucket.clone()))),
        Some(Term::List(targets)) => keys_of_terms(targets),
        Some(term @ Term::Tuple(parts)) => tuple(term, parts),
        None => Err(refused(FORMS, Term::atom("undefined"))),
        Some(other) => Err(refused(FORMS, other.clone())),
    }
}

fn refused(reason: &str, of: Term) -> Refusal {
    Refusal::Inputs(Term::pair(Term::characters(reason.as_bytes()), of))
}

fn tuple(inputs: &Term, parts: &[Term]) -> Result<Inputs, Refusal> {
    let unknown = || refused(FORMS, inputs.clone());
    match parts {
        [Term::Binary(bucket_type), Term::Binary(bucket)] => {
            let bucket_type = Some(bucket_type.clone());
            Ok(Inputs::Bucket(BucketName::new(bucket_type, bucket.clone())))
        }
        [bucket, Term::List(filters)] => {
            let bucket = bucket_of(bucket).ok_or_else(unknown)?;
            Ok(Inputs::Filtered(bucket, filters_of_terms(filters)?))
        }
        [kind, bucket, Term::Binary(index), values @ ..] if kind.is_atom("index") => {
            let bucket = bucket_of(bucket).ok_or_else(unknown)?;
            let (first, last) = match values {
                [value] => (value, value),
                [first, last] => (first, last),
                _ => return Err(unknown()),
            };
            let index = std::str::from_utf8(index).map_err(|_| unknown())?;
            let (first, last) = (json_of_text(first), json_of_text(last));
            index_inputs(bucket, index, (&first, &last))
        }
        [kind, ..] if kind.is_atom("search") || kind.is_atom("modfun") => {
            Err(Refusal::InputsUnavailable)
        }
        _ => Err(unknown()),
    }
}

fn bucket_of(term: &Term) -> Option<BucketName> {
    let binary = |term: &Term| match term {
        Term::Binary(bytes) => Some(bytes.clone()),
        _ => None,
    };
    match term {
        Term::Tuple(parts) => match parts.as_slice() {
            [bucket_type, bucket] => {
                let bucket_type: Option<Bytes> = Some(binary(bucket_type)?);
                Some(BucketName::new(bucket_type, binary(bucket)?))
            }
            _ => None,
        },
        other => Some(BucketName::new(None, binary(other)?)),
    }
}

fn keys_of_terms(targets: &[Term]) -> Result<Inputs, Refusal> {
    let mut keys = Vec::with_capacity(targets.len());
    for (at, target) in targets.iter().enumerate() {
        let key = match target {
            Term::Tuple(_) => Input::from_term(target),
            _ => None,
        };
        // Riak's error has the rest of the list.
        keys.push(key.ok_or_else(|| refused(TARGETS, Term::List(targets[at..].to_vec())))?);
    }
    Ok(Inputs::Keys(keys))
}

/// Filters have the same names and arguments in both forms.
fn filters_of_terms(filters: &[Term]) -> Result<FilterChain, Refusal> {
    let filters: Vec<Value> = filters.iter().map(json_of_text).collect();
    FilterChain::from_json(&filters)
}

/// The JSON of names, numbers and lists of them; null for others, which no filter accepts.
fn json_of_text(term: &Term) -> Value {
    match term {
        Term::Binary(bytes) => std::str::from_utf8(bytes).map_or(Value::Null, Value::from),
        Term::Integer(number) => i64::try_from(*number).map_or(Value::Null, Value::from),
        Term::Float(number) => Value::from(*number),
        Term::Atom(name) if name == "true" => Value::Bool(true),
        Term::Atom(name) if name == "false" => Value::Bool(false),
        Term::List(elements) => Value::Array(elements.iter().map(json_of_text).collect()),
        Term::Atom(_) | Term::Tuple(_) | Term::Object(_) => Value::Null,
    }
}
