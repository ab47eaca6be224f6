//! Data moves between the backends of a running node by one command, under writes and removals, with the process
//! killed in the middle: afterwards everything is read back, and all of it is in the new backend.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster;
use crate::leveldb::http;
use crate::multi::{create_type, keys_of, put};
use crate::server::{Server, Site};

/// Keys that are not written during the move.
const STEADY_KEYS: usize = 240;
/// Keys that are written and removed all the time.
const BUSY_KEYS: usize = 40;
const VALUE_BYTES: usize = 6_000;
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Pairs of every run; the others take part in long ones.
const PAIRS: [(&str, &str); 4] = [
    ("bitcask", "leveldb"),
    ("leveldb", "hanoidb"),
    ("leveled", "innostore"),
    ("innostore", "bitcask"),
];
const KEPT: [&str; 5] = ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"];

/// Background work is held back, so that a move takes some seconds.
fn site(from: &str, to: &str) -> Site {
    let mut site = Site::new();
    site.settings = [
        "storage_backend=multi",
        &format!("multi_backend.old.storage_backend={from}"),
        &format!("multi_backend.new.storage_backend={to}"),
        "multi_backend.default=old",
        "leveldb.maximum_memory=64MB",
        "buckets.default.n_val=1",
        "buckets.default.allow_mult=false",
        "maintenance.io_bytes_per_second_max=1MB",
    ]
    .map(str::to_owned)
    .to_vec();
    site
}

fn admin(site: &Site, words: &[&str]) -> Value {
    let words = [&["admin", "backend"], words, &["--json"]].concat();
    let output = site.run(&words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(site: &Site, words: &[&str]) -> String {
    let output = site.run(&[&["admin", "backend"], words].concat());
    assert!(!output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Moves that have not ended, by partition; at least one while the data to move is not known yet.
fn left(site: &Site) -> usize {
    let status = admin(site, &["status"]);
    let partitions = status["partitions"].as_array().unwrap();
    let mut left = 0;
    for partition in partitions {
        let moves = partition["moves"].as_array().unwrap();
        let is_over = |it: &&Value| matches!(it["phase"].as_str(), Some("moved" | "taken_back"));
        left += moves.len() - moves.iter().filter(is_over).count();
        left += usize::from(partition["looking"] == true);
    }
    left
}

fn until_moved(site: &Site) {
    let deadline = Instant::now() + ENDS_WITHIN;
    while left(site) > 0 {
        let status = || site.run(&["admin", "backend", "status"]);
        assert!(Instant::now() < deadline, "{:?}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// True when copies were made and the move is not over.
fn is_in_the_middle(site: &Site) -> bool {
    let moves = admin(site, &["status"])["moves"].clone();
    let moves = moves.as_array().unwrap();
    let has_begun = |it: &Value| it["keys_copied"].as_u64().unwrap() > 0;
    moves.iter().any(has_begun) && left(site) > 0
}

fn value_of(key: &str) -> String {
    format!("{key} ").repeat(VALUE_BYTES / (key.len() + 1))
}

/// Sends a request; `None` where the server has gone away.
fn attempt(address: SocketAddr, line: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: text/plain";
    let len = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\n{head}\r\nx-riak-index-n_int: 7\r\nContent-Length: {len}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_owned)
}

/// The values that each busy key may have: the last acknowledged one, and those sent since.
type May = BTreeMap<usize, Vec<Option<String>>>;

/// Writes and removes the busy keys, in turns, until it is stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<May>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            let (mut may, mut turn) = (May::new(), 0_usize);
            while !ends.load(Ordering::Relaxed) {
                turn += 1;
                write(address, &mut may, turn);
                std::thread::sleep(Duration::from_millis(3));
            }
            may
        });
        Self { is_over, thread }
    }

    fn stop(self) -> May {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn write(address: SocketAddr, may: &mut May, turn: usize) {
    let number = turn * 7 % BUSY_KEYS;
    let path = format!("/buckets/b/keys/busy{number}");
    let value = (!turn.is_multiple_of(5)).then(|| format!("value {turn}"));
    let answer = match &value {
        Some(value) => attempt(address, &format!("PUT {path}"), value),
        None => attempt(address, &format!("DELETE {path}"), ""),
    };
    let values = may.entry(number).or_insert_with(|| vec![None]);
    if answer.is_some_and(|it| it.contains("204") || it.contains("404")) {
        values.clear();
    }
    values.push(value);
}

/// Everything is read back, and nothing of it is in the old backend any more.
fn check(site: &Site, may: &May) {
    let mut there = STEADY_KEYS;
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        let (status, body) = http(site, &format!("GET /buckets/b/keys/{key}"), "");
        assert!(status.contains("200"), "{key}: {status}");
        assert_eq!(body, value_of(&key));
    }
    for (number, values) in may {
        let (status, body) = http(site, &format!("GET /buckets/b/keys/busy{number}"), "");
        let value = status.contains("200").then_some(body);
        assert!(
            values.contains(&value),
            "busy{number}: {value:?} of {values:?}"
        );
        there += usize::from(value.is_some());
    }
    let listed: Value =
        serde_json::from_str(&http(site, "GET /buckets/b/keys?keys=true", "").1).unwrap();
    assert_eq!(listed["keys"].as_array().unwrap().len(), there);
    assert_eq!(keys_of(site, "old"), 0);
    assert!(keys_of(site, "new") >= there as u64);
}

fn indexed(site: &Site) -> usize {
    let found = http(site, "GET /buckets/b/index/n_int/7", "").1;
    let found: Value = serde_json::from_str(&found).unwrap();
    found["keys"].as_array().unwrap().len()
}

fn fill(site: &Site) {
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        let path = format!("/buckets/b/keys/{key}");
        let answer = attempt(site.http, &format!("PUT {path}"), &value_of(&key));
        assert!(answer.unwrap().contains("204"));
    }
}

/// With memory on one side, which a kill would empty.
fn move_while_it_serves(from: &str, to: &str) {
    let site = site(from, to);
    let _server = site.start();
    fill(&site);
    let load = Load::start(site.http);
    admin(&site, &["migrate", "--type", "default", "--to", "new"]);
    until_moved(&site);
    check(&site, &load.stop());
    if to != "bitcask" {
        assert!(indexed(&site) >= STEADY_KEYS);
    }
}

fn move_with_kills(from: &str, to: &str) {
    let site = site(from, to);
    let mut server = site.start();
    fill(&site);
    let load = Load::start(site.http);
    let ordered = admin(&site, &["migrate", "--type", "default", "--to", "new"]);
    assert!(ordered["keys"].as_u64().unwrap() >= STEADY_KEYS as u64);
    let mut kills = 0;
    while kills < 3 && left(&site) > 0 {
        if is_in_the_middle(&site) {
            kills += 1;
            drop(server);
            server = site.start();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        kills > 0,
        "the move from {from} to {to} was over before a kill"
    );
    until_moved(&site);
    let may = load.stop();
    check(&site, &may);
    if to != "bitcask" {
        assert!(indexed(&site) >= STEADY_KEYS);
    }
    server.stop();
    let verified = site.run_alone(&["verify", "data"]);
    assert!(verified.status.success(), "{verified:?}");
    assert!(inspected(&site).contains("record of a move between backends"));
    let _server = site.start();
    check(&site, &may);
}

/// The record of a partition's move, taken apart.
fn inspected(site: &Site) -> String {
    let stores = site.path().join("data/multi");
    let mut partitions = std::fs::read_dir(stores)
        .unwrap()
        .map(|it| it.unwrap().path());
    let record = partitions.find_map(|it| Some(it.join("move-0")).filter(|it| it.exists()));
    let output = site.run_alone(&["inspect", record.unwrap().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn all_is_read_back_after_moves_with_kills_in_the_middle() {
    let is_long = std::env::var("KVORUM_TEST_LONG").is_ok();
    let all = KEPT.iter().flat_map(|from| KEPT.map(|to| (*from, to)));
    let others = all.filter(|it| it.0 != it.1 && !PAIRS.contains(it) && is_long);
    for (from, to) in PAIRS.into_iter().chain(others) {
        move_with_kills(from, to);
    }
    for engine in KEPT.into_iter().filter(|_| is_long) {
        move_while_it_serves(engine, "memory");
        move_while_it_serves("memory", engine);
    }
}

/// Everything that an operator may move, and the way back.
#[test]
fn a_bucket_a_type_a_partition_and_everything_move_and_are_taken_back() {
    let mut site = site("bitcask", "leveldb");
    site.settings.retain(|it| !it.starts_with("maintenance."));
    let _server = site.start();
    create_type(&site, "tables", "old");
    for number in 0..24 {
        put(&site, &format!("/buckets/b/keys/k{number}"), "plain");
        put(
            &site,
            &format!("/types/tables/buckets/b/keys/k{number}"),
            "typed",
        );
    }
    let would = admin(&site, &["migrate", "--all", "--to", "new", "--dry-run"]);
    assert_eq!((&would["keys"], &would["fits"]), (&48.into(), &true.into()));
    assert_eq!(keys_of(&site, "new"), 0);
    until_moved(&site);
    assert_eq!(keys_of(&site, "new"), 0, "nothing was ordered");

    admin(&site, &["migrate", "--bucket", "tables/b", "--to", "new"]);
    until_moved(&site);
    assert_eq!((keys_of(&site, "old"), keys_of(&site, "new")), (24, 24));
    admin(&site, &["migrate", "--bucket", "tables/b", "--to", "old"]);
    until_moved(&site);
    assert_eq!((keys_of(&site, "old"), keys_of(&site, "new")), (48, 0));

    let partition = admin(&site, &["status"])["partitions"][3]["partition"].to_string();
    admin(
        &site,
        &["migrate", "--partition", &partition, "--to", "new"],
    );
    until_moved(&site);
    let moved = keys_of(&site, "new");
    assert!(moved > 0 && moved < 48, "{moved}");
    let status = site.run(&["admin", "backend", "status"]);
    let printed = String::from_utf8(status.stdout).unwrap();
    assert!(
        printed.contains(&format!(
            "partition {partition} of 'kvorum@127.0.0.1' is pinned to new"
        )),
        "{printed}"
    );
    admin(&site, &["cancel", "--partition", &partition]);
    until_moved(&site);
    assert_eq!((keys_of(&site, "old"), keys_of(&site, "new")), (48, 0));

    admin(&site, &["migrate", "--all", "--to", "new"]);
    until_moved(&site);
    assert_eq!((keys_of(&site, "old"), keys_of(&site, "new")), (0, 48));
    for number in 0..24 {
        let typed = http(
            &site,
            &format!("GET /types/tables/buckets/b/keys/k{number}"),
            "",
        );
        let plain = http(&site, &format!("GET /buckets/b/keys/k{number}"), "");
        assert_eq!((&typed.1[..], &plain.1[..]), ("typed", "plain"));
    }
    let why = refused(&site, &["cancel"]);
    assert!(why.contains("no move is under way"), "{why}");
}

#[test]
fn a_move_under_way_is_taken_back() {
    let site = site("bitcask", "leveldb");
    let _server = site.start();
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        put(&site, &format!("/buckets/b/keys/{key}"), &value_of(&key));
    }
    admin(&site, &["migrate", "--type", "default", "--to", "new"]);
    let deadline = Instant::now() + ENDS_WITHIN;
    while !is_in_the_middle(&site) {
        assert!(Instant::now() < deadline, "nothing is copied");
    }
    admin(&site, &["cancel"]);
    until_moved(&site);
    assert_eq!(keys_of(&site, "new"), 0);
    assert_eq!(keys_of(&site, "old"), STEADY_KEYS as u64);
}

/// Entries of one backend, the other, or both, are in the backup, which is a data directory where the
/// move goes on.
#[test]
fn a_backup_in_the_middle_of_a_move_has_everything() {
    let mut site = site("leveldb", "bitcask");
    let server = site.start();
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        put(&site, &format!("/buckets/b/keys/{key}"), &value_of(&key));
    }
    admin(&site, &["migrate", "--type", "default", "--to", "new"]);
    let deadline = Instant::now() + ENDS_WITHIN;
    while !is_in_the_middle(&site) {
        assert!(Instant::now() < deadline, "nothing is copied");
    }
    let backup = site.run(&["admin", "backup", "copy"]);
    assert!(backup.status.success(), "{backup:?}");
    assert!(left(&site) > 0, "the move was over before the backup");
    server.stop();
    site.settings.push("platform_data_dir=copy".to_owned());
    let _server = site.start();
    until_moved(&site);
    check(&site, &May::new());
}

#[test]
fn orders_that_cannot_be_carried_out_are_refused_with_reasons() {
    let site = site("bitcask", "leveldb");
    let _server = site.start();
    for (words, why) in [
        (
            &["migrate", "--all", "--to", "other"][..],
            "no backend of this name",
        ),
        (
            &["migrate", "--type", "none", "--to", "new"],
            "not an existing bucket type",
        ),
        (&["migrate", "--bucket", "b", "--to", "new"], "TYPE/BUCKET"),
        (
            &["migrate", "--partition", "99", "--to", "new"],
            "no partition 99",
        ),
        (&["migrate", "--to", "new"], "required"),
        (&["cancel", "--partition", "0"], "was not moved by itself"),
    ] {
        let printed = refused(&site, words);
        assert!(printed.contains(why), "{words:?}: {printed}");
    }
    let single = Site::new();
    let _server = single.start();
    let printed = refused(&single, &["status"]);
    assert!(printed.contains("storage_backend = multi"), "{printed}");
}

/// A node that has begun with one backend gets a second one over its data, and moves the data there.
#[test]
fn a_node_with_one_backend_gets_a_second_one() {
    let mut site = Site::new();
    let single = [
        "storage_backend=bitcask",
        "buckets.default.n_val=1",
        "leveldb.maximum_memory=64MB",
    ];
    site.settings = single.map(str::to_owned).to_vec();
    let server = site.start();
    let path = |number: usize| format!("/buckets/b/keys/k{number}");
    (0..24).for_each(|number| put(&site, &path(number), "before"));
    // Killed: nothing says that no hints wait.
    drop(server);
    site.settings[0] = "storage_backend=multi".to_owned();
    for line in ["bc.storage_backend=bitcask", "ldb.storage_backend=leveldb"] {
        site.settings.push(format!("multi_backend.{line}"));
    }
    site.settings.push("multi_backend.default=ldb".to_owned());
    let output = site.run(&["server"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("set multi_backend.default = bc"), "{text}");
    site.settings.pop();
    site.settings.push("multi_backend.default=bc".to_owned());
    let server = site.start();
    (24..30).for_each(|number| put(&site, &path(number), "after"));
    assert_eq!((keys_of(&site, "bc"), keys_of(&site, "ldb")), (30, 0));
    admin(&site, &["migrate", "--all", "--to", "ldb"]);
    until_moved(&site);
    assert_eq!((keys_of(&site, "bc"), keys_of(&site, "ldb")), (0, 30));
    server.stop();
    let verified = site.run_alone(&["verify", "data"]);
    assert!(verified.status.success(), "{verified:?}");
    let _server = site.start();
    for number in 0..30 {
        let value = http(&site, &format!("GET {}", path(number)), "").1;
        assert_eq!(value, if number < 24 { "before" } else { "after" });
    }
}

/// Partitions of a backend of their own change their owner while their data is on the way there.
#[test]
fn a_partition_takes_its_backend_along_to_another_node() {
    let (mut sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=2).map(cluster::site).unzip();
    for site in &mut sites {
        let of_moves = self::site("bitcask", "leveldb").settings;
        site.settings.extend(of_moves);
    }
    let _servers: Vec<Server> = sites.iter().map(Site::start).collect();
    let [first, second] = &sites[..] else {
        panic!("two sites");
    };
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        put(first, &format!("/buckets/b/keys/{key}"), &value_of(&key));
    }
    let partitions = admin(first, &["status"])["partitions"].clone();
    for partition in partitions.as_array().unwrap() {
        let partition = partition["partition"].to_string();
        admin(
            first,
            &["migrate", "--partition", &partition, "--to", "new"],
        );
    }
    cluster::until("it is in the middle", || is_in_the_middle(first));
    let at = format!("node1@127.0.0.1:{}", peers[0].port());
    cluster::admin(second, &["cluster", "join", &at]);
    cluster::until("the plan can be committed", || {
        let plan = cluster::json(second, &["cluster", "plan"]);
        plan["behind"].is_null()
    });
    cluster::admin(second, &["cluster", "commit"]);
    let of_second = |it: &Value| it["node"] == "node2@127.0.0.1";
    let partitions = || {
        admin(first, &["status"])["partitions"]
            .as_array()
            .unwrap()
            .clone()
    };
    cluster::until("everything has moved", || {
        let is_settled = cluster::json(first, &["ring-status"])["settled"] == true;
        is_settled && partitions().iter().any(of_second)
    });
    until_moved(first);
    for partition in partitions() {
        assert_eq!(partition["pinned"], "new", "{partition}");
    }
    let keys_in = |backend| sites.iter().map(|it| keys_of(it, backend)).sum::<u64>();
    assert_eq!((keys_in("old"), keys_in("new")), (0, STEADY_KEYS as u64));
    for number in 0..STEADY_KEYS {
        let key = format!("k{number}");
        let (status, body) = http(second, &format!("GET /buckets/b/keys/{key}"), "");
        assert!(status.contains("200"), "{key}: {status}");
        assert_eq!(body, value_of(&key));
    }
}
