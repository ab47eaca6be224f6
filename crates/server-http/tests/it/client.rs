//! A client that sends exactly the bytes of a test, and reads any answer.

use kvorum_runtime::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) struct Client {
    stream: Stream,
    received: Vec<u8>,
    /// True if the server has ended its side.
    pub(crate) is_closed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case, in the order received.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The chunks of a chunked body.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// True if the body is complete.
    pub(crate) is_complete: bool,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            is_closed: false,
        }
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost:8098\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method == "PUT" || method == "POST" {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes).await;
        self.receive(method == "HEAD").await.expect("an answer")
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response {
        self.ask("GET", path, &[], b"").await
    }

    /// Stores a text, which must succeed.
    pub(crate) async fn put(&mut self, path: &str, value: &str) {
        let response = self
            .ask(
                "PUT",
                path,
                &[("Content-Type", "text/plain")],
                value.as_bytes(),
            )
            .await;
        assert_eq!(response.status, 204, "{}", response.text());
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // The server may close while a test writes.
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn end_output(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next answer; `None` if the server closed before one began.
    pub(crate) async fn receive(&mut self, is_head: bool) -> Option<Response> {
        let end = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end;
            }
            if !self.fill().await {
                return None;
            }
        };
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap();
        self.received.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        let mut response = Response {
            status,
            headers: headers.collect(),
            ..Response::default()
        };
        let has_body = !is_head && status >= 200 && status != 204 && status != 304;
        if has_body {
            self.receive_body(&mut response).await;
        } else {
            response.is_complete = true;
        }
        Some(response)
    }

    /// All bytes until the server closes, unparsed.
    pub(crate) async fn receive_all(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.received)
    }

    async fn receive_body(&mut self, response: &mut Response) {
        if response.header("transfer-encoding") == Some("chunked") {
            return self.receive_chunks(response).await;
        }
        let length = response
            .header("content-length")
            .map(|length| length.parse().unwrap());
        while length.is_none_or(|length: usize| self.received.len() < length) {
            if !self.fill().await {
                break;
            }
        }
        let length = length.unwrap_or(self.received.len());
        response.is_complete = self.received.len() >= length;
        response.body = self
            .received
            .drain(..length.min(self.received.len()))
            .collect();
    }

    async fn receive_chunks(&mut self, response: &mut Response) {
        loop {
            let end = loop {
                if let Some(end) = find(&self.received, b"\r\n") {
                    break end;
                }
                if !self.fill().await {
                    return;
                }
            };
            let size = std::str::from_utf8(&self.received[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            self.received.drain(..end + 2);
            while self.received.len() < size + 2 {
                if !self.fill().await {
                    return;
                }
            }
            let chunk: Vec<u8> = self.received.drain(..size + 2).take(size).collect();
            if chunk.is_empty() {
                response.is_complete = true;
                return;
            }
            response.body.extend_from_slice(&chunk);
            response.chunks.push(chunk);
        }
    }

    /// Reads more; false at the end of the stream.
    pub(crate) async fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                self.is_closed = true;
                false
            }
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
