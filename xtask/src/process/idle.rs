//! What a server needs that has nothing to do.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::server::Site;
use crate::test_run::Run;

/// What an idle server with 64 empty partitions may keep in memory.
const RESIDENT_MB_MAX: u64 = 60;

/// The system counts processor time in hundredths of a second.
const TICKS_PER_SECOND: u64 = 100;

const OBSERVED_SECONDS: u64 = 5;

/// Little memory, as a rule; the processor time is told and not judged, since a busy machine
/// could fail it.
pub(crate) fn needs_little(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[("ring_size", "64")])?;
    let server = site.start()?;
    thread::sleep(Duration::from_secs(1));
    let before = processor_ticks(server.id())?;
    thread::sleep(Duration::from_secs(OBSERVED_SECONDS));
    let ticks = processor_ticks(server.id())? - before;
    let resident = resident_kilobytes(server.id())?;
    server.stop()?;
    ensure!(
        resident <= RESIDENT_MB_MAX * 1024,
        "{resident} KB resident, more than {RESIDENT_MB_MAX} MB"
    );
    let hundredths = ticks * 100 * 100 / (TICKS_PER_SECOND * OBSERVED_SECONDS);
    Ok(format!(
        "{} MB resident, {}.{:02} % of a core",
        resident / 1024,
        hundredths / 100,
        hundredths % 100
    ))
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

/// Time in user and kernel mode. The fields are counted from behind the name, which may hold
/// spaces and parentheses.
fn processor_ticks(process: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))
        .context("reading the process's times")?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let fields: Vec<&str> = fields.unwrap_or_default().split_whitespace().collect();
    let tick = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
    };
    let user = tick(11).context("finding utime")?;
    let kernel = tick(12).context("finding stime")?;
    Ok(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured() {
        let process = std::process::id();
        assert!(resident_kilobytes(process).unwrap() > 0);
        assert!(processor_ticks(process).is_ok());
    }
}
