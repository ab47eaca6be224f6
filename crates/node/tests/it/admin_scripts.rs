//! Verbs of operators as golden scripts (`admin_scripts/`), each on a single node.
//!
//! A command is the words behind `kvorum admin`, with single quotes around a word that has spaces;
//! `as-riak` in front asks for the texts of `riak-admin`. `put BUCKET KEY VALUE` and `delete BUCKET
//! KEY` are requests of a client over HTTP. The replies are the lines that the verb prints, and its exit status if it
//! is not 0. Ports and the test's directory appear as `PORT` and `DIRECTORY`.

use std::process::Output;

use kvorum_golden::{Stage, play_scripts};

use crate::leveldb::http;
use crate::server::{Server, Site, free_address};

#[test]
fn verbs_print_what_their_scripts_say() {
    play_scripts("admin_scripts", Node::start);
}

struct Node {
    /// Stopped before its directory is removed.
    _server: Server,
    site: Site,
    peer: std::net::SocketAddr,
}

impl Node {
    fn start() -> Self {
        let mut site = Site::new();
        let peer = free_address();
        site.settings = vec![
            "nodename=riak1@127.0.0.1".to_owned(),
            format!("listener.peer.internal={peer}"),
        ];
        let server = site.start();
        Self {
            _server: server,
            site,
            peer,
        }
    }

    /// The lines of an output, without parts that differ from run to run.
    fn lines(&self, output: &Output) -> Vec<String> {
        let printed = [&output.stdout[..], &output.stderr[..]].concat();
        let mut text = String::from_utf8_lossy(&printed).into_owned();
        for address in [self.peer, self.site.protobuf, self.site.http] {
            text = text.replace(&address.to_string(), "127.0.0.1:PORT");
        }
        let directory = self.site.path().display().to_string();
        let text = text.replace(&directory, "DIRECTORY");
        let lines = text.trim_end().lines();
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        if !output.status.success() {
            let status = output.status.code().unwrap_or_default();
            lines.push(format!("exit {status}"));
        }
        lines
    }

    fn request(&self, request: &str, value: &str) -> Vec<String> {
        let (status, body) = http(&self.site, request, value);
        match status.contains(" 204 ") {
            true => Vec::new(),
            false => vec![format!("{status} {body}")],
        }
    }
}

impl Stage for Node {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words = words_of(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words[..] {
            ["put", bucket, key, value] => {
                self.request(&format!("PUT /{bucket}/keys/{key}"), value)
            }
            ["delete", bucket, key] => self.request(&format!("DELETE /{bucket}/keys/{key}"), ""),
            ["as-riak", ref words @ ..] => {
                let output = self.site.run(&[&["admin"], words, &["--as-riak"]].concat());
                self.lines(&output)
            }
            ref words => {
                let output = self.site.run(&[&["admin"], words].concat());
                self.lines(&output)
            }
        })
    }
}

/// The words of a line; those in single quotes may have spaces.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
