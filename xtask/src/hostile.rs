//! Mixed valid and hostile traffic at full rate, over both protocols: no request takes the server down, no honest
//! client gets a wrong answer beside it, and nothing is left over when it is gone.
//!
//! The short run takes 20 seconds and judges no figure that depends on the speed of the machine. The long run
//! takes ten minutes, and compares the resident memory after minute ten with that after minute two. Hostile
//! clients write to few keys. So a server that frees the memory of its requests needs no more in the tenth
//! minute than in the second.

mod abuse;
mod footprint;
mod honest;
mod remains;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kvorum_hostile_requests::{BUCKET_TYPES, Protocol};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use crate::console;
use crate::hostile::abuse::{Abuse, Abused};
use crate::hostile::footprint::Footprint;
use crate::hostile::honest::Honest;
use crate::run::Run;
use crate::server::{Server, Site};
use crate::tally::Tally;

/// Every kind of request has an answer on this engine: indexes, folds, jobs over an index.
const SETTINGS: &[(&str, &str)] = &[
    ("storage_backend", "leveldb"),
    ("ring_size", "16"),
    ("buckets.default.allow_mult", "false"),
    // The figures are those of the requests, not those of caches that are still being filled.
    ("leveldb.maximum_memory", "64MB"),
];

/// The properties of honest clients' counters.
const COUNTER: &str = r#"{"datatype":"counter"}"#;

/// Hostile clients for each protocol, and honest ones.
const HOSTILE_CLIENTS: u64 = 12;
const HONEST_CLIENTS: u64 = 4;

const SHORT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(600);

/// Runs the stage.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    let directory = run.workspace.clean_scratch("hostile")?;
    let result = survive(run, &directory);
    let mut tally = Tally::default();
    tally.check("mixed valid and hostile traffic", &result);
    if tally.failed > 0 {
        let shown = directory.display();
        console::line(&format!("        data and log are in {shown}"));
    }
    Ok(tally)
}

fn survive(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, SETTINGS)?;
    let mut server = site.start()?;
    // No damaged name leads to the type of the honest.
    let of_the_honest = (honest::COUNTERS, COUNTER);
    for (name, properties) in BUCKET_TYPES.iter().chain([&of_the_honest]) {
        let properties = format!("{{\"props\":{properties}}}");
        site.run(&["admin", "bucket-type", "create", name, &properties])?;
        site.run(&["admin", "bucket-type", "activate", name])?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the clients' runtime")?;
    let traffic = Traffic::begin(&runtime, &site, run.seed);
    let lasting = if run.long { LONG } else { SHORT };
    let observed = observe(&mut server, &traffic, lasting);
    let (abused, honest) = traffic.end(&runtime)?;
    let footprint = observed?;
    require_no_panic(&site)?;
    remains::require_none(site.http)?;
    server.stop()?;
    if run.long {
        footprint.print();
        footprint.require_no_growth()?;
    }
    Ok(format!("{abused}; {honest}; {footprint}"))
}

/// Samples the server's memory until the time is over, or the server or an honest client has a reason to end.
fn observe(server: &mut Server, traffic: &Traffic, lasting: Duration) -> anyhow::Result<Footprint> {
    let (start, mut footprint) = (Instant::now(), Footprint::default());
    while start.elapsed() < lasting && !traffic.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
        server.require_alive()?;
        footprint.add(start.elapsed(), server.resident_kilobytes()?);
    }
    Ok(footprint)
}

/// A panic of a request's task ends no more than that request, and is still a mistake.
fn require_no_panic(site: &Site) -> anyhow::Result<()> {
    let log = fs::read(site.log()).context("reading the server's output")?;
    let log = String::from_utf8_lossy(&log);
    let panic = log.lines().find(|line| line.contains("panicked"));
    ensure!(panic.is_none(), "{}", panic.unwrap_or_default());
    Ok(())
}

/// All clients at work.
struct Traffic {
    stop: Arc<AtomicBool>,
    hostile: Vec<tokio::task::JoinHandle<Abused>>,
    honest: Vec<tokio::task::JoinHandle<anyhow::Result<Honest>>>,
}

impl Traffic {
    fn begin(runtime: &Runtime, site: &Site, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut random = StdRng::seed_from_u64(seed);
        let mut hostile = Vec::new();
        for _ in 0..HOSTILE_CLIENTS {
            for (server, protocol) in [
                (site.protobuf, Protocol::Messages),
                (site.http, Protocol::Http),
            ] {
                let abuse = Abuse { server, protocol };
                let random = StdRng::seed_from_u64(random.random());
                hostile.push(runtime.spawn(abuse.go_on(random, Arc::clone(&stop))));
            }
        }
        let honest = (0..HONEST_CLIENTS).map(|number| {
            let client = honest::go_on(number, (site.protobuf, site.http), Arc::clone(&stop));
            runtime.spawn(client)
        });
        Self {
            honest: honest.collect(),
            hostile,
            stop,
        }
    }

    /// Ends all clients; the first wrong answer that an honest one got is an error.
    fn end(self, runtime: &Runtime) -> anyhow::Result<(Abused, Honest)> {
        self.stop.store(true, Ordering::Relaxed);
        let (mut abused, mut honest) = (Abused::default(), Honest::default());
        for client in self.hostile {
            abused += runtime.block_on(client).context("a hostile client died")?;
        }
        for client in self.honest {
            honest += runtime
                .block_on(client)
                .context("an honest client died")??;
        }
        ensure!(honest.rounds > 0, "no honest client came through");
        Ok((abused, honest))
    }
}
