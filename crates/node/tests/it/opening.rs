//! A server that answers while one of its stores is still being opened.
//!
//! A pipe in place of its checkpoint delays the store: opening a pipe to read waits for a writer.

use std::fs;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use kvorum_client::{Client, Error, Get, GetOptions, Put, PutOptions, pb};

use crate::server::Site;

const KEYS: u16 = 60;

/// A store whose checkpoint is a pipe.
struct HeldStore {
    checkpoint: PathBuf,
    kept: PathBuf,
    pipe: PathBuf,
}

impl HeldStore {
    fn new(site: &Site) -> Self {
        let stores = fs::read_dir(site.path().join("data/bitcask")).unwrap();
        let mut stores: Vec<PathBuf> = stores.map(|entry| entry.unwrap().path()).collect();
        stores.sort();
        let checkpoint = stores[0].join("checkpoint");
        let kept = site.path().join("kept");
        fs::rename(&checkpoint, &kept).unwrap();
        let made = Command::new("mkfifo").arg(&checkpoint).status().unwrap();
        assert!(made.success());
        Self {
            pipe: site.path().join("pipe"),
            checkpoint,
            kept,
        }
    }

    /// Puts the checkpoint back.
    fn restore(&self) {
        fs::rename(&self.checkpoint, &self.pipe).unwrap();
        fs::rename(&self.kept, &self.checkpoint).unwrap();
    }

    /// Releases the reader of the pipe, which finds it empty and opens the store without it, or
    /// again.
    fn let_go(&self) {
        drop(fs::OpenOptions::new().write(true).open(&self.pipe).unwrap());
    }
}

fn is_one_opening(states: &[String]) -> bool {
    let opening = states.iter().filter(|state| *state == "opening").count();
    opening == 1 && states.iter().filter(|state| *state == "open").count() == 7
}

/// More than requests to an open store take. Requests wait this long for a store that is being
/// opened.
const PATIENCE_MS: u32 = 5_000;

/// Requests every key at the same time, each by its own client. Returns the keys of refused
/// requests.
async fn refused_of<F: Future<Output = Result<(), Error>> + Send + 'static>(
    site: &Site,
    keys: impl IntoIterator<Item = u16>,
    request: impl Fn(Client, u16) -> F,
) -> Vec<u16> {
    let mut requests = Vec::new();
    for number in keys {
        let request = request(site.client().await, number);
        requests.push((number, tokio::spawn(request)));
    }
    let mut refused = Vec::new();
    for (number, request) in requests {
        if let Err(error) = request.await.unwrap() {
            let text = error.to_string();
            assert!(text.contains("still being opened"), "{text}");
            refused.push(number);
        }
    }
    refused
}

async fn write(site: &Site, round: u8) -> Vec<u16> {
    refused_of(site, 0..KEYS, |mut client, number| async move {
        let options = PutOptions {
            timeout_ms: Some(PATIENCE_MS),
            ..PutOptions::default()
        };
        let content = pb::RpbContent {
            value: Bytes::from(vec![round; 100]),
            ..pb::RpbContent::default()
        };
        let put = Put {
            bucket_type: None,
            bucket: b"b",
            key: Some(&number.to_be_bytes()),
            vclock: None,
            content: &content,
            options: &options,
        };
        client.put(&put).await.map(drop)
    })
    .await
}

/// Every key has a value of one round, except that the keys of one store have a value of another round.
async fn check(client: &mut Client, round: u8, held: &[u16], round_of_held: u8) {
    for number in 0..KEYS {
        let reply = client.get_key(b"b", &number.to_be_bytes()).await.unwrap();
        let expected = if held.contains(&number) {
            round_of_held
        } else {
            round
        };
        let found: Vec<u8> = reply.content.iter().map(|it| it.value[0]).collect();
        assert_eq!(found, [expected], "{number}");
    }
}

fn http_status(site: &Site, path: &str) -> String {
    let mut stream = TcpStream::connect(site.http).unwrap();
    let head = "Host: localhost\r\nConnection: close";
    write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn what_is_open_answers_and_neither_a_stop_nor_a_kill_meanwhile_loses_anything() {
    let mut site = Site::new();
    site.settings = vec!["buckets.default.allow_mult=false".to_owned()];
    let server = site.start();
    assert!(http_status(&site, "/health").starts_with("HTTP/1.1 200 "));
    assert!(write(&site, 1).await.is_empty());
    server.stop();

    let held = HeldStore::new(&site);
    let server = site.start_until(is_one_opening);
    let mut client = site.client().await;
    let refused = write(&site, 2).await;
    assert!(!refused.is_empty() && refused.len() < usize::from(KEYS));
    let read = |mut client: Client, number: u16| async move {
        let options = GetOptions {
            timeout_ms: Some(PATIENCE_MS),
            ..GetOptions::default()
        };
        let get = Get {
            bucket_type: None,
            bucket: b"b",
            key: &number.to_be_bytes(),
            options: &options,
        };
        client.get(&get).await.map(drop)
    };
    assert_eq!(refused_of(&site, refused.clone(), read).await, refused);
    let request = pb::RpbListKeysReq {
        bucket: Bytes::from_static(b"b"),
        timeout: Some(200),
        ..Default::default()
    };
    let answers = client.list_keys(&request).await.unwrap();
    assert!(answers.collect().await.is_err());
    let health = http_status(&site, "/health");
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    assert!(health.contains("\"opening\":1"), "{health}");
    let ping = http_status(&site, "/ping");
    assert!(ping.contains("open=7, opening=1, failed=0"), "{ping}");
    server.stop();

    let server = site.start_until(is_one_opening);
    assert_eq!(write(&site, 3).await, refused);
    // Dropping it kills the process.
    drop(server);

    let server = site.start_until(is_one_opening);
    held.restore();
    held.let_go();
    let is_open = |states: &[String]| states.iter().all(|state| state == "open");
    while !is_open(&site.vnode_states()) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let mut client = site.client().await;
    check(&mut client, 3, &refused, 1).await;
    assert!(write(&site, 4).await.is_empty());
    drop(server);
    let _server = site.start();
    check(&mut site.client().await, 4, &[], 0).await;
}
