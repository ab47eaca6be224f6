//! `/mapred`: a MapReduce job is posted, and its results are the answer, whole or as a `multipart/mixed`
//! stream with a part for some results of a phase.
//!
//! A stream waits for its first results before the answer begins, so that a failure over the first
//! inputs has its status. A stream that fails later ends with the bare JSON of the failure, as in
//! Riak.

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use kvorum_map_reduce_run::{
    AdmittedJob, JobForm, JobOutputs, NotAdmitted, Output, Refusal as JobRefusal, RunError, answer,
};

use crate::body::Abandoned;
use crate::exchange::Exchange;
use crate::listing::check_enabled;
use crate::reply::{JSON, Outcome, Refusal, in_pieces, json, page, text};
use crate::{failure, origin};

/// The answer to a request without a job.
const USAGE: &str = "This resource accepts POSTs with bodies containing JSON of the form:\n{\n \
    \"inputs\":[...list of inputs...],\n \"query\":[...list of map/reduce phases...]\n}\n";

/// Runs the job in the body.
pub(crate) async fn run(mut exchange: Exchange<'_>) -> Outcome {
    check_enabled(exchange.service.settings.jobs.map_reduce, "map_reduce")?;
    if *exchange.method() != Method::POST {
        return Ok(text(StatusCode::BAD_REQUEST, USAGE));
    }
    let body = exchange.body().await?;
    let coordinator = exchange.coordinator();
    let room = &exchange.service.room;
    let admitted = AdmittedJob::read(coordinator, room, JobForm::Json, body).await;
    let admitted = admitted.map_err(not_admitted)?;
    origin::check(&exchange)?;
    check_is_json(&exchange)?;
    if exchange.query.get("chunked") == Some(b"true") {
        if exchange.choose_type(&["multipart/mixed"]).is_none() {
            return Err(page(StatusCode::NOT_ACCEPTABLE).into());
        }
        return in_parts(&exchange, admitted).await;
    }
    exchange.require_json()?;
    let results = answer(coordinator, admitted)
        .await
        .map_err(|error| failed(&error))?;
    Ok(json(StatusCode::OK, results))
}

fn check_is_json(exchange: &Exchange<'_>) -> Result<(), Refusal> {
    let content_type = exchange.header(&CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(|&byte| byte == b';').next();
    let media_type = media_type.unwrap_or_default().trim_ascii();
    match media_type.eq_ignore_ascii_case(b"application/json") {
        true => Ok(()),
        false => Err(page(StatusCode::UNSUPPORTED_MEDIA_TYPE).into()),
    }
}

fn not_admitted(error: NotAdmitted) -> Refusal {
    match error {
        NotAdmitted::Refused(refusal) => refused(&refusal),
        NotAdmitted::TooLong { .. } => {
            text(StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n")).into()
        }
        NotAdmitted::Overload => failure::retry_later(&error.to_string()).into(),
    }
}

/// A refusal in Riak's words.
fn refused(refusal: &JobRefusal) -> Refusal {
    let answer = refusal.http();
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_REQUEST);
    match answer.content_type {
        "application/json" => json(status, answer.body).into(),
        _ => text(status, answer.body).into(),
    }
}

fn failed(error: &RunError) -> Refusal {
    match error {
        RunError::Failed(failure) => json(StatusCode::INTERNAL_SERVER_ERROR, failure.json()).into(),
        RunError::RetryLater(reason) => failure::retry_later(&reason.to_string()).into(),
    }
}

async fn in_parts(exchange: &Exchange<'_>, admitted: AdmittedJob) -> Outcome {
    let coordinator = exchange.coordinator();
    let runtime = coordinator.runtime();
    let boundary = format!("{:016x}{:016x}", runtime.random_u64(), runtime.random_u64());
    let content_type = HeaderValue::from_str(&format!("multipart/mixed;boundary={boundary}"));
    let mut run = JobOutputs::begin(coordinator, admitted);
    let first = run
        .next()
        .await
        .transpose()
        .map_err(|error| failed(&error))?;
    let parts = parts(run, first, boundary);
    Ok(in_pieces(content_type.unwrap_or(JSON), parts))
}

fn parts(
    run: JobOutputs,
    first: Option<Output>,
    boundary: String,
) -> impl Stream<Item = Result<Bytes, Abandoned>> {
    let first = first.map(Ok);
    stream::unfold(Some((run, first, boundary)), |state| async {
        let (mut run, first, boundary) = state?;
        let output = match first {
            Some(first) => Some(first),
            None => run.next().await,
        };
        let Some(output) = output else {
            let end = format!("\r\n--{boundary}--\r\n");
            return Some((Ok(end.into()), None));
        };
        match output.and_then(|output| part(&boundary, &output)) {
            Ok(part) => Some((Ok(part), Some((run, None, boundary)))),
            Err(error) => Some((Ok(error.json().into()), None)),
        }
    })
}

fn part(boundary: &str, output: &Output) -> Result<Bytes, RunError> {
    let (phase, data) = (output.phase, output.json()?);
    let part = format!(
        "\r\n--{boundary}\r\nContent-Type: application/json\r\n\r\n{{\"phase\":{phase},\"data\":{data}}}"
    );
    Ok(part.into())
}
