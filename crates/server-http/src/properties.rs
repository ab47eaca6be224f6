//! Properties of buckets and bucket types.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use kvorum_cluster::{ClusterState, Command, ProposeError, Refusal as Unfit};
use kvorum_encoding::BucketType;
use kvorum_properties::{BucketProperties, PropertyErrors, PropertyOverlay};
use kvorum_protocol::http_fields::ContentType;
use serde_json::{Map, Value};

use crate::exchange::Exchange;
use crate::reply::{Outcome, Refusal, empty, json, page, text};
use crate::route::BucketPath;
use crate::{failure, origin};

/// The properties that count for a bucket.
pub(crate) fn of_bucket(exchange: &Exchange<'_>, path: &BucketPath) -> Outcome {
    origin::check(exchange)?;
    exchange.require_json()?;
    let shown = bucket_json(&exchange.coordinator().state(), path)?;
    Ok(json(StatusCode::OK, enclosed(shown)))
}

/// The properties of a bucket type.
pub(crate) fn of_type(exchange: &Exchange<'_>, bucket_type: &BucketType) -> Outcome {
    origin::check(exchange)?;
    exchange.require_json()?;
    let state = exchange.coordinator().state();
    let properties = state
        .type_properties(bucket_type)
        .map_err(|_| failure::unknown_type(bucket_type))?;
    let mut shown = properties.to_json();
    shown.insert("active".to_owned(), true.into());
    // Riak's claimant is whichever node carries changes of types through; here each can.
    if let Some(member) = state.member(exchange.coordinator().node()) {
        shown.insert("claimant".to_owned(), member.name.as_str().into());
    }
    Ok(json(StatusCode::OK, enclosed(shown)))
}

/// Sets some properties of a bucket.
pub(crate) async fn set_of_bucket(mut exchange: Exchange<'_>, path: BucketPath) -> Outcome {
    let properties = requested(&mut exchange).await?;
    let BucketPath {
        bucket_type,
        bucket,
        ..
    } = path;
    let state = exchange.coordinator().state();
    if state.type_properties(&bucket_type).is_err() {
        return Err(failure::unknown_type(&bucket_type));
    }
    propose(
        &exchange,
        Command::SetBucketProperties {
            bucket_type,
            bucket,
            properties,
        },
    )
    .await
}

/// Sets some properties of a bucket type.
pub(crate) async fn set_of_type(mut exchange: Exchange<'_>, bucket_type: BucketType) -> Outcome {
    let properties = requested(&mut exchange).await?;
    let state = exchange.coordinator().state();
    if state.type_properties(&bucket_type).is_err() {
        let name = String::from_utf8_lossy(bucket_type.as_bytes());
        let message = format!("Cannot modify unknown bucket type: {name}\n");
        return Ok(text(StatusCode::NOT_FOUND, message));
    }
    propose(
        &exchange,
        Command::UpdateType {
            bucket_type,
            properties,
        },
    )
    .await
}

/// Takes back what was set for a bucket.
pub(crate) async fn reset(exchange: &Exchange<'_>, path: BucketPath) -> Outcome {
    origin::check(exchange)?;
    let BucketPath {
        bucket_type,
        bucket,
        ..
    } = path;
    if exchange
        .coordinator()
        .state()
        .type_properties(&bucket_type)
        .is_err()
    {
        return Err(failure::unknown_type(&bucket_type));
    }
    propose(
        exchange,
        Command::ResetBucketProperties {
            bucket_type,
            bucket,
        },
    )
    .await
}

/// The JSON of a bucket's properties, its name first.
pub(crate) fn bucket_json(
    state: &ClusterState,
    path: &BucketPath,
) -> Result<Map<String, Value>, Refusal> {
    let properties: &BucketProperties = state
        .properties(&path.bucket_type, &path.bucket)
        .map_err(|_| failure::unknown_type(&path.bucket_type))?;
    let name = String::from_utf8_lossy(path.bucket.as_bytes()).into_owned();
    let mut shown = Map::new();
    shown.insert("name".to_owned(), name.into());
    shown.extend(properties.to_json());
    Ok(shown)
}

fn enclosed(properties: Map<String, Value>) -> String {
    Value::Object(Map::from_iter([(
        "props".to_owned(),
        Value::Object(properties),
    )]))
    .to_string()
}

/// What a request wants set: the body first, then where it comes from, then its type, as in Riak.
async fn requested(exchange: &mut Exchange<'_>) -> Result<PropertyOverlay, Refusal> {
    let body = exchange.body().await?;
    let parsed: Option<Map<String, Value>> = serde_json::from_slice(&body).ok();
    let Some(Value::Object(properties)) = parsed.and_then(|mut whole| whole.remove("props")) else {
        let message = "bucket PUT must be a JSON object of the form:\n{\"props\":{...}}\n";
        return Err(text(StatusCode::BAD_REQUEST, message).into());
    };
    origin::check(exchange)?;
    let content_type = exchange.header(&CONTENT_TYPE).unwrap_or_default();
    let is_json = ContentType::parse(&content_type)
        .is_ok_and(|parsed| parsed.media_type.eq_ignore_ascii_case(b"application/json"));
    if !is_json {
        return Err(page(StatusCode::UNSUPPORTED_MEDIA_TYPE).into());
    }
    PropertyOverlay::from_json(&properties).map_err(|errors| invalid(&errors))
}

async fn propose(exchange: &Exchange<'_>, command: Command) -> Outcome {
    let coordinator = exchange.coordinator();
    let cluster = coordinator.cluster().clone();
    let proposed = coordinator
        .runtime()
        .blocking(move || cluster.propose(command))
        .await;
    match proposed {
        Ok(_) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(ProposeError::Refused(Unfit::InvalidProperties(errors))) => Err(invalid(&errors)),
        Err(ProposeError::Refused(Unfit::UnknownBucketType(unknown))) => {
            Err(failure::unknown_type(&unknown.bucket_type))
        }
        Err(ProposeError::Refused(unfit)) => {
            Ok(text(StatusCode::BAD_REQUEST, format!("{unfit}\n")))
        }
        Err(error) => {
            tracing::error!(event = "cluster_state_not_changed", error = %error);
            Ok(text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Error:\n{error}\n"),
            ))
        }
    }
}

fn invalid(errors: &PropertyErrors) -> Refusal {
    json(
        StatusCode::BAD_REQUEST,
        Value::Object(errors.to_json()).to_string(),
    )
    .into()
}
