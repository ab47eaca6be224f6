//! Objects whose value is a large set. The object has the head of the set in place of the value.
//! The members are in pages, which are entries of their own.
//!
//! The form follows from the object alone. So replicas with equal objects store equal entries, and
//! anti-entropy compares heads without reading pages. Only an object with one sibling is stored in
//! pages: concurrent values stay whole until the next operation merges them. An object that expires
//! stays whole too, since its pages would expire at other times.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_data_types::{
    Actor, DataType, DecodeError, Kind, PageSource, PagedSet, PagedSetError, SetChange, SetDelta,
    Update,
};
use kvorum_object::{Content, Dot, Metadata, Object, ObjectSize, Succession, Timestamp};

use crate::stored_form::InPages;

/// A set with fewer bytes than this is never large, so its members are not examined.
const LARGE_BYTES_MIN: usize = 1024;

/// Pages to write, and those to remove.
pub(crate) type Pages = BTreeMap<u32, Option<Bytes>>;

/// An update of a large set, sent to other replicas in place of the whole set.
#[derive(Clone, Debug)]
pub struct PagedUpdate {
    /// The object after the update, with the head of the set in the place of its value.
    pub object: Arc<Object>,
    /// The changes of the set.
    pub delta: SetDelta,
}

/// See the module's description.
pub(crate) struct PagedObject {
    pub(crate) object: Object,
    pub(crate) set: PagedSet,
}

impl PagedObject {
    /// An object in pages, and its pages; `None` for an object that is stored whole.
    pub(crate) fn split(object: &Object) -> Option<(Self, Pages)> {
        let [only] = object.siblings() else {
            return None;
        };
        let metadata = &only.metadata;
        let is_set = &metadata.content_type[..] == Kind::Set.content_type().as_bytes();
        if !is_set || only.value.len() < LARGE_BYTES_MIN || object.expires_at().is_some() {
            return None;
        }
        let DataType::Set(set) = DataType::in_content(&metadata.content_type, &only.value)? else {
            return None;
        };
        let change = set.is_large().then(|| PagedSet::split(&set))?;
        let paged = Self {
            object: object.clone().with_value(change.head.encode()),
            set: change.head,
        };
        Some((paged, change.pages))
    }

    /// An object as it is stored or sent, with the head of a set for its value.
    pub(crate) fn of(object: Object) -> Result<Self, DecodeError> {
        let [only] = object.siblings() else {
            return Err(DecodeError::Malformed { offset: 0 });
        };
        let set = PagedSet::decode(&only.value)?;
        let set = set.ok_or(DecodeError::Malformed { offset: 1 })?;
        Ok(Self { object, set })
    }

    /// The whole object.
    pub(crate) fn assemble<S: PageSource>(
        self,
        source: &mut S,
    ) -> Result<Object, PagedSetError<S::Error>> {
        let set = self.set.assemble(source)?;
        Ok(self.object.with_value(DataType::Set(set).encode()))
    }

    /// The extent of the pages.
    pub(crate) fn in_pages(&self) -> InPages {
        InPages {
            count: self.set.page_count(),
            bytes: self.set.member_bytes(),
        }
    }

    /// The size that limits apply to.
    pub(crate) fn size(&self) -> ObjectSize {
        let size = self.object.size();
        ObjectSize {
            bytes: size.bytes.saturating_add(self.set.member_bytes()),
            ..size
        }
    }

    /// The object after changes of its set, the pages to write, and the changes for the other replicas.
    pub(crate) fn update<S: PageSource>(
        self,
        (changes, context): (&[SetChange], Option<&kvorum_data_types::Clock>),
        (dot, now): (Dot, Timestamp),
        source: &mut S,
    ) -> Result<(Self, Pages, SetDelta), NotUpdated<S::Error>> {
        let update = Update {
            dot: kvorum_data_types::Dot::new(Actor(dot.actor.0), dot.counter),
            micros: now.as_micros(),
            context,
        };
        let (change, delta) = self.set.update(changes, update, source)?;
        let metadata = self.object.siblings().first().map(|it| it.metadata.clone());
        let content = Content {
            metadata: Metadata {
                last_modified: Timestamp::ZERO,
                ..metadata.unwrap_or_default()
            },
            value: change.head.encode(),
        };
        let succession = Succession { content, dot, now };
        let object = kvorum_object::succeed(Some(self.object), |_| true, succession)?;
        let updated = Self {
            object,
            set: change.head,
        };
        Ok((updated, change.pages, delta))
    }
}

/// The reason why a set in pages was not updated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotUpdated<E: std::error::Error + 'static> {
    #[error(transparent)]
    Set(#[from] PagedSetError<E>),
    #[error(transparent)]
    Object(#[from] kvorum_object::UpdateError),
}
