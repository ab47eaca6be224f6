//! The query parameters of object requests.

use std::time::Duration;

use http::StatusCode;
use kvorum_coordinator::{DeleteOptions, Detail, GetOptions, PutOptions};
use kvorum_properties::{Quorum, SyncOnWrite};
use kvorum_protocol::http_fields::{
    ParameterError, QueryParameters, parse_boolean, parse_quorum, parse_tristate,
};
use kvorum_protocol::quorum::Quorum as WireQuorum;

use crate::exchange::Exchange;
use crate::reply::{Refusal, text};

/// Options in the query string. All of them are checked on every request, as in Riak.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    r: Option<Quorum>,
    w: Option<Quorum>,
    dw: Option<Quorum>,
    rw: Option<Quorum>,
    pr: Option<Quorum>,
    pw: Option<Quorum>,
    node_confirms: Option<Quorum>,
    sync_on_write: Option<SyncOnWrite>,
    basic_quorum: Option<bool>,
    notfound_ok: Option<bool>,
    timeout: Option<Duration>,
    pub(super) is_as_is: bool,
    pub(super) returns_body: bool,
}

impl Parameters {
    pub(crate) fn parse(exchange: &Exchange<'_>) -> Result<Self, Refusal> {
        Self::parse_within(exchange, exchange.timeout()?)
    }

    /// The parameters, with a given timeout.
    pub(crate) fn parse_within(
        exchange: &Exchange<'_>,
        timeout: Option<Duration>,
    ) -> Result<Self, Refusal> {
        let query = &exchange.query;
        let refused = |error: ParameterError| {
            Refusal::from(text(StatusCode::BAD_REQUEST, error.response_text()))
        };
        let quorum = |name| match query.get(name) {
            Some(value) => parse_quorum(name, value).map(own_quorum).map_err(refused),
            None => Ok(None),
        };
        let tristate = |name| match query.get(name) {
            Some(value) => parse_tristate(name, value).map_err(refused),
            None => Ok(None),
        };
        Ok(Self {
            timeout,
            r: quorum("r")?,
            w: quorum("w")?,
            dw: quorum("dw")?,
            rw: quorum("rw")?,
            pr: quorum("pr")?,
            pw: quorum("pw")?,
            node_confirms: quorum("node_confirms")?,
            sync_on_write: sync_on_write(query)?,
            basic_quorum: tristate("basic_quorum")?,
            notfound_ok: tristate("notfound_ok")?,
            is_as_is: tristate("asis")? == Some(true),
            returns_body: parse_boolean(query.get("returnbody")),
        })
    }

    pub(crate) fn get_options(&self, detail: Detail) -> GetOptions {
        GetOptions {
            r: self.r,
            pr: self.pr,
            node_confirms: self.node_confirms,
            basic_quorum: self.basic_quorum,
            notfound_ok: self.notfound_ok,
            timeout: self.timeout,
            detail,
            ..GetOptions::default()
        }
    }

    pub(crate) fn put_options(&self) -> PutOptions {
        PutOptions {
            w: self.w,
            dw: self.dw,
            pw: self.pw,
            node_confirms: self.node_confirms,
            sync_on_write: self.sync_on_write,
            timeout: self.timeout,
            ..PutOptions::default()
        }
    }

    pub(super) fn delete_options(&self) -> DeleteOptions {
        DeleteOptions {
            rw: self.rw,
            r: self.r,
            pr: self.pr,
            w: self.w,
            dw: self.dw,
            pw: self.pw,
            timeout: self.timeout,
            ..DeleteOptions::default()
        }
    }
}

fn sync_on_write(query: &QueryParameters<'_>) -> Result<Option<SyncOnWrite>, Refusal> {
    match query.get("sync_on_write") {
        None | Some(b"default") => Ok(None),
        Some(b"backend") => Ok(Some(SyncOnWrite::Backend)),
        Some(b"one") => Ok(Some(SyncOnWrite::One)),
        Some(b"all") => Ok(Some(SyncOnWrite::All)),
        Some(_) => {
            let message = "sync_on_write query parameter must be one of the following words: \
                           'default', 'backend', 'one' or 'all'\n";
            Err(text(StatusCode::BAD_REQUEST, message).into())
        }
    }
}

fn own_quorum(quorum: WireQuorum) -> Option<Quorum> {
    match quorum {
        WireQuorum::Default => None,
        WireQuorum::One => Some(Quorum::One),
        WireQuorum::Quorum => Some(Quorum::Quorum),
        WireQuorum::All => Some(Quorum::All),
        WireQuorum::Count(count) => Some(Quorum::Number(count)),
    }
}
