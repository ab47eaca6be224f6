//! The `filter` of a fold over keys: base64 of a JSON object.
//!
//! Texts of refusals are Riak's, and show the unreadable part as an Erlang term.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use kvorum_encoding::Key;
use kvorum_key_folds::LeafFilter;
use kvorum_tictac::TreeSize;
use serde_json::{Map, Value};

use crate::reply::{Refusal, text};

/// The content of a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoldFilter {
    pub(crate) keys: Option<(Key, Key)>,
    pub(crate) modified_seconds: Option<(u64, u64)>,
    pub(crate) leaves: Option<LeafFilter>,
    /// The seed of a tree's hashes, if they are computed anew.
    pub(crate) seed: Option<u64>,
    pub(crate) method: ChangeMethod,
}

/// The treatment of the keys that a fold finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChangeMethod {
    /// The keys are counted.
    #[default]
    Count,
    /// The keys are changed. Riak has two queues, `local` and `job`. Here there is none, and the
    /// answer follows the last change.
    Change,
}

/// The unreadable part of a filter, as a term.
type Unreadable = String;

impl FoldFilter {
    /// Reads the parameter. Without `has_leaves`, leaves in it are ignored, as in Riak.
    pub(crate) fn parse(parameter: Option<&[u8]>, has_leaves: bool) -> Result<Self, Refusal> {
        match parameter {
            None => Ok(Self::default()),
            Some(given) => read(given, has_leaves).map_err(|term| refused(&term)),
        }
    }
}

fn refused(term: &str) -> Refusal {
    let message = format!("Invalid range filter {term}");
    text(StatusCode::BAD_REQUEST, message).into()
}

fn read(given: &[u8], has_leaves: bool) -> Result<FoldFilter, Unreadable> {
    if given.is_empty() {
        return Err("[]".to_owned());
    }
    let unreadable = || format!("{:?}", String::from_utf8_lossy(given));
    let bytes = STANDARD.decode(given).map_err(|_| unreadable())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
    let Value::Object(members) = &value else {
        return Err(term(&value));
    };
    Ok(FoldFilter {
        keys: keys(members)?,
        modified_seconds: modified(members)?,
        leaves: leaves(members, has_leaves)?,
        seed: seed(members)?,
        method: method(members)?,
    })
}

/// A member; `None` if it is missing or `all`.
fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members.get(name).filter(|it| it.as_str() != Some("all"))
}

fn keys(members: &Map<String, Value>) -> Result<Option<(Key, Key)>, Unreadable> {
    const NAME: &str = "key_range";
    let Some(range) = member(members, NAME) else {
        return Ok(None);
    };
    let end = |name: &str| range.get(name).and_then(Value::as_str);
    match (end("start"), end("end")) {
        (Some(first), Some(last)) => {
            let key = |text: &str| Key::new(text.as_bytes().to_vec());
            Ok(Some((key(first), key(last))))
        }
        _ => Err(range_term(NAME, range)),
    }
}

fn modified(members: &Map<String, Value>) -> Result<Option<(u64, u64)>, Unreadable> {
    const NAME: &str = "date_range";
    let Some(range) = member(members, NAME) else {
        return Ok(None);
    };
    let end = |name: &str| range.get(name).and_then(Value::as_u64);
    match (end("start"), end("end")) {
        (Some(first), Some(last)) if first <= last => Ok(Some((first, last))),
        _ => Err(range_term(NAME, range)),
    }
}

/// The tree's size is checked even if its leaves are ignored.
fn leaves(
    members: &Map<String, Value>,
    has_leaves: bool,
) -> Result<Option<LeafFilter>, Unreadable> {
    const NAME: &str = "segment_filter";
    let Some(filter) = member(members, NAME) else {
        return Ok(None);
    };
    let size = filter.get("tree_size").and_then(Value::as_str);
    let size = size.ok_or_else(|| named_term(NAME, filter))?;
    let size = TreeSize::from_name(size).ok_or_else(|| size.to_owned())?;
    if !has_leaves {
        return Ok(None);
    }
    let segments = filter.get("segments").and_then(Value::as_array);
    let number = |it: &Value| it.as_u64().and_then(|it| u32::try_from(it).ok());
    let wanted: Option<Vec<u32>> = segments.and_then(|all| all.iter().map(number).collect());
    let wanted = wanted.ok_or_else(|| named_term(NAME, filter))?;
    Ok(LeafFilter::new(size.leaves(), wanted))
}

fn seed(members: &Map<String, Value>) -> Result<Option<u64>, Unreadable> {
    const NAME: &str = "hash_iv";
    match members.get(NAME) {
        None => Ok(None),
        Some(seed) => match seed.as_u64() {
            Some(seed) => Ok(Some(seed)),
            None => Err(named_term(NAME, seed)),
        },
    }
}

fn method(members: &Map<String, Value>) -> Result<ChangeMethod, Unreadable> {
    const NAME: &str = "change_method";
    let Some(method) = members.get(NAME) else {
        return Ok(ChangeMethod::Count);
    };
    match method.as_str() {
        Some("count") => Ok(ChangeMethod::Count),
        Some("local") => Ok(ChangeMethod::Change),
        _ if method.get("job_id").is_some_and(Value::is_u64) => Ok(ChangeMethod::Change),
        _ => Err(named_term(NAME, method)),
    }
}

/// A member as Riak shows it.
fn named_term(name: &str, value: &Value) -> String {
    format!("{{<<\"{name}\">>,{}}}", term(value))
}

/// A range as Riak shows it: an object by its two ends.
fn range_term(name: &str, range: &Value) -> String {
    if !range.is_object() {
        return named_term(name, range);
    }
    let end = |name: &str| range.get(name).map_or_else(|| "undefined".to_owned(), term);
    format!("{{<<\"{name}\">>,{{{},{}}}}}", end("start"), end("end"))
}

/// A value as an Erlang term.
fn term(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(is_true) => is_true.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("<<{text:?}>>"),
        Value::Array(values) => {
            let terms: Vec<String> = values.iter().map(term).collect();
            format!("[{}]", terms.join(","))
        }
        Value::Object(members) => {
            let pair = |(name, value): (&String, &Value)| named_term(name, value);
            let pairs: Vec<String> = members.iter().map(pair).collect();
            format!("{{struct,[{}]}}", pairs.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;
    use crate::reply::Answer;

    fn parse(json: &str) -> Result<FoldFilter, String> {
        let encoded = STANDARD.encode(json);
        text_of(FoldFilter::parse(Some(encoded.as_bytes()), true))
    }

    fn text_of(parsed: Result<FoldFilter, Refusal>) -> Result<FoldFilter, String> {
        parsed.map_err(|refusal| {
            let answer = Answer::from(refusal);
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
            let Body::Whole(text) = answer.into_body() else {
                panic!("a stream")
            };
            String::from_utf8(text.to_vec()).unwrap()
        })
    }

    #[test]
    fn ranges_leaves_and_methods_are_read() {
        assert_eq!(
            FoldFilter::parse(None, true).unwrap(),
            FoldFilter::default()
        );
        assert_eq!(parse("{\"foo\":1}"), Ok(FoldFilter::default()));
        let all = "{\"key_range\":\"all\",\"date_range\":\"all\",\"segment_filter\":\"all\"}";
        assert_eq!(parse(all), Ok(FoldFilter::default()));
        let filter = parse(
            "{\"key_range\":{\"start\":\"a\",\"end\":\"z\"},\"date_range\":{\"start\":1,\"end\":2},\
             \"segment_filter\":{\"segments\":[3,1],\"tree_size\":\"xsmall\"},\"hash_iv\":5,\
             \"change_method\":{\"job_id\":1}}",
        );
        let expected = FoldFilter {
            keys: Some((Key::from("a"), Key::from("z"))),
            modified_seconds: Some((1, 2)),
            leaves: LeafFilter::new(TreeSize::XSmall.leaves(), vec![1, 3]),
            seed: Some(5),
            method: ChangeMethod::Change,
        };
        assert_eq!(filter, Ok(expected));
        let method = |method: &str| {
            let filter = parse(&format!("{{\"change_method\":\"{method}\"}}"));
            filter.map(|it| it.method)
        };
        assert_eq!(method("count"), Ok(ChangeMethod::Count));
        assert_eq!(method("local"), Ok(ChangeMethod::Change));
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_riaks_words() {
        let cases = [
            ("[1]", "[1]"),
            (
                "{\"key_range\":{\"start\":\"a\"}}",
                "{<<\"key_range\">>,{<<\"a\">>,undefined}}",
            ),
            (
                "{\"key_range\":{\"start\":1,\"end\":2}}",
                "{<<\"key_range\">>,{1,2}}",
            ),
            (
                "{\"key_range\":\"some\"}",
                "{<<\"key_range\">>,<<\"some\">>}",
            ),
            (
                "{\"date_range\":{\"start\":\"a\",\"end\":\"b\"}}",
                "{<<\"date_range\">>,{<<\"a\">>,<<\"b\">>}}",
            ),
            (
                "{\"date_range\":{\"start\":2000,\"end\":1000}}",
                "{<<\"date_range\">>,{2000,1000}}",
            ),
            (
                "{\"segment_filter\":{\"segments\":[1],\"tree_size\":\"x\"}}",
                "x",
            ),
            (
                "{\"change_method\":\"x\"}",
                "{<<\"change_method\">>,<<\"x\">>}",
            ),
        ];
        for (json, term) in cases {
            assert_eq!(parse(json), Err(format!("Invalid range filter {term}")));
        }
        let raw = |given: &[u8]| text_of(FoldFilter::parse(Some(given), true));
        let refused = |term: &str| Err(format!("Invalid range filter {term}"));
        assert_eq!(raw(b"!!!"), refused("\"!!!\""));
        assert_eq!(raw(b"AAAA"), refused("\"AAAA\""));
        assert_eq!(raw(b""), refused("[]"));
    }

    #[test]
    fn leaves_count_where_they_can_be_chosen() {
        let json = "{\"segment_filter\":{\"segments\":[\"x\"],\"tree_size\":\"small\"}}";
        assert!(parse(json).is_err());
        let encoded = STANDARD.encode(json);
        let parsed = FoldFilter::parse(Some(encoded.as_bytes()), false);
        assert_eq!(parsed.unwrap(), FoldFilter::default());
    }
}
