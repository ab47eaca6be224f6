//! The headers of the fields that a client stored beside a value.
//!
//! All stored fields have names of the client's own: `Content-Type`, `Content-Encoding`, `Link`, and
//! names that begin with `X-Riak-Meta-` or `x-riak-index-`. So stored fields cannot be mistaken for
//! headers of the server: metadata called `Location` are `X-Riak-Meta-Location`. One more header,
//! [`super::EXACT_HEADER`], has everything that these cannot express. All of them together give the
//! stored fields, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use super::content_type::ContentType;
use super::exact::{EXACT_SUFFIX, ExactWriter, Kind};
use super::index::{INDEX_HEADER_PREFIX, IndexEntry, parse_index_header};
use super::link::{Link, UrlGeneration, format_links};
use super::user_metadata::{
    USER_METADATA_HEADER_PREFIX, escape_name, escape_value, is_plain_value, is_token,
    metadata_header_value, user_metadata_key,
};

/// The content type of values stored without one.
pub const DEFAULT_MEDIA_TYPE: &[u8] = b"application/octet-stream";

/// The fields that a client stored beside a value. Missing ones are empty.
#[derive(Clone, Debug, Default)]
pub struct StoredFields<'a> {
    /// Media type, perhaps with parameters.
    pub content_type: &'a [u8],
    /// Charset.
    pub charset: &'a [u8],
    /// Content encoding.
    pub content_encoding: &'a [u8],
    /// Links.
    pub links: Vec<Link>,
    /// User metadata: names and values.
    pub user_metadata: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// Index entries: fields and values.
    pub indexes: Vec<(&'a [u8], &'a [u8])>,
}

/// The same as headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHeaders {
    /// `Content-Type`.
    pub content_type: Vec<u8>,
    /// `Content-Encoding`, if there is any.
    pub content_encoding: Option<Vec<u8>>,
    /// `Link`.
    pub link: String,
    /// Names and values of the rest: user metadata, the exact header, indexes. No name appears
    /// twice.
    pub others: Vec<(String, Vec<u8>)>,
}

impl ObjectHeaders {
    /// The headers of the fields stored in an object of `bucket`.
    pub fn of(fields: &StoredFields<'_>, generation: UrlGeneration<'_>, bucket: &[u8]) -> Self {
        let mut exact = ExactWriter::default();
        let content_type = content_type(fields, &mut exact);
        let content_encoding = content_encoding(fields.content_encoding, &mut exact);
        let is_said = |link: &&Link| {
            let pieces = [&link.bucket, &link.key, &link.tag];
            !pieces.iter().any(|piece| piece.is_empty())
        };
        let link = format_links(generation, bucket, fields.links.iter().filter(is_said));
        for unsaid in fields.links.iter().filter(|link| !is_said(link)) {
            exact.push(Kind::Link, &[&unsaid.bucket, &unsaid.key, &unsaid.tag]);
        }
        let mut others = Vec::new();
        push_user_metadata(&fields.user_metadata, &mut exact, &mut others);
        let mut indexes = Vec::new();
        push_indexes(&fields.indexes, &mut exact, &mut indexes);
        let exact = exact.finish();
        if !exact.is_empty() {
            let name = spelled(EXACT_SUFFIX);
            others.push((name, exact.into_bytes()));
        }
        others.append(&mut indexes);
        Self {
            content_type,
            content_encoding,
            link,
            others,
        }
    }
}

fn content_type(fields: &StoredFields<'_>, exact: &mut ExactWriter) -> Vec<u8> {
    let media_type = match fields.content_type {
        b"" => DEFAULT_MEDIA_TYPE,
        given => given,
    };
    let whole = match fields.charset {
        b"" => media_type.to_vec(),
        charset => [media_type, b"; charset=", charset].concat(),
    };
    let candidates = [&whole, media_type, DEFAULT_MEDIA_TYPE];
    let shown = candidates.into_iter().find(|it| is_plain_value(it));
    let shown = shown.unwrap_or(DEFAULT_MEDIA_TYPE);
    let is_exact = ContentType::parse(shown).is_ok_and(|read| {
        read.media_type == media_type && read.charset.unwrap_or_default() == fields.charset
    });
    if !is_exact {
        exact.push(
            Kind::ContentType,
            &[shown, fields.content_type, fields.charset],
        );
    }
    shown.to_vec()
}

fn content_encoding(stored: &[u8], exact: &mut ExactWriter) -> Option<Vec<u8>> {
    if stored.is_empty() || is_plain_value(stored) {
        return (!stored.is_empty()).then(|| stored.to_vec());
    }
    let shown = metadata_header_value(stored).map(<[u8]>::trim_ascii);
    let shown = shown.filter(|shown| !shown.is_empty());
    let pieces = [shown.unwrap_or_default(), stored];
    exact.push(Kind::ContentEncoding, &pieces);
    shown.map(<[u8]>::to_vec)
}

/// Adds user metadata. Names that HTTP clients can store stay unchanged, and come before names that
/// have to be changed.
fn push_user_metadata(
    pairs: &[(&[u8], Option<&[u8]>)],
    exact: &mut ExactWriter,
    headers: &mut Vec<(String, Vec<u8>)>,
) {
    let mut taken = BTreeSet::from([EXACT_SUFFIX.to_owned()]);
    let mut changed = Vec::new();
    for (name, value) in pairs {
        let plain = plain_suffix(name).filter(|_| value.is_some_and(is_plain_value));
        match (plain, value) {
            (Some(suffix), Some(value)) if taken.insert(suffix.to_ascii_lowercase()) => {
                headers.push((spelled(suffix), value.to_vec()));
            }
            _ => changed.push((*name, *value)),
        }
    }
    for (name, value) in changed {
        let suffix = free_suffix(name, &mut taken);
        let shown = suffix.as_bytes();
        match value {
            None => exact.push(Kind::Valueless, &[shown, name]),
            Some(value) if is_plain_value(value) => exact.push(Kind::Name, &[shown, name]),
            Some(value) => exact.push(Kind::Value, &[shown, name, value]),
        }
        let value = value.map(escape_value).unwrap_or_default();
        headers.push((spelled(&suffix), value));
    }
}

/// The part behind the prefix of a name that an HTTP client could have stored.
fn plain_suffix(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| is_token(name))?;
    let is_plain = user_metadata_key(name).is_some_and(|key| key == name);
    is_plain.then(|| &name[USER_METADATA_HEADER_PREFIX.len()..])
}

/// The part behind the prefix of a name's header, in lower case and not taken by another.
fn free_suffix(name: &[u8], taken: &mut BTreeSet<String>) -> String {
    let prefix = USER_METADATA_HEADER_PREFIX.len();
    let has_prefix = name
        .get(..prefix)
        .is_some_and(|start| start.eq_ignore_ascii_case(USER_METADATA_HEADER_PREFIX.as_bytes()));
    let own = if has_prefix { &name[prefix..] } else { name };
    let suffix = escape_name(own).to_ascii_lowercase();
    let numbered = (2..).map(|number: u32| format!("{suffix}.{number}"));
    let mut candidates = std::iter::once(suffix.clone()).chain(numbered);
    let free = candidates.find(|it| taken.insert(it.clone()));
    free.unwrap_or(suffix)
}

/// The whole name, spelled as Riak spells names.
fn spelled(suffix: &str) -> String {
    let name = format!("{USER_METADATA_HEADER_PREFIX}{suffix}");
    user_metadata_key(&name).unwrap_or(name)
}

/// Adds one header for each field with all of its values, since some clients keep only one of
/// repeated headers.
fn push_indexes(
    entries: &[(&[u8], &[u8])],
    exact: &mut ExactWriter,
    headers: &mut Vec<(String, Vec<u8>)>,
) {
    let mut fields: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for (field, value) in entries {
        fields.entry(field).or_default().push(value);
    }
    for (field, values) in fields {
        let name = std::str::from_utf8(field).ok();
        let name = name.filter(|name| is_token(name) && !name.contains(char::is_uppercase));
        let (said, unsaid): (Vec<&[u8]>, Vec<&[u8]>) = match name {
            Some(_) if is_index_header(field, &values) => (values, Vec::new()),
            Some(_) => values
                .into_iter()
                .partition(|value| !value.is_empty() && is_index_header(field, &[value])),
            None => (Vec::new(), values),
        };
        if let Some(name) = name.filter(|_| !said.is_empty()) {
            headers.push((
                format!("{INDEX_HEADER_PREFIX}{name}"),
                said.join(&b", "[..]),
            ));
        }
        for value in unsaid {
            exact.push(Kind::Index, &[field, value]);
        }
    }
}

/// True if a header with these values is read as them.
fn is_index_header(field: &[u8], values: &[&[u8]]) -> bool {
    let header = values.join(&b", "[..]);
    if !is_plain_value(&header) {
        return false;
    }
    let (mut read, mut errors) = (Vec::new(), Vec::new());
    parse_index_header(field, &header.into(), &mut read, &mut errors);
    // An entry that the interface refuses is shown too, and refused when it is sent back.
    !errors.is_empty() || values.iter().copied().eq(read.iter().map(value_of))
}

fn value_of(entry: &IndexEntry) -> &[u8] {
    &entry.value
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::exact::{EXACT_HEADER, ExactFields};
    use super::super::link::parse_links;
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Stored {
        content_type: Vec<u8>,
        charset: Vec<u8>,
        content_encoding: Vec<u8>,
        links: Vec<[Vec<u8>; 3]>,
        user_metadata: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        indexes: Vec<(Vec<u8>, Vec<u8>)>,
    }

    impl Stored {
        fn fields(&self) -> StoredFields<'_> {
            StoredFields {
                content_type: &self.content_type,
                charset: &self.charset,
                content_encoding: &self.content_encoding,
                links: self.links.iter().cloned().map(link).collect(),
                user_metadata: self
                    .user_metadata
                    .iter()
                    .map(|(name, value)| (&name[..], value.as_deref()))
                    .collect(),
                indexes: self
                    .indexes
                    .iter()
                    .map(|(field, value)| (&field[..], &value[..]))
                    .collect(),
            }
        }

        /// The order of the pieces does not count.
        fn sorted(mut self) -> Self {
            self.links.sort();
            self.user_metadata.sort();
            self.indexes.sort();
            self
        }
    }

    fn link([bucket, key, tag]: [Vec<u8>; 3]) -> Link {
        Link {
            bucket: bucket.into(),
            key: key.into(),
            tag: tag.into(),
        }
    }

    /// The fields that a server stores when a client sends headers back: names in any case, values
    /// without the spaces at their ends.
    fn read_back(headers: &ObjectHeaders) -> Stored {
        let sent = |value: &[u8]| {
            assert_eq!(metadata_header_value(value), Some(value));
            Bytes::copy_from_slice(value.trim_ascii())
        };
        let mut lines = BTreeMap::new();
        for (name, value) in &headers.others {
            assert!(is_token(name), "{name}");
            let replaced = lines.insert(name.to_ascii_lowercase(), sent(value));
            assert_eq!(replaced, None, "{name} comes twice");
        }
        let exact = lines.remove(EXACT_HEADER).unwrap_or_default();
        let exact = ExactFields::parse(&exact).unwrap();
        let mut stored = Stored::default();
        let (mut links, mut indexes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in lines {
            if let Some((name, value)) = exact.user_metadata(&name, value.clone()) {
                let pair = (name.to_vec(), value.map(|value| value.to_vec()));
                stored.user_metadata.push(pair);
            } else {
                let field = name.strip_prefix("x-riak-index-").unwrap();
                parse_index_header(field.as_bytes(), &value, &mut indexes, &mut errors);
            }
        }
        assert_eq!(errors, []);
        let entries = indexes.iter().map(|entry| (&entry.field, &entry.value));
        let unsaid = exact.indexes().iter().map(|(field, value)| (field, value));
        let entries = entries.chain(unsaid);
        stored.indexes = entries
            .map(|(field, value)| (field.to_vec(), value.to_vec()))
            .collect();
        parse_links(headers.link.as_bytes(), &mut links).unwrap();
        links.extend_from_slice(exact.links());
        let pieces = |link: Link| [link.bucket, link.key, link.tag].map(|piece| piece.to_vec());
        stored.links = links.into_iter().map(pieces).collect();
        let content_type = sent(&headers.content_type);
        match exact.content_type(&content_type) {
            Some((media_type, charset)) => {
                (stored.content_type, stored.charset) = (media_type.to_vec(), charset.to_vec());
            }
            None => {
                let read = ContentType::parse(&content_type).unwrap();
                stored.content_type = read.media_type.to_vec();
                stored.charset = read.charset.unwrap_or_default().to_vec();
            }
        }
        let encoding = headers.content_encoding.as_deref().map(sent);
        stored.content_encoding = match exact.content_encoding(encoding.as_deref()) {
            Some(encoding) => encoding.to_vec(),
            None => encoding.unwrap_or_default().to_vec(),
        };
        stored.sorted()
    }

    fn headers_of(stored: &Stored) -> ObjectHeaders {
        ObjectHeaders::of(&stored.fields(), UrlGeneration::Second, b"b")
    }

    /// Regression: metadata stored over protocol buffers as `Version`, `Location`, `Server` or
    /// `Date` became headers of those names over HTTP, or were missing if the server set the same
    /// header. An update over HTTP lost all of them.
    #[test]
    fn no_metadata_pose_as_headers_of_the_server() {
        let names = [
            "Version",
            "Location",
            "Server",
            "Date",
            "X-Riak-Vclock",
            "etag",
            "two words",
        ];
        let stored = Stored {
            content_type: b"text/plain".to_vec(),
            user_metadata: names.map(|name| (name.into(), Some(b"1".to_vec()))).into(),
            ..Stored::default()
        };
        let headers = headers_of(&stored);
        let shown: Vec<&str> = headers.others.iter().map(|(name, _)| &name[..]).collect();
        let expected = [
            "X-Riak-Meta-Version",
            "X-Riak-Meta-Location",
            "X-Riak-Meta-Server",
            "X-Riak-Meta-Date",
            "X-Riak-Meta-X-Riak-Vclock",
            "X-Riak-Meta-Etag",
            "X-Riak-Meta-Two%20words",
            "X-Riak-Meta-Kvorum-Exact",
        ];
        assert_eq!(shown, expected);
        assert_eq!(read_back(&headers), stored.sorted());
    }

    #[test]
    fn what_http_clients_stored_needs_no_exact_header() {
        let value = Some(b"caf\xc3\xa9, 100 %".to_vec());
        let stored = Stored {
            content_type: b"text/plain".to_vec(),
            charset: b"utf-8".to_vec(),
            content_encoding: b"gzip".to_vec(),
            links: vec![[b"b".to_vec(), b"\xff/".to_vec(), b"t".to_vec()]],
            user_metadata: vec![(b"X-Riak-Meta-Color-2".to_vec(), value)],
            indexes: vec![
                (b"f_bin".to_vec(), b"a,b".to_vec()),
                (b"f_bin".to_vec(), b"c".to_vec()),
                (b"e_bin".to_vec(), b"".to_vec()),
                (b"n_int".to_vec(), b"-7".to_vec()),
            ],
        };
        let headers = headers_of(&stored);
        let names = headers.others.iter().map(|(name, _)| &name[..]);
        assert!(
            !names
                .clone()
                .any(|name| name.eq_ignore_ascii_case(EXACT_HEADER))
        );
        assert_eq!(names.count(), 4);
        assert_eq!(read_back(&headers), stored.sorted());
    }

    #[test]
    fn names_that_differ_in_case_alone_or_not_at_all_are_kept_apart() {
        let pair = |name: &[u8], value: &[u8]| (name.to_vec(), Some(value.to_vec()));
        let stored = Stored {
            content_type: b"a/b".to_vec(),
            user_metadata: vec![
                pair(b"color", b"1"),
                pair(b"X-Riak-Meta-Color", b"2"),
                pair(b"x-riak-meta-color", b"3"),
                pair(b"X-Riak-Meta-Color", b"4"),
                pair(b"X-Riak-Meta-Kvorum-Exact", b"5"),
                pair(b"color.2", b"6"),
                pair(b"", b"7"),
            ],
            ..Stored::default()
        };
        let headers = headers_of(&stored);
        assert_eq!(headers.others[0].0, "X-Riak-Meta-Color");
        assert_eq!(headers.others[0].1, b"2");
        assert_eq!(read_back(&headers), stored.sorted());
    }

    /// Bytes, many of them special in headers.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let awkward = b"\r\n\0\t ,;=:%/\"<>\x7f\xff\xc3a-B.1".to_vec();
        prop_oneof![
            4 => prop::collection::vec(prop::sample::select(awkward), 0..8),
            1 => prop::collection::vec(any::<u8>(), 0..8),
        ]
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let known = [
            "X-Riak-Meta-A",
            "x-riak-meta-a",
            "A",
            "a",
            "Date",
            "X-Riak-Vclock",
            "",
        ];
        prop_oneof![
            prop::sample::select(known.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
            bytes(),
        ]
    }

    fn entry() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let field = |bytes: Vec<u8>| [&bytes.to_ascii_lowercase(), &b"f_bin"[..]].concat();
        prop_oneof![
            (Just(b"f_bin".to_vec()), bytes()),
            (bytes().prop_map(field), bytes()),
            (
                Just(b"n_int".to_vec()),
                any::<i64>().prop_map(|it| it.to_string().into_bytes())
            ),
        ]
    }

    prop_compose! {
        fn stored()(
            content_type in prop_oneof![Just(b"text/plain".to_vec()), "[a-z/;= ]{1,12}".prop_map(String::into_bytes), bytes()],
            charset in prop_oneof![Just(Vec::new()), Just(b"utf-8".to_vec()), bytes()],
            content_encoding in prop_oneof![Just(Vec::new()), bytes()],
            links in prop::collection::vec([bytes(), bytes(), bytes()], 0..4),
            user_metadata in prop::collection::vec((name(), prop::option::weighted(0.8, bytes())), 0..6),
            indexes in prop::collection::vec(entry(), 0..6),
        ) -> Stored {
            Stored { content_type, charset, content_encoding, links, user_metadata, indexes }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn any_fields_are_read_back_as_they_are_stored(stored in stored()) {
            let mut expected = stored.clone();
            if expected.content_type.is_empty() && expected.charset.is_empty() {
                expected.content_type = DEFAULT_MEDIA_TYPE.to_vec();
            }
            let headers = headers_of(&stored);
            let read = read_back(&headers);
            if read.content_type == DEFAULT_MEDIA_TYPE && stored.content_type.is_empty() {
                expected.content_type = DEFAULT_MEDIA_TYPE.to_vec();
            }
            prop_assert_eq!(read, expected.sorted(), "{:?}", headers);
        }
    }
}
