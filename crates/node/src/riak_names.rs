//! The names `riak` and `riak-admin`: links to this program, under which an operator's runbook works.
//!
//! The words have the same meaning as under the name `kvorum`, and are only reordered here. A verb
//! that cannot apply is refused in one line, with its replacement.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The meaning of a call under one of the names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// These words, the first being the program's name.
    Words(Vec<OsString>),
    /// A call that cannot apply; the alternative.
    CannotApply(String),
}

/// The names that links are made of.
pub(crate) const NAMES: [&str; 2] = ["riak", "riak-admin"];

/// Puts a call's words in `kvorum`'s order.
pub(crate) fn called(words: Vec<OsString>) -> Called {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    let name = name.and_then(OsStr::to_str).unwrap_or_default().to_owned();
    let mut rest = words.into_iter().skip(1);
    match name.as_str() {
        "riak-admin" => of_riak_admin(rest.collect()),
        "riak" => {
            let rest: Vec<OsString> = rest.collect();
            of_riak(rest)
        }
        _ => {
            let mut all = vec![OsString::from("kvorum")];
            all.extend(&mut rest);
            Called::Words(all)
        }
    }
}

fn of_riak(mut rest: Vec<OsString>) -> Called {
    let verb = rest.first().and_then(|it| it.to_str()).unwrap_or_default();
    let verb = verb.replace('_', "-");
    let second = rest.get(1).and_then(|it| it.to_str()).unwrap_or_default();
    let instead = match verb.as_str() {
        "admin" => return of_riak_admin(rest.split_off(1)),
        "daemon" => return words(&["start"], rest.split_off(1)),
        "console" | "foreground" => return words(&["server"], rest.split_off(1)),
        "version" => return words(&["--version"], Vec::new()),
        "pid" | "getpid" => return words(&["pid"], rest.split_off(1)),
        "config" if matches!(second, "effective" | "describe") => {
            return words(&["describe"], without_level(rest.split_off(2)));
        }
        // Riak generates files from the configuration here. Kvorum reads it directly, and only
        // checks it.
        "config" => return words(&["chkconfig"], rest.split_off(2.min(rest.len()))),
        "attach" | "remote-console" | "daemon-attach" | "eval" | "escript" | "unescript" => {
            "there is no shell inside the server; `riak-admin status`, `vnode-status` and \
             `kvorum admin maintenance` show what it does"
        }
        "reboot" => "there is no machine inside the process; use `riak restart`",
        "top" | "etop" => "use `kvorum admin maintenance`, and the system's own top",
        "debug" => "use `kvorum chkconfig`, `riak-admin status` and the log files",
        "repl" => "replication between clusters is not built in yet",
        _ => return words(&[], rest),
    };
    cannot(&format!("riak {verb}"), instead)
}

fn of_riak_admin(mut rest: Vec<OsString>) -> Called {
    let verb = rest.first().and_then(|it| it.to_str()).unwrap_or_default();
    // Riak takes both spellings.
    let verb = verb.replace('_', "-");
    if let Some(first) = rest.first_mut() {
        *first = OsString::from(&verb);
    }
    let second = rest.get(1).and_then(|it| it.to_str()).unwrap_or_default();
    let instead = match verb.as_str() {
        "describe" => return words(&["describe"], rest.split_off(1)),
        "show" | "set" if second.is_empty() => return usage_of_keys(&verb),
        "cluster" if matches!(second, "resize-ring" | "resize_ring") => {
            "the size of a ring is fixed when its cluster is founded"
        }
        "join" | "leave" | "force-remove" => {
            "use `riak-admin cluster join|leave|force-remove`, then `cluster plan` and \
             `cluster commit`"
        }
        "diag" => {
            "use `kvorum chkconfig` for the configuration, `kvorum verify` for the disks, \
             `riak-admin cluster plan` for crowded replicas, and `kvorum admin maintenance`"
        }
        "stat" => "use `riak-admin status`, or /metrics for everything",
        "cluster-info" => "use `riak-admin ring-status --json` and `vnode-status --json`",
        "tictacaae" if !matches!(second, "treestatus" | "fold") => {
            "use `kvorum admin tictacaae treestatus|tombstones|enable|disable|fold`, tictacaae_* in the \
             configuration for times and bounds, and `kvorum admin aae-status`"
        }
        "repair-2i" => {
            "indexes are written together with their objects; entries lost to damage are rebuilt \
             from them in the background (`reindex` in `kvorum admin maintenance`)"
        }
        "reformat-indexes" | "reformat-objects" | "downgrade-objects" => {
            "files have one format, and a start takes them as they are"
        }
        "reip" | "reip-manual" => {
            "a node is known by its identity: change nodename and its address and restart it"
        }
        "backup" => {
            "use `kvorum admin backup DIRECTORY`, which backs up this node while it serves: every node is \
             backed up by itself"
        }
        "restore" => {
            "start a node on the directory that `kvorum admin backup DIRECTORY` has made: a backup is a \
             data directory"
        }
        "security" => "users and sources are not built in yet",
        "top" => "use `kvorum admin maintenance`, and the system's own top",
        "erl-reload" | "js-reload" | "ensemble-status" | "search" => {
            "the feature that it served is not part of Kvorum"
        }
        _ => return admin(&verb, rest),
    };
    cannot(&format!("riak-admin {verb}"), instead)
}

/// `show` and `set` without a key, in Riak's words.
fn usage_of_keys(verb: &str) -> Called {
    let what = match verb {
        "show" => "<variable> ...",
        _ => "<variable>=<value> ...",
    };
    Called::CannotApply(format!("Usage: riak-admin {verb} {what}"))
}

/// The words without `-l LEVEL`, the verbosity of Riak's program.
fn without_level(words: Vec<OsString>) -> Vec<OsString> {
    let mut left = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-l" | "--level") => drop(words.next()),
            _ => left.push(word),
        }
    }
    left
}

/// A verb of `kvorum admin`, with the output of Riak's command.
fn admin(verb: &str, mut words: Vec<OsString>) -> Called {
    if has_riaks_form(verb) {
        words.push("--as-riak".into());
    }
    self::words(&["admin"], words)
}

/// True for verbs whose text may differ from Riak's.
fn has_riaks_form(verb: &str) -> bool {
    matches!(
        verb,
        "member-status"
            | "ring-status"
            | "ringready"
            | "transfers"
            | "transfer-limit"
            | "cluster"
            | "handoff"
            | "services"
            | "status"
            | "vnode-status"
            | "aae-status"
            | "bucket-type"
            | "down"
            | "show"
            | "set"
    )
}

fn words(first: &[&str], rest: Vec<OsString>) -> Called {
    let program = std::iter::once(&"kvorum");
    let first = program.chain(first).map(OsString::from);
    Called::Words(first.chain(rest).collect())
}

fn cannot(what: &str, instead: &str) -> Called {
    Called::CannotApply(format!("{what} does not apply: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        match called(words) {
            Called::Words(words) => {
                let text = |word: &OsString| word.to_str().unwrap().to_owned();
                Ok(words.iter().map(text).collect::<Vec<_>>().join(" "))
            }
            Called::CannotApply(why) => Err(why),
        }
    }

    #[test]
    fn a_runbooks_lines_become_kvorums() {
        for (line, wanted) in [
            ("kvorum admin status", "kvorum admin status"),
            ("/usr/bin/riak ping", "kvorum ping"),
            ("riak start", "kvorum start"),
            ("riak daemon", "kvorum start"),
            ("riak stop", "kvorum stop"),
            ("riak console", "kvorum server"),
            ("riak chkconfig --config x", "kvorum chkconfig --config x"),
            ("riak version", "kvorum --version"),
            ("riak config effective", "kvorum describe"),
            ("riak config effective -l debug", "kvorum describe"),
            (
                "riak config describe ring_size",
                "kvorum describe ring_size",
            ),
            ("riak config generate -l debug", "kvorum chkconfig -l debug"),
            ("riak chkconfig -l debug", "kvorum chkconfig -l debug"),
            ("riak pid", "kvorum pid"),
            ("riak getpid", "kvorum pid"),
            (
                "riak admin member_status",
                "kvorum admin member-status --as-riak",
            ),
            (
                "riak-admin ring-status",
                "kvorum admin ring-status --as-riak",
            ),
            (
                "/usr/sbin/riak-admin wait_for_service riak_kv n@h",
                "kvorum admin wait-for-service riak_kv n@h",
            ),
            (
                "riak-admin transfer_limit n@h 4",
                "kvorum admin transfer-limit n@h 4 --as-riak",
            ),
            (
                "riak-admin set transfer_limit=4",
                "kvorum admin set transfer_limit=4 --as-riak",
            ),
            (
                "riak-admin cluster partition_count",
                "kvorum admin cluster partition_count --as-riak",
            ),
            (
                "riak-admin cluster partition id=3",
                "kvorum admin cluster partition id=3 --as-riak",
            ),
            (
                "riak-admin cluster force-remove a@b",
                "kvorum admin cluster force-remove a@b --as-riak",
            ),
            (
                "riak-admin bucket_type create maps",
                "kvorum admin bucket-type create maps --as-riak",
            ),
            ("riak-admin describe ring_size", "kvorum describe ring_size"),
            (
                "riak-admin tictacaae fold list-buckets 3",
                "kvorum admin tictacaae fold list-buckets 3",
            ),
        ] {
            assert_eq!(call(line).as_deref(), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn what_cannot_apply_says_in_one_line_what_to_use() {
        for (line, word) in [
            ("riak attach", "shell"),
            ("riak remote_console", "shell"),
            ("riak-admin diag", "chkconfig"),
            ("riak-admin join -f a@b", "cluster join"),
            ("riak-admin cluster resize-ring 128", "fixed"),
            ("riak-admin show", "Usage: riak-admin show"),
            ("riak-admin tictacaae rebuild-now", "aae-status"),
            (
                "riak-admin backup riak@x cookie f all",
                "kvorum admin backup",
            ),
        ] {
            let why = call(line).unwrap_err();
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
        }
    }
}
