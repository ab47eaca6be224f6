//! `cargo xtask tombstones`: memory and disk of a cluster whose keys are written and deleted, over time.
//!
//! Three servers on this machine get as many new keys as deletes of keys. Without rounds each deleted key
//! keeps a tombstone on each replica, and both grow for as long as the load goes on. A line a minute has
//! the sums over all servers; the last line compares the end with the tenth minute.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::Args;
use kvorum_client::{Client, ClientSettings};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::console;
use crate::neighbours::Neighbours;
use crate::server::{Binary, Server, Site, settings_of};
use crate::workspace::Workspace;

const NODES: usize = 3;
const BUCKET: &[u8] = b"passing";
const VALUE_BYTES: usize = 500;
const MINUTE: Duration = Duration::from_secs(60);
/// The minute with which the end is compared: caches and logs have their sizes by then.
const EARLY_MINUTE: u64 = 10;
/// Far more than necessary: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of `cargo xtask tombstones`.
#[derive(Debug, Args)]
pub(crate) struct TombstoneOptions {
    /// The engine.
    #[arg(long, default_value = "bitcask")]
    backend: String,
    /// Minutes that the load runs.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Keys that are written a second, and keys that are deleted.
    #[arg(long, default_value_t = 200)]
    keys_per_second: u32,
    /// Keys that are there at a time.
    #[arg(long, default_value_t = 10_000)]
    keys_present: u64,
    /// A finished build of the server, in place of a release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Another setting of the servers, as KEY=VALUE; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
}

/// The sums over all servers at the end of a minute.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident_kilobytes: u64,
    disk_bytes: u64,
    tombstones_waiting: u64,
    tombstones_reaped: u64,
    /// Lists that may have no rounds, since former replicas may have old copies.
    lists_with_old_copies: u64,
}

/// Runs the load and prints a line a minute.
pub(crate) fn run(workspace: &Workspace, options: &TombstoneOptions) -> anyhow::Result<bool> {
    let binary = Binary::at_or_released(options.binary.as_deref(), workspace)?;
    let directory = workspace.clean_scratch("tombstones")?;
    let mut settings = vec![
        ("storage_backend", &*options.backend),
        ("tictacaae_active", "active"),
        ("tictacaae_exchangetick", "20s"),
        ("delete_mode", "immediate"),
    ];
    settings.extend(settings_of(&options.settings)?);
    let nodes = Neighbours::start(&binary, &directory, NODES, &settings)?;
    nodes.join()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the clients' runtime")?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<anyhow::Result<u64>>> = (0..NODES)
        .zip(&nodes.sites)
        .map(|(number, site)| {
            let client = write_and_delete(number, site.protobuf, options, stop.clone());
            runtime.spawn(client)
        })
        .collect();
    let samples = observe(&nodes, options.minutes);
    stop.store(true, Ordering::Relaxed);
    let mut deleted = 0;
    for client in clients {
        deleted += runtime.block_on(client).context("a client panicked")??;
    }
    let samples = samples?;
    nodes.stop()?;
    console::line(&format!("{deleted} keys were written and deleted"));
    print_ratios(&samples);
    Ok(true)
}

/// Writes keys of its own at a share of the rate, and deletes each as soon as so many newer ones are there.
fn write_and_delete(
    number: usize,
    server: SocketAddr,
    options: &TombstoneOptions,
    stop: Arc<AtomicBool>,
) -> impl Future<Output = anyhow::Result<u64>> + use<> {
    let present = options.keys_present / NODES as u64;
    let pause = Duration::from_secs(1) * u32::try_from(NODES).unwrap_or(1);
    let pause = pause / options.keys_per_second.max(1);
    async move {
        let settings = ClientSettings {
            answer_timeout: Some(PATIENCE),
            ..ClientSettings::default()
        };
        let mut client = Client::connect(server, &settings).await?;
        let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
        let key = |count: u64| format!("{number}-{count}").into_bytes();
        let mut ticks = tokio::time::interval(pause);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            client
                .put_value(BUCKET, &key(count), value.clone())
                .await
                .context("writing a key")?;
            if let Some(old) = count.checked_sub(present) {
                let deleted = client.delete_key(BUCKET, &key(old)).await;
                deleted.context("deleting a key")?;
            }
            count += 1;
        }
        Ok(count.saturating_sub(present))
    }
}

fn observe(nodes: &Neighbours, minutes: u64) -> anyhow::Result<Vec<Sample>> {
    let (start, mut samples) = (Instant::now(), Vec::new());
    for minute in 1..=minutes {
        let end = MINUTE * u32::try_from(minute).unwrap_or(u32::MAX);
        thread::sleep(end.saturating_sub(start.elapsed()));
        let sample = Sample::take(nodes)?;
        sample.print(minute);
        samples.push(sample);
    }
    Ok(samples)
}

impl Sample {
    fn take(nodes: &Neighbours) -> anyhow::Result<Self> {
        let resident = nodes.servers.iter().map(Server::resident_kilobytes);
        let mut sample = Self {
            resident_kilobytes: resident.sum::<anyhow::Result<u64>>()?,
            disk_bytes: 0,
            tombstones_waiting: 0,
            tombstones_reaped: 0,
            lists_with_old_copies: 0,
        };
        for site in &nodes.sites {
            sample.disk_bytes += bytes_below(site.data())?;
            sample.add_tombstones(site)?;
        }
        Ok(sample)
    }

    fn add_tombstones(&mut self, site: &Site) -> anyhow::Result<()> {
        let text = site.run(&["admin", "tictacaae", "tombstones", "--json"])?;
        let shown: Value = serde_json::from_str(&text).context("reading tombstones")?;
        ensure!(shown["active"] == true, "no rounds are led: {text}");
        let number = |name: &str| shown[name].as_u64().unwrap_or(0);
        self.tombstones_waiting += number("tombstones_waiting");
        self.tombstones_reaped += number("tombstones_reaped_total");
        let lists = shown["lists"].as_array().into_iter().flatten();
        let is_old = |it: &&Value| it["stay_because"] == "old_copies";
        self.lists_with_old_copies += lists.filter(is_old).count() as u64;
        Ok(())
    }

    fn print(&self, minute: u64) {
        console::line(&format!(
            "minute {minute}: {} MB resident, {} MB on disk, {} tombstones wait, {} went, {} lists without rounds",
            self.resident_kilobytes >> 10,
            self.disk_bytes >> 20,
            self.tombstones_waiting,
            self.tombstones_reaped,
            self.lists_with_old_copies,
        ));
    }
}

/// The bytes of all files below a directory. Files come and go meanwhile.
fn bytes_below(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("listing a data directory")? {
        let entry = entry?;
        let Ok(info) = entry.metadata() else {
            continue;
        };
        bytes += match info.is_dir() {
            true => bytes_below(&entry.path())?,
            false => info.len(),
        };
    }
    Ok(bytes)
}

fn print_ratios(samples: &[Sample]) {
    let early = usize::try_from(EARLY_MINUTE - 1).unwrap_or(usize::MAX);
    let (Some(early), Some(late)) = (samples.get(early), samples.last()) else {
        return console::line(&format!("the run ended before minute {EARLY_MINUTE}"));
    };
    let ratio = |late: u64, early: u64| late as f64 / early.max(1) as f64;
    console::line(&format!(
        "the end to minute {EARLY_MINUTE}: {:.2} resident, {:.2} on disk",
        ratio(late.resident_kilobytes, early.resident_kilobytes),
        ratio(late.disk_bytes, early.disk_bytes),
    ));
}
