//! One cell: one contender under one workload, in a process of its own.
//!
//! A separate process, so that memory, bytes written and CPU time are the contender's alone, and
//! its memory, including page cache, can be limited.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::contender::{Entry, Opening};
use crate::load::{self, Outcome, Pace};
use crate::workload::{Source, Workload};

/// Time for background work after keys were written.
const SETTLING: Duration = Duration::from_secs(5);

/// The settings of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The contender's name.
    pub contender: String,
    /// The workload's name.
    pub workload: String,
    /// The key space, if the workload has one.
    pub keys: u64,
    /// The length of the measurement, in seconds.
    pub seconds: u64,
    /// Threads in the closed loop; the open loop has all that it needs.
    pub workers: usize,
    /// Operations a second in the open loop; `None` for the closed loop.
    pub rate: Option<f64>,
    /// The size of block caches, in bytes.
    pub cache_bytes: u64,
    /// The number of this repetition.
    pub run: u32,
    /// True if puts always wait for the device, whatever the workload.
    pub is_synced: bool,
}

/// The result of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The settings of the measurement.
    pub plan: Plan,
    /// The result of the load.
    pub outcome: Outcome,
    /// Bytes that the process wrote to the device under load.
    pub written_bytes: u64,
    /// Bytes of its files at the end.
    pub disk_bytes: u64,
    /// Bytes of memory at the end, without page cache.
    pub resident_bytes: u64,
    /// CPU time of the process under load, in seconds.
    pub cpu_seconds: f64,
}

/// Measures a cell in an empty directory.
pub fn measure(entry: Entry, workload: Workload, plan: &Plan, directory: &Path) -> Result<Cell> {
    let opening = Opening {
        directory,
        sync: if plan.is_synced {
            crate::contender::Sync::Grouped
        } else {
            workload.sync
        },
        cache_bytes: plan.cache_bytes,
    };
    let store = (entry.open)(&opening).context("open")?;
    let source = Source::new(workload, plan.keys)?;
    load::preload(&store, &source, plan.workers).context("preload")?;
    if source.preload_count() > 0 {
        std::thread::sleep(SETTLING);
    }
    let (written_before, cpu_before) = (written_bytes()?, cpu_seconds()?);
    let pace = plan.rate.map_or(Pace::Closed, Pace::Open);
    let time = Duration::from_secs(plan.seconds);
    let outcome = load::run(&store, &source, pace, plan.workers, time, plan.run)?;
    let cpu_seconds = cpu_seconds()? - cpu_before;
    let resident_bytes = resident_bytes()?;
    store.close().context("close")?;
    Ok(Cell {
        plan: plan.clone(),
        outcome,
        written_bytes: written_bytes()? - written_before,
        disk_bytes: bytes_below(directory)?,
        resident_bytes,
        cpu_seconds,
    })
}

/// Bytes that the kernel counts as written by this process.
fn written_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("write_bytes in /proc/self/io")?.parse()?)
}

fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("the fields of /proc/self/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.context("RssAnon in /proc/self/status")?;
    let kilobytes: u64 = kilobytes.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

/// Bytes allocated to files, without holes of sparse files.
fn bytes_below(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            bytes_below(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}
