//! The page of one run, in its result directory.

use std::path::{Path, PathBuf};

use crate::files::write_atomically;
use crate::page;
use crate::result::RunResult;

/// The name of a run's page in its directory.
pub const REPORT: &str = "report.html";

/// Writes the report of a run as `report.html` in its directory, and returns its path.
///
/// # Errors
/// If the directory has no run, or the page cannot be written.
pub fn write_report(directory: &Path) -> anyhow::Result<PathBuf> {
    let page = directory.join(REPORT);
    write_page(directory, &page)?;
    Ok(page)
}

/// Writes the report of a run to `page`.
///
/// # Errors
/// The errors of [`write_report`].
pub fn write_page(directory: &Path, page: &Path) -> anyhow::Result<()> {
    let run = RunResult::read(directory)?;
    write_atomically(page, &page::run(&run, &[]))
}
