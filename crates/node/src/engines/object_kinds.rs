//! The demands of the kinds of objects on a journal, for an engine without objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_backend::{IndexEntry, Tag};
use kvorum_backend_leveled::encode_index_list;
use kvorum_object::{Encoded, Object, ObjectTag, OpenedHead, Retention};

/// True for kinds whose removals a journal need not keep. Tombstones are not such a kind.
pub(super) fn is_forgotten(tag: Tag) -> bool {
    retention_of(tag) == Some(Retention::Recovr)
}

/// The list of an object's index entries, for kinds that derive it from the object when a ledger is
/// rebuilt from the journal. Also `None` for an unreadable object.
pub(super) fn recalculated(
    tag: Tag,
    head: &Bytes,
    body: &dyn Fn() -> Option<Bytes>,
) -> Option<Bytes> {
    if retention_of(tag) != Some(Retention::Recalc) {
        return None;
    }
    let kind = ObjectTag::numbered(tag.0)?;
    let opened = OpenedHead::of(tag.0, head).ok()?;
    let Encoded { head, body } = opened.with_body(body()?);
    let object = Object::from_engine(&head, body).ok()?;
    let terms = kind.index_terms(&object).into_iter();
    let entries: BTreeSet<IndexEntry> = terms
        .map(|(field, term)| IndexEntry { field, term })
        .collect();
    Some(encode_index_list(&entries))
}

fn retention_of(tag: Tag) -> Option<Retention> {
    ObjectTag::numbered(tag.0).map(ObjectTag::retention)
}

#[cfg(test)]
mod tests {
    use kvorum_object::{Clock, Content, Timestamp};

    use super::*;

    #[test]
    fn index_entries_are_taken_anew_where_the_kind_says_so() {
        let value = Bytes::from_static(br#"{"kind":"task"}"#);
        let content = Content {
            value,
            ..Content::default()
        };
        let object = Object::as_is(Clock::new(), content, Timestamp::from_micros(1));
        for kind in ObjectTag::all() {
            let stored = kind.encode(&object);
            let body = || Some(stored.body.clone());
            let tag = Tag(kind.number());
            let list = recalculated(tag, &stored.head, &body);
            let expected = (kind.name() == "document").then(|| {
                let entry = IndexEntry {
                    field: Bytes::from_static(b"kind_bin"),
                    term: Bytes::from_static(b"task"),
                };
                encode_index_list(&BTreeSet::from([entry]))
            });
            assert_eq!(list, expected, "{kind:?}");
            assert_eq!(recalculated(tag, &stored.head, &|| None), None);
        }
    }

    #[test]
    fn tombstones_are_remembered_whatever_they_bury() {
        assert!(!is_forgotten(Tag::TOMBSTONE));
        assert!(!is_forgotten(Tag::default()));
        let recovr = ObjectTag::all().filter(|it| it.retention() == Retention::Recovr);
        let tags: Vec<Tag> = recovr.map(|it| Tag(it.number())).collect();
        assert!(!tags.is_empty() && tags.iter().all(|it| is_forgotten(*it)));
    }
}
