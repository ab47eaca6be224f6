//! A worker's connection over HTTP: kept alive, and made again when it is lost.
//!
//! As over protocol buffers, an operation that meets a lost connection is an error, and the next one
//! reconnects. Only a connection that the server closed while it was idle is replaced silently: no
//! request was under way on it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::targets::Target;
use kvorum_erlang_terms::Term;

/// Pause after a failed connect, so that workers do not flood a server that is down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Answers larger than this are refused.
const BODY_BYTES_MAX: usize = 512 << 20;

/// A target, and the connection to it, if there is one.
#[derive(Debug)]
pub(super) struct HttpSession {
    target: Target,
    host: HeaderValue,
    timeout: Duration,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// An answer of any status.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A request without its method and path.
#[derive(Debug, Default)]
pub(super) struct HttpRequest {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

impl HttpSession {
    pub(super) fn new(target: Target, timeout: Duration) -> Self {
        let host = HeaderValue::from_str(&target.to_string());
        Self {
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            target,
            timeout,
            sender: None,
        }
    }

    /// Connects before the run. The error is a message for the user.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        let connecting = tokio::time::timeout(self.timeout, self.open());
        let opened = connecting.await.unwrap_or_else(|_| {
            let after = self.timeout.as_secs_f64();
            Err(format!("no answer within {after} s"))
        });
        let sender =
            opened.map_err(|reason| format!("cannot connect to {}: {reason}", self.target))?;
        self.sender = Some(sender);
        Ok(())
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let stream = TcpStream::connect((self.target.host.as_str(), self.target.port))
            .await
            .map_err(|error| text(&error))?;
        stream.set_nodelay(true).map_err(|error| text(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| text(&error))?;
        tokio::task::spawn_local(async move {
            // Requests return the error; here it only means that the connection has ended.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Drops the connection; the next request opens another.
    pub(super) fn disconnect(&mut self) {
        self.sender = None;
    }

    /// Sends a request and waits for the whole answer. The error is the reason to count.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        request: HttpRequest,
    ) -> Result<HttpAnswer, Term> {
        let (timeout, host) = (self.timeout, self.host.clone());
        let sender = self.connected().await?;
        let mut built = Request::new(Full::new(request.body));
        *built.method_mut() = method;
        *built.uri_mut() = path.parse().map_err(|_| {
            Term::Tuple(vec![Term::atom("bad_path"), Term::String(path.to_owned())])
        })?;
        built.headers_mut().insert(HOST, host);
        built.headers_mut().extend(request.headers);
        let exchange = async {
            let answer = sender.send_request(built).await?;
            let (head, body) = answer.into_parts();
            let limited = http_body_util::Limited::new(body, BODY_BYTES_MAX);
            let body = limited.collect().await.map(Collected::to_bytes);
            Ok::<_, hyper::Error>((head, body))
        };
        let reason = match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok((head, Ok(body)))) => {
                return Ok(HttpAnswer {
                    status: head.status,
                    headers: head.headers,
                    body,
                });
            }
            Ok(Ok((_, Err(_)))) => "broken_answer",
            Ok(Err(_)) => "disconnected",
            Err(_) => "timeout",
        };
        self.sender = None;
        Err(Term::atom(reason))
    }

    async fn connected(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Term> {
        if let Some(sender) = &mut self.sender
            && sender.ready().await.is_err()
        {
            self.sender = None;
        }
        if self.sender.is_none() && self.connect().await.is_err() {
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        self.sender
            .as_mut()
            .ok_or_else(|| Term::atom("disconnected"))
    }
}

impl HttpAnswer {
    /// The reason to count for a status that is not a success.
    pub(super) fn reason(&self) -> Term {
        let text = String::from_utf8_lossy(&self.body);
        let words: Vec<&str> = text.split_whitespace().collect();
        let short: String = words.join(" ").chars().take(100).collect();
        let mut parts = vec![
            Term::atom("http_error"),
            Term::Integer(i128::from(self.status.as_u16())),
        ];
        if !short.is_empty() {
            parts.push(Term::Binary(short.into_bytes()));
        }
        Term::Tuple(parts)
    }

    /// Checks that the status is one of these. The error is the reason to count.
    pub(super) fn accept(self, accepted: &[StatusCode]) -> Result<Self, Term> {
        if accepted.contains(&self.status) {
            Ok(self)
        } else {
            Err(self.reason())
        }
    }

    /// A header's value as bytes.
    pub(super) fn header(&self, name: &str) -> Option<Bytes> {
        let value = self.headers.get(name)?;
        Some(Bytes::copy_from_slice(value.as_bytes()))
    }

    /// The values of all siblings: the parts of a multipart body, or else the body.
    pub(super) fn siblings(&self) -> Vec<Bytes> {
        let boundary = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .filter(|value| value.starts_with("multipart/"))
            .and_then(|value| value.split_once("boundary="))
            .map(|(_, boundary)| boundary.trim_matches('"'));
        match boundary {
            Some(boundary) => parts(&self.body, boundary),
            None => vec![self.body.clone()],
        }
    }
}

/// The contents of a multipart body's parts.
fn parts(body: &Bytes, boundary: &str) -> Vec<Bytes> {
    let delimiter = format!("\r\n--{boundary}");
    let find = |from: usize, what: &[u8]| {
        let rest = body.get(from..)?;
        let at = rest.windows(what.len()).position(|window| window == what)?;
        Some(from + at)
    };
    let mut contents = Vec::new();
    let mut at = find(0, delimiter.as_bytes());
    while let Some(start) = at {
        let head = start + delimiter.len();
        let end = find(head, delimiter.as_bytes());
        let content = find(head, b"\r\n\r\n").map(|headers_end| headers_end + 4);
        if let (Some(content), Some(end)) = (content, end)
            && content <= end
        {
            contents.push(body.slice(content..end));
        }
        at = end;
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content_type: &'static str, body: &'static str) -> HttpAnswer {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        HttpAnswer {
            status: StatusCode::MULTIPLE_CHOICES,
            headers,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[test]
    fn siblings_are_the_parts_of_a_multipart_body() {
        let body = "\r\n--x\r\nContent-Type: a\r\n\r\none\r\n--x\r\nContent-Type: a\r\n\r\n\
                    t\r\nwo\r\n--x--\r\n";
        let siblings = answer("multipart/mixed; boundary=x", body).siblings();
        assert_eq!(siblings, ["one", "t\r\nwo"]);
        assert_eq!(answer("text/plain", "plain").siblings(), ["plain"]);
        let cut = answer(
            "multipart/mixed; boundary=x",
            "\r\n--x\r\nA: b\r\n\r\nendless",
        );
        assert_eq!(cut.siblings(), Vec::<Bytes>::new());
    }

    #[test]
    fn a_refusal_is_counted_with_the_beginning_of_its_text() {
        let refused = answer("text/plain", "no index here\nmore").reason();
        assert_eq!(
            refused.to_string(),
            "{http_error,300,<<\"no index here more\">>}"
        );
        assert_eq!(
            answer("text/plain", "").reason().to_string(),
            "{http_error,300}"
        );
    }
}
