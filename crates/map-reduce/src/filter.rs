//! Key filters: functions of a key, each applied to the result of the one before it.
//!
//! A key is an input if the last filter returns `true`. Filters work on terms, so a transformation
//! that returns another kind of term affects the next filters: `to_upper` returns a list of
//! characters, which is equal to no text of the job.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use crate::edit_distance::within_edit_distance;
use crate::json::term_of_json;
use crate::print::flat;
use crate::refusal::Refusal;
use crate::term::Term;
use crate::term_text::{float_of_text, integer_of_text, text_of, text_of_float, url_decoded};

/// Filters, each applied to the result of the one before it.
#[derive(Clone, Debug, Default)]
pub struct FilterChain {
    filters: Vec<Filter>,
}

/// The size limit of a compiled expression of `matches`, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

/// The longest text of `similar_to`, in bytes: a comparison costs the product of both lengths.
const SIMILAR_TEXT_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug)]
enum Filter {
    IntToString,
    StringToInt,
    FloatToString,
    StringToFloat,
    ToUpper,
    ToLower,
    Tokenize {
        separators: Vec<u8>,
        number: usize,
    },
    UrlDecode,
    Compare {
        with: Term,
        keeps: fn(Ordering) -> bool,
    },
    Between {
        low: Term,
        high: Term,
        inclusive: bool,
    },
    Matches(Regex),
    Equal {
        to: Term,
        keeps: bool,
    },
    SetMember(BTreeSet<Vec<u8>>),
    SimilarTo {
        text: Vec<u8>,
        distance: usize,
    },
    StartsWith(Vec<u8>),
    EndsWith(Vec<u8>),
    And(Vec<FilterChain>),
    Or(Vec<FilterChain>),
    Not(FilterChain),
}

/// Erlang's name for the reason why a filter has no result for a key.
type Unfit = &'static str;

impl FilterChain {
    /// Reads a list of filters, each a list of its name and arguments.
    pub(crate) fn from_json(filters: &[Value]) -> Result<Self, Refusal> {
        let filters = filters
            .iter()
            .map(filter_of_json)
            .collect::<Result<_, _>>()?;
        Ok(Self { filters })
    }

    /// True if a key passes.
    ///
    /// # Errors
    ///
    /// A filter that cannot take its input, or a last filter whose result is neither true nor
    /// false.
    pub(crate) fn passes(&self, key: &Bytes) -> Result<bool, Unfit> {
        self.passes_term(&Term::Binary(key.clone()))
    }

    fn passes_term(&self, key: &Term) -> Result<bool, Unfit> {
        if self.filters.is_empty() {
            return Ok(true);
        }
        let mut value = key.clone();
        for filter in &self.filters {
            value = filter.apply(&value)?;
        }
        match value {
            Term::Atom(name) if name == "true" => Ok(true),
            Term::Atom(name) if name == "false" => Ok(false),
            _ => Err("case_clause"),
        }
    }
}

impl Filter {
    fn apply(&self, value: &Term) -> Result<Term, Unfit> {
        match self {
            Self::IntToString => match value {
                Term::Integer(number) => Ok(Term::text(&number.to_string())),
                _ => Err("badarg"),
            },
            Self::StringToInt => integer_of_text(&text_of(value))
                .map(Term::Integer)
                .ok_or("badarg"),
            Self::FloatToString => match value {
                Term::Float(number) => Ok(Term::text(&text_of_float(*number))),
                _ => Err("badarg"),
            },
            Self::StringToFloat => float_of_text(&text_of(value))
                .map(Term::Float)
                .ok_or("badarg"),
            Self::ToUpper => Ok(Term::characters(&text_of(value).to_ascii_uppercase())),
            Self::ToLower => Ok(Term::characters(&text_of(value).to_ascii_lowercase())),
            Self::Tokenize { separators, number } => {
                Ok(token(&text_of(value), separators, *number))
            }
            Self::UrlDecode => Ok(Term::characters(&url_decoded(&text_of(value)))),
            _ => self.test(value).map(Term::boolean),
        }
    }

    fn test(&self, value: &Term) -> Result<bool, Unfit> {
        match self {
            Self::Compare { with, keeps } => Ok(keeps(value.order(with))),
            Self::Between {
                low,
                high,
                inclusive,
            } => Ok(between(value, low, high, *inclusive)),
            Self::Matches(expression) => match value {
                Term::Binary(bytes) => Ok(expression.is_match(bytes)),
                _ => value
                    .as_characters()
                    .map(|it| expression.is_match(&it))
                    .ok_or("badarg"),
            },
            Self::Equal { to, keeps } => Ok((value == to) == *keeps),
            Self::SetMember(members) => Ok(members.contains(&text_of(value))),
            Self::SimilarTo { text, distance } => {
                Ok(within_edit_distance(&text_of(value), text, *distance))
            }
            Self::StartsWith(text) => Ok(text_of(value).starts_with(text)),
            Self::EndsWith(text) => Ok(text_of(value).ends_with(text)),
            Self::And(chains) => first_that(chains, value, false).map(|it| !it),
            Self::Or(chains) => first_that(chains, value, true),
            Self::Not(chain) => chain.passes_term(value).map(|it| !it),
            _ => Err("function_clause"),
        }
    }
}

/// True if a chain returns `wanted`; the chains behind it are not applied.
fn first_that(chains: &[FilterChain], value: &Term, wanted: bool) -> Result<bool, Unfit> {
    for chain in chains {
        if chain.passes_term(value)? == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

fn between(value: &Term, low: &Term, high: &Term, inclusive: bool) -> bool {
    let (low, high) = (value.order(low), value.order(high));
    if inclusive {
        low.is_ge() && high.is_le()
    } else {
        low.is_gt() && high.is_lt()
    }
}

/// The non-empty part with this number, from 1; an empty list if there are fewer.
fn token(text: &[u8], separators: &[u8], number: usize) -> Term {
    text.split(|byte| separators.contains(byte))
        .filter(|part| !part.is_empty())
        .nth(number - 1)
        .map_or(Term::List(Vec::new()), |part| {
            Term::Binary(Bytes::copy_from_slice(part))
        })
}

fn filter_of_json(filter: &Value) -> Result<Filter, Refusal> {
    let unknown = || Refusal::UnknownFilter(term_of_json(filter));
    let parts = filter.as_array().ok_or_else(unknown)?;
    let (name, arguments) = parts.split_first().ok_or_else(unknown)?;
    let known = name.as_str().filter(|it| NAMES.contains(it));
    let name = known.ok_or_else(|| Refusal::UnknownFilter(term_of_json(name)))?;
    let refused = |reason: String| Refusal::FilterArguments {
        name: name.to_string(),
        reason,
    };
    match name {
        "and" => Ok(Filter::And(chains_of_json(arguments, refused)?)),
        "or" => Ok(Filter::Or(chains_of_json(arguments, refused)?)),
        "not" => {
            let first = chains_of_json(arguments, refused)?.into_iter().next();
            first
                .map(Filter::Not)
                .ok_or_else(|| refused("takes a list of filters".to_string()))
        }
        _ => simple_filter(name, arguments).map_err(refused),
    }
}

/// The names of all filters.
const NAMES: [&str; 23] = [
    "int_to_string",
    "string_to_int",
    "float_to_string",
    "string_to_float",
    "to_upper",
    "to_lower",
    "tokenize",
    "urldecode",
    "greater_than",
    "less_than",
    "greater_than_eq",
    "less_than_eq",
    "between",
    "matches",
    "neq",
    "eq",
    "set_member",
    "similar_to",
    "starts_with",
    "ends_with",
    "and",
    "or",
    "not",
];

fn chains_of_json(
    arguments: &[Value],
    refused: impl Fn(String) -> Refusal,
) -> Result<Vec<FilterChain>, Refusal> {
    let chain = |argument: &Value| match argument.as_array() {
        Some(filters) => FilterChain::from_json(filters),
        None => Err(refused("takes lists of filters".to_string())),
    };
    arguments.iter().map(chain).collect()
}

fn simple_filter(name: &str, arguments: &[Value]) -> Result<Filter, String> {
    let compare = |keeps| {
        let with = argument(arguments, 0)?;
        Ok(Filter::Compare { with, keeps })
    };
    match name {
        "int_to_string" => Ok(Filter::IntToString),
        "string_to_int" => Ok(Filter::StringToInt),
        "float_to_string" => Ok(Filter::FloatToString),
        "string_to_float" => Ok(Filter::StringToFloat),
        "to_upper" => Ok(Filter::ToUpper),
        "to_lower" => Ok(Filter::ToLower),
        "tokenize" => tokenize(arguments),
        "urldecode" => Ok(Filter::UrlDecode),
        "greater_than" => compare(Ordering::is_gt),
        "less_than" => compare(Ordering::is_lt),
        "greater_than_eq" => compare(Ordering::is_ge),
        "less_than_eq" => compare(Ordering::is_le),
        "between" => between_of_json(arguments),
        "matches" => matches(arguments),
        "neq" => argument(arguments, 0).map(|to| Filter::Equal { to, keeps: false }),
        "eq" => argument(arguments, 0).map(|to| Filter::Equal { to, keeps: true }),
        "set_member" => {
            let members = arguments.iter().map(|it| text_of(&term_of_json(it)));
            Ok(Filter::SetMember(members.collect()))
        }
        "similar_to" => similar_to(arguments),
        "starts_with" => argument_text(arguments, 0).map(Filter::StartsWith),
        "ends_with" => argument_text(arguments, 0).map(Filter::EndsWith),
        _ => Err("is no filter".to_string()),
    }
}

fn argument(arguments: &[Value], index: usize) -> Result<Term, String> {
    let argument = arguments.get(index).map(term_of_json);
    argument.ok_or_else(|| format!("argument {} is missing", index + 1))
}

fn argument_text(arguments: &[Value], index: usize) -> Result<Vec<u8>, String> {
    argument(arguments, index).map(|it| text_of(&it))
}

fn argument_number(arguments: &[Value], index: usize) -> Result<usize, String> {
    let argument = argument(arguments, index)?;
    let number = match argument {
        Term::Integer(number) => usize::try_from(number).ok(),
        _ => None,
    };
    number.ok_or_else(|| {
        format!(
            "argument {} is {}, not a number",
            index + 1,
            flat(&argument)
        )
    })
}

fn tokenize(arguments: &[Value]) -> Result<Filter, String> {
    let number = argument_number(arguments, 1)?;
    if number == 0 {
        return Err("parts are numbered from 1".to_string());
    }
    let separators = argument_text(arguments, 0)?;
    Ok(Filter::Tokenize { separators, number })
}

fn between_of_json(arguments: &[Value]) -> Result<Filter, String> {
    let inclusive = match arguments.get(2) {
        None => true,
        Some(Value::Bool(inclusive)) => *inclusive,
        Some(other) => return Err(format!("argument 3 is {other}, not true or false")),
    };
    Ok(Filter::Between {
        low: argument(arguments, 0)?,
        high: argument(arguments, 1)?,
        inclusive,
    })
}

fn matches(arguments: &[Value]) -> Result<Filter, String> {
    let expression = arguments.first().and_then(Value::as_str);
    let expression = expression.ok_or("takes a regular expression")?;
    RegexBuilder::new(expression)
        .unicode(false)
        .size_limit(EXPRESSION_BYTES_MAX)
        .build()
        .map(Filter::Matches)
        .map_err(|error| format!("{error}"))
}

fn similar_to(arguments: &[Value]) -> Result<Filter, String> {
    let text = argument_text(arguments, 0)?;
    if text.len() > SIMILAR_TEXT_BYTES_MAX {
        let length = text.len();
        return Err(format!(
            "the text has {length} bytes, the most are {SIMILAR_TEXT_BYTES_MAX}"
        ));
    }
    let distance = argument_number(arguments, 1)?;
    Ok(Filter::SimilarTo { text, distance })
}
