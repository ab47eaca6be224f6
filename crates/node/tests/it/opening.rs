//! A server that answers while one of its stores is still being opened.
//!
//! What holds the store up is a pipe in place of its checkpoint: who opens one to read waits for a
//! writer.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use kvorum_client::{Client, pb};

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

    /// Lets go who waits at the pipe; finds nothing there, and opens the store by other means or anew.
    fn let_go(&self) {
        drop(fs::OpenOptions::new().write(true).open(&self.pipe).unwrap());
    }
}

fn is_one_opening(states: &[String]) -> bool {
    let opening = states.iter().filter(|state| *state == "opening").count();
    opening == 1 && states.iter().filter(|state| *state == "open").count() == 7
}

async fn write(client: &mut Client, round: u8) -> Vec<u16> {
    let mut refused = Vec::new();
    for number in 0..KEYS {
        let value = Bytes::from(vec![round; 100]);
        match client.put_value(b"b", &number.to_be_bytes(), value).await {
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("still being opened"), "{text}");
                refused.push(number);
            }
        }
    }
    refused
}

/// Every key has a value of a round, but for those of one store, which have that of another.
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
    assert!(write(&mut site.client().await, 1).await.is_empty());
    server.stop();

    let held = HeldStore::new(&site);
    let server = site.start_until(is_one_opening);
    let mut client = site.client().await;
    let refused = write(&mut client, 2).await;
    assert!(!refused.is_empty() && refused.len() < usize::from(KEYS));
    for number in &refused {
        let got = client.get_key(b"b", &number.to_be_bytes()).await;
        let text = got.unwrap_err().to_string();
        assert!(text.contains("still being opened"), "{text}");
    }
    let request = pb::RpbListKeysReq {
        bucket: Bytes::from_static(b"b"),
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
    let mut client = site.client().await;
    assert_eq!(write(&mut client, 3).await, refused);
    // What a drop does is a kill.
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
    assert!(write(&mut client, 4).await.is_empty());
    drop(server);
    let _server = site.start();
    check(&mut site.client().await, 4, &[], 0).await;
}
