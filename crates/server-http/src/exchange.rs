//! One request and its surroundings, as handlers see it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use kvorum_cluster::ProposeError;
use kvorum_coordinator::Coordinator;
use kvorum_protocol::http_fields::{QueryParameters, choose_media_type, parse_timeout_ms};
use kvorum_runtime::{LogQuota, Moment, Room};

use crate::body::RequestBody;
use crate::facts::NodeFacts;
use crate::failure;
use crate::reply::{Refusal, page, text};
use crate::settings::HttpSettings;

/// State that all requests share.
pub(crate) struct Service {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) settings: HttpSettings,
    pub(crate) facts: Arc<dyn NodeFacts>,
    pub(crate) server_header: HeaderValue,
    /// Room for bodies that are larger than a connection's usual buffers.
    pub(crate) room: Room,
    /// Limits log lines about failed changes of properties.
    pub(crate) not_agreed_log: LogQuota,
}

impl Service {
    /// Logs a failed change of properties, with the details that the client does not get.
    pub(crate) fn note_not_agreed(&self, failure: &ProposeError) {
        let now = self.coordinator.runtime().now().elapsed();
        if let Some(left_out) = self.not_agreed_log.take(now) {
            let error = failure.in_full();
            tracing::error!(event = "cluster_state_not_changed", error, left_out);
        }
    }
}

/// A request in progress.
pub(crate) struct Exchange<'a> {
    pub(crate) service: &'a Service,
    pub(crate) head: &'a Parts,
    /// The query string's parameters.
    pub(crate) query: QueryParameters<'a>,
    /// The time of the request's arrival.
    pub(crate) arrived: Moment,
    unread: &'a mut RequestBody,
    read: Option<Bytes>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        service: &'a Service,
        head: &'a Parts,
        body: &'a mut RequestBody,
        arrived: Moment,
    ) -> Self {
        let query = QueryParameters::parse(head.uri.query().unwrap_or_default().as_bytes());
        Self {
            service,
            head,
            query,
            arrived,
            unread: body,
            read: None,
        }
    }

    pub(crate) fn coordinator(&self) -> &'a Arc<Coordinator> {
        &self.service.coordinator
    }

    pub(crate) fn method(&self) -> &'a Method {
        &self.head.method
    }

    /// A header's value. Repeated lines are one value, joined as in HTTP.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
        let mut lines = self.head.headers.get_all(name).iter();
        let first = lines.next()?.as_bytes();
        let mut joined = Cow::Borrowed(first);
        for line in lines {
            let whole = joined.to_mut();
            whole.extend_from_slice(b", ");
            whole.extend_from_slice(line.as_bytes());
        }
        Some(joined)
    }

    /// The whole body, which is read at the first call.
    pub(crate) async fn body(&mut self) -> Result<Bytes, Refusal> {
        if let Some(body) = &self.read {
            return Ok(body.clone());
        }
        let body = self
            .unread
            .read(self.service.coordinator.runtime())
            .await
            .map_err(|error| failure::of_body(&error))?;
        self.read = Some(body.clone());
        Ok(body)
    }

    /// The client's choice among these media types; `None` if it accepts none of them.
    pub(crate) fn choose_type(&self, provided: &[&str]) -> Option<usize> {
        choose_media_type(provided, self.header(&ACCEPT).as_deref())
    }

    /// Refuses a client that does not accept JSON, for resources without another form.
    pub(crate) fn require_json(&self) -> Result<(), Refusal> {
        match self.choose_type(&["application/json"]) {
            Some(_) => Ok(()),
            None => Err(page(StatusCode::NOT_ACCEPTABLE).into()),
        }
    }

    /// The `timeout` parameter.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Refusal> {
        let Some(value) = self.query.get("timeout") else {
            return Ok(None);
        };
        match parse_timeout_ms(value) {
            Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
            Err(error) => Err(text(StatusCode::BAD_REQUEST, error.response_text()).into()),
        }
    }
}
