//! The counters of Riak 1.4, in buckets without type: numbers as plain text.

use http::StatusCode;
use kvorum_coordinator::Detail;
use kvorum_data_types::{DataType, Kind, Operation, Value};
use kvorum_encoding::Key;

use crate::exchange::Exchange;
use crate::object::Parameters;
use crate::reply::{Outcome, Refusal, empty, page, text};
use crate::route::BucketPath;
use crate::{failure, origin};

/// The counter's value.
pub(crate) async fn get(exchange: &Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    require_text(exchange)?;
    let parameters = Parameters::parse(exchange)?;
    origin::check(exchange)?;
    let options = parameters.get_options(Detail::Whole);
    let address = path.address(key);
    let found = exchange
        .coordinator()
        .fetch_data_type(&address, Kind::Counter, &options, exchange.arrived)
        .await
        .map_err(|error| failure::of_request(&error, &path.bucket_type))?;
    Ok(match found {
        Some(counter) => text(StatusCode::OK, shown(&counter)),
        None => text(StatusCode::NOT_FOUND, "not found\n"),
    })
}

/// Adds the number in the body, and answers with the value if asked.
pub(crate) async fn add(mut exchange: Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    require_text(&exchange)?;
    let parameters = Parameters::parse(&exchange)?;
    origin::check(&exchange)?;
    let body = exchange.body().await?;
    let amount = std::str::from_utf8(&body)
        .ok()
        .and_then(|it| it.parse().ok());
    let Some(amount) = amount else {
        return Ok(page(StatusCode::BAD_REQUEST));
    };
    let address = path.address(key);
    let (operation, options) = (Operation::Counter(amount), parameters.put_options());
    // The time in which the client sends the body is not part of the update.
    let arrived = exchange.coordinator().runtime().now();
    let counter = exchange
        .coordinator()
        .update_data_type(&address, operation, None, &options, arrived)
        .await
        .map_err(|error| failure::of_request(&error, &path.bucket_type))?;
    Ok(match exchange.query.get("returnvalue") {
        Some(b"true") => text(StatusCode::OK, shown(&counter)),
        _ => empty(StatusCode::NO_CONTENT),
    })
}

fn require_text(exchange: &Exchange<'_>) -> Result<(), Refusal> {
    match exchange.choose_type(&["text/plain"]) {
        Some(_) => Ok(()),
        None => Err(page(StatusCode::NOT_ACCEPTABLE).into()),
    }
}

fn shown(counter: &DataType) -> String {
    match counter.value() {
        Value::Counter(value) => value.to_string(),
        // Only counters occur here.
        Value::Set(_) | Value::GrowSet(_) | Value::Map(_) | Value::HyperLogLog(_) => String::new(),
    }
}
