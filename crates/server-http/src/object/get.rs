//! `GET` and `HEAD` of an object.

use http::StatusCode;
use http::header::{ACCEPT_CHARSET, ACCEPT_ENCODING};
use kvorum_coordinator::Detail;
use kvorum_encoding::Key;
use kvorum_object::{Object, Sibling};
use kvorum_protocol::http_fields::{choose_charset, choose_encoding};

use super::parameters::Parameters;
use super::representation::{self, SiblingsForm};
use crate::exchange::Exchange;
use crate::preconditions::{Current, Preconditions, Verdict};
use crate::reply::{Answer, DELETED, Outcome, Refusal, VCLOCK, empty, page, text};
use crate::route::BucketPath;
use crate::{failure, origin};

/// Answers with the object, its siblings or one of them.
pub(crate) async fn get(exchange: &Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    let parameters = Parameters::parse(exchange)?;
    origin::check(exchange)?;
    let address = path.address(key);
    // The whole object is read even for HEAD, whose Content-Length is the value's.
    let options = parameters.get_options(Detail::Whole);
    let found = exchange
        .coordinator()
        .get(&address, &options, exchange.arrived)
        .await
        .map_err(|error| failure::of_request(&error, &path.bucket_type))?;
    let conditions = Preconditions::of_request(exchange);
    let judge = |current: Option<&Current>| {
        let now = exchange.coordinator().runtime().wall_time().seconds();
        conditions.judge(exchange.method(), current, now)
    };
    let Some(object) = found.as_deref().filter(|object| !object.is_tombstone()) else {
        let refused = judge(None) == Verdict::Failed;
        return Ok(if refused {
            empty(StatusCode::PRECONDITION_FAILED)
        } else {
            not_found(found.as_deref())
        });
    };
    match select(object, exchange.query.get("vtag")) {
        // No sibling has the tag.
        None => Ok(page(StatusCode::NOT_FOUND)),
        Some(Selected::One(sibling)) => {
            check_acceptable(exchange, sibling)?;
            let whole = representation::one(path, object, sibling, StatusCode::OK);
            Ok(decided(judge(Some(&Current::sibling(sibling))), whole))
        }
        Some(Selected::Several) => {
            let form = SiblingsForm::negotiate(exchange).ok_or_else(not_acceptable)?;
            let whole = representation::several(exchange, path, object, form);
            Ok(decided(judge(Some(&Current::object(object))), whole))
        }
    }
}

/// The part of an object that a read shows.
pub(super) enum Selected<'a> {
    One(&'a Sibling),
    Several,
}

/// The requested sibling, else the only one, else all of them.
pub(super) fn select<'a>(object: &'a Object, vtag: Option<&[u8]>) -> Option<Selected<'a>> {
    match (vtag, object.siblings()) {
        (Some(vtag), siblings) => {
            let tagged = |sibling: &&Sibling| sibling.etag().as_bytes() == vtag;
            siblings.iter().find(tagged).map(Selected::One)
        }
        (None, [only]) => Some(Selected::One(only)),
        (None, _) => Some(Selected::Several),
    }
}

/// 404, with the clock of a tombstone, so that a client can overwrite it.
pub(super) fn not_found(tombstone: Option<&Object>) -> Answer {
    let mut answer = text(StatusCode::NOT_FOUND, "not found\n");
    if let Some(tombstone) = tombstone {
        let headers = answer.headers_mut();
        headers.insert(DELETED, representation::TRUE);
        headers.insert(VCLOCK, representation::vclock(tombstone));
    }
    answer
}

pub(super) fn not_acceptable() -> Refusal {
    page(StatusCode::NOT_ACCEPTABLE).into()
}

/// The answer after the conditions.
fn decided(verdict: Verdict, whole: Answer) -> Answer {
    match verdict {
        Verdict::Proceed => whole,
        Verdict::NotModified => representation::not_modified(&whole),
        Verdict::Failed => empty(StatusCode::PRECONDITION_FAILED),
    }
}

/// Refuses if the client does not accept the stored media type, charset or encoding.
fn check_acceptable(exchange: &Exchange<'_>, sibling: &Sibling) -> Result<(), Refusal> {
    let metadata = &sibling.metadata;
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let media_type = representation::media_type(metadata);
    if exchange.choose_type(&[text(media_type)]).is_none() {
        return Err(not_acceptable());
    }
    let charset = exchange.header(&ACCEPT_CHARSET);
    let is_charset_taken = metadata.charset.is_empty()
        || choose_charset(&[text(&metadata.charset)], charset.as_deref()).is_some();
    // A plain value can be sent compressed, an encoded one only unchanged.
    let stored = [text(&metadata.content_encoding)];
    let provided: &[&str] = if metadata.content_encoding.is_empty() {
        &["identity", "gzip"]
    } else {
        &stored
    };
    let encoding = exchange.header(&ACCEPT_ENCODING);
    let is_encoding_taken = choose_encoding(provided, encoding.as_deref()).is_some();
    if is_charset_taken && is_encoding_taken {
        Ok(())
    } else {
        Err(not_acceptable())
    }
}
