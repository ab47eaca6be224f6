//! A value log that is another node's, or an empty directory in its place, as a disk that is not mounted
//! leaves it.
//!
//! Regression: it was opened. Stores recorded their entries in their own log as dropped: a single
//! node answered 404 for acknowledged keys, even after the right directory was put back.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_client::Client;

use crate::damaged_files::refused;
use crate::server::Site;

const KEYS: u16 = 60;

fn of_engine(engine: &str) -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("storage_backend={engine}"),
        "buckets.default.allow_mult=false".to_owned(),
    ];
    site
}

async fn write(client: &mut Client, round: u8) {
    for number in 0..KEYS {
        let value = Bytes::from(vec![round; 2000]);
        let put = client.put_value(b"b", &number.to_be_bytes(), value).await;
        put.unwrap();
    }
}

async fn serves_all(site: &Site, round: u8) {
    let mut client = site.client().await;
    for number in 0..KEYS {
        let reply = client.get_key(b"b", &number.to_be_bytes()).await.unwrap();
        let found: Vec<u8> = reply.content.iter().map(|it| it.value[0]).collect();
        assert_eq!(found, [round], "{number}");
    }
}

fn value_log(site: &Site) -> PathBuf {
    site.path().join("data/value_log")
}

fn exchange(one: &Path, other: &Path) {
    let between = one.with_extension("between");
    for (from, to) in [(one, &*between), (other, one), (&between, other)] {
        fs::rename(from, to).unwrap();
    }
}

/// The files of a directory that a refused start must leave alone: names and lengths.
fn contents(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => found.push((path.clone(), fs::metadata(&path).unwrap().len())),
        }
    }
    found.sort();
    found
}

fn is_refused(site: &Site, words: &[&str]) {
    let data = site.path().join("data");
    let verified = site.run_alone(&["verify", "data"]);
    let verified = String::from_utf8_lossy(&verified.stdout).into_owned();
    let stores = |site: &Site| {
        let engine = site.settings[0].trim_start_matches("storage_backend=");
        contents(&data.join(engine))
    };
    let before = stores(site);
    let said = refused(site);
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
        assert!(verified.contains(word), "{word}: {verified}");
    }
    for word in ["data/value_log", "accept_lost_value_log", "expected 0x"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(stores(site), before, "a refused start changes no store");
}

#[tokio::test]
async fn another_value_log_is_refused_and_everything_is_served_when_the_right_one_is_back() {
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let sites = [of_engine(engine), of_engine(engine)];
        for (round, site) in (1..).zip(&sites) {
            let server = site.start();
            write(&mut site.client().await, round).await;
            server.stop();
        }
        let [one, other] = &sites;
        exchange(&value_log(one), &value_log(other));
        for site in &sites {
            is_refused(
                site,
                &[
                    "another value log than this one",
                    "put back the directory that belongs here",
                ],
            );
        }
        exchange(&value_log(one), &value_log(other));
        let mut servers = Vec::new();
        for (round, site) in (1..).zip(&sites) {
            servers.push(site.start());
            serves_all(site, round).await;
        }
        // The same after a kill, with an empty directory.
        drop(servers);
        let away = one.path().join("away");
        fs::rename(value_log(one), &away).unwrap();
        fs::create_dir(value_log(one)).unwrap();
        is_refused(one, &["no segment of it is there"]);
        fs::remove_dir_all(value_log(one)).unwrap();
        fs::rename(&away, value_log(one)).unwrap();
        let server = one.start();
        serves_all(one, 1).await;
        server.stop();
    }
}

/// After a kill before any store has a checkpoint or a table, the node has its log's number from
/// the start before.
#[tokio::test]
async fn a_log_that_no_store_names_yet_is_missed_as_well() {
    let site = of_engine("bitcask");
    let server = site.start();
    write(&mut site.client().await, 1).await;
    drop(server);
    drop(site.start());
    let away = site.path().join("away");
    fs::rename(value_log(&site), &away).unwrap();
    fs::create_dir(value_log(&site)).unwrap();
    let said = refused(&site);
    assert!(said.contains("no segment of it is there"), "{said}");
    fs::remove_dir_all(value_log(&site)).unwrap();
    fs::rename(&away, value_log(&site)).unwrap();
    let server = site.start();
    serves_all(&site, 1).await;
    server.stop();
}

#[tokio::test]
async fn an_operator_goes_on_without_a_log_that_is_lost_for_good() {
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let site = of_engine(engine);
        let server = site.start();
        write(&mut site.client().await, 1).await;
        server.stop();
        fs::remove_dir_all(value_log(&site)).unwrap();
        let said = refused(&site);
        assert!(said.contains("data/value_log"), "{said}");
        let accepting = site.path().join("data/accept_lost_value_log");
        fs::write(&accepting, "").unwrap();
        let server = site.start();
        assert!(!accepting.exists(), "it holds for one start");
        write(&mut site.client().await, 2).await;
        // Stores that were not written to since still name the lost log.
        drop(server);
        let server = site.start();
        serves_all(&site, 2).await;
        server.stop();
    }
}
