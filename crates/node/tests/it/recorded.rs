//! Data directories that version 0.1.0 wrote with its default settings, on each engine and with each
//! durability, stopped and killed: they open, and nothing is lost.
//!
//! A run wrote each of them in two parts, with a stop between. They are packed in `recorded/0.1.0`.
//! With `KVORUM_RECORD=0.1.0`, the tests write them again first, which only that version should do.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use kvorum_client::{Client, Put, PutOptions, pb};

use crate::server::{Server, Site};

const FOLDER: &str = "0.1.0";
const BUCKET: &[u8] = b"recorded";
const KEYS: u16 = 300;
const DURABILITIES: [&str; 2] = ["grouped", "none"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stopped,
    Killed,
}

impl End {
    pub(crate) const ALL: [Self; 2] = [Self::Stopped, Self::Killed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Killed => "killed",
        }
    }
}

/// True when the directories of this folder must be written again.
pub(crate) fn is_recording(folder: &str) -> bool {
    std::env::var_os("KVORUM_RECORD").is_some_and(|it| it == folder)
}

/// A packed data directory of a folder.
pub(crate) fn archive_in(folder: &str, name: &str) -> PathBuf {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    recorded.join(folder).join(format!("{name}.tar.gz"))
}

/// Ends a server and packs its data directory.
pub(crate) fn end_and_pack(site: &Site, server: Server, end: End, archive: &Path) {
    match end {
        End::Stopped => server.stop(),
        End::Killed => {
            drop(server);
            // An archive cannot contain a socket.
            std::fs::remove_file(site.path().join("data/admin.socket")).unwrap();
        }
    }
    std::fs::create_dir_all(archive.parent().unwrap()).unwrap();
    let packed = GzEncoder::new(File::create(archive).unwrap(), Compression::best());
    let mut packed = tar::Builder::new(packed);
    packed
        .append_dir_all("data", site.path().join("data"))
        .unwrap();
    packed.into_inner().unwrap().finish().unwrap();
}

/// Unpacks a data directory.
pub(crate) fn unpack(site: &Site, archive: &Path) {
    let packed = File::open(archive).unwrap();
    let mut packed = tar::Archive::new(GzDecoder::new(packed));
    packed.unpack(site.path()).unwrap();
}

fn archive(engine: &str, durability: &str, end: End) -> PathBuf {
    let name = format!("{engine}-{durability}-{}", end.name());
    archive_in(FOLDER, &name)
}

fn site(engine: &str, durability: &str) -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("storage_backend={engine}"),
        format!("durability={durability}"),
        "buckets.default.allow_mult=false".to_owned(),
        "buckets.default.n_val=1".to_owned(),
    ];
    site
}

/// The value that a key gets in a round: some are short, and some stay in the log for good.
fn value(number: u16, round: u8) -> Bytes {
    let len = match number % 5 {
        0 => 12_000,
        1 => 3_000,
        _ => 20 + usize::from(number),
    };
    let seed = u32::from(number) * 7 + u32::from(round);
    // Half of it compresses.
    let byte = |at: u32| match at % 64 {
        ..32 => round,
        _ => (seed.wrapping_add(at).wrapping_mul(2_654_435_761) >> 24) as u8,
    };
    (0..).map(byte).take(len).collect::<Vec<u8>>().into()
}

/// The round in which a key was written last; `None` for one that was deleted.
fn last_round(number: u16) -> Option<u8> {
    match number {
        it if it % 7 == 3 => None,
        it if it % 3 == 0 => Some(2),
        it if it % 3 == 1 && it > 200 => Some(2),
        _ => Some(1),
    }
}

async fn put(client: &mut Client, number: u16, round: u8) {
    let term = pb::RpbPair {
        key: Bytes::from_static(b"number_int"),
        value: Some(number.to_string().into()),
    };
    let content = pb::RpbContent {
        value: value(number, round),
        indexes: if number.is_multiple_of(4) {
            vec![term]
        } else {
            Vec::new()
        },
        ..Default::default()
    };
    let options = PutOptions::default();
    let put = Put {
        bucket_type: None,
        bucket: BUCKET,
        key: Some(&number.to_be_bytes()),
        vclock: None,
        content: &content,
        options: &options,
    };
    client.put(&put).await.unwrap();
}

async fn holds(site: &Site, written: impl Fn(u16) -> Option<u8>, story: &str) {
    let mut client = site.client().await;
    for number in 0..KEYS {
        let reply = client.get_key(BUCKET, &number.to_be_bytes()).await.unwrap();
        let found: Vec<&Bytes> = reply.content.iter().map(|it| &it.value).collect();
        let expected = written(number).map(|round| value(number, round));
        let expected: Vec<&Bytes> = expected.iter().collect();
        assert!(
            found == expected,
            "{story}: key {number} of round {:?} has {} values, of {:?} bytes",
            written(number),
            found.len(),
            found.first().map(|it| it.len()),
        );
    }
}

/// Number of keys in the index.
async fn indexed(site: &Site) -> usize {
    let mut client = site.client().await;
    let request = pb::RpbIndexReq {
        bucket: Bytes::from_static(BUCKET),
        index: Bytes::from_static(b"number_int"),
        qtype: pb::rpb_index_req::IndexQueryType::Range.into(),
        range_min: Some("0".into()),
        range_max: Some("9999".into()),
        ..Default::default()
    };
    let mut answers = client.query_index(&request).await.unwrap();
    let mut keys = 0;
    while let Some(answer) = answers.next().await.unwrap() {
        keys += answer.keys.len();
    }
    keys
}

fn expected_in_index() -> usize {
    let numbers = (0..KEYS).filter(|it| it % 4 == 0);
    numbers.filter(|it| last_round(*it).is_some()).count()
}

#[tokio::main(flavor = "current_thread")]
async fn opens_and_goes_on(engine: &str) {
    for durability in DURABILITIES {
        for end in End::ALL {
            let story = format!("{engine}, {durability}, {}", end.name());
            if is_recording(FOLDER) {
                record(engine, durability, end).await;
            }
            let site = site(engine, durability);
            unpack(&site, &archive(engine, durability, end));
            let server = site.start();
            holds(&site, last_round, &story).await;
            if engine == "leveldb" {
                assert_eq!(indexed(&site).await, expected_in_index(), "{story}");
            }
            let rewritten = |number: u16| number % 6 == 1;
            let mut client = site.client().await;
            for number in (0..KEYS).filter(|it| rewritten(*it)) {
                put(&mut client, number, 3).await;
            }
            server.stop();
            let verified = site.run_alone(&["verify", "data"]);
            assert!(verified.status.success(), "{story}: {verified:?}");
            let server = site.start();
            let written = |number| match rewritten(number) {
                true => Some(3),
                false => last_round(number),
            };
            holds(&site, written, &story).await;
            server.stop();
        }
    }
}

#[test]
fn bitcask_opens_what_the_first_version_left() {
    opens_and_goes_on("bitcask");
}

#[test]
fn leveldb_opens_what_the_first_version_left() {
    opens_and_goes_on("leveldb");
}

async fn record(engine: &str, durability: &str, end: End) {
    let site = site(engine, durability);
    let server = site.start();
    let mut client = site.client().await;
    for number in 0..KEYS {
        put(&mut client, number, 1).await;
    }
    server.stop();
    let server = site.start();
    let mut client = site.client().await;
    for number in 0..KEYS {
        if last_round(number) == Some(2) {
            put(&mut client, number, 2).await;
        }
        if last_round(number).is_none() {
            client
                .delete_key(BUCKET, &number.to_be_bytes())
                .await
                .unwrap();
        }
    }
    end_and_pack(&site, server, end, &archive(engine, durability, end));
}
