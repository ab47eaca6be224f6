//! `kvorum repair`: damaged stores made whole again from the files in their directories.

mod outcome;
mod shop;
mod table;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use kvorum_backend::Belonging;
use kvorum_backend_bitcask::check::is_store as is_bitcask;
use kvorum_backend_leveldb::repair::{
    Doubt, Repair, RepairReport, RepairVerdict, fast_of, has_store_files,
};
use kvorum_backend_multi::known_children;
use kvorum_disk::{Disk, DiskLock, EntryKind, RealDisk};
use kvorum_index_entries::keyspace::key_shown;
use kvorum_inspect::{Kind, Plan, VerifyOptions, is_node_directory, recognise};
use kvorum_settings::StorageBackend;
use kvorum_vnode::{KEPT_TREES_NAME, NOTES_NAME, remove_kept_trees, remove_notes};

use self::outcome::{OtherChecked, Outcome};
use crate::console::exit_code;
use crate::engine_names::{RepairOptionsOf, name_of, repair_options_of};
use crate::engines::LOST_NAME;
use crate::verify;

/// Directories in directories, from the data directory to a store, are far fewer.
const DEPTH_MAX: usize = 8;

/// Arguments of `kvorum repair`.
#[derive(Args)]
pub(crate) struct RepairArguments {
    /// A data directory, a directory of stores, or the directory of one partition; not in use
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print the repairs, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Serve older values where a newer one, or a removal, may have been lost with a damaged block;
    /// for stores that have no replica
    #[arg(long)]
    keep_doubtful: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Stores and other files below the directory.
#[derive(Default)]
struct Found {
    trees: Vec<PathBuf>,
    /// Directories that no repair is for, with the remark on each.
    others: Vec<(PathBuf, &'static str)>,
    /// Stores of hints that a start set aside.
    set_aside: Vec<PathBuf>,
    /// Data directories with trees of hashes that were kept over a stop.
    kept_trees: Vec<PathBuf>,
    /// Data directories with notes of rounds.
    notes: Vec<PathBuf>,
    locks: Vec<Box<dyn DiskLock>>,
}

/// Repairs the stores; the exit code is 1 when something could not be repaired, or is lost for good.
pub(crate) fn main(arguments: &RepairArguments) -> anyhow::Result<ExitCode> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let found = find(&*disk, arguments)?;
    if !arguments.dry_run && !found.trees.is_empty() {
        // A repair may take entries away that are in them. They are built anew.
        for data in &found.kept_trees {
            remove_kept_trees(&*disk, data)?;
        }
        // A repair may bring older entries to light. A store without notes counts as one from before.
        for data in &found.notes {
            remove_notes(&*disk, data)?;
        }
    }
    let mut repairs = Vec::new();
    for directory in &found.trees {
        let options = options_of(&*disk, directory)(arguments.dry_run, arguments.keep_doubtful);
        let begun = Repair::begin(disk.clone(), directory, options);
        repairs.push(begun.with_context(|| format!("repair {}", directory.display()))?);
    }
    let (outcomes, took) = shop::run(&repairs, verify::threads());
    let mut others = Vec::new();
    for (directory, said) in &found.others {
        others.push(check(directory, said)?);
    }
    let reports: Vec<(&Path, Outcome)> = repairs
        .iter()
        .zip(outcomes)
        .map(|(repair, error)| match error {
            None => (repair.directory(), Ok(repair.report())),
            Some(error) => (repair.directory(), Err(error)),
        })
        .collect();
    let root = &arguments.directory;
    let text = match arguments.json {
        true => format!("{:#}\n", as_json(&reports, &others, &found.set_aside)),
        false => table::text(root, &reports, &others, &found.set_aside, took),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    let is_good = reports
        .iter()
        .all(|(_, it)| it.as_ref().is_ok_and(is_all_there))
        && others.iter().all(|it| it.findings.is_empty());
    Ok(exit_code(is_good))
}

/// The options for repairing the store in a directory. One that has neither a manifest nor a file of
/// its journal is known by the names of directories, `leveled/N` or `hints/leveled`, and so one of
/// hanoidb; or by the card of several backends in the directory above.
fn options_of(disk: &dyn Disk, directory: &Path) -> RepairOptionsOf {
    let by_card = engine_by_card(disk, directory);
    let is_named = |engine: &StorageBackend| match &by_card {
        Some(by_card) => by_card == name_of(*engine),
        None => {
            let mut names = directory.iter().rev().take(2);
            names.any(|it| it == name_of(*engine))
        }
    };
    let named = [StorageBackend::Leveled, StorageBackend::Hanoidb];
    let engine = named.into_iter().find(is_named);
    repair_options_of(engine.unwrap_or(StorageBackend::Leveldb))
}

/// The engine of a store that is one of several, from the card in the directory above.
fn engine_by_card(disk: &dyn Disk, directory: &Path) -> Option<String> {
    let (above, name) = (directory.parent()?, directory.file_name()?.to_str()?);
    let known = known_children(disk, above, &Belonging::default()).ok()?;
    let child = known.into_iter().find(|it| it.name == name)?;
    Some(child.engine)
}

/// True when nothing is lost or in doubt, and nothing is left to be done.
fn is_all_there(report: &RepairReport) -> bool {
    let is_whole = report.doubts.is_empty() && report.lost_bodies == 0;
    is_whole && report.verdict != RepairVerdict::WouldRepair
}

fn find(disk: &dyn Disk, arguments: &RepairArguments) -> anyhow::Result<Found> {
    let directory = &arguments.directory;
    let info = disk.info(directory)?;
    if info.is_none_or(|it| it.kind != EntryKind::Directory) {
        bail!("{} is no directory", directory.display());
    }
    let mut found = Found::default();
    visit(disk, directory, 0, &mut found)?;
    if found.trees.is_empty() && found.others.is_empty() {
        bail!(
            "{} holds no store of a kvorum node, nor do directories below it; name a data directory \
             (platform_data_dir) or the directory of a partition",
            directory.display()
        );
    }
    Ok(found)
}

fn visit(disk: &dyn Disk, directory: &Path, depth: usize, found: &mut Found) -> anyhow::Result<()> {
    let node_lock = directory.join("LOCK");
    if is_node_directory(disk, directory)? && disk.info(&node_lock)?.is_some() {
        let lock = disk.lock(&node_lock, "kvorum repair\n");
        let in_use = || format!("{} is in use; stop its node first", directory.display());
        found.locks.push(lock.with_context(in_use)?);
    }
    if let Some(fast) = fast_of(disk, directory)? {
        let (slow, fast) = (directory.display(), fast.display());
        if depth == 0 {
            bail!("{slow} has only the old tables of the store in {fast}: name that directory");
        }
        // It is repaired with the store that it is a part of.
        return Ok(());
    }
    if has_store_files(disk, directory)? {
        found.trees.push(directory.to_owned());
        return Ok(());
    }
    if kvorum_backend_innostore::check::has_store_files(disk, directory)? {
        let said = "innostore: a store opens with the pages that can be read; entries of damaged \
         pages are restored from replicas, or put again";
        found.others.push((directory.to_owned(), said));
        return Ok(());
    }
    if is_bitcask(disk, directory)? {
        let said = "bitcask: a store opens from its data files alone; the next opening writes \
         hints and checkpoint again and cuts torn ends";
        found.others.push((directory.to_owned(), said));
        return Ok(());
    }
    let mut said = None;
    for entry in disk.list(directory)? {
        let path = directory.join(&entry.name);
        if entry.kind == EntryKind::Directory {
            if entry.name == LOST_NAME {
                set_aside(disk, &path, found)?;
            } else if entry.name == KEPT_TREES_NAME {
                found.kept_trees.push(directory.to_owned());
            } else if entry.name == NOTES_NAME {
                found.notes.push(directory.to_owned());
            } else if depth < DEPTH_MAX {
                visit(disk, &path, depth + 1, found)?;
            }
            continue;
        }
        match recognise(disk, &path) {
            Ok(Kind::ValueLog(_)) => {
                said = Some(
                    "value_log: the next start of the node reads it and writes its small files \
                     again; damaged entries are restored from replicas",
                );
            }
            Ok(Kind::Segment) if said.is_none() => {
                said =
                    Some("log: the next start of the node reads it, and sets aside damaged files");
            }
            _ => {}
        }
    }
    if let Some(said) = said {
        found.others.push((directory.to_owned(), said));
    }
    Ok(())
}

/// Stores in a directory of set-aside stores are left as they are, and named.
fn set_aside(disk: &dyn Disk, lost: &Path, found: &mut Found) -> anyhow::Result<()> {
    for entry in disk.list(lost)? {
        if entry.kind == EntryKind::Directory {
            found.set_aside.push(lost.join(entry.name));
        }
    }
    Ok(())
}

fn check(directory: &Path, said: &'static str) -> anyhow::Result<OtherChecked> {
    let plan = Plan::new(&RealDisk, directory, VerifyOptions::default())?;
    let checked = verify::run(&plan);
    Ok(OtherChecked {
        directory: directory.to_owned(),
        said,
        findings: checked.findings.iter().map(verify::finding_line).collect(),
    })
}

fn as_json(
    reports: &[(&Path, Outcome)],
    others: &[OtherChecked],
    set_aside: &[PathBuf],
) -> serde_json::Value {
    let store = |(directory, outcome): &(&Path, Outcome)| match outcome {
        Ok(report) => report_json(directory, report),
        Err(error) => serde_json::json!({ "directory": directory, "error": error }),
    };
    let other = |it: &OtherChecked| {
        serde_json::json!({
            "directory": it.directory,
            "findings": it.findings,
            "what_becomes_of_it": it.said,
        })
    };
    serde_json::json!({
        "stores": reports.iter().map(store).collect::<Vec<_>>(),
        "others": others.iter().map(other).collect::<Vec<_>>(),
        "hints_set_aside": set_aside,
    })
}

fn report_json(directory: &Path, report: &RepairReport) -> serde_json::Value {
    let verdict = match report.verdict {
        RepairVerdict::Sound => "sound",
        RepairVerdict::Repaired => "repaired",
        RepairVerdict::WouldRepair => "would repair",
    };
    let doubt = |it: &Doubt| {
        let (from, to) = (key_shown(&it.from), key_shown(&it.to));
        serde_json::json!({ "from": from, "to": to, "why": it.why })
    };
    let problems = report.problems.iter();
    let problems = problems.map(|it| serde_json::json!({ "file": it.file, "what": it.what }));
    serde_json::json!({
        "directory": directory,
        "verdict": verdict,
        "problems": problems.collect::<Vec<_>>(),
        "merged_anew": report.rebuilt,
        "files": report.files,
        "bytes": report.bytes,
        "written_files": report.written_files,
        "written_bytes": report.written_bytes,
        "entries_saved": report.saved,
        "entries_hidden": report.hidden,
        "in_doubt": report.doubts.iter().map(doubt).collect::<Vec<_>>(),
        "bodies_lost": report.lost_bodies,
        "keys_without_bodies": report.bodiless.iter().map(|it| key_shown(it)).collect::<Vec<_>>(),
    })
}
