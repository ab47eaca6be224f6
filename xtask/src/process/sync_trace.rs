//! What `bitcask.sync.strategy` promises, counted where it counts: in the system calls of a server that
//! `strace` watches. A test that only asks the server would believe what the server believes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};

use crate::prerequisite;
use crate::server::Site;
use crate::test_run::Run;

/// Writes of one client, one after the other.
const WRITES: usize = 60;

/// How long a sync that is only due some time may take. Far above the interval, for busy machines.
const SYNC_WITHIN: Duration = Duration::from_secs(60);

/// A system call that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// A file was created.
    Created(String),
    /// A file, or a directory, is on the disk.
    Synced(String),
    /// Something went out to a client.
    Answered,
}

/// `o_sync`: before each acknowledgement, and the directories of new files too.
pub(crate) fn o_sync_is_before_each_answer(
    run: &Run<'_>,
    directory: &Path,
) -> anyhow::Result<String> {
    let calls = watch(run, directory, "o_sync", |_| Ok(()))?;
    let unsynced = answers_without_sync(&calls);
    ensure!(
        unsynced == 0,
        "{unsynced} of {WRITES} acknowledged writes were not preceded by a sync"
    );
    let forgotten = synced_in_unsynced_directories(&calls);
    ensure!(
        forgotten.is_empty(),
        "acknowledged from files whose directories were not synced: {forgotten:?}"
    );
    let syncs = calls.iter().filter(|call| matches!(call, Call::Synced(_)));
    Ok(format!("{WRITES} writes, {} syncs in all", syncs.count()))
}

/// `none`: no acknowledgement waits for a sync.
pub(crate) fn none_syncs_for_nobody(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let calls = watch(run, directory, "none", |_| Ok(()))?;
    let unsynced = answers_without_sync(&calls);
    // Maintenance may sync something while the client writes.
    ensure!(
        unsynced > WRITES / 2,
        "{} of {WRITES} acknowledged writes waited for a sync",
        WRITES - unsynced
    );
    Ok(format!("{unsynced} of {WRITES} writes without a sync"))
}

/// `interval`: no acknowledgement waits, and what was written is synced nevertheless.
pub(crate) fn interval_syncs_afterwards(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let calls = watch(run, directory, "interval", |trace| {
        let begun = Instant::now();
        while begun.elapsed() < SYNC_WITHIN {
            thread::sleep(Duration::from_millis(200));
            let calls = parse(&fs::read_to_string(trace).context("reading the trace")?);
            let written = writes(&calls).1;
            if written
                .iter()
                .any(|call| matches!(call, Call::Synced(path) if !path.ends_with('/')))
            {
                return Ok(());
            }
        }
        bail!("nothing was synced within {SYNC_WITHIN:?}")
    })?;
    let unsynced = answers_without_sync(&calls);
    ensure!(
        unsynced > WRITES / 2,
        "{} of {WRITES} acknowledged writes waited for a sync",
        WRITES - unsynced
    );
    Ok(format!(
        "{unsynced} of {WRITES} writes without a sync, synced later"
    ))
}

/// Runs a server under `strace` for as long as a client writes and `then` takes; what it called.
fn watch(
    run: &Run<'_>,
    directory: &Path,
    strategy: &str,
    then: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Call>> {
    prerequisite::require(&[prerequisite::STRACE])?;
    let settings = [
        ("storage_backend", "bitcask"),
        ("bitcask.sync.strategy", strategy),
        ("bitcask.sync.interval", "1s"),
        ("ring_size", "8"),
    ];
    let site = Site::new(&run.binary, directory, &settings)?;
    let trace = directory.join("trace");
    let server = site.start_traced(&trace, "fsync,fdatasync,openat,sendto,sendmsg,write,writev")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the client's runtime")?;
    runtime.block_on(async {
        let mut client = Client::connect(site.protobuf, &ClientSettings::default())
            .await
            .context("connecting")?;
        for number in 0..WRITES {
            let key = format!("key {number}").into_bytes();
            let value = Bytes::from_static(&[7; 1_000]);
            client
                .put_value(b"traced", &key, value)
                .await
                .with_context(|| format!("write {number}"))?;
        }
        anyhow::Ok(())
    })?;
    then(&trace)?;
    server.stop()?;
    let calls = parse(&finished(&trace)?);
    let answers = calls.iter().filter(|call| **call == Call::Answered).count();
    ensure!(
        answers >= WRITES,
        "{answers} answers in the trace of {WRITES} writes: it cannot be read"
    );
    Ok(calls)
}

/// The trace, once the tracer has written the last of it.
fn finished(trace: &Path) -> anyhow::Result<String> {
    let begun = Instant::now();
    while begun.elapsed() < SYNC_WITHIN {
        let text = fs::read_to_string(trace).context("reading the trace")?;
        if text
            .lines()
            .last()
            .is_some_and(|line| line.contains("+++ exited"))
        {
            return Ok(text);
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("the trace does not end")
}

/// The calls in the order in which they ended. A line is a process number and a call; one that another
/// thread's call interrupts comes in two.
fn parse(trace: &str) -> Vec<Call> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((process, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        if let Some((head, _)) = call.split_once(" <unfinished ...>") {
            begun.insert(process, head);
            continue;
        }
        let is_resumed = call.starts_with("<... ");
        let head = if is_resumed {
            begun.remove(process).unwrap_or_default()
        } else {
            call
        };
        calls.extend(call_of(head, call));
    }
    calls
}

/// A call from how it begins, with its arguments, and how it ends, with its result.
fn call_of(head: &str, end: &str) -> Option<Call> {
    let (name, arguments) = head.split_once('(')?;
    let (_, result) = end.rsplit_once(" = ")?;
    if result.starts_with('-') {
        return None;
    }
    let descriptor = || Some(arguments.split_once('<')?.1.split_once('>')?.0.to_owned());
    match name {
        "fsync" | "fdatasync" => descriptor().map(Call::Synced),
        "openat" if head.contains("O_CREAT") => {
            let path = result.split_once('<')?.1.strip_suffix('>')?;
            Some(Call::Created(path.to_owned()))
        }
        "sendto" | "sendmsg" | "write" | "writev" => {
            let is_socket = arguments.split_once('<')?.1.starts_with("TCP");
            is_socket.then_some(Call::Answered)
        }
        _ => None,
    }
}

/// What went before the writes' answers, and what from the first of them on. The answers before are
/// those to the ping that found the server ready.
fn writes(calls: &[Call]) -> (&[Call], &[Call]) {
    let mut answers = calls.iter().enumerate();
    let first = answers.find(|(_, call)| **call == Call::Answered);
    calls.split_at(first.map_or(calls.len(), |(at, _)| at + 1))
}

fn answers_without_sync(calls: &[Call]) -> usize {
    let (mut unsynced, mut is_synced) = (0, false);
    for call in writes(calls).1 {
        match call {
            Call::Synced(_) => is_synced = true,
            Call::Created(_) => {}
            Call::Answered => {
                unsynced += usize::from(!is_synced);
                is_synced = false;
            }
        }
    }
    unsynced
}

/// Files that were created, synced as they were made and again with what was put into them, with an
/// answer after that and no sync of their directory before it. One sync says nothing: a file that is
/// made ready for later is synced and entered in its directory while others are answered from.
fn synced_in_unsynced_directories(calls: &[Call]) -> BTreeSet<String> {
    let mut fresh: BTreeSet<&str> = BTreeSet::new();
    let mut syncs: BTreeMap<&str, u32> = BTreeMap::new();
    let mut forgotten = BTreeSet::new();
    for call in calls {
        match call {
            Call::Created(path) => {
                fresh.insert(path);
                syncs.remove(path.as_str());
            }
            Call::Synced(path) => {
                let is_directory_of =
                    |file: &&str| Path::new(file).parent() == Some(Path::new(path));
                fresh.retain(|file| !is_directory_of(file));
                *syncs.entry(path).or_default() += 1;
            }
            Call::Answered => {
                let is_used = |path: &&&str| syncs.get(**path).is_some_and(|count| *count > 1);
                let used = fresh.iter().filter(is_used);
                forgotten.extend(used.map(|path| (*path).to_owned()));
            }
        }
    }
    forgotten
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
10  openat(AT_FDCWD</>, \"/d/log\", O_RDWR|O_CREAT|O_CLOEXEC, 0666) = 7</d/log>
10  openat(AT_FDCWD</>, \"/d/none\", O_RDWR|O_CREAT|O_CLOEXEC, 0666) = -1 EACCES (Permission denied)
11  sendto(9<TCP:[1->2]>, \"\"..., 5, MSG_NOSIGNAL, NULL, 0) = 5
10  fdatasync(7</d/log> <unfinished ...>
11  write(1</d/out>, \"\"..., 3) = 3
10  <... fdatasync resumed>)              = 0
11  sendto(9<TCP:[1->2]>, \"\"..., 5, MSG_NOSIGNAL, NULL, 0) = 5
11  sendto(9<TCP:[1->2]>, \"\"..., 5, MSG_NOSIGNAL, NULL, 0) = 5
10  +++ exited with 0 +++
";

    #[test]
    fn calls_are_read_in_the_order_of_their_ends() {
        let log = || "/d/log".to_owned();
        let expected = [
            Call::Created(log()),
            Call::Answered,
            Call::Synced(log()),
            Call::Answered,
            Call::Answered,
        ];
        assert_eq!(parse(TRACE), expected);
    }

    #[test]
    fn an_answer_without_a_sync_is_seen() {
        assert_eq!(answers_without_sync(&parse(TRACE)), 1);
    }

    #[test]
    fn a_new_file_in_a_directory_that_was_not_synced_is_seen() {
        let mut calls = parse(TRACE);
        assert!(synced_in_unsynced_directories(&calls).is_empty());
        calls.insert(1, Call::Synced("/d/log".into()));
        let forgotten = synced_in_unsynced_directories(&calls);
        assert_eq!(forgotten.into_iter().collect::<Vec<_>>(), ["/d/log"]);
        calls.insert(1, Call::Synced("/d".into()));
        assert!(synced_in_unsynced_directories(&calls).is_empty());
    }
}
