//! The report of a repair for operators: a row for each directory, beneath it the findings there, and notes
//! at the end. Rows fit in 100 columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend_leveldb::repair::{RepairReport, RepairVerdict};
use kvorum_index_entries::keyspace::key_shown;
use kvorum_maintenance::{bytes_text, counted};

use super::outcome::{OtherChecked, Outcome};

/// Keys and ranges that are printed of one store; `--json` has them all.
const SHOWN_MAX: usize = 20;

/// All that was repaired and checked below `root`.
pub(super) fn text(
    root: &Path,
    reports: &[(&Path, Outcome)],
    others: &[OtherChecked],
    set_aside: &[PathBuf],
    took: Duration,
) -> String {
    let mut text = String::new();
    row(&mut text, "findings", "state", "bytes", "directory");
    let (mut read, mut written) = (0, 0);
    for (directory, outcome) in reports {
        let directory = below(root, directory);
        match outcome {
            Ok(report) => {
                read += report.bytes;
                written += report.written_bytes;
                let findings = report.problems.len().to_string();
                let state = state(report.verdict);
                row(
                    &mut text,
                    &findings,
                    state,
                    &bytes_text(report.bytes),
                    &directory,
                );
                // Writing to a String cannot fail.
                let _ = details(&mut text, report);
            }
            Err(error) => {
                row(&mut text, "", "not repaired", "", &directory);
                let _ = writeln!(text, "  {error}");
            }
        }
    }
    for other in others {
        let findings = other.findings.len().to_string();
        row(
            &mut text,
            &findings,
            "checked",
            "",
            &below(root, &other.directory),
        );
        for finding in &other.findings {
            let _ = writeln!(text, "  damaged: {finding}");
        }
    }
    for directory in set_aside {
        row(&mut text, "", "set aside", "", &below(root, directory));
    }
    text.push('\n');
    notes(&mut text, reports, others, set_aside);
    let seconds = took.as_secs_f64();
    let _ = writeln!(
        text,
        "{} of leveldb, leveled and hanoidb, {} read, {} written in {seconds:.1} s",
        counted(reports.len(), "store"),
        bytes_text(read),
        bytes_text(written),
    );
    text
}

fn row(text: &mut String, findings: &str, state: &str, bytes: &str, directory: &str) {
    let _ = writeln!(text, "{findings:>8}  {state:<17}  {bytes:>9}  {directory}");
}

/// The path of a directory, relative to the repaired one.
fn below(root: &Path, directory: &Path) -> String {
    match directory.strip_prefix(root) {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.display().to_string(),
        _ => directory.display().to_string(),
    }
}

fn state(verdict: RepairVerdict) -> &'static str {
    match verdict {
        RepairVerdict::Sound => "sound",
        RepairVerdict::Repaired => "repaired",
        RepairVerdict::WouldRepair => "would be repaired",
    }
}

/// Notes that several rows have in common, each once.
fn notes(
    text: &mut String,
    reports: &[(&Path, Outcome)],
    others: &[OtherChecked],
    set_aside: &[PathBuf],
) {
    let mut notes: BTreeSet<&str> = others.iter().map(|other| other.said).collect();
    let is_repaired = |outcome: &Outcome| {
        let report = outcome.as_ref();
        report.is_ok_and(|report| report.verdict == RepairVerdict::Repaired)
    };
    if reports.iter().any(|(_, outcome)| is_repaired(outcome)) {
        notes.insert("repaired: replaced files are in lost/ beside the store");
    }
    if !set_aside.is_empty() {
        notes.insert(
            "set aside: a store of hints that a start found damaged; it is in no use, and may be removed",
        );
    }
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
}

/// The problems found in a store and their repair; nothing for one that is sound.
fn details(text: &mut String, report: &RepairReport) -> std::fmt::Result {
    for problem in &report.problems {
        writeln!(text, "  {}: {}", problem.file, problem.what)?;
    }
    if let Some(why) = &report.rebuilt {
        writeln!(text, "  all tables are merged anew: {why}")?;
    }
    if report.written_files > 0 {
        let files = counted(report.written_files, "file");
        let (bytes, saved) = (bytes_text(report.written_bytes), report.saved);
        writeln!(text, "  {files} written, {bytes}; entries in them: {saved}")?;
    }
    for doubt in report.doubts.iter().take(SHOWN_MAX) {
        let (from, to) = (key_shown(&doubt.from), key_shown(&doubt.to));
        writeln!(
            text,
            "  in doubt: keys from {from} up to {to}: {}",
            doubt.why
        )?;
    }
    for key in report.bodiless.iter().take(SHOWN_MAX) {
        writeln!(text, "  lost its body: {}", key_shown(key))?;
    }
    if report.doubts.len() > SHOWN_MAX || report.lost_bodies > SHOWN_MAX as u64 {
        let (doubts, bodies) = (report.doubts.len(), report.lost_bodies);
        writeln!(
            text,
            "  in all {doubts} ranges in doubt, {bodies} bodies lost"
        )?;
    }
    match report.hidden {
        0 => Ok(()),
        hidden => writeln!(
            text,
            "  {hidden} older entries in these ranges were left out; --keep-doubtful keeps them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the rows of 64 stores each repeated a sentence of 130 columns behind a path of
    /// 60.
    #[test]
    fn rows_fit_in_100_columns_and_sentences_stand_once() {
        let index = "1278813932664540053428224228626747642198940975104";
        let other = |name: &str, findings: &[&str]| OtherChecked {
            directory: Path::new("/data/bitcask").join(name),
            said: "bitcask: it opens from its data files alone",
            findings: findings.iter().map(|it| (*it).to_owned()).collect(),
        };
        let others = [other("0", &[]), other(index, &["a file"])];
        let text = text(Path::new("/data"), &[], &others, &[], Duration::ZERO);
        assert_eq!(
            text,
            "\
findings  state                  bytes  directory
       0  checked                       bitcask/0
       1  checked                       bitcask/1278813932664540053428224228626747642198940975104
  damaged: a file

bitcask: it opens from its data files alone
0 stores of leveldb, leveled and hanoidb, 0 B read, 0 B written in 0.0 s
"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
