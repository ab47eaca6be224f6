//! An operator's runbook under the names `riak` and `riak-admin`, line by line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::server::Site;

/// Calls one of the links as a runbook does: from any directory, with the configuration in the
/// environment.
fn call(link: &Path, configuration: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(link);
    command.args(words).env("KVORUM_CONFIG", configuration);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

fn configuration(site: &Site) -> PathBuf {
    let path = site.path().join("riak.conf");
    let data = site.path().join("data");
    let log = site.path().join("log");
    let lines = [
        "nodename = riak@127.0.0.1".to_owned(),
        format!("platform_data_dir = {}", data.display()),
        format!("platform_log_dir = {}", log.display()),
        "ring_size = 8".to_owned(),
        "listener.peer.internal = off".to_owned(),
        format!("listener.protobuf.internal = {}", site.protobuf),
        format!("listener.http.internal = {}", site.http),
    ];
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
fn a_runbook_works_under_riaks_names() {
    let site = Site::new();
    let configuration = configuration(&site);
    let links = site.path().join("bin");
    std::fs::create_dir(&links).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_kvorum"))
        .args([Path::new("install-links"), &links])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let riak = |words: &[&str]| call(&links.join("riak"), &configuration, words);
    let admin = |words: &[&str]| call(&links.join("riak-admin"), &configuration, words);
    let says = |output: Output, words: &str| {
        let text = text(&output);
        assert!(output.status.success() && text.contains(words), "{text}");
    };

    assert!(!riak(&["ping"]).status.success());
    says(riak(&["chkconfig"]), "config is OK");
    says(riak(&["chkconfig", "-l", "debug"]), "config is OK");
    says(riak(&["config", "generate", "-l", "debug"]), "config is OK");
    says(riak(&["config", "describe", "ring_size"]), "ring_size = 8");
    assert!(!riak(&["pid"]).status.success());
    says(riak(&["version"]), env!("CARGO_PKG_VERSION"));
    says(riak(&["start"]), "");
    for verb in ["pid", "getpid"] {
        let process = riak(&[verb]);
        assert!(process.status.success() && text(&process).trim().parse::<u32>().is_ok());
    }
    let again = riak(&["start"]);
    assert!(!again.status.success() && text(&again).contains("already running"));
    says(
        admin(&["wait-for-service", "riak_kv", "riak@127.0.0.1"]),
        "riak_kv is up",
    );
    for (words, wanted) in [
        (&["status"][..], "node_gets : "),
        (
            &["member_status"],
            "valid     100.0%      --      riak@127.0.0.1",
        ),
        (&["ring-status"], "No pending changes."),
        (&["ringready"], "TRUE"),
        (&["transfers"], "No transfers active"),
        (&["transfer_limit"], "    2        'riak@127.0.0.1'"),
        (
            &["handoff", "summary"],
            "|Total|Ownership|Resize|Hinted|Repair|",
        ),
        (&["handoff", "config"], "|handoff.outbound|handoff.inbound|"),
        (
            &["show", "transfer_limit"],
            "|riak@127.0.0.1|      2       |",
        ),
        (&["services"], "[riak_kv]"),
        (&["cluster", "plan"], "There are no staged changes"),
        (
            &["cluster", "status"],
            "| (C) riak@127.0.0.1 |valid |  up   |100.0|  --   |",
        ),
        (&["cluster", "partitions"], "| stopped |"),
        (&["vnode-status"], "VNode: 0"),
        (&["bucket-type", "list"], "default (active)"),
        (&["test"], "Successfully completed 1 read/write cycle"),
    ] {
        says(admin(words), wanted);
    }
    let attach = riak(&["attach"]);
    assert!(!attach.status.success() && text(&attach).lines().count() == 1);
    says(riak(&["restart"]), "ok");
    says(admin(&["wait-for-service", "riak_kv"]), "riak_kv is up");
    says(riak(&["admin", "services"]), "[riak_kv]");
    says(riak(&["stop"]), "ok");
    assert!(!riak(&["ping"]).status.success());
    assert!(text(&riak(&["stop"])).contains("no node is running"));
}
