//! The stages of a test run: the stages that fail fastest come first.

use clap::ValueEnum;

use crate::prerequisite::{
    CC, CHROMIUM, CURL, ERLANG, GIT, GO, IP, JAVAC, MAVEN, MKFS, MOUNT, NFT, NODE, NPM, NSENTER,
    PHP, PHPUNIT, PYTHON, PYTHON_PLAIN, Prerequisite, RSYNC, RUBY, STRACE, UNSHARE,
};

/// A part of `cargo xtask test` that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Sources are formatted.
    Fmt,
    /// The rules of the house.
    Tidy,
    /// No warning from clippy, in any target.
    Clippy,
    /// The tests of every crate.
    Crates,
    /// The documentation of every crate, without a warning.
    Doc,
    /// Clusters on virtual time under faults, with fresh seeds; planted defects are found.
    Simulation,
    /// The server as a process: refusals, graceful stop, resources when idle.
    Process,
    /// The command lines of README and docs, run as they are printed.
    Printed,
    /// The server killed under load, again and again: no acknowledged write is lost.
    Kill,
    /// Valid and hostile requests together at full rate: the server answers on, and its memory does not grow.
    Hostile,
    /// The power cut under load: no acknowledged write is lost.
    PowerCut,
    /// Clusters of processes under faults of machines and of the network between them.
    Cluster,
    /// Recorded requests to a real Riak node and its answers, played to our server.
    Transcripts,
    /// The Python client's own test suite, over protocol buffers and HTTP.
    Python,
    /// The Node.js client's own test suite, and scenarios with that client.
    Node,
    /// The Go client's own test suite.
    Go,
    /// The Java client's own test suite.
    Java,
    /// YCSB's workloads by its binding for Riak (with `--long`, or alone).
    Ycsb,
    /// The Erlang client's own test suite (with `--long`, or alone).
    Erlang,
    /// The Ruby client's own test suite (with `--long`, or alone).
    Ruby,
    /// The PHP client's own test suite (with `--long`, or alone).
    Php,
    /// Requests that schemathesis makes of the HTTP interface's description: every answer is described.
    Schemathesis,
    /// The pages of `kvorum bench` in headless Chromium.
    Browser,
}

impl Stage {
    /// All stages, in order.
    pub(crate) fn all() -> &'static [Stage] {
        Stage::value_variants()
    }

    /// Its name for `--only`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// The programs that the stage runs and cargo does not install.
    pub(crate) fn prerequisites(self) -> &'static [Prerequisite] {
        match self {
            Stage::Fmt | Stage::Clippy | Stage::Crates | Stage::Doc | Stage::Simulation => &[],
            Stage::Tidy => &[GIT],
            Stage::Process => &[STRACE, RSYNC],
            Stage::Printed => &[GIT, CURL],
            Stage::Kill | Stage::Hostile => &[],
            Stage::Transcripts => &[PYTHON_PLAIN],
            Stage::PowerCut => &[MKFS, MOUNT, PYTHON_PLAIN],
            Stage::Cluster => &[UNSHARE, NSENTER, IP, NFT, CC, MKFS, MOUNT, PYTHON_PLAIN],
            Stage::Python | Stage::Schemathesis => &[PYTHON],
            Stage::Node => &[NODE, NPM, GIT, PYTHON_PLAIN],
            Stage::Go => &[GO, GIT, PYTHON_PLAIN],
            Stage::Java | Stage::Ycsb => &[JAVAC, MAVEN, GIT, PYTHON_PLAIN],
            Stage::Erlang => &[ERLANG, GIT, PYTHON_PLAIN],
            Stage::Ruby => &[RUBY, GIT, PYTHON_PLAIN],
            Stage::Php => &[PHP, PHPUNIT, GIT, PYTHON_PLAIN],
            Stage::Browser => &[NODE, NPM, CHROMIUM],
        }
    }

    /// True if the stage runs the server's binary.
    pub(crate) fn needs_server(self) -> bool {
        matches!(
            self,
            Stage::Process
                | Stage::Printed
                | Stage::Kill
                | Stage::Hostile
                | Stage::PowerCut
                | Stage::Cluster
                | Stage::Transcripts
                | Stage::Python
                | Stage::Node
                | Stage::Go
                | Stage::Java
                | Stage::Ycsb
                | Stage::Erlang
                | Stage::Ruby
                | Stage::Php
                | Stage::Schemathesis
                | Stage::Browser
        )
    }

    /// True if the stage is only part of a run with `--long`, since it needs minutes or further
    /// programs.
    pub(crate) fn is_for_long_runs(self) -> bool {
        matches!(self, Stage::Ycsb | Stage::Erlang | Stage::Ruby | Stage::Php)
    }

    /// True if the stage keeps the processor busy for minutes and runs no server.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Stage::Crates | Stage::Doc | Stage::Simulation)
    }
}
