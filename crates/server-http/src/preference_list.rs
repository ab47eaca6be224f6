//! The preference list of a key, as an answer to clients.

use std::fmt::Write as _;

use http::StatusCode;
use kvorum_encoding::Key;
use serde_json::Value;

use crate::exchange::Exchange;
use crate::reply::{Outcome, json};
use crate::route::BucketPath;
use crate::{failure, origin};

/// Answers `{"preflist":[{"partition":..,"node":..,"primary":..},..]}`.
pub(crate) fn get(exchange: &Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    origin::check(exchange)?;
    let coordinator = exchange.coordinator();
    let address = path.address(key);
    let places = coordinator
        .preference_list_by_ring(&address)
        .map_err(|error| failure::of_request(&error, &path.bucket_type))?;
    let mut list = String::from("{\"preflist\":[");
    for (at, place) in places.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // As Riak shows it here: its number from 0, not its index of 160 bits.
        let number = place.partition.number();
        let node = Value::from(place.node_name.as_str());
        let primary = place.is_primary;
        // Writing into a string cannot fail.
        let _ = write!(
            list,
            "{comma}{{\"partition\":{number},\"node\":{node},\"primary\":{primary}}}"
        );
    }
    list.push_str("]}");
    Ok(json(StatusCode::OK, list))
}
