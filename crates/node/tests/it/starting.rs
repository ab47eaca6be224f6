//! Impossible starts: refused with a message that names the change to make, and reported by
//! `chkconfig` before.

use std::path::Path;
use std::process::{Command, Output};

use crate::cluster::{answer, until};
use crate::server::{Site, free_address};

fn printed(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    [out, err]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// The text of a refusal, without a panic or a trace.
fn refused(site: &Site, words: &[&str]) -> String {
    let output = site.run(words);
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        !printed.contains("panicked") && !printed.contains("backtrace"),
        "{printed}"
    );
    printed
}

/// The port between nodes is also a port for clients, or overlaps with one on all addresses.
#[test]
fn r18_a_start_with_overlapping_ports_is_refused_and_chkconfig_says_so() {
    let mut site = Site::new();
    let port = site.protobuf.port();
    for taken in ["127.0.0.1", "0.0.0.0", "[::]"] {
        site.settings = vec![format!("listener.peer.internal={taken}:{port}")];
        for words in [&["chkconfig"][..], &["server"]] {
            let printed = refused(&site, words);
            for word in [
                "listener.protobuf.internal",
                "listener.peer.internal",
                &port.to_string(),
            ] {
                assert!(printed.contains(word), "{words:?}: {printed}");
            }
        }
    }
    // A port of another program is found when it is opened.
    let address = free_address();
    let _holder = std::net::TcpListener::bind(address).unwrap();
    site.settings = vec![format!("listener.peer.internal={address}")];
    assert!(site.run(&["chkconfig"]).status.success());
    let printed = refused(&site, &["server"]);
    assert!(printed.contains("listener.peer.internal"), "{printed}");
    assert!(printed.contains("choose another address"), "{printed}");
}

/// A node's identity is in its data, under any present name.
#[test]
fn r22_a_node_under_another_name_is_the_same_node_and_says_so() {
    let mut site = Site::new();
    site.start().stop();
    site.settings = vec!["nodename=renamed@127.0.0.1".to_owned()];
    let server = site.start();
    let shown = printed(&site.run(&["admin", "member-status"]));
    assert!(shown.contains("'renamed@127.0.0.1'"), "{shown}");
    assert!(shown.contains("Valid:1 / Leaving:0"), "{shown}");
    server.stop();
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_start_says_what_it_starts_and_returns_when_the_stores_are_open() {
    let site = Site::new();
    let data = site.path().join("data");
    let checked = out(&site.run(&["chkconfig"]));
    let started = site.run(&["start"]);
    let printed = printed(&started);
    assert!(started.status.success(), "{printed}");
    for words in [
        &format!("{} (new: nothing is there yet)", data.display()),
        "no file, defaults and the command line",
        "bitcask, 8 partitions",
        "grouped: a write is acknowledged when it is on stable storage",
        &format!("protobuf {}", site.protobuf),
        "peer off",
        &format!("{}", site.path().join("log/console.log").display()),
        "health         ready",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(
        checked.contains(&format!("{} (new", data.display())),
        "{checked}"
    );
    let process = out(&site.run(&["pid"]));
    assert!(
        printed.contains(&format!("process {}", process.trim())),
        "{process}: {printed}"
    );
    assert!(site.vnode_states().iter().all(|state| state == "open"));
    assert!(site.run(&["stop"]).status.success());
    let again = out(&site.run(&["start", "--json"]));
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["data_directory_is_new"], false);
    assert_eq!(again["health"], "ready");
    assert!(site.run(&["stop"]).status.success());
    let log = std::fs::read_to_string(site.path().join("log/console.log")).unwrap();
    assert!(log.lines().count() > 5);
    for line in log.lines() {
        assert!(
            line.starts_with("time=20") && line.contains(" event=\""),
            "{line}"
        );
    }
}

/// Regression: a failed start printed the end of its log file, with the reason of an earlier
/// failure.
#[test]
fn a_start_that_fails_prints_its_own_reason_and_nothing_older() {
    let mut site = Site::new();
    let reason = |site: &Site| {
        let output = site.run(&["start"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let holder = std::net::TcpListener::bind(site.http).unwrap();
    let first = reason(&site);
    assert!(first.contains("open listener.http.internal"), "{first}");
    drop(holder);
    let address = free_address();
    let _holder = std::net::TcpListener::bind(address).unwrap();
    site.settings = vec![format!("listener.peer.internal={address}")];
    let second = reason(&site);
    assert!(second.contains("open listener.peer.internal"), "{second}");
    assert!(!second.contains("listener.http.internal"), "{second}");
}

/// Regression: paths in a file were relative to the working directory of the start, so each start
/// began an empty data directory.
#[test]
fn relative_paths_in_a_file_go_by_the_file_and_data_elsewhere_is_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let beside = directory.path().join("conf");
    let elsewhere = directory.path().join("elsewhere");
    for made in [&beside, &elsewhere.join("data")] {
        std::fs::create_dir_all(made).unwrap();
    }
    let file = beside.join("kvorum.conf");
    std::fs::write(&file, "platform_data_dir = ./data\n").unwrap();
    let check = |working: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        command.current_dir(working).arg("chkconfig");
        command.arg("--config").arg(&file).output().unwrap()
    };
    for working in [&beside, &elsewhere] {
        let output = check(working);
        assert!(output.status.success(), "{}", printed(&output));
        let data = format!("data           {}/data (new", beside.display());
        assert!(out(&output).contains(&data), "{}", out(&output));
    }
    // An earlier version put its data here.
    std::fs::write(elsewhere.join("data/format"), "3\n").unwrap();
    let output = check(&elsewhere);
    assert_eq!(output.status.code(), Some(1));
    let printed = printed(&output);
    let both = [&beside, &elsewhere].map(|it| format!("{}/data", it.display()));
    assert!(
        both.iter().all(|place| printed.contains(place)),
        "{printed}"
    );
}

/// Regression: a node that still opened its ring and its log did not answer, so a second start
/// continued. It emptied the first one's output, and reported a taken port as its reason.
#[test]
fn a_second_start_says_that_the_directory_is_in_use_and_leaves_the_output_of_the_first() {
    let site = Site::new();
    let (data, log) = (site.path().join("data"), site.path().join("log"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(log.join("start.log"), "words of the first\n").unwrap();
    std::fs::write(data.join("LOCK"), "process 4711\n").unwrap();
    let lock = std::fs::File::open(data.join("LOCK")).unwrap();
    lock.lock().unwrap();
    let _holder = std::net::TcpListener::bind(site.http).unwrap();
    let said = refused(&site, &["start"]);
    assert!(
        said.contains("Node is already running! process 4711"),
        "{said}"
    );
    let said = refused(&site, &["server"]);
    assert!(
        said.contains("in use by another kvorum (process 4711)"),
        "{said}"
    );
    assert!(!said.contains("open listener."), "{said}");
    let text = std::fs::read_to_string(log.join("start.log")).unwrap();
    assert_eq!(text, "words of the first\n");
    let holder = std::fs::read_to_string(data.join("LOCK")).unwrap();
    assert_eq!(
        holder, "process 4711\n",
        "a look at the lock changes nothing"
    );
}

/// Regression: an orchestrator without an answer in this time ended the process, which started
/// again.
#[test]
fn a_server_that_still_opens_its_files_answers_probes() {
    let site = Site::new();
    let data = site.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    // Opening it waits for a writer, as for a device that does not answer.
    let format = data.join("format");
    let made = Command::new("mkfifo").arg(&format).status().unwrap();
    assert!(made.success());
    let mut child = site.command(&["server"]).spawn().unwrap();
    until("the sockets are open", || {
        std::net::TcpStream::connect(site.http).is_ok()
    });
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        answer(&site, &request)
    };
    let live = ask("/health/live");
    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    let ready = ask("/health/ready");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("\"reason\":\"opening\""), "{ready}");
    let second = refused(&site, &["start"]);
    let process = format!("process {}", child.id());
    assert!(second.contains(&process), "{second}");
    child.kill().unwrap();
    child.wait().unwrap();
}
