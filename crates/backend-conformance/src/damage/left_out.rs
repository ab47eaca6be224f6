//! Files that are not damaged after the death of the process, and the list of them.

use std::fmt::Write as _;
use std::path::Path;

use crate::EngineUnderTest;

/// True for a file that matches one of the engine's patterns.
pub(super) fn is_left_out(engine: &dyn EngineUnderTest, path: &Path) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    engine.left_out_after_kill().iter().any(|pattern| {
        if let Some(directory) = pattern.strip_suffix('/') {
            return path.starts_with(directory);
        }
        let wanted = pattern.strip_prefix("*.");
        assert!(
            wanted.is_some(),
            "{pattern} names no directory and no extension"
        );
        extension == wanted
    })
}

/// Compares the list in `docs/scenarios.md` with the engine's patterns.
///
/// # Panics
/// If they differ.
pub fn expect_left_out_listed(engine: &dyn EngineUnderTest, list: &str) {
    let begin = format!("| {} |", engine.name());
    let listed = list.lines().find(|line| line.starts_with(&begin));
    let mut patterns = String::new();
    for (at, pattern) in engine.left_out_after_kill().iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _infallible = write!(patterns, "{comma}`{pattern}`");
    }
    match listed {
        None => assert!(
            patterns.is_empty(),
            "docs/scenarios.md lacks a line `{begin} {patterns} |`"
        ),
        Some(line) => assert!(
            !patterns.is_empty() && line.starts_with(&format!("{begin} {patterns} |")),
            "docs/scenarios.md says `{line}`, and the engine leaves out {patterns}"
        ),
    }
}
