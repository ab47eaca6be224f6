//! A server over HTTP that keeps values in a map.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub(crate) struct HttpStore {
    /// Values by path.
    pub(crate) values: BTreeMap<String, Vec<u8>>,
    /// Requests by method.
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) connections: usize,
    pub(crate) puts_with_vclock: usize,
    /// Paths of index queries.
    pub(crate) queries: Vec<String>,
}

pub(crate) struct FakeHttp {
    pub(crate) port: u16,
    pub(crate) store: Arc<Mutex<HttpStore>>,
}

impl FakeHttp {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let store = Arc::new(Mutex::new(HttpStore::default()));
        let shared = Arc::clone(&store);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, stream) = (Arc::clone(&shared), stream.unwrap());
                store.lock().unwrap().connections += 1;
                std::thread::spawn(move || serve(&stream, &store));
            }
        });
        Self { port, store }
    }
}

fn serve(stream: &TcpStream, store: &Mutex<HttpStore>) -> io::Result<()> {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let (mut length, mut has_vclock, mut closes) = (0, false, false);
        loop {
            let mut header = String::new();
            input.read_line(&mut header)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or(0);
            }
            has_vclock |= header == "x-riak-vclock: clock";
            closes |= header == "connection: close";
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let answer = answer(&method, &path, body, has_vclock, &mut store.lock().unwrap());
        output.write_all(&answer)?;
        if closes {
            return Ok(());
        }
    }
}

fn answer(
    method: &str,
    path: &str,
    body: Vec<u8>,
    has_vclock: bool,
    store: &mut HttpStore,
) -> Vec<u8> {
    *store.requests.entry(method.to_owned()).or_insert(0) += 1;
    let empty = |status: &str| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        head.into_bytes()
    };
    if path.contains("/index/") {
        store.queries.push(path.to_owned());
        let text = "Secondary index queries are not supported";
        let head = format!(
            "HTTP/1.1 500 E\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        return head.into_bytes();
    }
    if path == "/metrics" {
        let text = "kvorum_store_put_bytes_total 100\nkvorum_store_disk_bytes 7\n";
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        return head.into_bytes();
    }
    if path == "/stats" {
        let text = r#"{"kvorum_version":"9.9","storage_backend":"riak_kv_memory_backend"}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        return head.into_bytes();
    }
    match method {
        "GET" => match store.values.get(path) {
            Some(value) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nX-Riak-Vclock: clock\r\nContent-Length: {}\r\n\r\n",
                    value.len()
                );
                [head.as_bytes(), value].concat()
            }
            None => empty("404 Not Found"),
        },
        "PUT" => {
            store.puts_with_vclock += usize::from(has_vclock);
            store.values.insert(path.to_owned(), body);
            empty("204 No Content")
        }
        "POST" => empty("201 Created"),
        "DELETE" if store.values.remove(path).is_some() => empty("204 No Content"),
        _ => empty("404 Not Found"),
    }
}
