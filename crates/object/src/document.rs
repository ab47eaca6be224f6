//! The kind `document`: objects whose values are JSON objects, found by their member `kind`.
//!
//! A text in this member makes an entry of the index `kind_bin`, in addition to the client's entries. It is
//! also stored beside the head, so that a fold over heads can select documents without reading their
//! values. A value that is no JSON object, or lacks such a text, has no kind; it is stored like any other.

use bytes::Bytes;
use kvorum_encoding::put_varint;
use serde_json::Value;

use crate::Object;
use crate::index_term::IndexTerms;

const MEMBER: &str = "kind";
const INDEX: &[u8] = b"kind_bin";
/// A longer text is not a kind.
const KIND_BYTES_MAX: usize = 255;

/// The kinds of all siblings, sorted, each once:
///
/// ```text
/// for each kind: varint length, the text
/// ```
pub(crate) fn projection(object: &Object) -> Vec<u8> {
    let mut out = Vec::new();
    for kind in kinds(object) {
        put_varint(&mut out, kind.len() as u64);
        out.extend_from_slice(kind.as_bytes());
    }
    out
}

/// The client's entries, and those of the kinds.
pub(crate) fn index_terms(object: &Object) -> IndexTerms {
    let mut terms = object.index_terms();
    let of_kinds = kinds(object).into_iter();
    terms.extend(of_kinds.map(|it| (Bytes::from_static(INDEX), Bytes::from(it))));
    terms.sort_unstable();
    terms.dedup();
    terms
}

fn kinds(object: &Object) -> Vec<String> {
    let siblings = object.siblings().iter();
    let mut kinds: Vec<String> = siblings.filter_map(|it| kind_of(&it.value)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn kind_of(value: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(value).ok()?;
    let kind = document.as_object()?.get(MEMBER)?.as_str()?;
    (1..=KIND_BYTES_MAX)
        .contains(&kind.len())
        .then(|| kind.to_owned())
}
