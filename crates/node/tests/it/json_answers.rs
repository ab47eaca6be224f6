//! Every verb of `kvorum admin` with `--json` against a running node: its output is one JSON document.
//!
//! The verbs are those that the command line itself lists, so that a new one cannot be forgotten here.

use std::io::Read as _;
use std::process::{Child, Output, Stdio};

use serde_json::Value;

use crate::cluster::site;
use crate::server::Site;

/// A verb, its arguments, and true if the node of this test accepts it.
struct Case {
    verb: &'static str,
    arguments: &'static [&'static str],
    is_granted: bool,
}

const fn granted(verb: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        verb,
        arguments,
        is_granted: true,
    }
}

const fn refused(verb: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        verb,
        arguments,
        is_granted: false,
    }
}

const OWN: &str = "node1@127.0.0.1";

/// Cases in an order in which each of them can be carried out.
const CASES: &[Case] = &[
    granted("wait-for-service", &["riak_kv"]),
    granted("status", &[]),
    granted("vnode-status", &[]),
    granted("maintenance", &[]),
    granted("backup", &["saved"]),
    granted("show", &["ring_size"]),
    granted("set", &["transfer_limit=3"]),
    granted("test", &[]),
    granted("tls status", &[]),
    granted("tls init", &["--dir", "authority"]),
    granted("tls issue", &["node2@127.0.0.1", "--dir", "authority"]),
    granted("bucket-defaults show", &[]),
    granted("bucket-defaults apply", &[]),
    granted("bucket-defaults set", &["{\"props\":{\"r\":1}}"]),
    granted("bucket-type list", &[]),
    granted("bucket-type create", &["maps"]),
    granted("bucket-type activate", &["maps"]),
    granted("bucket-type update", &["maps", "{\"props\":{\"n_val\":2}}"]),
    granted("bucket-type status", &["maps"]),
    granted("bucket-type reset", &["maps", "n_val"]),
    granted("bucket count", &["maps/b"]),
    granted("bucket drop", &["maps/b"]),
    granted("bucket-type remove", &["maps"]),
    granted("member-status", &[]),
    granted("ring-status", &[]),
    granted("ringready", &[]),
    granted("transfers", &[]),
    granted("transfer-limit", &["3"]),
    granted("handoff summary", &[]),
    granted("handoff details", &[]),
    granted("handoff config", &[]),
    granted("handoff disable", &["both"]),
    granted("handoff enable", &["both"]),
    granted("services", &[OWN]),
    granted("repair-node", &[]),
    granted("repair-partition", &["3"]),
    granted("cluster status", &[]),
    granted("cluster partitions", &[]),
    granted("cluster partition-count", &[]),
    granted("cluster partition", &["id=3"]),
    granted("cluster location", &["rack 1", "--node", OWN]),
    granted("cluster plan", &[]),
    granted("cluster commit", &[]),
    granted("cluster clear", &[]),
    granted("aae-status", &[]),
    granted("tictacaae treestatus", &[]),
    granted("tictacaae tombstones", &[]),
    granted("tictacaae fold list-buckets", &[]),
    granted("tictacaae fold object-stats", &["b", "all", "all"]),
    granted(
        "tictacaae fold find-keys",
        &["b", "all", "all", "sibling_count=1"],
    ),
    granted(
        "tictacaae fold count-keys",
        &["b", "all", "all", "object_size=1"],
    ),
    granted(
        "tictacaae fold find-tombstones",
        &["b", "all", "all", "all"],
    ),
    granted(
        "tictacaae fold count-tombstones",
        &["b", "all", "all", "all"],
    ),
    granted(
        "tictacaae fold reap-tombstones",
        &["b", "all", "all", "all", "local"],
    ),
    granted(
        "tictacaae fold erase-keys",
        &["b", "all", "all", "all", "count"],
    ),
    granted("tictacaae fold repair-keys", &["b", "all", "all"]),
    // No process listens on the port of this name; this node is the only member, up, and has its majority.
    refused("cluster join", &["other@127.0.0.1:1"]),
    refused("cluster leave", &[]),
    refused("cluster force-remove", &[OWN]),
    refused("cluster replace", &[OWN, OWN]),
    refused("cluster force-replace", &[OWN, OWN]),
    refused("cluster recover", &[]),
    // The partition's store is open.
    refused("cluster accept-loss", &["3"]),
    refused("down", &[OWN]),
    // Anti-entropy is passive by default.
    refused("tictacaae enable", &[]),
    refused("tictacaae disable", &[]),
    // This node has one backend.
    refused("backend migrate", &["--all", "--to", "leveldb"]),
    refused("backend status", &[]),
    refused("backend cancel", &[]),
];

/// Verbs that print nothing for programs.
const WITHOUT_JSON: [&str; 7] = [
    "server",
    "bench run",
    "bench merge",
    "bench report",
    "bench compare",
    "bench matrix",
    "bench quick",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The subcommands that the help of these words lists, and true if it has `--json`.
fn help(site: &Site, words: &[&str]) -> (Vec<String>, bool) {
    let output = site.help(words);
    assert!(output.status.success(), "{words:?}");
    let text = text(&output.stdout);
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // A subcommand's description may continue in a line that is indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    (names.map(str::to_owned).collect(), text.contains("--json"))
}

/// All verbs below these words without verbs of their own, with true for verbs with `--json`.
fn verbs_below(site: &Site, words: &[&str]) -> Vec<(String, bool)> {
    let (names, has_json) = help(site, words);
    if names.is_empty() {
        return vec![(words[1..].join(" "), has_json)];
    }
    let below = |name: &String| verbs_below(site, &[words, &[name.as_str()]].concat());
    names.iter().flat_map(below).collect()
}

fn call(site: &Site, case: &Case) -> Output {
    let verb: Vec<&str> = case.verb.split(' ').collect();
    site.run(&[&["admin"], &verb[..], case.arguments, &["--json"]].concat())
}

#[test]
fn every_admin_verb_answers_programs_in_json() {
    let (site, _) = site(1);
    let verbs = verbs_below(&site, &["admin"]);
    for (verb, has_json) in &verbs {
        assert!(has_json, "{verb}");
        let is_called = CASES.iter().any(|case| case.verb == verb);
        assert!(is_called, "{verb} has to stand in this table");
    }
    assert_eq!(verbs.len(), CASES.len(), "a verb stands here that is none");

    let _server = site.start();
    for case in CASES {
        let output = call(&site, case);
        let (said, verb) = (text(&output.stdout), case.verb);
        let read: Result<Value, _> = serde_json::from_str(&said);
        let data = read.unwrap_or_else(|error| panic!("{verb}: {error}: {said}"));
        assert!(data.is_object() || data.is_array(), "{verb}: {said}");
        assert_eq!(output.status.success(), case.is_granted, "{verb}: {said}");
        assert_eq!(text(&output.stderr), "", "{verb}");
    }
}

/// The one document that a failed call prints, with the reason.
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
fn failure(site: &Site, words: &[&str]) -> String {
    let output = site.run_alone(words);
    let said = text(&output.stdout);
    assert!(!output.status.success(), "{words:?}: {said}");
    assert_eq!(text(&output.stderr), "", "{words:?}");
    let read: Result<Value, _> = serde_json::from_str(&said);
    let data = read.unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"));
    let why = data["error"].as_str();
    why.unwrap_or_else(|| panic!("{words:?}: {said}"))
        .to_owned()
}

/// Regression: when a verb failed with `--json`, standard output was empty, and standard error had
/// a text for people.
#[test]
fn failures_are_one_document_too_whatever_the_verb() {
    let site = Site::new();
    let all: Vec<(String, bool)> = help(&site, &[])
        .0
        .iter()
        .flat_map(|name| {
            let prefix = [name.as_str()];
            let below = verbs_below(&site, &prefix).into_iter();
            let whole = |(rest, has_json): (String, bool)| {
                (format!("{name} {rest}").trim_end().to_owned(), has_json)
            };
            below.map(whole).collect::<Vec<_>>()
        })
        .collect();
    assert!(all.len() > 70, "{} verbs", all.len());
    for (verb, has_json) in &all {
        let words: Vec<&str> = verb.split(' ').collect();
        let why = failure(
            &site,
            &[&words[..], &["--json", "--no-such-option"]].concat(),
        );
        assert!(why.contains("--"), "{verb}: {why}");
        assert_ne!(*has_json, WITHOUT_JSON.contains(&verb.as_str()), "{verb}");
        if !has_json {
            let why = failure(&site, &[&words[..], &["--json"]].concat());
            assert!(why.contains("has no --json: "), "{verb}: {why}");
        }
    }
    let missing = ["--config", "no such file", "--json"];
    for verb in [
        &["start"][..],
        &["stop"],
        &["ping"],
        &["pid"],
        &["chkconfig"],
        &["describe"],
        &["admin", "status"],
        &["admin", "tls", "init"],
        &["admin", "tls", "issue", "a@b"],
    ] {
        let why = failure(&site, &[verb, &missing].concat());
        assert!(why.contains("no such file"), "{verb:?}: {why}");
    }
    for words in [
        &["ping", "--json"][..],
        &["verify", "nothing here", "--json"],
        &["repair", "nothing here", "--json"],
        &["inspect", "nothing here", "--json"],
        &["import", "riak-bitcask", "nothing here", "--json"],
        &["install-links", "/dev/null", "--json"],
        &["admin", "tls", "issue", "no name", "--json"],
        &[
            "advise",
            "capacity",
            "--backend",
            "none",
            "--keys",
            "1",
            "--json",
        ],
    ] {
        assert!(!failure(&site, words).is_empty(), "{words:?}");
    }
}

#[test]
fn links_are_listed_for_programs() {
    let site = Site::new();
    let output = site.run_alone(&["install-links", "links", "--json"]);
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        data["links"],
        serde_json::json!(["links/riak", "links/riak-admin"])
    );
}

/// A process that is killed at the end of the test, passed or failed.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn who_waits_for_a_service_reads_nothing_before_it_is_there() {
    let site = Site::new();
    let mut command = site.command(&["admin", "wait-for-service", "kv", "--json"]);
    let mut waiting = Waiting(command.stdout(Stdio::piped()).spawn().unwrap());
    let _server = site.start();
    let mut said = String::new();
    let mut stdout = waiting.0.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    let data: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(data["service"], "riak_kv");
    assert_eq!(data["up"], true);
    assert!(waiting.0.wait().unwrap().success());
}
