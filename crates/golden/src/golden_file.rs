//! A file of golden text: found beside the source file of its test, compared, and renewed.

use std::fmt::Display;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The variable with which tests renew golden files.
const RENEWS: &str = "KVORUM_RENEW_GOLDEN";
/// The root of the workspace, to which the compiler's names of source files are relative.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// True when tests write golden files instead of comparing them.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller of a test decides whether golden files are renewed"
)]
pub fn is_renewing() -> bool {
    std::env::var(RENEWS).is_ok()
}

/// The path of a file or folder beside the caller's source file.
pub(crate) fn path_beside(caller: &Location<'_>, name: &str) -> PathBuf {
    let source = Path::new(ROOT).join(caller.file());
    source.with_file_name(name)
}

/// The command that renews the golden files of the present test.
pub(crate) fn renewal(caller: &Location<'_>) -> String {
    let folders = caller.file().split('/');
    let package = folders
        .skip_while(|folder| *folder != "crates")
        .nth(1)
        .unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    format!("{RENEWS}=1 cargo test -p kvorum-{package} {test}")
}

/// Reads a golden file.
#[expect(clippy::disallowed_methods, reason = "golden files are in the tree")]
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| in_words(path, &error))
}

/// Writes a golden file.
#[expect(clippy::disallowed_methods, reason = "golden files are in the tree")]
pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| in_words(path, &error))
}

/// The names of the files in a folder, in order.
#[expect(clippy::disallowed_methods, reason = "golden files are in the tree")]
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| in_words(folder, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| in_words(folder, &error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Compares a printed text with a golden file, or writes the file.
pub(crate) fn settle(path: &Path, printed: &str, is_renewing: bool) -> Result<(), String> {
    if is_renewing && read(path).as_deref() != Ok(printed) {
        write(path, printed)?;
    }
    let golden = read(path)?;
    let expected: Vec<&str> = golden.lines().collect();
    let got: Vec<&str> = printed.lines().collect();
    match first_difference(&expected, &got) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{}, line {}\n  expected {}\n  got      {}",
            in_workspace(path).display(),
            at + 1,
            line_at(&expected, at),
            line_at(&got, at),
        )),
    }
}

/// The number of the first line that differs.
pub(crate) fn first_difference<T: PartialEq>(expected: &[T], got: &[T]) -> Option<usize> {
    let lines = expected.len().max(got.len());
    (0..lines).find(|&at| expected.get(at) != got.get(at))
}

/// A line, or a text for a missing line.
pub(crate) fn line_at<T: Display>(lines: &[T], at: usize) -> String {
    lines
        .get(at)
        .map_or_else(|| "(the end)".to_owned(), ToString::to_string)
}

fn in_words(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", in_workspace(path).display())
}

/// The path relative to the root of the workspace, for a file in it.
fn in_workspace(path: &Path) -> &Path {
    path.strip_prefix(ROOT).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_when_it_is_renewed_and_only_compared_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.hex");
        let missing = settle(&path, "one\ntwo\n", false).unwrap_err();
        assert!(missing.starts_with(&path.display().to_string()));
        assert_eq!(settle(&path, "one\ntwo\n", true), Ok(()));
        assert_eq!(settle(&path, "one\ntwo\n", false), Ok(()));
        let differs = settle(&path, "one\nthree\n", false).unwrap_err();
        assert!(differs.contains("a.hex, line 2\n  expected two\n  got      three"));
        let shorter = settle(&path, "one\n", false).unwrap_err();
        assert!(shorter.contains("line 2\n  expected two\n  got      (the end)"));
        assert_eq!(read(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn files_lie_beside_the_source_of_the_test_and_its_command_names_it() {
        let here = Location::caller();
        let beside = path_beside(here, "lib.rs");
        assert_eq!(in_workspace(&beside), Path::new("crates/golden/src/lib.rs"));
        assert!(read(&beside).unwrap().contains("mod golden_file;"));
        let command = renewal(here);
        assert!(
            command.starts_with("KVORUM_RENEW_GOLDEN=1 cargo test -p kvorum-golden "),
            "{command}"
        );
    }
}
