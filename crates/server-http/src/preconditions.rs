//! `If-Match` and its relatives, judged in the order in which Webmachine judged them.
//!
//! ```text
//! object there:  If-Match            fails unless * or a tag of the list
//!                If-Unmodified-Since fails if modified later
//!                If-None-Match       * or a tag of the list: nothing new for readers, fails for writers
//!                If-Modified-Since   unless modified later: nothing new for readers, fails for
//!                                    deletions, does not count for other writers
//! nothing there: If-Match            fails for writers; readers get that nothing is there
//! ```
//!
//! Unlike in the HTTP standard, `If-Modified-Since` applies beside an `If-None-Match` that found
//! nothing. An unreadable date is ignored, as is a date in the future for `If-Modified-Since`.

use http::Method;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use kvorum_object::{Object, Sibling};
use kvorum_protocol::http_fields::{EntityTags, parse_http_date};

use crate::exchange::Exchange;

/// The conditions of a request.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    if_match: Option<EntityTags>,
    if_none_match: Option<EntityTags>,
    /// Seconds since the epoch, as all times here.
    if_unmodified_since: Option<u64>,
    if_modified_since: Option<u64>,
}

/// The object to which the conditions apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) entity_tag: kvorum_object::Etag,
    pub(crate) last_modified_seconds: u64,
}

/// The result of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is carried out.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Current {
    pub(crate) fn object(object: &Object) -> Self {
        let last_modified_seconds = object.last_modified().as_secs();
        Self {
            entity_tag: object.etag(),
            last_modified_seconds,
        }
    }

    pub(crate) fn sibling(sibling: &Sibling) -> Self {
        let last_modified_seconds = sibling.metadata.last_modified.as_secs();
        Self {
            entity_tag: sibling.etag(),
            last_modified_seconds,
        }
    }
}

impl Preconditions {
    pub(crate) fn of_request(exchange: &Exchange<'_>) -> Self {
        let headers = &exchange.head.headers;
        let date = |name| {
            headers
                .get(name)
                .and_then(|value| parse_http_date(value.as_bytes()))
        };
        let tags = |name| {
            exchange
                .header(&name)
                .map(|value| EntityTags::parse(&value))
        };
        Self {
            if_match: tags(IF_MATCH),
            if_none_match: tags(IF_NONE_MATCH),
            if_unmodified_since: date(IF_UNMODIFIED_SINCE),
            if_modified_since: date(IF_MODIFIED_SINCE),
        }
    }

    /// True when there are no conditions, so that a write needs no read before it.
    pub(crate) fn are_none(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_unmodified_since.is_none()
            && self.if_modified_since.is_none()
    }

    /// Judges the conditions of a resource that has neither an entity tag nor a time.
    pub(crate) fn judge_unversioned(&self, method: &Method) -> Verdict {
        let is_any = |tags: &Option<EntityTags>| matches!(tags, Some(EntityTags::Any));
        if self.if_match.is_some() && !is_any(&self.if_match) {
            return Verdict::Failed;
        }
        match (is_any(&self.if_none_match), method) {
            (false, _) => Verdict::Proceed,
            (true, &Method::GET | &Method::HEAD) => Verdict::NotModified,
            (true, _) => Verdict::Failed,
        }
    }

    /// Judges the conditions; `current` is `None` if there is no object.
    pub(crate) fn judge(&self, method: &Method, current: Option<&Current>, now: u64) -> Verdict {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let Some(current) = current else {
            return if self.if_match.is_some() && !is_read {
                Verdict::Failed
            } else {
                Verdict::Proceed
            };
        };
        let matches = |tags: &EntityTags| tags.matches(current.entity_tag.as_bytes());
        if self.if_match.as_ref().is_some_and(|tags| !matches(tags)) {
            return Verdict::Failed;
        }
        if self
            .if_unmodified_since
            .is_some_and(|since| current.last_modified_seconds > since)
        {
            return Verdict::Failed;
        }
        if self.if_none_match.as_ref().is_some_and(matches) {
            return if is_read {
                Verdict::NotModified
            } else {
                Verdict::Failed
            };
        }
        match self.if_modified_since {
            Some(since) if since <= now && current.last_modified_seconds <= since => {
                match *method {
                    Method::GET | Method::HEAD => Verdict::NotModified,
                    // The deletion was meant for a later version; Riak fails too.
                    Method::DELETE => Verdict::Failed,
                    _ => Verdict::Proceed,
                }
            }
            _ => Verdict::Proceed,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kvorum_object::{ActorId, Dot, Etag};
    use kvorum_protocol::http_fields::EntityTags;

    use super::{Current, Preconditions, Verdict};

    const MODIFIED: u64 = 1_000;
    const NOW: u64 = 5_000;

    fn tag(counter: u64) -> Etag {
        Etag::of_dot(Dot {
            actor: ActorId(7),
            counter,
        })
    }

    fn list(counters: &[u64]) -> Option<EntityTags> {
        let tags = counters
            .iter()
            .map(|counter| tag(*counter).as_bytes().to_vec());
        Some(EntityTags::List(tags.collect()))
    }

    #[test]
    fn the_first_condition_that_decides_decides() {
        use Verdict::{Failed, NotModified, Proceed};
        let any = || Some(EntityTags::Any);
        let none = Preconditions::default;
        let cases = [
            // Conditions; verdict for a reader, for a writer, and for a writer without an object.
            (none(), Proceed, Proceed, Proceed),
            (
                Preconditions {
                    if_match: any(),
                    ..none()
                },
                Proceed,
                Proceed,
                Failed,
            ),
            (
                Preconditions {
                    if_match: list(&[1, 2]),
                    ..none()
                },
                Proceed,
                Proceed,
                Failed,
            ),
            (
                Preconditions {
                    if_match: list(&[2]),
                    ..none()
                },
                Failed,
                Failed,
                Failed,
            ),
            (
                Preconditions {
                    if_match: list(&[]),
                    ..none()
                },
                Failed,
                Failed,
                Failed,
            ),
            (
                Preconditions {
                    if_none_match: any(),
                    ..none()
                },
                NotModified,
                Failed,
                Proceed,
            ),
            (
                Preconditions {
                    if_none_match: list(&[1]),
                    ..none()
                },
                NotModified,
                Failed,
                Proceed,
            ),
            (
                Preconditions {
                    if_none_match: list(&[2]),
                    ..none()
                },
                Proceed,
                Proceed,
                Proceed,
            ),
            (
                Preconditions {
                    if_unmodified_since: Some(MODIFIED),
                    ..none()
                },
                Proceed,
                Proceed,
                Proceed,
            ),
            (
                Preconditions {
                    if_unmodified_since: Some(MODIFIED - 1),
                    ..none()
                },
                Failed,
                Failed,
                Proceed,
            ),
            (
                Preconditions {
                    if_modified_since: Some(MODIFIED),
                    ..none()
                },
                NotModified,
                Proceed,
                Proceed,
            ),
            (
                Preconditions {
                    if_modified_since: Some(MODIFIED - 1),
                    ..none()
                },
                Proceed,
                Proceed,
                Proceed,
            ),
            (
                Preconditions {
                    if_modified_since: Some(NOW + 1),
                    ..none()
                },
                Proceed,
                Proceed,
                Proceed,
            ),
            // A failed condition takes precedence over one that finds nothing new.
            (
                Preconditions {
                    if_match: list(&[2]),
                    if_none_match: any(),
                    ..none()
                },
                Failed,
                Failed,
                Failed,
            ),
            (
                Preconditions {
                    if_unmodified_since: Some(MODIFIED - 1),
                    if_none_match: any(),
                    ..none()
                },
                Failed,
                Failed,
                Proceed,
            ),
            (
                Preconditions {
                    if_none_match: list(&[2]),
                    if_modified_since: Some(MODIFIED),
                    ..none()
                },
                NotModified,
                Proceed,
                Proceed,
            ),
        ];
        let current = Current {
            entity_tag: tag(1),
            last_modified_seconds: MODIFIED,
        };
        for (conditions, reader, writer, absent) in cases {
            for (methods, expected, absent) in [
                ([Method::GET, Method::HEAD], reader, Proceed),
                ([Method::PUT, Method::POST], writer, absent),
            ] {
                for method in methods {
                    let verdict = conditions.judge(&method, Some(&current), NOW);
                    assert_eq!(verdict, expected, "{method} {conditions:?}");
                    let verdict = conditions.judge(&method, None, NOW);
                    assert_eq!(verdict, absent, "{method} of nothing, {conditions:?}");
                }
            }
        }
    }

    #[test]
    fn a_deletion_of_what_was_not_modified_since_fails() {
        let current = Current {
            entity_tag: tag(1),
            last_modified_seconds: MODIFIED,
        };
        let since = |time| Preconditions {
            if_modified_since: Some(time),
            ..Preconditions::default()
        };
        let judged = |time| since(time).judge(&Method::DELETE, Some(&current), NOW);
        assert_eq!(judged(MODIFIED), Verdict::Failed);
        assert_eq!(judged(MODIFIED - 1), Verdict::Proceed);
        assert_eq!(judged(NOW + 1), Verdict::Proceed);
    }
}
