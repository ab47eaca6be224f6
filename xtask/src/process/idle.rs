//! The resources of an idle server.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::run::Run;
use crate::server::Site;

/// The memory limit of an idle server with 64 empty partitions.
const RESIDENT_MB_MAX: u64 = 60;

const OBSERVED: Duration = Duration::from_secs(5);

/// Limits its memory; the processor time is printed and not judged, since a busy machine could
/// exceed a limit.
pub(crate) fn needs_little(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[("ring_size", "64")])?;
    let server = site.start()?;
    thread::sleep(Duration::from_secs(1));
    let before = server.processor_time()?;
    thread::sleep(OBSERVED);
    let used = server.processor_time()?.saturating_sub(before);
    let resident = resident_kilobytes(server.id())?;
    server.stop()?;
    ensure!(
        resident <= RESIDENT_MB_MAX * 1024,
        "{resident} KB resident, more than {RESIDENT_MB_MAX} MB"
    );
    let share = used.as_secs_f64() / OBSERVED.as_secs_f64();
    let (resident, percent) = (resident / 1024, share * 100.0);
    Ok(format!("{resident} MB resident, {percent:.2} % of a core"))
}

fn resident_kilobytes(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .context("reading the process's status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .context("finding VmRSS in the process's status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured() {
        let process = std::process::id();
        assert!(resident_kilobytes(process).unwrap() > 0);
    }
}
