//! `PUT` and `POST` of an object.
//!
//! A request with conditions reads before it writes, and the write names the version of that read: the
//! coordinating replica refuses it over another version. A request without conditions reads nothing, so
//! a blind write makes a sibling.

use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode};
use kvorum_coordinator::{Condition, Detail, PutKind, PutRequest, RequestError};
use kvorum_encoding::{Address, Key};
use kvorum_object::{Clock, Content, Object};

use super::content::{Described, describe, required_content_type};
use super::context;
use super::get::{Selected, not_acceptable, select};
use super::parameters::Parameters;
use super::representation::{self, SiblingsForm};
use crate::exchange::Exchange;
use crate::preconditions::{Current, Preconditions, Verdict};
use crate::reply::{Answer, Outcome, Refusal, empty, page, text};
use crate::route::BucketPath;
use crate::{failure, origin};

/// Stores an object, under a generated key if the client gives none.
pub(crate) async fn store(
    mut exchange: Exchange<'_>,
    path: BucketPath,
    key: Option<Key>,
) -> Outcome {
    let content_type = required_content_type(&exchange)?;
    let parameters = Parameters::parse(&exchange)?;
    let Described {
        metadata,
        media_type,
    } = describe(&exchange, content_type, path.form)?;
    let seen = context::vclock(&exchange)?;
    let unmodified = match *exchange.method() {
        Method::PUT => context::if_not_modified(&exchange)?,
        _ => None,
    };
    origin::check(&exchange)?;
    media_type.map_err(|error| text(StatusCode::UNSUPPORTED_MEDIA_TYPE, error.response_text()))?;
    check_acceptable(&exchange, &metadata.content_type)?;

    let is_new_key = key.is_none();
    let key = key.unwrap_or_else(|| exchange.coordinator().generate_key());
    let address = path.address(key);
    let mut condition = judge_conditions(&exchange, &parameters, &address, is_new_key).await?;
    let has_version = unmodified.is_some();
    if let Some(version) = unmodified {
        condition = Condition::Version(version);
    }
    let value = exchange.body().await?;
    // The time in which the client sends the body is not part of the write.
    let arrived = exchange.coordinator().runtime().now();
    let request = PutRequest {
        context: seen.unwrap_or_default(),
        condition,
        content: Content { metadata, value },
        kind: if parameters.is_as_is {
            PutKind::AsIs
        } else {
            PutKind::Versioned
        },
    };
    let options = parameters.put_options();
    let stored = exchange
        .coordinator()
        .put(&address, request, &options, arrived)
        .await;
    let object = stored.map_err(|error| refused(&error, has_version, &path))?;
    let answer = answer(
        &exchange,
        &path,
        &object,
        parameters.returns_body,
        is_new_key,
    );
    Ok(if is_new_key {
        located(answer, &path, &address.key)
    } else {
        answer
    })
}

/// As in Riak, a client has to accept the media type of its own request.
fn check_acceptable(exchange: &Exchange<'_>, media_type: &[u8]) -> Result<(), Refusal> {
    let media_type = std::str::from_utf8(media_type).unwrap_or_default();
    match exchange.choose_type(&[media_type]) {
        Some(_) => Ok(()),
        None => Err(not_acceptable()),
    }
}

/// Judges `If-Match` and its relatives by the stored object, and returns the condition that must still
/// hold when the write happens.
async fn judge_conditions(
    exchange: &Exchange<'_>,
    parameters: &Parameters,
    address: &Address,
    is_new_key: bool,
) -> Result<Condition, Refusal> {
    let conditions = Preconditions::of_request(exchange);
    if conditions.are_none() {
        return Ok(Condition::Always);
    }
    let found = if is_new_key {
        None
    } else {
        read_head(exchange, parameters, address).await?
    };
    let current = found.as_ref().map(|(_, current)| current);
    let now = exchange.coordinator().runtime().wall_time().seconds();
    match conditions.judge(exchange.method(), current, now) {
        Verdict::Failed => Err(empty(StatusCode::PRECONDITION_FAILED).into()),
        Verdict::NotModified => Err(empty(StatusCode::NOT_MODIFIED).into()),
        Verdict::Proceed => Ok(match found {
            Some((clock, _)) => Condition::Version(clock),
            None => Condition::Absent,
        }),
    }
}

/// The stored version; a tombstone counts as absent.
pub(super) async fn read_head(
    exchange: &Exchange<'_>,
    parameters: &Parameters,
    address: &Address,
) -> Result<Option<(Clock, Current)>, Refusal> {
    let options = parameters.get_options(Detail::Head);
    let found = exchange
        .coordinator()
        .get(address, &options, exchange.arrived)
        .await
        .map_err(|error| failure::of_request(&error, &address.bucket_type))?;
    let live = found.filter(|object| !object.is_tombstone());
    Ok(live.map(|object| (object.clock().clone(), Current::object(&object))))
}

/// The refusal of a write by its condition: a conflict if the client named the version itself.
fn refused(error: &RequestError, has_version: bool, path: &BucketPath) -> Refusal {
    match error {
        RequestError::Modified | RequestError::ConditionNotFound if has_version => {
            page(StatusCode::CONFLICT).into()
        }
        error => failure::of_request(error, &path.bucket_type),
    }
}

fn answer(
    exchange: &Exchange<'_>,
    path: &BucketPath,
    object: &Object,
    returns_body: bool,
    is_new_key: bool,
) -> Answer {
    let status = if is_new_key {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    if !returns_body {
        return empty(if is_new_key {
            status
        } else {
            StatusCode::NO_CONTENT
        });
    }
    match select(object, None) {
        Some(Selected::One(sibling)) => representation::one(path, object, sibling, status),
        _ => {
            let form = SiblingsForm::negotiate(exchange).unwrap_or(SiblingsForm::Tags);
            representation::several(exchange, path, object, form)
        }
    }
}

fn located(mut answer: Answer, path: &BucketPath, key: &Key) -> Answer {
    if let Ok(location) = HeaderValue::from_str(&path.location(key)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}
