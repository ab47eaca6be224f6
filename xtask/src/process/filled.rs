//! A small disk that the load itself fills: overwrites at full speed, until the server
//! refuses them for lack of space or many bytes were written. When the clients stop, the disk
//! recovers by itself, and deletes succeed meanwhile. The live data bounds the node's blocks on the
//! file system, including removed files that are still open.
//!
//! Regression: a node whose disk was filled by overwrites refused puts and deletes for good, even
//! after restarts.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use crate::process::backend::{Backend, Setting};
use crate::process::mount::Mount;
use crate::process::mounted_site::site_on;
use crate::run::Run;
use crate::server::Server;

const MEGABYTE: u64 = 1_000_000;
/// The size of the disk; a file system leaves about nine tenths of it.
const DISK_BYTES: u64 = 96 << 20;
const KEYS: u64 = 600;
const VALUE_BYTES: usize = 30_000;
const LIVE_BYTES: u64 = KEYS * VALUE_BYTES as u64;
/// The number of bytes after which clients end if the disk is never full.
const PUT_BYTES_MAX: u64 = 4 * DISK_BYTES;
const CLIENTS: u64 = 4;
const BUCKET: &[u8] = b"overwritten";
/// The time limit for a full disk to recover. Far more than necessary, for busy machines.
const WITHIN: Duration = Duration::from_secs(90);
/// Four segments of the log, and the files of a node beside its data: the agreed log, stores' small files.
const BESIDE_BYTES: u64 = 4 * SEGMENT_BYTES + 12 * MEGABYTE;
const SEGMENT_BYTES: u64 = 4 << 20;

/// Logs of a size that fits the disk, and the default sizes, which do not fit.
pub(super) const LOGS: [&[Setting]; 2] = [
    &[
        ("value_log.segment_bytes", "4MB"),
        ("value_log.bytes_max", "16MB"),
    ],
    &[],
];

/// Fills the disk, waits, and checks.
pub(super) fn a_disk_filled_by_overwrites_heals(
    run: &Run<'_>,
    backend: &Backend,
    logs: &[Setting],
    directory: &Path,
    cutter: &Path,
) -> anyhow::Result<String> {
    let mount = Mount::of_size(DISK_BYTES, directory, cutter)?;
    let site = site_on(run, &mount, &backend.with(logs))?;
    let mut server = site.start()?;
    let runtime = Runtime::new().context("starting the clients' runtime")?;
    let load = overwrite(&runtime, site.protobuf, run.seed)?;
    server.require_alive()?;
    runtime
        .block_on(delete_some(site.protobuf))
        .context("deleting right after the load")?;
    let healed = wait_for_puts(&mut server, &runtime, site.protobuf)?;
    let held = wait_for_bound(&mut server, site.data())?;
    server.kill();
    let mut server = site.start().context("starting on the small disk")?;
    wait_for_puts(&mut server, &runtime, site.protobuf).context("after a start")?;
    server.stop()?;
    Ok(format!(
        "{} puts, {} refused; puts again after {:.1} s; {} MB held with {} MB live",
        load.put,
        load.refused,
        healed.as_secs_f64(),
        held / MEGABYTE,
        LIVE_BYTES / MEGABYTE,
    ))
}

/// The results of the load.
#[derive(Debug, Default)]
struct Overwritten {
    put: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct Counts {
    put: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// Overwrites at full speed. The first refusals do not end the load: some of the refused writes
/// soon have room.
fn overwrite(runtime: &Runtime, server: SocketAddr, seed: u64) -> anyhow::Result<Overwritten> {
    const REFUSED_MAX: u64 = 40;
    let counts = Arc::new(Counts::default());
    let client = |number: u64| {
        let counts = counts.clone();
        let mut random = StdRng::seed_from_u64(seed ^ (number << 32));
        async move {
            let mut client = Client::connect(server, &ClientSettings::default()).await?;
            while !counts.is_over.load(Ordering::Relaxed) {
                let key = random.random_range(0..KEYS);
                match client
                    .put_value(BUCKET, &name(key), noise(&mut random))
                    .await
                {
                    Ok(_) => counts.put.fetch_add(1, Ordering::Relaxed),
                    Err(_) => {
                        client = Client::connect(server, &ClientSettings::default()).await?;
                        counts.refused.fetch_add(1, Ordering::Relaxed)
                    }
                };
                let put = counts.put.load(Ordering::Relaxed) * VALUE_BYTES as u64;
                let refused = counts.refused.load(Ordering::Relaxed);
                if put >= PUT_BYTES_MAX || refused >= REFUSED_MAX {
                    counts.is_over.store(true, Ordering::Relaxed);
                }
            }
            anyhow::Ok(())
        }
    };
    let clients: Vec<_> = (0..CLIENTS).map(|it| runtime.spawn(client(it))).collect();
    for client in clients {
        let ended = runtime.block_on(client).context("a client died")?;
        ended.context("overwriting")?;
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok(Overwritten {
        put: count(&counts.put),
        refused: count(&counts.refused),
    })
}

async fn delete_some(server: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(server, &ClientSettings::default()).await?;
    for key in 0..KEYS / 20 {
        client.delete_key(BUCKET, &name(key)).await?;
    }
    Ok(())
}

/// Waits until puts have more room than a file made in advance can have left.
fn wait_for_puts(
    server: &mut Server,
    runtime: &Runtime,
    address: SocketAddr,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        server.require_alive()?;
        let put = runtime.block_on(put_many(address));
        match put {
            Ok(()) => return Ok(begun.elapsed()),
            Err(error) if begun.elapsed() > WITHIN => {
                return Err(error.context(format!("puts are refused for {WITHIN:?}")));
            }
            Err(_) => thread::sleep(Duration::from_millis(500)),
        }
    }
}

async fn put_many(server: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(server, &ClientSettings::default()).await?;
    let mut random = StdRng::seed_from_u64(1);
    for key in 0..200 {
        client
            .put_value(BUCKET, &name(key), noise(&mut random))
            .await?;
    }
    Ok(())
}

/// Waits until the bytes that the server holds are within the bound, and returns them.
fn wait_for_bound(server: &mut Server, data: &Path) -> anyhow::Result<u64> {
    let begun = Instant::now();
    let bound = LIVE_BYTES * 3 / 2 + BESIDE_BYTES;
    loop {
        server.require_alive()?;
        let (there, removed) = (blocks_below(data)?, removed_and_open(server.id())?);
        let held = there + removed;
        if held <= bound {
            return Ok(held);
        }
        ensure!(
            begun.elapsed() < WITHIN,
            "{held} bytes are held, {removed} of them by files that were removed and are open; {bound} are \
             expected at most"
        );
        thread::sleep(Duration::from_millis(500));
    }
}

/// The bytes that the files below a directory take on disk.
fn blocks_below(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("listing the data directory")? {
        let entry = entry.context("listing the data directory")?;
        let Ok(found) = entry.metadata() else {
            // The file was removed meanwhile.
            continue;
        };
        bytes += match found.is_dir() {
            true => blocks_below(&entry.path()).unwrap_or_default(),
            false => found.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// Bytes of a process's open files without a name.
fn removed_and_open(process: u32) -> anyhow::Result<u64> {
    let handles = fs::read_dir(format!("/proc/{process}/fd")).context("listing open files")?;
    let removed = handles.filter_map(|handle| {
        let path = handle.ok()?.path();
        let target = fs::read_link(&path).ok()?;
        let is_removed = target.to_string_lossy().ends_with(" (deleted)");
        let found = fs::metadata(&path).ok().filter(|_| is_removed)?;
        Some(found.blocks() * 512)
    });
    Ok(removed.sum())
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// An incompressible value.
fn noise(random: &mut StdRng) -> Bytes {
    let mut bytes = vec![0; VALUE_BYTES];
    random.fill(&mut bytes[..]);
    bytes.into()
}
