//! Folds over the keys of a bucket, under Riak's URLs of AAE folds.
//!
//! The answers are Riak's JSON. Clocks and the levels of trees are lists of the character codes of
//! their base64, as in Riak. A key that is not UTF-8 is listed percent-encoded, as
//! `percent-encoded-key`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use http::{Method, StatusCode};
use kvorum_coordinator::{KeyChange, RequestError};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_key_folds::{
    EntryClass, Findings, FoldKind, FoldScope, KeyClock, KeyFold, KeyNumber, ObjectStats,
};
use kvorum_protocol::http_fields::encode_percent;
use kvorum_tictac::{Tree, TreeSize, tree_json};
use serde_json::{Map, Value};

use crate::exchange::Exchange;
use crate::fold_filter::{ChangeMethod, FoldFilter};
use crate::reply::{JSON, Outcome, Refusal, in_pieces, json, text};
use crate::route::{BucketPath, Form, KeyFoldVerb};
use crate::{failure, origin};

/// The time after which a fold is given up.
const FOLD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The refusal of a request for replication.
const NO_REPLICATION: &str =
    "Replication queues are not supported: this server has no replication\n";

/// A parsed request.
enum Asked {
    Find(FoldKind, Shape),
    Change(KeyChange),
}

/// The form of findings in an answer.
enum Shape {
    Stats,
    Numbers,
    Clocks,
    Dispatched,
    Tree(TreeSize),
}

/// Answers a fold over the keys of a bucket.
pub(crate) async fn fold(
    exchange: &Exchange<'_>,
    path: &BucketPath,
    verb: &KeyFoldVerb,
) -> Outcome {
    let filter = FoldFilter::parse(exchange.query.get("filter"), chooses_leaves(verb))?;
    let asked = asked(verb, &filter)?;
    let timeout = exchange.timeout()?.unwrap_or(FOLD_TIMEOUT);
    origin::check(exchange)?;
    exchange.require_json()?;
    let scope = FoldScope {
        keys: filter.keys,
        modified_seconds: filter.modified_seconds,
        leaves: filter.leaves,
        ..FoldScope::bucket(&path.bucket_type, &path.bucket)
    };
    let coordinator = exchange.coordinator();
    let refused = |error: RequestError| failure::of_listing(&error, &path.bucket_type);
    let state = coordinator.state();
    if state.type_properties(&path.bucket_type).is_err() {
        return Err(refused(RequestError::UnknownBucketType));
    }
    if *exchange.method() == Method::HEAD {
        // `HEAD` only checks that the resource exists: nothing is read or changed.
        return Ok(in_pieces(JSON, stream::empty()));
    }
    coordinator.until_opened(None).await;
    match asked {
        Asked::Find(kind, shape) => {
            let found = coordinator.fold_keys(KeyFold { scope, kind }, timeout);
            let found = found.await.map_err(refused)?;
            Ok(json(
                StatusCode::OK,
                shown(exchange, path, shape, found).await,
            ))
        }
        Asked::Change(change) => {
            let changed = coordinator.change_keys(scope, change, timeout);
            let changed = changed.await.map_err(refused)?;
            Ok(json(StatusCode::OK, dispatched(changed.dispatched)))
        }
    }
}

/// True for folds in which leaves of a tree may be chosen.
fn chooses_leaves(verb: &KeyFoldVerb) -> bool {
    match verb {
        KeyFoldVerb::Tombstones
        | KeyFoldVerb::Clocks
        | KeyFoldVerb::Tree(_)
        | KeyFoldVerb::Reap
        | KeyFoldVerb::Erase => true,
        KeyFoldVerb::ObjectStats
        | KeyFoldVerb::SiblingsAbove(_)
        | KeyFoldVerb::SizeAbove(_)
        | KeyFoldVerb::Repair
        | KeyFoldVerb::Replicate => false,
    }
}

fn asked(verb: &KeyFoldVerb, filter: &FoldFilter) -> Result<Asked, Refusal> {
    Ok(match verb {
        KeyFoldVerb::ObjectStats => Asked::Find(FoldKind::ObjectStats, Shape::Stats),
        KeyFoldVerb::SiblingsAbove(limit) => {
            let limit = limit_of(limit, "sibling_count requires integer for count")?;
            Asked::Find(FoldKind::SiblingsAbove(limit), Shape::Numbers)
        }
        KeyFoldVerb::SizeAbove(limit) => {
            let limit = limit_of(limit, "object_size requires integer for size")?;
            Asked::Find(FoldKind::SizeAbove(limit), Shape::Numbers)
        }
        KeyFoldVerb::Tombstones => {
            Asked::Find(FoldKind::Clocks(EntryClass::Tombstones), Shape::Clocks)
        }
        KeyFoldVerb::Clocks => Asked::Find(FoldKind::Clocks(EntryClass::Any), Shape::Clocks),
        KeyFoldVerb::Tree(name) => {
            let (size, seed) = (tree_size(name)?, filter.seed);
            let leaves = size.leaves();
            Asked::Find(FoldKind::Tree { leaves, seed }, Shape::Tree(size))
        }
        KeyFoldVerb::Reap => change(KeyChange::Reap, filter.method),
        KeyFoldVerb::Erase => change(KeyChange::Erase, filter.method),
        KeyFoldVerb::Repair => change(KeyChange::Repair, ChangeMethod::Change),
        KeyFoldVerb::Replicate => {
            return Err(text(StatusCode::NOT_IMPLEMENTED, NO_REPLICATION).into());
        }
    })
}

fn change(change: KeyChange, method: ChangeMethod) -> Asked {
    match method {
        ChangeMethod::Count => Asked::Find(FoldKind::Count(change.entries()), Shape::Dispatched),
        ChangeMethod::Change => Asked::Change(change),
    }
}

/// A number in a path, above zero.
fn limit_of(given: &[u8], what: &str) -> Result<u64, Refusal> {
    let given = String::from_utf8_lossy(given);
    match given.parse::<i128>() {
        Ok(number) => match u64::try_from(number) {
            Ok(limit) if limit > 0 => Ok(limit),
            _ => Err(bad_request(format!("{what}. Value {number} invalid"))),
        },
        Err(_) => Err(bad_request(format!("{what}. Value {given:?} invalid"))),
    }
}

fn tree_size(name: &[u8]) -> Result<TreeSize, Refusal> {
    let name = String::from_utf8_lossy(name);
    TreeSize::from_name(&name).ok_or_else(|| bad_request(format!("Invalid treesize {name:?}")))
}

fn bad_request(message: String) -> Refusal {
    text(StatusCode::BAD_REQUEST, message).into()
}

/// Findings as JSON. Formatting a tree takes long, so it is done where blocking is allowed.
async fn shown(
    exchange: &Exchange<'_>,
    path: &BucketPath,
    shape: Shape,
    found: Findings,
) -> String {
    match shape {
        Shape::Stats => stats(&found.stats),
        Shape::Numbers => list("results", found.numbers.iter().map(number)),
        Shape::Clocks => {
            let clock = |it: &KeyClock| key_clock(path, it);
            list("keys-clocks", found.clocks.iter().map(clock))
        }
        Shape::Dispatched => dispatched(found.count),
        Shape::Tree(size) => {
            let runtime = exchange.coordinator().runtime();
            let leaves = found.leaves;
            runtime.blocking(move || tree(size, &leaves)).await
        }
    }
}

fn dispatched(count: u64) -> String {
    format!("{{\"dispatched_count\":{count}}}")
}

fn list(name: &str, elements: impl Iterator<Item = Map<String, Value>>) -> String {
    let mut json = format!("{{\"{name}\":[");
    for (at, element) in elements.enumerate() {
        if at > 0 {
            json.push(',');
        }
        json.push_str(&Value::Object(element).to_string());
    }
    json.push_str("]}");
    json
}

fn number(found: &KeyNumber) -> Map<String, Value> {
    let mut element = Map::new();
    put_name(&mut element, "key", found.key.as_bytes());
    element.insert("value".to_owned(), found.number.into());
    element
}

fn key_clock(path: &BucketPath, found: &KeyClock) -> Map<String, Value> {
    let mut element = Map::new();
    if path.form == Form::Typed {
        put_name(&mut element, "bucket-type", path.bucket_type.as_bytes());
    }
    put_name(&mut element, "bucket", path.bucket.as_bytes());
    put_name(&mut element, "key", found.key.as_bytes());
    let codes: Vec<Value> = STANDARD
        .encode(&found.clock)
        .bytes()
        .map(Value::from)
        .collect();
    element.insert("clock".to_owned(), codes.into());
    element
}

/// A name as text, or percent-encoded if it is not text.
fn put_name(element: &mut Map<String, Value>, member: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(name) => element.insert(member.to_owned(), name.into()),
        Err(_) => {
            let encoded = encode_percent(name);
            element.insert(format!("percent-encoded-{member}"), encoded.into())
        }
    };
}

fn stats(stats: &ObjectStats) -> String {
    let ObjectStats {
        count,
        bytes,
        sizes,
        siblings,
    } = stats;
    let (sizes, siblings) = (histogram(sizes), histogram(siblings));
    format!(
        "{{\"total_count\":{count},\"total_size\":{bytes},\"sizes\":{sizes},\
         \"siblings\":{siblings}}}"
    )
}

/// An empty histogram is an empty list, as in Riak, which writes both alike.
fn histogram(histogram: &BTreeMap<u64, u64>) -> String {
    if histogram.is_empty() {
        return "[]".to_owned();
    }
    let pairs = histogram
        .iter()
        .map(|(of, count)| format!("\"{of}\":{count}"));
    let pairs: Vec<String> = pairs.collect();
    format!("{{{}}}", pairs.join(","))
}

fn tree(size: TreeSize, leaves: &BTreeMap<u32, u32>) -> String {
    let mut tree = Tree::new(size);
    for (leaf, hash) in leaves.range(..size.leaves()) {
        tree.correct(*leaf, *hash);
    }
    format!("{{\"tree\":{}}}", tree_json(&tree))
}

/// Answers `/aaebucketlist`: the buckets of all types. In Riak `nval` chooses the replicas that are
/// searched; here it has no effect.
pub(crate) async fn buckets(exchange: &Exchange<'_>) -> Outcome {
    if let Some(given) = exchange.query.get("nval") {
        check_n_val(given)?;
    }
    let timeout = exchange.timeout()?.unwrap_or(FOLD_TIMEOUT);
    origin::check(exchange)?;
    exchange.require_json()?;
    if *exchange.method() == Method::HEAD {
        return Ok(in_pieces(JSON, stream::empty()));
    }
    let coordinator = exchange.coordinator();
    coordinator.until_opened(None).await;
    let refused = |error: RequestError| failure::of_request(&error, &BucketType::default_type());
    let buckets = coordinator.all_buckets(timeout).await.map_err(refused)?;
    let elements = buckets
        .iter()
        .map(|(of_type, bucket)| typed(of_type, bucket));
    Ok(json(StatusCode::OK, list("results", elements)))
}

fn check_n_val(given: &[u8]) -> Result<(), Refusal> {
    let given = String::from_utf8_lossy(given);
    match given.parse::<u32>() {
        Ok(n_val) if n_val > 0 => Ok(()),
        _ => Err(bad_request(format!("Invalid n_val {given:?}"))),
    }
}

fn typed(bucket_type: &BucketType, bucket: &Bucket) -> Map<String, Value> {
    let mut element = Map::new();
    if !bucket_type.is_default() {
        put_name(&mut element, "bucket-type", bucket_type.as_bytes());
    }
    put_name(&mut element, "bucket", bucket.as_bytes());
    element
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvorum_encoding::Key;

    use super::*;

    fn path(form: Form) -> BucketPath {
        BucketPath {
            form,
            bucket_type: BucketType::from("t"),
            bucket: Bucket::from("b"),
        }
    }

    #[test]
    fn statistics_are_an_object_of_histograms() {
        let empty = "{\"total_count\":0,\"total_size\":0,\"sizes\":[],\"siblings\":[]}";
        assert_eq!(stats(&ObjectStats::default()), empty);
        let some = ObjectStats {
            count: 3,
            bytes: 808,
            sizes: BTreeMap::from([(2, 3)]),
            siblings: BTreeMap::from([(1, 2), (3, 1)]),
        };
        let shown = "{\"total_count\":3,\"total_size\":808,\"sizes\":{\"2\":3},\
                     \"siblings\":{\"1\":2,\"3\":1}}";
        assert_eq!(stats(&some), shown);
    }

    #[test]
    fn keys_are_shown_with_their_clocks_and_numbers() {
        let found = KeyClock {
            key: Key::from("k"),
            clock: Bytes::from_static(b"\x01"),
        };
        // The codes of "AQ==".
        let untyped = "{\"bucket\":\"b\",\"key\":\"k\",\"clock\":[65,81,61,61]}";
        let shown = |form| Value::Object(key_clock(&path(form), &found)).to_string();
        assert_eq!(shown(Form::Untyped), untyped);
        let typed = untyped.replacen('{', "{\"bucket-type\":\"t\",", 1);
        assert_eq!(shown(Form::Typed), typed);
        let odd = KeyNumber {
            key: Key::new(b"k\xff".to_vec()),
            number: 2,
        };
        let shown = list("results", [odd].iter().map(number));
        let expected = "{\"results\":[{\"percent-encoded-key\":\"k%FF\",\"value\":2}]}";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_tree_has_the_leaves_that_were_found() {
        let size = TreeSize::XxSmall;
        let mut expected = Tree::new(size);
        expected.correct(7, 5);
        let shown = tree(size, &BTreeMap::from([(7, 5)]));
        assert_eq!(shown, format!("{{\"tree\":{}}}", tree_json(&expected)));
        assert_ne!(shown, tree(size, &BTreeMap::new()));
    }
}
