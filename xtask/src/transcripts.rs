//! Recorded requests to a real Riak node and its answers, played to our server.
//!
//! The transcripts and their player are in `tests/conformance/transcripts`. Our answer to each step
//! equals Riak's, or is in a list with the reason why it is better for a client.

use std::process::Command;

use anyhow::Context;

use crate::command::capture;
use crate::conformance::run_client;

use crate::run::Run;
use crate::server::Site;
use crate::tally::Tally;

/// The folder of the transcripts, from the root.
const FOLDER: &str = "tests/conformance/transcripts";

/// The settings of the recorded node: an engine with secondary indexes, and a ring of eight.
const SETTINGS: &[(&str, &str)] = &[
    ("storage_backend", "leveldb"),
    ("ring_size", "8"),
    ("buckets.default.allow_mult", "false"),
];

/// Plays every transcript to one server.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    let folder = run.workspace.root().join(FOLDER);
    let python = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(folder.join(script)).args(arguments);
        command
    };
    let play = |arguments: &[&str]| python("play.py", arguments);
    capture(&mut python("better_test.py", &[])).context("the player's own test")?;
    let directory = run.workspace.clean_scratch("conformance/transcripts")?;
    let site = Site::new(&run.binary, &directory, SETTINGS)?;
    let server = site.start()?;
    let types = capture(&mut play(&["--types"]))?;
    for line in types.lines() {
        let (name, properties) = line.split_once(' ').context("a type without properties")?;
        site.run(&["admin", "bucket-type", "create", name, properties])?;
        site.run(&["admin", "bucket-type", "activate", name])?;
    }
    let ports = [site.http.port(), site.protobuf.port()].map(|port| port.to_string());
    let mut command = play(&["--http", &ports[0], "--pb", &ports[1]]);
    let mut total = run_client(&mut command, "transcripts")?;
    let result = server.stop().map(|_took| String::new());
    total.check("the server stops gracefully afterwards", &result);
    Ok(total)
}
