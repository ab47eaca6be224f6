//! The built-in functions of map phases, and the results of a link phase for an object.

use std::sync::Arc;

use bytes::Bytes;

use crate::input::Input;
use crate::json::members_of;
use crate::object::{BucketName, ObjectLink, ReadObject};
use crate::term::Term;

/// A built-in function of a map phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFunction {
    /// The object itself, for phases that count.
    Identity,
    /// The object's value.
    ObjectValue,
    /// The elements of the object's value. A stored value is bytes and never a list, so it is an error.
    ObjectValueList,
}

/// Failure of a map function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// The function does not return a list.
    NonListResult,
    /// An error, by Erlang's name for it.
    Raised(String),
}

impl MapFunction {
    /// The function of this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            "map_identity" => Some(Self::Identity),
            "map_object_value" => Some(Self::ObjectValue),
            "map_object_value_list" => Some(Self::ObjectValueList),
            _ => None,
        }
    }

    /// The results for an object, or for a missing one.
    pub(crate) fn apply(
        self,
        object: Option<&Arc<ReadObject>>,
        input: &Input,
        argument: &Term,
    ) -> Result<Vec<Term>, MapError> {
        match (self, object) {
            (Self::Identity, Some(object)) => Ok(vec![Term::Object(Arc::clone(object))]),
            (Self::Identity, None) => Ok(vec![not_found()]),
            (_, None) => for_missing(input, argument),
            (Self::ObjectValue, Some(object)) => Ok(vec![Term::Binary(value(object)?)]),
            (Self::ObjectValueList, Some(object)) => {
                value(object)?;
                Err(MapError::NonListResult)
            }
        }
    }
}

/// The functions' argument for a missing object.
pub(crate) fn not_found() -> Term {
    Term::pair(Term::atom("error"), Term::atom("notfound"))
}

fn value(object: &ReadObject) -> Result<Bytes, MapError> {
    match object.siblings.as_slice() {
        [sibling] => Ok(sibling.value.clone()),
        siblings => Err(MapError::Raised(format!(
            "{{badmatch,{} siblings}}",
            siblings.len()
        ))),
    }
}

fn for_missing(input: &Input, argument: &Term) -> Result<Vec<Term>, MapError> {
    if let Some(given) = substitute(argument) {
        return match given {
            Term::List(results) => Ok(results.clone()),
            _ => Err(MapError::NonListResult),
        };
    }
    match argument {
        Term::Binary(action) => match action.as_ref() {
            b"filter_notfound" => Ok(Vec::new()),
            b"include_notfound" => Ok(vec![not_found()]),
            b"include_keydata" => Ok(vec![input.data_term()]),
            _ => Err(no_clause()),
        },
        _ => Err(no_clause()),
    }
}

fn no_clause() -> MapError {
    MapError::Raised("function_clause".to_string())
}

/// The value of an argument `{"sub": value}`.
fn substitute(argument: &Term) -> Option<&Term> {
    let [Term::Tuple(member)] = members_of(argument)? else {
        return None;
    };
    match member.as_slice() {
        [Term::Binary(name), value] if name.as_ref() == b"sub" => Some(value),
        _ => None,
    }
}

/// The inputs for an object's links that match; `None` matches all.
pub(crate) fn linked(
    object: Option<&Arc<ReadObject>>,
    bucket: Option<&Bytes>,
    tag: Option<&Bytes>,
) -> Vec<Term> {
    let fits = |link: &&ObjectLink| {
        bucket.is_none_or(|it| *it == link.bucket) && tag.is_none_or(|it| *it == link.tag)
    };
    let siblings = object.map_or(&[][..], |it| it.siblings.as_slice());
    let mut found: Vec<Term> = Vec::new();
    for link in siblings.iter().flat_map(|it| &it.links).filter(fits) {
        let input = Input {
            bucket: BucketName::new(None, link.bucket.clone()),
            key: link.key.clone(),
            data: Some(Term::Binary(link.tag.clone())),
        };
        found.push(input.term());
    }
    found.sort_by(Term::strict_order);
    found.dedup();
    found
}
