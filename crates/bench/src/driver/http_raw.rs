//! The driver `http_raw`: objects over HTTP, on connections that are kept alive.

use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::http_session::{HttpAnswer, HttpRequest, HttpSession};
use super::targets::Targets;
use super::{Draws, Driver, Ended, Outcome, Plan, actions};
use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

/// Characters that a key may hold without being escaped: RFC 3986's unreserved ones.
pub(super) const KEY_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Asks for all siblings at once, as Riak's own clients do.
pub(super) const ACCEPTED: HeaderValue = HeaderValue::from_static("multipart/mixed, */*;q=0.9");

pub(super) const VCLOCK: HeaderName = HeaderName::from_static("x-riak-vclock");
const CLIENT_ID: HeaderName = HeaderName::from_static("x-riak-clientid");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Get { must_exist: bool },
    Put,
    Update { must_exist: bool },
    Insert,
    Delete,
    Statistics,
}

/// The rule by which a worker closes its connections and opens others.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Disconnecting {
    Never,
    Every(Duration),
    AfterOperations(u64),
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct HttpRawPlan {
    actions: Vec<Action>,
    targets: Targets,
    timeout: Duration,
    path: String,
    parameters: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    disconnecting: Disconnecting,
}

impl HttpRawPlan {
    /// Reads the driver's keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        configuration.convert("http_use_ssl", without_ssl)?;
        let path = configuration.convert("http_raw_path", path)?;
        let parameters = configuration.convert("http_raw_params", parameters)?;
        let timeout = configuration.integer("http_raw_request_timeout", 1..=1_000_000_000, 5000)?;
        Ok(Self {
            actions: actions(configuration, operations, action)?,
            targets: Targets::read(configuration, "http_raw_ips", "http_raw_port", 8098)?,
            timeout: Duration::from_millis(timeout),
            path: path.unwrap_or_else(|| "/riak/test".to_owned()),
            parameters: parameters.unwrap_or_default(),
            headers: configuration
                .convert("http_raw_append_headers", headers)?
                .unwrap_or_default(),
            disconnecting: configuration
                .convert("http_raw_disconnect_frequency", disconnecting)?
                .unwrap_or(Disconnecting::Never),
        })
    }
}

fn action(operation: &Term) -> Result<Action, String> {
    let reason = match operation.as_atom().unwrap_or_default() {
        "get" => return Ok(Action::Get { must_exist: false }),
        "get_existing" => return Ok(Action::Get { must_exist: true }),
        "put" => return Ok(Action::Put),
        "update" => return Ok(Action::Update { must_exist: false }),
        "update_existing" => return Ok(Action::Update { must_exist: true }),
        "insert" => return Ok(Action::Insert),
        "delete" => return Ok(Action::Delete),
        "stat" => return Ok(Action::Statistics),
        "search" => "it needs full-text search",
        "put_file" => "files come from a value_generator_blob_file only",
        _ if operation.is_tagged("search") => "it needs full-text search",
        _ => "there is no such operation",
    };
    let expected = "expected get, get_existing, put, update, update_existing, insert, delete or \
                    stat with the driver http_raw";
    Err(format!("{reason}; {expected}"))
}

fn without_ssl(term: &Term) -> Result<(), String> {
    if term.as_atom() == Some("false") {
        return Ok(());
    }
    Err("TLS is not offered; expected false, with a proxy that adds TLS if need be".to_owned())
}

fn path(term: &Term) -> Result<String, String> {
    let path = term
        .as_text()
        .filter(|path| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()));
    path.ok_or_else(|| "expected a path such as \"/riak/test\", escaped where need be".to_owned())
}

fn parameters(term: &Term) -> Result<String, String> {
    let text = term.as_text();
    text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| "expected a string such as \"?w=2\", escaped where need be".to_owned())
}

fn headers(term: &Term) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    const EXPECTED: &str = "expected a list of {Name, Value} with atoms or strings";
    let text = |term: &Term| {
        let bytes = term.as_bytes();
        bytes.or_else(|| Some(term.as_atom()?.as_bytes().to_vec()))
    };
    let header = |pair: &Term| {
        let [name, value] = pair.as_tuple()? else {
            return None;
        };
        let name = HeaderName::from_bytes(&text(name)?).ok()?;
        Some((name, HeaderValue::from_bytes(&text(value)?).ok()?))
    };
    let list = term.as_list().ok_or(EXPECTED)?;
    list.iter()
        .map(|pair| header(pair).ok_or_else(|| format!("{EXPECTED}, not {pair}")))
        .collect()
}

fn disconnecting(term: &Term) -> Result<Disconnecting, String> {
    let count = |term: &Term| {
        let count = u64::try_from(term.as_integer()?).ok()?;
        Some(count).filter(|count| (1..=1_000_000_000).contains(count))
    };
    let parsed = match term {
        Term::Atom(name) if name == "infinity" => Some(Disconnecting::Never),
        Term::Tuple(parts) => match &parts[..] {
            [tag, operations] if tag.as_atom() == Some("ops") => {
                count(operations).map(Disconnecting::AfterOperations)
            }
            _ => None,
        },
        seconds => count(seconds).map(|it| Disconnecting::Every(Duration::from_secs(it))),
    };
    parsed.ok_or_else(|| "expected infinity, a number of seconds or {ops, Number}".to_owned())
}

impl Plan for HttpRawPlan {
    type Worker = HttpRawDriver;

    fn worker(&self, id: u32) -> HttpRawDriver {
        let sessions = self.targets.iter();
        let id_text = base64::engine::general_purpose::STANDARD.encode(id.to_be_bytes());
        HttpRawDriver {
            sessions: sessions
                .map(|target| HttpSession::new(target.clone(), self.timeout))
                .collect(),
            // basho_bench draws the first target. Starting from the worker's id spreads workers as
            // evenly, and can be repeated.
            turn: usize::try_from(id).unwrap_or(0),
            client_id: HeaderValue::from_str(&id_text).unwrap_or(HeaderValue::from_static("AAAA")),
            operations: 0,
            connected_at: Instant::now(),
            plan: self.clone(),
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        match key {
            "http_solr_path" | "http_search_generator" => Some("it concerns full-text search"),
            "file_dir" => Some("only put_file uses it, which is not offered"),
            _ => None,
        }
    }
}

/// One worker's connections, one for each target.
#[derive(Debug)]
pub struct HttpRawDriver {
    plan: HttpRawPlan,
    sessions: Vec<HttpSession>,
    turn: usize,
    client_id: HeaderValue,
    operations: u64,
    connected_at: Instant,
}

impl Driver for HttpRawDriver {
    async fn connect(&mut self) -> Result<(), String> {
        for session in &mut self.sessions {
            session.connect().await?;
        }
        self.connected_at = Instant::now();
        Ok(())
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Ok(Outcome::Silent);
        };
        self.disconnect_if_due();
        self.turn = (self.turn + 1) % self.sessions.len().max(1);
        match action {
            Action::Get { must_exist } => self.get(must_exist, draws).await,
            Action::Put => self.put(draws).await,
            Action::Update { must_exist } => self.update(must_exist, draws).await,
            Action::Insert => self.insert(draws).await,
            Action::Delete => self.delete(draws).await,
            Action::Statistics => self.statistics().await,
        }
    }
}

impl HttpRawDriver {
    fn disconnect_if_due(&mut self) {
        self.operations += 1;
        let is_due = match self.plan.disconnecting {
            Disconnecting::Never => false,
            Disconnecting::Every(interval) => self.connected_at.elapsed() >= interval,
            Disconnecting::AfterOperations(count) => self.operations > count,
        };
        if is_due {
            self.operations = 1;
            self.connected_at = Instant::now();
            self.sessions.iter_mut().for_each(HttpSession::disconnect);
        }
    }

    fn path(&self, key: &[u8]) -> String {
        let key = percent_encode(key, KEY_ESCAPED);
        format!("{}/{key}{}", self.plan.path, self.plan.parameters)
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        mut request: HttpRequest,
    ) -> Result<HttpAnswer, Term> {
        request.headers.extend(self.plan.headers.iter().cloned());
        match self.sessions.get_mut(self.turn) {
            Some(session) => session.send(method, path, request).await,
            None => Err(Term::atom("disconnected")),
        }
    }

    async fn fetch(&mut self, path: &str) -> Result<HttpAnswer, Term> {
        let request = HttpRequest {
            headers: vec![(ACCEPT, ACCEPTED)],
            body: Bytes::new(),
        };
        self.send(Method::GET, path, request).await
    }

    async fn get(&mut self, must_exist: bool, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let answer = self.fetch(&self.path(&key)).await?;
        Ok(judge(&answer, must_exist, &key, draws))
    }

    async fn put(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        let value = draws.value(&key);
        self.store(&self.path(&key), value, None).await
    }

    /// Reads a value, then replaces it with a new one; one sample covers both.
    async fn update(&mut self, must_exist: bool, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let path = self.path(&key);
        let found = self.fetch(&path).await?;
        judge(&found, must_exist, &key, draws).go_on()?;
        let vclock = found.headers.get(VCLOCK).cloned();
        let value = draws.value(&key);
        self.store(&path, value, vclock).await
    }

    async fn store(&mut self, path: &str, value: Bytes, vclock: Option<HeaderValue>) -> Ended {
        let mut headers = vec![(CONTENT_TYPE, OCTETS), (CLIENT_ID, self.client_id.clone())];
        headers.extend(vclock.map(|vclock| (VCLOCK, vclock)));
        let request = HttpRequest {
            headers,
            body: value,
        };
        let answer = self.send(Method::PUT, path, request).await?;
        answer.accept(&[StatusCode::NO_CONTENT])?;
        Ok(Outcome::Done)
    }

    /// Lets the server choose the key.
    async fn insert(&mut self, draws: &mut Draws) -> Ended {
        draws.key()?;
        // The server chooses the key, so no later read can be checked against this write.
        let value = draws.value_without_key();
        let path = format!("{}{}", self.plan.path, self.plan.parameters);
        let request = HttpRequest {
            headers: vec![(CONTENT_TYPE, OCTETS)],
            body: value,
        };
        let answer = self.send(Method::POST, &path, request).await?;
        answer.accept(&[StatusCode::CREATED, StatusCode::NO_CONTENT])?;
        Ok(Outcome::Done)
    }

    async fn delete(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.removes(&key);
        let (path, request) = (self.path(&key), HttpRequest::default());
        let answer = self.send(Method::DELETE, &path, request).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Outcome::Missed);
        }
        answer.accept(&[StatusCode::NO_CONTENT])?;
        Ok(Outcome::Done)
    }

    async fn statistics(&mut self) -> Ended {
        let request = HttpRequest::default();
        let answer = self.send(Method::GET, "/stats", request).await?;
        answer.accept(&[StatusCode::OK])?;
        Ok(Outcome::Done)
    }
}

/// The outcome of a read.
fn judge(answer: &HttpAnswer, must_exist: bool, key: &[u8], draws: &Draws) -> Outcome {
    match answer.status {
        StatusCode::OK | StatusCode::MULTIPLE_CHOICES => {
            let siblings = answer.siblings();
            draws.judge(key, siblings.iter().map(|value| &value[..]))
        }
        StatusCode::NOT_FOUND => draws.judge_missing(key, must_exist),
        _ => Outcome::Failed(answer.reason()),
    }
}
