//! Properties of buckets and bucket types.

use std::sync::Arc;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use kvorum_cluster::{Command, ProposeError, Refusal as Unfit};
use kvorum_coordinator::{Coordinator, PropertiesChanged};
use kvorum_encoding::BucketType;
use kvorum_properties::{BucketProperties, PropertyErrors, PropertyOverlay, Reason, WithoutEffect};
use kvorum_protocol::http_fields::ContentType;
use serde_json::{Map, Value};

use crate::exchange::Exchange;
use crate::origin;
use crate::reply::{Answer, Outcome, Refusal, empty, json, page, text};
use crate::route::BucketPath;

/// The header for properties that were set without effect, in an answer without a body.
const WITHOUT_EFFECT: HeaderName = HeaderName::from_static("x-kvorum-without-effect");

/// The effective properties of a bucket.
pub(crate) fn of_bucket(exchange: &Exchange<'_>, path: &BucketPath) -> Outcome {
    origin::check(exchange)?;
    exchange.require_json()?;
    let shown = bucket_json(exchange.coordinator(), path).ok_or_else(no_such_type)?;
    Ok(json(StatusCode::OK, enclosed(shown)))
}

/// The properties of a bucket type.
pub(crate) fn of_type(exchange: &Exchange<'_>, bucket_type: &BucketType) -> Outcome {
    origin::check(exchange)?;
    exchange.require_json()?;
    let coordinator = exchange.coordinator();
    let state = coordinator.state();
    let properties = state.type_properties(bucket_type);
    let mut shown = properties.map_err(|_| no_such_type())?.to_json();
    if !bucket_type.is_default() {
        put_type_members(coordinator, &mut shown);
    }
    Ok(json(StatusCode::OK, enclosed(shown)))
}

/// Sets some properties of a bucket.
pub(crate) async fn set_of_bucket(mut exchange: Exchange<'_>, path: BucketPath) -> Outcome {
    let wanted = requested(&mut exchange, "bucket").await?;
    if !path.bucket_type.is_default() {
        check_type_members(&wanted)?;
    }
    let shown = bucket_json(exchange.coordinator(), &path).unwrap_or_default();
    let BucketPath {
        bucket_type,
        bucket,
        ..
    } = path;
    let state = exchange.coordinator().state();
    let properties = read(&wanted, state.properties(&bucket_type, &bucket).ok())?;
    let command = Command::SetBucketProperties {
        bucket_type,
        bucket,
        properties,
    };
    let passed_over = PropertyOverlay::passed_over(&wanted, &shown);
    propose(&exchange, command, passed_over).await
}

/// Sets some properties of a bucket type.
pub(crate) async fn set_of_type(mut exchange: Exchange<'_>, bucket_type: BucketType) -> Outcome {
    let wanted = requested(&mut exchange, "bucket type").await?;
    check_type_members(&wanted)?;
    let state = exchange.coordinator().state();
    let properties = read(&wanted, state.type_properties(&bucket_type).ok())?;
    let mut shown = Map::new();
    put_type_members(exchange.coordinator(), &mut shown);
    let command = Command::UpdateType {
        bucket_type,
        properties,
    };
    let passed_over = PropertyOverlay::passed_over(&wanted, &shown);
    propose(&exchange, command, passed_over).await
}

/// Resets the properties of a bucket.
pub(crate) async fn reset(exchange: &Exchange<'_>, path: BucketPath) -> Outcome {
    origin::check(exchange)?;
    exchange.require_json()?;
    let BucketPath {
        bucket_type,
        bucket,
        ..
    } = path;
    let state = exchange.coordinator().state();
    if state.type_properties(&bucket_type).is_err() {
        return Err(no_such_type());
    }
    let command = Command::ResetBucketProperties {
        bucket_type,
        bucket,
    };
    propose(exchange, command, Vec::new()).await
}

/// The JSON of a bucket's properties, its name first; `None` if there is no such type.
pub(crate) fn bucket_json(
    coordinator: &Coordinator,
    path: &BucketPath,
) -> Option<Map<String, Value>> {
    let state = coordinator.state();
    let properties = state.properties(&path.bucket_type, &path.bucket).ok()?;
    let name = String::from_utf8_lossy(path.bucket.as_bytes()).into_owned();
    let mut shown = Map::new();
    shown.insert("name".to_owned(), name.into());
    shown.extend(properties.to_json());
    if !path.bucket_type.is_default() {
        put_type_members(coordinator, &mut shown);
    }
    Some(shown)
}

/// Members that the properties of created types have, and those of their buckets.
fn put_type_members(coordinator: &Coordinator, shown: &mut Map<String, Value>) {
    shown.insert("active".to_owned(), true.into());
    // Riak's claimant is the node that carries out changes of types. Here every node can.
    if let Some(member) = coordinator.state().member(coordinator.node()) {
        shown.insert("claimant".to_owned(), member.name.as_str().into());
    }
}

/// Refuses a change of those members.
fn check_type_members(properties: &Map<String, Value>) -> Result<(), Refusal> {
    if properties.contains_key("claimant") {
        let errors = PropertyErrors::one("claimant", Reason::ClaimantImmutable);
        return Err(invalid(&errors));
    }
    match properties.get("active") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(_) => Err(invalid(&PropertyErrors::one(
            "active",
            Reason::ActiveImmutable,
        ))),
    }
}

fn enclosed(properties: Map<String, Value>) -> String {
    Value::Object(Map::from_iter([(
        "props".to_owned(),
        Value::Object(properties),
    )]))
    .to_string()
}

fn no_such_type() -> Refusal {
    page(StatusCode::NOT_FOUND).into()
}

/// The properties to set: the body is checked first, then the request's origin, then its type, as in
/// Riak.
async fn requested(
    exchange: &mut Exchange<'_>,
    target: &str,
) -> Result<Map<String, Value>, Refusal> {
    let body = exchange.body().await?;
    let parsed: Option<Map<String, Value>> = serde_json::from_slice(&body).ok();
    let Some(Value::Object(properties)) = parsed.and_then(|mut whole| whole.remove("props")) else {
        let message = format!(
            "{target} PUT must be a JSON object of the form:\n{{\"props\":{{...bucket properties...}}}}"
        );
        return Err(text(StatusCode::BAD_REQUEST, message).into());
    };
    origin::check(exchange)?;
    exchange.require_json()?;
    let content_type = exchange.header(&CONTENT_TYPE).unwrap_or_default();
    let is_json = ContentType::parse(&content_type)
        .is_ok_and(|parsed| parsed.media_type.eq_ignore_ascii_case(b"application/json"));
    if !is_json {
        return Err(page(StatusCode::UNSUPPORTED_MEDIA_TYPE).into());
    }
    Ok(properties)
}

/// Reads a change of `current`, which is `None` if the bucket type does not exist.
fn read(
    wanted: &Map<String, Value>,
    current: Option<&Arc<BucketProperties>>,
) -> Result<PropertyOverlay, Refusal> {
    PropertyOverlay::from_json(wanted).map_err(|errors| {
        invalid(&match current {
            Some(current) => current.reasons_of_change(errors),
            None => errors,
        })
    })
}

async fn propose(
    exchange: &Exchange<'_>,
    command: Command,
    passed_over: Vec<WithoutEffect>,
) -> Outcome {
    let coordinator = exchange.coordinator();
    let changed = coordinator.change_bucket_properties(command, passed_over);
    match changed.await {
        Ok(changed) => Ok(accepted(&changed)),
        Err(ProposeError::Refused(unfit)) => Err(unfit_answer(&unfit)),
        Err(error) => {
            exchange.service.note_not_agreed(&error);
            Ok(text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Error:\n{error}\n"),
            ))
        }
    }
}

fn accepted(changed: &PropertiesChanged) -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    let without_effect = &changed.without_effect;
    if !without_effect.is_empty() {
        let names: Vec<_> = without_effect.iter().map(|it| it.property).collect();
        if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
            answer.headers_mut().insert(WITHOUT_EFFECT, names);
        }
    }
    answer
}

/// The refusal of a change by the cluster: Riak's atom as JSON, if there is one.
fn unfit_answer(unfit: &Unfit) -> Refusal {
    let atom = match unfit {
        Unfit::InvalidProperties(errors) => return invalid(errors),
        Unfit::UnknownBucketType(_) => "no_type",
        Unfit::TypeUndefined | Unfit::TypeNotActive => "not_active",
        Unfit::DefaultType => "no_default_update",
        unfit => return text(StatusCode::BAD_REQUEST, format!("{unfit}\n")).into(),
    };
    json(StatusCode::BAD_REQUEST, format!("\"{atom}\"")).into()
}

fn invalid(errors: &PropertyErrors) -> Refusal {
    json(
        StatusCode::BAD_REQUEST,
        Value::Object(errors.to_json()).to_string(),
    )
    .into()
}
