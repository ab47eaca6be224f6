//! Data types: counters, sets, maps and hyperloglogs, fetched and updated in JSON.

use std::time::Duration;

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use kvorum_coordinator::Detail;
use kvorum_data_types::{
    Clock, DataType, Kind, Operation, fetched_json, not_found_json, operation_from_json,
};
use kvorum_encoding::{Address, Key};
use kvorum_protocol::http_fields::{
    ContentType, ParameterError, encode_percent, parse_timeout_ms, parse_tristate,
};

use crate::exchange::Exchange;
use crate::object::Parameters;
use crate::reply::{Answer, Outcome, Refusal, empty, json, page, text};
use crate::route::BucketPath;
use crate::{failure, origin};

/// Options in the query string besides those of all objects.
struct Asked {
    options: Parameters,
    returns_body: bool,
    includes_context: bool,
}

impl Asked {
    fn parse(exchange: &Exchange<'_>) -> Result<Self, Refusal> {
        let timeout = timeout(exchange)?;
        let flag = |name| match exchange.query.get(name) {
            Some(value) => parse_tristate(name, value).map_err(|error| refused(&error)),
            None => Ok(None),
        };
        Ok(Self {
            options: Parameters::parse_within(exchange, timeout)?,
            returns_body: flag("returnbody")? == Some(true),
            includes_context: flag("include_context")? != Some(false),
        })
    }

    /// The answer that shows a value.
    fn shown(&self, status: StatusCode, value: &DataType) -> Outcome {
        let context = value.context().filter(|_| self.includes_context);
        match fetched_json(&value.value(), context.as_ref()) {
            Ok(body) => Ok(json(status, body)),
            Err(error) => Err(text(StatusCode::NOT_ACCEPTABLE, format!("{error}\n")).into()),
        }
    }
}

fn refused(error: &ParameterError) -> Refusal {
    text(StatusCode::BAD_REQUEST, error.response_text()).into()
}

/// The `timeout` parameter. As in Riak, its refusal has another text here than for objects.
fn timeout(exchange: &Exchange<'_>) -> Result<Option<Duration>, Refusal> {
    let Some(value) = exchange.query.get("timeout") else {
        return Ok(None);
    };
    match parse_timeout_ms(value) {
        Ok(milliseconds) if milliseconds > 0 => Ok(Some(Duration::from_millis(milliseconds))),
        _ => {
            let value = String::from_utf8_lossy(value);
            let message = format!(
                "timeout query parameter must be an integer greater than 0, {value} is invalid\n"
            );
            Err(text(StatusCode::BAD_REQUEST, message).into())
        }
    }
}

/// `GET` and `HEAD` of a value.
pub(crate) async fn fetch(exchange: &Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    let kind = kind_of(exchange, path, Some(&key))?;
    exchange.require_json()?;
    let asked = Asked::parse(exchange)?;
    origin::check(exchange)?;
    let address = path.address(key);
    let options = asked.options.get_options(Detail::Whole);
    let arrived = exchange.arrived;
    let found = exchange
        .coordinator()
        .fetch_data_type(&address, kind, &options, arrived)
        .await
        .map_err(|error| failure::of_request(&error, &path.bucket_type))?;
    match found {
        Some(value) => asked.shown(StatusCode::OK, &value),
        None => Ok(json(StatusCode::NOT_FOUND, not_found_json(kind))),
    }
}

/// `POST` of an operation, under a generated key if the client gives none.
pub(crate) async fn update(
    mut exchange: Exchange<'_>,
    path: BucketPath,
    key: Option<Key>,
) -> Outcome {
    let kind = kind_of(&exchange, &path, key.as_ref())?;
    exchange.require_json()?;
    let asked = Asked::parse(&exchange)?;
    check_is_json(&exchange)?;
    origin::check(&exchange)?;
    let (operation, context) = operation(&mut exchange, kind).await?;
    let is_new_key = key.is_none();
    let key = key.unwrap_or_else(|| exchange.coordinator().generate_key());
    let address = path.address(key);
    let value = carry_out(&exchange, &address, (operation, context), &asked).await?;
    let answer = match (value, is_new_key) {
        (Some(value), true) => asked.shown(StatusCode::CREATED, &value)?,
        (Some(value), false) => asked.shown(StatusCode::OK, &value)?,
        (None, true) => empty(StatusCode::CREATED),
        (None, false) => empty(StatusCode::NO_CONTENT),
    };
    Ok(match is_new_key {
        true => located(answer, &path, &address.key),
        false => answer,
    })
}

/// The value after the operation, if the client has asked for it.
async fn carry_out(
    exchange: &Exchange<'_>,
    address: &Address,
    (operation, context): (Operation, Option<Clock>),
    asked: &Asked,
) -> Result<Option<DataType>, Refusal> {
    // The time in which the client sends the body is not part of the update.
    let arrived = exchange.coordinator().runtime().now();
    let options = asked.options.put_options();
    let coordinator = exchange.coordinator();
    let updated = match asked.returns_body {
        true => {
            let run = coordinator.update_data_type(address, operation, context, &options, arrived);
            run.await.map(Some)
        }
        false => {
            let run = coordinator.change_data_type(address, operation, context, &options, arrived);
            run.await.map(|()| None)
        }
    };
    updated.map_err(|error| failure::of_request(&error, &address.bucket_type))
}

async fn operation(
    exchange: &mut Exchange<'_>,
    kind: Kind,
) -> Result<(Operation, Option<Clock>), Refusal> {
    let body = exchange.body().await?;
    operation_from_json(kind, &body)
        .map_err(|error| text(StatusCode::BAD_REQUEST, format!("{error}\n")).into())
}

/// The data type of the bucket. Requests for the default type are redirected to counters.
fn kind_of(exchange: &Exchange<'_>, path: &BucketPath, key: Option<&Key>) -> Result<Kind, Refusal> {
    if path.bucket_type.is_default() {
        return Err(moved(path, key).into());
    }
    let kind = exchange
        .coordinator()
        .data_type_of(&path.bucket_type, &path.bucket);
    match kind {
        Ok(Some(kind)) => Ok(kind),
        Ok(None) => {
            let message = "Bucket datatype 'undefined' is not a supported type.\n";
            Err(text(StatusCode::FORBIDDEN, message).into())
        }
        Err(_) => {
            let name = String::from_utf8_lossy(path.bucket_type.as_bytes());
            let message = format!("Unknown bucket type: {name}\n");
            Err(text(StatusCode::NOT_FOUND, message).into())
        }
    }
}

fn moved(path: &BucketPath, key: Option<&Key>) -> Answer {
    let message = "Counters in the default bucket-type should use the legacy URL\n";
    let mut answer = text(StatusCode::MOVED_PERMANENTLY, message);
    let bucket = encode_percent(path.bucket.as_bytes());
    let key = key.map_or_else(String::new, |key| encode_percent(key.as_bytes()));
    if let Ok(location) = HeaderValue::from_str(&format!("/buckets/{bucket}/counters/{key}")) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

fn check_is_json(exchange: &Exchange<'_>) -> Result<(), Refusal> {
    let header = exchange.head.headers.get(CONTENT_TYPE);
    let parsed = header.and_then(|header| ContentType::parse(header.as_bytes()).ok());
    match parsed {
        Some(given) if given.media_type == b"application/json" => Ok(()),
        _ => Err(page(StatusCode::NOT_ACCEPTABLE).into()),
    }
}

/// Adds the location of a new key. As in Riak, it is the object's location.
fn located(mut answer: Answer, path: &BucketPath, key: &Key) -> Answer {
    if let Ok(location) = HeaderValue::from_str(&path.location(key)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}
