//! The resources of an idle server.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::ensure;

use crate::run::Run;
use crate::server::Site;

/// The memory limit of an idle server with 64 empty partitions.
const RESIDENT_MB_MAX: u64 = 60;

const OBSERVED: Duration = Duration::from_secs(5);

/// Checks the server's memory. Only prints its processor time, since a busy machine could exceed a
/// limit.
pub(crate) fn needs_little(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[("ring_size", "64")])?;
    let server = site.start()?;
    thread::sleep(Duration::from_secs(1));
    let before = server.processor_time()?;
    thread::sleep(OBSERVED);
    let used = server.processor_time()?.saturating_sub(before);
    let resident = server.resident_kilobytes()?;
    server.stop()?;
    ensure!(
        resident <= RESIDENT_MB_MAX * 1024,
        "{resident} KB resident, more than {RESIDENT_MB_MAX} MB"
    );
    let share = used.as_secs_f64() / OBSERVED.as_secs_f64();
    let (resident, percent) = (resident / 1024, share * 100.0);
    Ok(format!("{resident} MB resident, {percent:.2} % of a core"))
}
