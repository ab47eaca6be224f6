//! A server with its data on a separate file system.

use crate::process::mount::Mount;
use crate::run::Run;
use crate::server::Site;

/// A server with its data on the mount and everything else beside it, so that the cut does not lose
/// the test's own files.
pub(super) fn site_on(
    run: &Run<'_>,
    mount: &Mount,
    settings: &[(&str, &str)],
) -> anyhow::Result<Site> {
    let directory = run.workspace.clean_scratch("power-cut-site")?;
    Site::with_data(
        &run.binary,
        &directory,
        &mount.point().join("data"),
        settings,
    )
}
