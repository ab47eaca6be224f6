//! `kvorum verify`: every checksum of a directory, and a check that its files agree.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use clap::Args;
use kvorum_disk::RealDisk;
use kvorum_inspect::{Checked, Finding, Plan, VerifyOptions};

use crate::console::exit_code;
use crate::data_directory_check;
use crate::progress::{Progress, TICK};

/// Two threads help even on one core: one reads while the other computes.
const THREADS_MIN: usize = 2;

/// Arguments of `kvorum verify`.
#[derive(Args)]
pub(crate) struct VerifyArguments {
    /// A data directory, the directory of a partition, or one of several of these
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The directory is in use: take no lock, and look at sealed files only
    #[arg(long)]
    live: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Checks the directory; the exit code is 1 when anything is damaged.
pub(crate) fn main(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let options = VerifyOptions {
        is_live: arguments.live,
    };
    let plan = Plan::new(&RealDisk, &arguments.directory, options)?;
    let mut checked = run(&plan);
    if !arguments.live {
        data_directory_check::add(&RealDisk, &arguments.directory, &mut checked)?;
    }
    let text = if arguments.json {
        format!("{:#}\n", as_json(&plan, &checked))
    } else {
        as_text(&plan, &checked)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(exit_code(checked.findings.is_empty()))
}

/// Checks everything, in parallel.
pub(crate) fn run(plan: &Plan) -> Checked {
    let next = AtomicUsize::new(0);
    let read_bytes = AtomicU64::new(0);
    let (sender, receiver) = channel();
    let mut outcomes = std::thread::scope(|scope| {
        for _ in 0..threads() {
            let sender = sender.clone();
            let (next, read_bytes) = (&next, &read_bytes);
            scope.spawn(move || work(plan, next, read_bytes, &sender));
        }
        drop(sender);
        gather(plan, &read_bytes, &receiver)
    });
    // The report does not depend on the order in which threads finish.
    outcomes.sort_by_key(|(index, _)| *index);
    let mut all = Checked::default();
    for (_, outcome) in outcomes {
        all.add(outcome, "");
    }
    all
}

/// One for each core.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(THREADS_MIN, |it| it.get().max(THREADS_MIN))
}

type Outcome = (usize, Checked);

fn work(plan: &Plan, next: &AtomicUsize, read_bytes: &AtomicU64, sender: &Sender<Outcome>) {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = plan.units.get(index) else {
            return;
        };
        let outcome = plan.run(&RealDisk, unit, &|bytes| {
            read_bytes.fetch_add(bytes, Ordering::Relaxed);
        });
        if sender.send((index, outcome)).is_err() {
            return;
        }
    }
}

/// Waits for all units, and shows progress meanwhile.
fn gather(plan: &Plan, read_bytes: &AtomicU64, receiver: &Receiver<Outcome>) -> Vec<Outcome> {
    let mut progress = Progress::begin();
    let mut outcomes = Vec::new();
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(outcome) => outcomes.push(outcome),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.show(read_bytes.load(Ordering::Relaxed), plan.bytes);
    }
    progress.end();
    outcomes
}

fn as_text(plan: &Plan, checked: &Checked) -> String {
    use kvorum_maintenance::counted;

    let mut text = String::new();
    for finding in &checked.findings {
        let _infallible = writeln!(text, "damaged: {}", finding_line(finding));
        for key in &finding.keys {
            let _infallible = writeln!(text, "         key {key}");
        }
    }
    for note in &checked.notes {
        let _infallible = writeln!(text, "note: {note}");
    }
    for path in &plan.unknown {
        let _infallible = writeln!(text, "not checked: {}", path.display());
    }
    let _infallible = writeln!(
        text,
        "{}, {}, {}, {} and {} compared, {}, {}",
        counted(checked.files, "file"),
        counted(checked.bytes, "byte"),
        counted(checked.records, "record"),
        counted(checked.keys, "key"),
        counted(checked.slots, "slot"),
        counted(checked.torn_bytes, "torn byte"),
        counted(checked.findings.len(), "finding")
    );
    text
}

pub(crate) fn finding_line(finding: &Finding) -> String {
    let Finding {
        file,
        offset,
        len,
        what,
        ..
    } = finding;
    match len {
        0 => format!("{file}: {what}"),
        _ => format!("{file} bytes {offset} to {}: {what}", offset + len),
    }
}

fn as_json(plan: &Plan, checked: &Checked) -> serde_json::Value {
    let finding = |it: &Finding| {
        serde_json::json!({
            "file": it.file,
            "offset": it.offset,
            "length": it.len,
            "what": it.what,
            "keys": it.keys,
        })
    };
    serde_json::json!({
        "files": checked.files,
        "bytes": checked.bytes,
        "records": checked.records,
        "keys": checked.keys,
        "slots": checked.slots,
        "torn_bytes": checked.torn_bytes,
        "findings": checked.findings.iter().map(finding).collect::<Vec<_>>(),
        "notes": checked.notes,
        "not_checked": plan.unknown,
    })
}
