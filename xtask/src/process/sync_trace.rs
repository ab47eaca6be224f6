//! The promises of `bitcask.sync.strategy`, counted in the system calls of a server under
//! `strace`. The server's own counts could be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};

use crate::prerequisite;
use crate::run::Run;
use crate::server::Site;

/// Writes of one client, one after the other.
const WRITES: usize = 60;

/// Clients that write at the same time, and writes of each.
const CLIENTS: usize = 32;
const WRITES_OF_EACH: usize = 20;

/// The traced system calls: all that create, write or sync a file, or send an answer.
const CALLS: &str = "fsync,fdatasync,openat,sendto,sendmsg,write,writev,pwrite64,pwritev,pwritev2";

/// The time limit for a sync that is due later. Far above the interval, for busy machines.
const SYNC_WITHIN: Duration = Duration::from_secs(60);

/// A relevant system call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// A file was created.
    Created(String),
    /// Data was written to a file.
    Wrote(String),
    /// A file or a directory was synced.
    Synced(String),
    /// Data was sent to a client.
    Answered,
}

/// A call, with the lines of its beginning and its end in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    begun: usize,
    ended: usize,
    call: Call,
}

/// `o_sync`: every acknowledged write was first written to the value log and synced, with the
/// directories of new files.
pub(crate) fn o_sync_is_before_each_answer(
    run: &Run<'_>,
    directory: &Path,
) -> anyhow::Result<String> {
    let calls = watch(run, directory, "o_sync", one_client, |_| Ok(()))?;
    let unsynced = answers_without_sync(&calls, is_in_value_log);
    ensure!(
        unsynced == 0,
        "{unsynced} of {WRITES} writes were acknowledged before a record in the value log and a sync \
         of it"
    );
    let forgotten = synced_in_unsynced_directories(&calls);
    ensure!(
        forgotten.is_empty(),
        "acknowledged from files whose directories were not synced: {forgotten:?}"
    );
    let syncs = syncs_of_value_log(&calls);
    Ok(format!("{WRITES} writes, {syncs} syncs of the value log"))
}

/// Writes that arrive at the same time share a sync.
pub(crate) fn o_sync_is_shared(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let calls = watch(run, directory, "o_sync", many_clients, |_| Ok(()))?;
    let (writes, syncs) = (CLIENTS * WRITES_OF_EACH, syncs_of_value_log(&calls));
    ensure!(
        2 * syncs <= writes,
        "{syncs} syncs of the value log for {writes} writes of {CLIENTS} clients"
    );
    // Each client has at most one write in progress.
    ensure!(
        CLIENTS * syncs >= writes,
        "{syncs} syncs of the value log cannot be all that {writes} writes waited for"
    );
    Ok(format!("{writes} writes, {syncs} syncs of the value log"))
}

/// `none`: no acknowledgement waits for a sync.
pub(crate) fn none_syncs_for_nobody(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let calls = watch(run, directory, "none", one_client, |_| Ok(()))?;
    let unsynced = answers_without_sync(&calls, |_| true);
    // Maintenance may sync files while the client writes.
    ensure!(
        unsynced > WRITES / 2,
        "{} of {WRITES} acknowledged writes waited for a sync",
        WRITES - unsynced
    );
    Ok(format!("{unsynced} of {WRITES} writes without a sync"))
}

/// `interval`: no acknowledgement waits, but writes are synced later.
pub(crate) fn interval_syncs_afterwards(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let calls = watch(run, directory, "interval", one_client, |trace| {
        let begun = Instant::now();
        while begun.elapsed() < SYNC_WITHIN {
            thread::sleep(Duration::from_millis(200));
            let calls = parse(&fs::read_to_string(trace).context("reading the trace")?);
            let written = writes(&calls).1;
            if written
                .iter()
                .any(|it| matches!(&it.call, Call::Synced(path) if !path.ends_with('/')))
            {
                return Ok(());
            }
        }
        bail!("nothing was synced within {SYNC_WITHIN:?}")
    })?;
    let unsynced = answers_without_sync(&calls, |_| true);
    ensure!(
        unsynced > WRITES / 2,
        "{} of {WRITES} acknowledged writes waited for a sync",
        WRITES - unsynced
    );
    Ok(format!(
        "{unsynced} of {WRITES} writes without a sync, synced later"
    ))
}

/// Runs a server under `strace` while clients write and during `then`; returns its calls.
fn watch(
    run: &Run<'_>,
    directory: &Path,
    strategy: &str,
    write: impl FnOnce(SocketAddr) -> anyhow::Result<usize>,
    then: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Event>> {
    prerequisite::require(&[prerequisite::STRACE])?;
    let settings = [
        ("storage_backend", "bitcask"),
        ("bitcask.sync.strategy", strategy),
        ("bitcask.sync.interval", "1s"),
        ("ring_size", "8"),
    ];
    let site = Site::new(&run.binary, directory, &settings)?;
    let trace = directory.join("trace");
    let server = site.start_traced(&trace, CALLS)?;
    let written = write(site.protobuf)?;
    then(&trace)?;
    server.stop()?;
    let calls = parse(&finished(&trace)?);
    let answers = calls.iter().filter(|it| it.call == Call::Answered).count();
    ensure!(
        answers >= written,
        "{answers} answers in the trace of {written} writes: it cannot be read"
    );
    Ok(calls)
}

fn one_client(server: SocketAddr) -> anyhow::Result<usize> {
    on_a_thread(write_keys(server, 0, WRITES))?;
    Ok(WRITES)
}

fn many_clients(server: SocketAddr) -> anyhow::Result<usize> {
    on_a_thread(async {
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            clients.spawn(write_keys(server, client, WRITES_OF_EACH));
        }
        while let Some(written) = clients.join_next().await {
            written.context("a client died")??;
        }
        Ok(())
    })?;
    Ok(CLIENTS * WRITES_OF_EACH)
}

fn on_a_thread(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the clients' runtime")?;
    runtime.block_on(work)
}

/// Writes one key after the other.
async fn write_keys(server: SocketAddr, client: usize, writes: usize) -> anyhow::Result<()> {
    let mut connection = Client::connect(server, &ClientSettings::default())
        .await
        .context("connecting")?;
    for number in 0..writes {
        let key = format!("key {client} {number}").into_bytes();
        let value = Bytes::from_static(&[7; 1_000]);
        connection
            .put_value(b"traced", &key, value)
            .await
            .with_context(|| format!("write {number} of client {client}"))?;
    }
    Ok(())
}

/// The trace, once the tracer has written all of it.
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

/// The calls in the order of their ends. A line has a process number and a call; a call that
/// another thread's call interrupts takes two lines.
fn parse(trace: &str) -> Vec<Event> {
    let mut unfinished: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (ended, line) in trace.lines().enumerate() {
        let Some((process, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        if let Some((head, _)) = call.split_once(" <unfinished ...>") {
            unfinished.insert(process, (ended, head));
            continue;
        }
        let is_resumed = call.starts_with("<... ");
        let (begun, head) = if is_resumed {
            unfinished.remove(process).unwrap_or_default()
        } else {
            (ended, call)
        };
        let event = |call| Event { begun, ended, call };
        calls.extend(call_of(head, call).map(event));
    }
    calls
}

/// The call with this beginning, which has the arguments, and this end, which has the result.
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
        "sendto" | "sendmsg" | "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
            let to = descriptor()?;
            let is_socket = to.starts_with("TCP");
            Some(if is_socket {
                Call::Answered
            } else {
                Call::Wrote(to)
            })
        }
        _ => None,
    }
}

/// The calls before the writes' answers, and the calls from the first answer on. An earlier answer
/// belongs to the ping that found the server ready.
fn writes(calls: &[Event]) -> (&[Event], &[Event]) {
    let mut answers = calls.iter().enumerate();
    let first = answers.find(|(_, it)| it.call == Call::Answered);
    calls.split_at(first.map_or(calls.len(), |(at, _)| at + 1))
}

/// The number of answers without a sync: since the last answer, no counted segment was written, or
/// none was synced by a call that began after the write's end.
fn answers_without_sync(calls: &[Event], counts: impl Fn(&str) -> bool) -> usize {
    let mut unsynced = 0;
    let mut is_synced = false;
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    for event in writes(calls).1 {
        match &event.call {
            Call::Wrote(path) if path.ends_with(".segment") && counts(path) => {
                // The first write counts: later data in the file belongs to other answers.
                written.entry(path).or_insert(event.ended);
            }
            Call::Synced(path) => {
                let wrote = written.get(path.as_str());
                is_synced |= wrote.is_some_and(|ended| *ended < event.begun);
            }
            Call::Wrote(_) | Call::Created(_) => {}
            Call::Answered => {
                unsynced += usize::from(!is_synced);
                is_synced = false;
                written.clear();
            }
        }
    }
    unsynced
}

fn is_in_value_log(path: &str) -> bool {
    let directory = Path::new(path).parent().and_then(Path::file_name);
    path.ends_with(".segment") && directory.is_some_and(|it| it == "value_log")
}

/// The number of syncs of the value log from the first answer to a write on.
fn syncs_of_value_log(calls: &[Event]) -> usize {
    let is_sync = |it: &&Event| matches!(&it.call, Call::Synced(path) if is_in_value_log(path));
    writes(calls).1.iter().filter(is_sync).count()
}

/// Created files that were synced at their creation and again with their contents, and then
/// acknowledged without a sync of their directory. A single sync does not count: a file made in
/// advance is synced, and its directory too, while other files serve answers.
fn synced_in_unsynced_directories(calls: &[Event]) -> BTreeSet<String> {
    let mut fresh: BTreeSet<&str> = BTreeSet::new();
    let mut syncs: BTreeMap<&str, u32> = BTreeMap::new();
    let mut forgotten = BTreeSet::new();
    for event in calls {
        match &event.call {
            Call::Wrote(_) => {}
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
11  pwritev(8</d/out>, [{...}], 2, 0) = 3
10  <... fdatasync resumed>)              = 0
11  sendto(9<TCP:[1->2]>, \"\"..., 5, MSG_NOSIGNAL, NULL, 0) = 5
10  +++ exited with 0 +++
";

    #[test]
    fn calls_are_read_in_the_order_of_their_ends() {
        let (log, out) = ("/d/log".to_owned(), "/d/out".to_owned());
        let expected = [
            (0, 0, Call::Created(log.clone())),
            (2, 2, Call::Answered),
            (4, 4, Call::Wrote(out)),
            (3, 5, Call::Synced(log)),
            (6, 6, Call::Answered),
        ];
        let expected = expected.map(|(begun, ended, call)| Event { begun, ended, call });
        assert_eq!(parse(TRACE), expected);
    }

    /// The events of a trace with a ping's answer and these later calls.
    fn answered(lines: &[&str]) -> Vec<Event> {
        let mut trace = "1  sendto(9<TCP:[1->2]>, \"\"..., 5) = 5\n".to_owned();
        for line in lines {
            let line = match *line {
                "answer" => "1  sendto(9<TCP:[1->2]>, \"\"..., 5) = 5",
                "write" => "2  pwritev(7</d/value_log/1.segment>, [{...}], 2, 0) = 9",
                "sync" => "2  fdatasync(7</d/value_log/1.segment>) = 0",
                "sync begins" => "3  fdatasync(7</d/value_log/1.segment> <unfinished ...>",
                "sync ends" => "3  <... fdatasync resumed>) = 0",
                "other write" => "2  pwritev(8</d/value_log/2.segment>, [{...}], 2, 0) = 9",
                "other sync" => "2  fdatasync(8</d/value_log/2.segment>) = 0",
                other => other,
            };
            trace.push_str(line);
            trace.push('\n');
        }
        parse(&trace)
    }

    #[test]
    fn an_answer_counts_as_synced_behind_a_write_and_then_a_sync_of_the_same_file() {
        let right: &[&[&str]] = &[
            &["write", "sync", "answer"],
            &["other write", "write", "other sync", "answer"],
            &[
                "write", "write", "sync", "answer", "write", "sync", "answer",
            ],
        ];
        for lines in right {
            assert_eq!(answers_without_sync(&answered(lines), is_in_value_log), 0);
        }
        let wrong: &[&[&str]] = &[
            &["answer"],
            &["write", "answer", "sync"],
            // An earlier sync does not count, nor does a sync of another file.
            &["sync", "write", "answer"],
            &["write", "other sync", "answer"],
            &["write", "sync", "answer", "sync", "answer"],
            &["sync begins", "write", "sync ends", "answer"],
        ];
        for lines in wrong {
            let unsynced = answers_without_sync(&answered(lines), is_in_value_log);
            assert_eq!(unsynced, 1, "{lines:?}");
        }
    }

    #[test]
    fn only_files_of_the_value_log_count_as_such() {
        assert!(is_in_value_log("/d/value_log/1.segment"));
        assert!(!is_in_value_log("/d/value_log/log"));
        assert!(!is_in_value_log("/d/bitcask/0/1.segment"));
        let calls = answered(&["write", "sync", "other sync", "answer"]);
        assert_eq!(syncs_of_value_log(&calls), 2);
    }

    #[test]
    fn a_new_file_in_a_directory_that_was_not_synced_is_seen() {
        let mut calls = parse(TRACE);
        let synced = |path: &str| Event {
            begun: 0,
            ended: 0,
            call: Call::Synced(path.into()),
        };
        assert!(synced_in_unsynced_directories(&calls).is_empty());
        calls.insert(1, synced("/d/log"));
        let forgotten = synced_in_unsynced_directories(&calls);
        assert_eq!(forgotten.into_iter().collect::<Vec<_>>(), ["/d/log"]);
        calls.insert(1, synced("/d"));
        assert!(synced_in_unsynced_directories(&calls).is_empty());
    }
}
