//! `DELETE` of an object.

use http::StatusCode;
use kvorum_coordinator::Deleted;
use kvorum_encoding::Key;

use super::context;
use super::get::not_found;
use super::parameters::Parameters;
use super::store::read_head;
use crate::exchange::Exchange;
use crate::preconditions::{Preconditions, Verdict};
use crate::reply::{Outcome, empty};
use crate::route::BucketPath;
use crate::{failure, origin};

/// Writes a tombstone over the version that the client names, or over the present one.
pub(crate) async fn delete(exchange: &Exchange<'_>, path: &BucketPath, key: Key) -> Outcome {
    let parameters = Parameters::parse(exchange)?;
    let mut seen = context::vclock(exchange)?;
    origin::check(exchange)?;
    let address = path.address(key);
    let conditions = Preconditions::of_request(exchange);
    if !conditions.are_none() {
        let found = read_head(exchange, &parameters, &address).await?;
        let now = exchange.coordinator().runtime().wall_time().seconds();
        let current = found.as_ref().map(|(_, current)| current);
        match conditions.judge(exchange.method(), current, now) {
            Verdict::Failed => return Ok(empty(StatusCode::PRECONDITION_FAILED)),
            Verdict::NotModified => return Ok(empty(StatusCode::NOT_MODIFIED)),
            // Only the version of this check is deleted; a concurrent write stays.
            Verdict::Proceed => seen = seen.or(found.map(|(clock, _)| clock)),
        }
    }
    let options = parameters.delete_options();
    let deleted = exchange
        .coordinator()
        .delete(&address, seen, &options, exchange.arrived)
        .await;
    match deleted.map_err(|error| failure::of_request(&error, &path.bucket_type))? {
        Deleted::Written => Ok(empty(StatusCode::NO_CONTENT)),
        Deleted::NothingThere => Ok(not_found(None)),
    }
}
