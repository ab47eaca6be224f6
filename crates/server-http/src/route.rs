//! From a path to a resource.
//!
//! A path is cut at its slashes first and decoded piece by piece after, so that an encoded slash
//! stays within a bucket or key. Empty pieces do not count, as in Riak: `//riak/b/k/` is `/riak/b/k`.

use bytes::Bytes;
use http::Method;
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_protocol::http_fields::{UrlGeneration, decode_percent_and_plus, encode_percent};

/// The first path piece of the old URLs.
pub(crate) const OLD_PREFIX: &str = "riak";

/// All known methods; others are answered with 501.
const KNOWN_METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "OPTIONS",
];

/// The form of a request's URL, one of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `/riak/...`
    Old,
    /// `/buckets/...`
    Untyped,
    /// `/types/T/buckets/...`
    Typed,
}

impl Form {
    /// The generation of links in the answer.
    pub(crate) fn generation(self) -> UrlGeneration<'static> {
        match self {
            Self::Old => UrlGeneration::First { prefix: OLD_PREFIX },
            Self::Untyped | Self::Typed => UrlGeneration::Second,
        }
    }
}

/// A bucket as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketPath {
    pub(crate) form: Form,
    pub(crate) bucket_type: BucketType,
    pub(crate) bucket: Bucket,
}

/// An index as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexPath {
    pub(crate) path: BucketPath,
    pub(crate) field: Bytes,
    pub(crate) first: Bytes,
    /// The end of a range.
    pub(crate) last: Option<Bytes>,
}

impl BucketPath {
    /// The address of a key in this bucket.
    pub(crate) fn address(&self, key: Key) -> Address {
        Address {
            bucket_type: self.bucket_type.clone(),
            bucket: self.bucket.clone(),
            key,
        }
    }

    /// The URL of an object in this bucket.
    pub(crate) fn location(&self, key: &Key) -> String {
        let bucket = encode_percent(self.bucket.as_bytes());
        let key = encode_percent(key.as_bytes());
        match self.form {
            Form::Old => format!("/{OLD_PREFIX}/{bucket}/{key}"),
            Form::Untyped => format!("/buckets/{bucket}/keys/{key}"),
            Form::Typed => {
                let bucket_type = encode_percent(self.bucket_type.as_bytes());
                format!("/types/{bucket_type}/buckets/{bucket}/keys/{key}")
            }
        }
    }
}

/// Links to follow from each object: those to this bucket and with this tag; `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkStep {
    pub(crate) bucket: Option<Bytes>,
    pub(crate) tag: Option<Bytes>,
    /// The targets are part of the answer.
    pub(crate) is_kept: bool,
}

/// A question about a node's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Does the process work?
    Live,
    /// May requests be sent to it?
    Ready,
}

/// The purpose of a fold over the keys of a bucket, with the detail from the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyFoldVerb {
    ObjectStats,
    /// Keys with more siblings than a number.
    SiblingsAbove(Bytes),
    /// Keys with more bytes than a number.
    SizeAbove(Bytes),
    Tombstones,
    /// All keys with their clocks.
    Clocks,
    /// A tree of a size.
    Tree(Bytes),
    Reap,
    Erase,
    Repair,
    /// Replication to a queue; there are no queues.
    Replicate,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Root,
    Ping,
    Health(Probe),
    Stats,
    Metrics,
    /// The description of this interface.
    OpenApi,
    /// Receives MapReduce jobs.
    MapReduce,
    /// The buckets of a type.
    Buckets(Form, BucketType),
    /// `/riak/B`: properties, keys, or where to post an object without key.
    OldBucket(BucketPath),
    BucketProperties(BucketPath),
    TypeProperties(BucketType),
    /// The keys of a bucket, or where to post an object without key.
    Keys(BucketPath),
    Object(BucketPath, Key),
    /// A counter of Riak 1.4.
    Counter(BucketPath, Key),
    /// Receives operations on a data type without key.
    DataTypes(BucketPath),
    /// The value of a data type.
    DataType(BucketPath, Key),
    PreferenceList(BucketPath, Key),
    Index(IndexPath),
    /// A query of Riak 3.4, which is refused.
    Query(BucketPath),
    /// A fold over the keys of a bucket.
    KeyFold(BucketPath, KeyFoldVerb),
    /// The buckets of all types.
    AllBuckets,
    /// Links to walk, starting at an object.
    LinkWalk(BucketPath, Key, Vec<LinkStep>),
    /// Links to walk that are not `bucket,tag,keep`.
    InvalidLinkWalk,
}

impl Route {
    /// The resource of a path. With `decoding`, percent-encoding is decoded.
    pub(crate) fn of_path(path: &str, decoding: bool) -> Option<Self> {
        let mut pieces = Pieces {
            rest: path,
            decoding,
        };
        let route = match pieces.next_raw() {
            None => Self::Root,
            Some("ping") => Self::Ping,
            Some("health") => match pieces.next_raw() {
                None => Self::Health(Probe::Ready),
                Some("live") => Self::Health(Probe::Live),
                Some("ready") => Self::Health(Probe::Ready),
                Some(_) => return None,
            },
            Some("stats") => Self::Stats,
            Some("metrics") => Self::Metrics,
            Some("openapi.json") => Self::OpenApi,
            Some("mapred") => Self::MapReduce,
            Some(OLD_PREFIX) => return Some(old(&mut pieces)),
            Some("buckets") => {
                return within(&mut pieces, Form::Untyped, BucketType::default_type());
            }
            Some("types") => return typed(&mut pieces),
            Some("aaebucketlist") => Self::AllBuckets,
            Some(name) => return key_fold(name, &mut pieces),
        };
        pieces.next_raw().is_none().then_some(route)
    }

    /// The methods of the resource, in the order in which `Allow` names them.
    pub(crate) fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Root
            | Self::Ping
            | Self::Health(_)
            | Self::Stats
            | Self::Metrics
            | Self::OpenApi
            | Self::Buckets(..)
            | Self::Keys(_)
            | Self::PreferenceList(..)
            | Self::Index(_)
            | Self::KeyFold(..)
            | Self::AllBuckets => &["GET", "HEAD"],
            // An object without a key can be posted too, but Riak names only the methods of
            // properties.
            Self::OldBucket(_) => &["HEAD", "GET", "PUT"],
            Self::BucketProperties(_) => &["HEAD", "GET", "PUT", "DELETE"],
            Self::TypeProperties(_) => &["HEAD", "GET", "PUT"],
            Self::Object(..) => &["HEAD", "GET", "POST", "PUT", "DELETE"],
            Self::Counter(..) | Self::Query(_) => &["GET", "POST"],
            // Any other method than POST finds nothing there, as in Riak.
            Self::DataTypes(_) => &KNOWN_METHODS,
            Self::DataType(..) => &["GET", "HEAD", "POST"],
            Self::MapReduce | Self::LinkWalk(..) | Self::InvalidLinkWalk => {
                &["GET", "HEAD", "POST"]
            }
        }
    }
}

/// True if the method is one that HTTP had when Riak was written.
pub(crate) fn is_known(method: &Method) -> bool {
    KNOWN_METHODS.contains(&method.as_str())
}

struct Pieces<'a> {
    rest: &'a str,
    decoding: bool,
}

impl<'a> Pieces<'a> {
    fn next_raw(&mut self) -> Option<&'a str> {
        let trimmed = self.rest.trim_start_matches('/');
        if trimmed.is_empty() {
            return None;
        }
        let end = trimmed.find('/').unwrap_or(trimmed.len());
        let (piece, rest) = trimmed.split_at(end);
        self.rest = rest;
        Some(piece)
    }

    fn is_at_end(&self) -> bool {
        self.rest.bytes().all(|byte| byte == b'/')
    }

    fn next_name(&mut self) -> Option<Bytes> {
        let raw = self.next_raw()?.as_bytes();
        Some(if self.decoding {
            Bytes::from(decode_percent_and_plus(raw).into_owned())
        } else {
            Bytes::copy_from_slice(raw)
        })
    }
}

fn old(pieces: &mut Pieces<'_>) -> Route {
    let (form, bucket_type) = (Form::Old, BucketType::default_type());
    let Some(bucket) = pieces.next_name() else {
        return Route::Buckets(form, bucket_type);
    };
    let path = BucketPath {
        form,
        bucket_type,
        bucket: bucket.into(),
    };
    match pieces.next_name() {
        None => Route::OldBucket(path),
        Some(key) => match pieces.next_raw() {
            None => Route::Object(path, key.into()),
            Some(first) => link_walk(path, key.into(), first, pieces),
        },
    }
}

/// The part behind a key: links to walk, each `bucket,tag,keep`.
fn link_walk(path: BucketPath, key: Key, first: &str, pieces: &mut Pieces<'_>) -> Route {
    let mut raw = vec![first];
    raw.extend(std::iter::from_fn(|| pieces.next_raw()));
    let last = raw.len() - 1;
    let steps = raw.iter().enumerate();
    let steps: Option<Vec<LinkStep>> = steps.map(|(at, raw)| link_step(raw, at == last)).collect();
    match steps {
        None => Route::InvalidLinkWalk,
        Some(mut steps) => {
            if let [only] = &mut steps[..] {
                only.is_kept = true;
            }
            Route::LinkWalk(path, key, steps)
        }
    }
}

/// Empty parts do not count. A third part other than 0 and 1 keeps only the last step, as in Riak.
fn link_step(raw: &str, is_last: bool) -> Option<LinkStep> {
    let parts: Vec<&str> = raw.split(',').filter(|it| !it.is_empty()).collect();
    let [bucket, tag, keep] = parts[..] else {
        return None;
    };
    let pattern = |raw: &str| match raw {
        "_" => None,
        raw => Some(Bytes::from(
            decode_percent_and_plus(raw.as_bytes()).into_owned(),
        )),
    };
    Some(LinkStep {
        bucket: pattern(bucket),
        tag: pattern(tag),
        is_kept: match keep {
            "1" => true,
            "0" => false,
            _ => is_last,
        },
    })
}

fn typed(pieces: &mut Pieces<'_>) -> Option<Route> {
    let bucket_type = BucketType::from(pieces.next_name()?);
    match pieces.next_raw()? {
        "props" => pieces
            .next_raw()
            .is_none()
            .then_some(Route::TypeProperties(bucket_type)),
        "buckets" => within(pieces, Form::Typed, bucket_type),
        _ => None,
    }
}

/// The path behind `buckets`.
fn within(pieces: &mut Pieces<'_>, form: Form, bucket_type: BucketType) -> Option<Route> {
    let Some(bucket) = pieces.next_name() else {
        return Some(Route::Buckets(form, bucket_type));
    };
    let path = BucketPath {
        form,
        bucket_type,
        bucket: bucket.into(),
    };
    let route = match pieces.next_raw()? {
        "props" => Route::BucketProperties(path),
        "keys" => return keys(pieces, path),
        "index" => return index(pieces, path),
        "query" => Route::Query(path),
        "counters" if form == Form::Untyped => Route::Counter(path, pieces.next_name()?.into()),
        "datatypes" if form == Form::Typed => match pieces.next_name() {
            None => Route::DataTypes(path),
            Some(key) => Route::DataType(path, key.into()),
        },
        _ => return None,
    };
    pieces.next_raw().is_none().then_some(route)
}

/// The path behind `index`: a field, and one value or two.
fn index(pieces: &mut Pieces<'_>, path: BucketPath) -> Option<Route> {
    let index = IndexPath {
        path,
        field: pieces.next_name()?,
        // Every object of the bucket has the entry `$bucket`, for any value; no other index has one
        // without a value.
        first: pieces.next_name().unwrap_or_default(),
        last: pieces.next_name(),
    };
    pieces.next_raw().is_none().then_some(Route::Index(index))
}

/// The path behind the name of a fold over keys: a bucket, and for some folds a word and its value.
fn key_fold(name: &str, pieces: &mut Pieces<'_>) -> Option<Route> {
    let path = folded_bucket(pieces)?;
    let verb = match (name, pieces.next_raw()) {
        ("objectstats", None) => KeyFoldVerb::ObjectStats,
        ("siblings", Some("counts")) => KeyFoldVerb::SiblingsAbove(pieces.next_name()?),
        ("objectsizes", Some("sizes")) => KeyFoldVerb::SizeAbove(pieces.next_name()?),
        ("tombs", None) => KeyFoldVerb::Tombstones,
        ("rangetrees", Some("keysclocks")) => KeyFoldVerb::Clocks,
        ("rangetrees", Some("trees")) => KeyFoldVerb::Tree(pieces.next_name()?),
        ("reap", None) => KeyFoldVerb::Reap,
        ("erase", None) => KeyFoldVerb::Erase,
        ("rangerepair", None) => KeyFoldVerb::Repair,
        ("rangerepl", Some("queuename")) => {
            pieces.next_name()?;
            KeyFoldVerb::Replicate
        }
        _ => return None,
    };
    pieces
        .next_raw()
        .is_none()
        .then_some(Route::KeyFold(path, verb))
}

/// The bucket that follows the name of a fold.
fn folded_bucket(pieces: &mut Pieces<'_>) -> Option<BucketPath> {
    let (form, bucket_type) = match pieces.next_raw()? {
        "buckets" => (Form::Untyped, BucketType::default_type()),
        "types" => {
            let bucket_type = BucketType::from(pieces.next_name()?);
            if pieces.next_raw()? != "buckets" {
                return None;
            }
            (Form::Typed, bucket_type)
        }
        _ => return None,
    };
    Some(BucketPath {
        form,
        bucket_type,
        bucket: pieces.next_name()?.into(),
    })
}

/// The path behind `keys`.
fn keys(pieces: &mut Pieces<'_>, path: BucketPath) -> Option<Route> {
    let Some(key) = pieces.next_name() else {
        return Some(Route::Keys(path));
    };
    match pieces.next_raw() {
        None => Some(Route::Object(path, key.into())),
        Some("preflist") if pieces.is_at_end() => Some(Route::PreferenceList(path, key.into())),
        Some(first) => Some(link_walk(path, key.into(), first, pieces)),
    }
}

#[cfg(test)]
mod tests {
    use super::{BucketPath, Form, IndexPath, KeyFoldVerb, LinkStep, Probe, Route};
    use kvorum_encoding::{Bucket, BucketType, Key};

    fn path(form: Form, bucket_type: &'static str, bucket: &'static str) -> BucketPath {
        let (bucket_type, bucket) = (BucketType::from(bucket_type), Bucket::from(bucket));
        BucketPath {
            form,
            bucket_type,
            bucket,
        }
    }

    #[test]
    fn every_url_leads_to_its_resource() {
        let old = || path(Form::Old, "default", "b");
        let untyped = || path(Form::Untyped, "default", "b");
        let typed = || path(Form::Typed, "t", "b");
        let key = || Key::from("k");
        let default_type = BucketType::default_type;
        let step = |bucket: Option<&'static str>, tag: Option<&'static str>, is_kept| LinkStep {
            bucket: bucket.map(Into::into),
            tag: tag.map(Into::into),
            is_kept,
        };
        let cases = [
            ("/", Some(Route::Root)),
            ("", Some(Route::Root)),
            ("//", Some(Route::Root)),
            ("/ping", Some(Route::Ping)),
            ("/ping/x", None),
            ("/health", Some(Route::Health(Probe::Ready))),
            ("/health/live", Some(Route::Health(Probe::Live))),
            ("/health/ready", Some(Route::Health(Probe::Ready))),
            ("/health/other", None),
            ("/health/live/more", None),
            ("/stats/", Some(Route::Stats)),
            ("/metrics", Some(Route::Metrics)),
            ("/openapi.json", Some(Route::OpenApi)),
            ("/openapi.json/x", None),
            ("/riak", Some(Route::Buckets(Form::Old, default_type()))),
            ("/riak/b", Some(Route::OldBucket(old()))),
            ("/riak/b/k", Some(Route::Object(old(), key()))),
            ("//riak//b/k/", Some(Route::Object(old(), key()))),
            (
                "/riak/b/k/_,_,1",
                Some(Route::LinkWalk(old(), key(), vec![step(None, None, true)])),
            ),
            (
                "/riak/b/k/c%2Fd,a+b,1/_,,_,_/_,t,0",
                Some(Route::LinkWalk(
                    old(),
                    key(),
                    vec![
                        step(Some("c/d"), Some("a b"), true),
                        step(None, None, false),
                        step(None, Some("t"), false),
                    ],
                )),
            ),
            (
                "/buckets",
                Some(Route::Buckets(Form::Untyped, default_type())),
            ),
            ("/buckets/b", None),
            ("/buckets/b/props", Some(Route::BucketProperties(untyped()))),
            ("/buckets/b/props/x", None),
            ("/buckets/b/keys", Some(Route::Keys(untyped()))),
            ("/buckets/b/keys/k", Some(Route::Object(untyped(), key()))),
            (
                "/buckets/b/keys/k/preflist",
                Some(Route::PreferenceList(untyped(), key())),
            ),
            (
                "/buckets/b/keys/k/b,_,0/",
                Some(Route::LinkWalk(
                    untyped(),
                    key(),
                    vec![step(Some("b"), None, true)],
                )),
            ),
            (
                "/types/t/buckets/b/keys/k/_,_,x",
                Some(Route::LinkWalk(
                    typed(),
                    key(),
                    vec![step(None, None, true)],
                )),
            ),
            ("/buckets/b/keys/k/_,_,1/_,_", Some(Route::InvalidLinkWalk)),
            ("/buckets/b/keys/k/,,", Some(Route::InvalidLinkWalk)),
            ("/buckets/b/keys/k/preflist/x", Some(Route::InvalidLinkWalk)),
            (
                "/buckets/b/index/f_bin/v",
                Some(Route::Index(IndexPath {
                    path: untyped(),
                    field: "f_bin".into(),
                    first: "v".into(),
                    last: None,
                })),
            ),
            (
                "/types/t/buckets/b/index/f_int/-1/2%301",
                Some(Route::Index(IndexPath {
                    path: typed(),
                    field: "f_int".into(),
                    first: "-1".into(),
                    last: Some("201".into()),
                })),
            ),
            ("/buckets/b/index", None),
            ("/buckets/b/query", Some(Route::Query(untyped()))),
            ("/types/t/buckets/b/query", Some(Route::Query(typed()))),
            ("/buckets/b/query/x", None),
            (
                "/buckets/b/index/f_bin",
                Some(Route::Index(IndexPath {
                    path: untyped(),
                    field: "f_bin".into(),
                    first: "".into(),
                    last: None,
                })),
            ),
            ("/riak/b/index/f_bin/v", Some(Route::InvalidLinkWalk)),
            ("/buckets/b/index/f_bin/1/2/3", None),
            (
                "/buckets/b/counters/k",
                Some(Route::Counter(untyped(), key())),
            ),
            ("/buckets/b/counters", None),
            ("/buckets/b/datatypes/k", None),
            ("/buckets/b/other", None),
            ("/types", None),
            ("/types/t", None),
            (
                "/types/t/props",
                Some(Route::TypeProperties(BucketType::from("t"))),
            ),
            (
                "/types/t/buckets",
                Some(Route::Buckets(Form::Typed, BucketType::from("t"))),
            ),
            (
                "/types/t/buckets/b/props",
                Some(Route::BucketProperties(typed())),
            ),
            ("/types/t/buckets/b/keys", Some(Route::Keys(typed()))),
            (
                "/types/t/buckets/b/keys/k",
                Some(Route::Object(typed(), key())),
            ),
            (
                "/types/t/buckets/b/datatypes/k",
                Some(Route::DataType(typed(), key())),
            ),
            (
                "/types/t/buckets/b/datatypes",
                Some(Route::DataTypes(typed())),
            ),
            ("/types/t/buckets/b/datatypes/k/more", None),
            ("/types/t/buckets/b/counters/k", None),
            ("/types/t/other", None),
            ("/mapred", Some(Route::MapReduce)),
            ("/mapred/x", None),
            ("/nowhere", None),
            ("/aaebucketlist", Some(Route::AllBuckets)),
            ("/aaebucketlist/x", None),
            ("/objectstats", None),
            ("/objectstats/types/t", None),
            (
                "/objectstats/buckets/b/",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::ObjectStats)),
            ),
            ("/objectstats/buckets/b/more", None),
            (
                "/siblings/types/t/buckets/b/counts/-1",
                Some(Route::KeyFold(
                    typed(),
                    KeyFoldVerb::SiblingsAbove("-1".into()),
                )),
            ),
            ("/siblings/buckets/b/counts", None),
            ("/siblings/buckets/b/sizes/1", None),
            (
                "/objectsizes/buckets/b/sizes/x",
                Some(Route::KeyFold(
                    untyped(),
                    KeyFoldVerb::SizeAbove("x".into()),
                )),
            ),
            (
                "/tombs/types/t/buckets/b",
                Some(Route::KeyFold(typed(), KeyFoldVerb::Tombstones)),
            ),
            (
                "/rangetrees/buckets/b/keysclocks",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Clocks)),
            ),
            (
                "/rangetrees/buckets/b/trees/small",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Tree("small".into()))),
            ),
            (
                "/reap/buckets/b",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Reap)),
            ),
            (
                "/erase/buckets/b",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Erase)),
            ),
            (
                "/rangerepair/buckets/b",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Repair)),
            ),
            (
                "/rangerepl/buckets/b/queuename/q",
                Some(Route::KeyFold(untyped(), KeyFoldVerb::Replicate)),
            ),
            ("/cachedtrees/nvals/3/root", None),
            ("*", None),
        ];
        for (url, expected) in cases {
            assert_eq!(Route::of_path(url, true), expected, "{url}");
        }
    }

    #[test]
    fn names_are_decoded_piece_by_piece_or_left_as_they_are() {
        let object = |key: &'static str| {
            Some(Route::Object(
                path(Form::Untyped, "default", "b"),
                Key::from(key),
            ))
        };
        let url = "/buckets/b/keys/a%2Fb+c%20d%zz";
        assert_eq!(Route::of_path(url, true), object("a/b c d%zz"));
        assert_eq!(Route::of_path(url, false), object("a%2Fb+c%20d%zz"));
    }

    #[test]
    fn locations_lead_back_to_the_object() {
        for form in [Form::Old, Form::Untyped, Form::Typed] {
            let bucket_type = if form == Form::Typed {
                "t/\u{fc}"
            } else {
                "default"
            };
            let path = path(form, bucket_type, "b c/d?%");
            let key = Key::from("k+#");
            let location = path.location(&key);
            assert_eq!(
                Route::of_path(&location, true),
                Some(Route::Object(path, key)),
                "{location}"
            );
        }
    }
}
