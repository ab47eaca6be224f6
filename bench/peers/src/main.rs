//! Kvorum's engines beside their peers, with the same workloads on the same machine, in turn.
//!
//! ```text
//! cargo run --release --manifest-path bench/peers/Cargo.toml -- --workload test4 --seconds 10 --runs 5
//! ```
//!
//! Runs are interleaved (each contender once, then each again), since machines drift. With
//! `--tails` an open loop at a share of the slowest contender's rate follows the closed loop, and
//! gives the latencies: a closed loop of many threads on few cores measures the run queue. With
//! `--memory-max` each process runs under that limit, including page cache.

mod cell;
mod contender;
mod load;
mod report;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use cell::{Cell, Plan};
use contender::Entry;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The directory of the memory limit; version 1 of control groups also counts page cache.
const MEMORY_GROUP: &str = "/sys/fs/cgroup/memory/kvorum-peers";
/// The open loop's rate, as a share of the slowest contender's in the closed loop.
const OPEN_SHARE: f64 = 0.7;

#[derive(Parser)]
struct Arguments {
    /// The workload; repeat for several, leave out for the six published ones.
    #[arg(long)]
    workload: Vec<String>,
    /// A contender besides the straw man; repeat for several, leave out for all.
    #[arg(long)]
    contender: Vec<String>,
    /// Repetitions.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The length of a run.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The key space of workloads that have one.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Threads.
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// For block caches.
    #[arg(long, default_value_t = 1 << 30)]
    cache_bytes: u64,
    /// Adds an open loop to each workload, for latencies.
    #[arg(long)]
    tails: bool,
    /// Puts wait for the device in every workload.
    #[arg(long)]
    sync: bool,
    /// Bytes of memory that each process may take, page cache included. Needs the right to make a
    /// control group.
    #[arg(long)]
    memory_max: Option<u64>,
    /// The directory in which stores are made, and removed.
    #[arg(long, default_value = "target/peers-data")]
    directory: PathBuf,
    /// The file that keeps every cell as a line of JSON.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Measures one cell and prints it; for the processes that this program starts.
    #[arg(long, hide = true)]
    cell: Option<String>,
}

fn main() -> Result<()> {
    // As in Kvorum's server. By default the allocator uses huge pages, and fresh memory is cleared
    // 2 MB at a time, which takes milliseconds here and dominates the tail of an open loop. The
    // processes of the cells inherit this setting.
    rustix::thread::disable_transparent_huge_pages(true).context("refuse huge pages")?;
    let arguments = Arguments::parse();
    if let Some(plan) = &arguments.cell {
        return one_cell(plan, &arguments.directory);
    }
    let contenders = contender::named(&arguments.contender)?;
    for workload in workloads(&arguments.workload)? {
        let title = format!("{}: {}", workload.name, workload.about);
        let closed = rounds(&arguments, &contenders, workload, None)?;
        println!("{}", report::table(&title, &closed));
        if arguments.tails {
            let rate = OPEN_SHARE * slowest(&closed);
            let open = rounds(&arguments, &contenders, workload, Some(rate))?;
            let title = format!("{title}; open loop at {rate:.0} operations/s");
            println!("{}", report::table(&title, &open));
        }
    }
    Ok(())
}

fn workloads(names: &[String]) -> Result<Vec<Workload>> {
    if names.is_empty() {
        let is_published = |workload: &&Workload| workload.name.starts_with("test");
        return Ok(workload::ALL.iter().filter(is_published).copied().collect());
    }
    names.iter().map(|name| workload::named(name)).collect()
}

fn slowest(cells: &[Cell]) -> f64 {
    let rates = cells.iter().map(|cell| cell.outcome.rate());
    rates.fold(f64::INFINITY, f64::min)
}

fn rounds(
    arguments: &Arguments,
    contenders: &[Entry],
    workload: Workload,
    rate: Option<f64>,
) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for run in 0..arguments.runs {
        let takes_part = |entry: &&Entry| entry.is_ordered || !workload.scans();
        for entry in contenders.iter().filter(takes_part) {
            let plan = Plan {
                contender: entry.name.to_owned(),
                workload: workload.name.to_owned(),
                keys: arguments.keys,
                seconds: arguments.seconds,
                workers: arguments.workers,
                rate,
                cache_bytes: arguments.cache_bytes,
                run,
                is_synced: arguments.sync,
            };
            eprintln!("{} {} run {run}", entry.name, workload.name);
            let cell = in_own_process(&plan, arguments)?;
            keep(&cell, arguments.out.as_deref())?;
            cells.push(cell);
        }
    }
    Ok(cells)
}

fn keep(cell: &Cell, out: Option<&Path>) -> Result<()> {
    use std::io::Write as _;
    let Some(out) = out else { return Ok(()) };
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(out)?;
    Ok(writeln!(file, "{}", serde_json::to_string(cell)?)?)
}

fn in_own_process(plan: &Plan, arguments: &Arguments) -> Result<Cell> {
    let directory = &arguments.directory;
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let program = std::env::current_exe()?;
    let mut command = match arguments.memory_max {
        None => Command::new(program),
        Some(bytes) => limited(&program, bytes)?,
    };
    command.arg("--cell").arg(serde_json::to_string(plan)?);
    command.arg("--directory").arg(directory);
    let output = command.stderr(Stdio::inherit()).output()?;
    std::fs::remove_dir_all(directory)?;
    if !output.status.success() {
        bail!(
            "{} under {} ended with {}",
            plan.contender,
            plan.workload,
            output.status
        );
    }
    serde_json::from_slice(&output.stdout).context("what a cell printed")
}

/// The program under a memory limit, started by a shell that has joined the control group.
fn limited(program: &Path, bytes: u64) -> Result<Command> {
    let group = Path::new(MEMORY_GROUP);
    std::fs::create_dir_all(group).with_context(|| format!("make {MEMORY_GROUP}"))?;
    std::fs::write(group.join("memory.limit_in_bytes"), bytes.to_string())?;
    let mut command = Command::new("sh");
    let join = format!("echo $$ > {MEMORY_GROUP}/cgroup.procs && exec \"$0\" \"$@\"");
    command.arg("-c").arg(join).arg(program);
    Ok(command)
}

fn one_cell(plan: &str, directory: &Path) -> Result<()> {
    let plan: Plan = serde_json::from_str(plan)?;
    let entry = contender::ALL
        .iter()
        .find(|entry| entry.name == plan.contender);
    let entry = *entry.context("no such contender")?;
    let workload = workload::named(&plan.workload)?;
    let cell = cell::measure(entry, workload, &plan, directory)?;
    println!("{}", serde_json::to_string(&cell)?);
    Ok(())
}
