//! One node becomes three while clients write, read and list: nothing that was acknowledged is
//! ever not found, no request is refused, and every list is complete.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::cluster::fleet::Fleet;
use crate::cluster::survey;
use crate::cluster::writers::{self, Expectation, Knowledge};

/// Keys that nobody changes, to be listed.
const CENSUS_KEYS: usize = 300;
const CENSUS: &[u8] = b"census";

/// What listers saw.
#[derive(Debug, Default)]
struct Lists {
    exact: u32,
    /// Those that were answered with an error, and the last of them.
    refused: u32,
    refusal: Option<String>,
    wrong: Vec<String>,
}

/// Grows a fleet of machines that each stand alone.
pub(super) fn growth(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let nodes = fleet.addresses();
    let first = nodes.first().copied().context("no machines")?;
    runtime.block_on(writers::allow_siblings(first))?;
    runtime.block_on(take_census(first))?;
    let alone = writers::start(runtime, 100..106, &[first], Expectation::Current, seed);
    thread::sleep(Duration::from_millis(500));
    let listing = start_listing(runtime, &nodes[..1]);
    let joined = fleet.join();
    let all = writers::start(runtime, 106..112, &nodes, Expectation::Current, seed);
    let settled = joined.and_then(|()| fleet.await_settled());
    // Also afterwards: what moved last is closed last.
    thread::sleep(Duration::from_secs(1));
    let lists = listing.finish(runtime)?;
    let mut found = alone.finish(runtime)?;
    found.add(all.finish(runtime)?);
    let outline = found.outline();
    let is_undisturbed = found.refused.is_empty() && found.broken == 0;
    let sound = found.require_sound();
    known.add(found);
    let settled = settled?;
    sound?;
    writers::require_none("lists", &lists.wrong)?;
    ensure!(is_undisturbed, "clients saw errors: {outline}");
    ensure!(
        lists.refused == 0 && lists.exact > 0,
        "{} lists were refused: {:?}",
        lists.refused,
        lists.refusal
    );
    Ok(format!(
        "{outline}; {} lists exact; settled after {} ms",
        lists.exact,
        settled.as_millis()
    ))
}

struct Listing {
    stop: Arc<AtomicBool>,
    lister: JoinHandle<Lists>,
}

impl Listing {
    fn finish(self, runtime: &Handle) -> anyhow::Result<Lists> {
        self.stop.store(true, Ordering::SeqCst);
        runtime.block_on(self.lister).context("a lister died")
    }
}

fn start_listing(runtime: &Handle, nodes: &[SocketAddr]) -> Listing {
    let stop = Arc::new(AtomicBool::new(false));
    let lister = runtime.spawn(list_again_and_again(nodes.to_vec(), Arc::clone(&stop)));
    Listing { stop, lister }
}

async fn list_again_and_again(nodes: Vec<SocketAddr>, stop: Arc<AtomicBool>) -> Lists {
    let expected: BTreeSet<Bytes> = (0..CENSUS_KEYS).map(census_key).collect();
    let mut lists = Lists::default();
    for &node in nodes.iter().cycle() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        match survey::list(node, CENSUS).await {
            Ok(listed) => match survey::require_exact(&listed, &expected) {
                Ok(()) => lists.exact += 1,
                Err(error) => lists.wrong.push(format!("{node}: {error:#}")),
            },
            Err(error) => {
                lists.refused += 1;
                lists.refusal = Some(format!("{error:#}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lists
}

async fn take_census(node: SocketAddr) -> anyhow::Result<()> {
    let mut client = writers::connect(node).await.context("connecting")?;
    for key in (0..CENSUS_KEYS).map(census_key) {
        let put = client.put_value(CENSUS, &key, Bytes::from_static(b"here"));
        put.await.context("writing what is to be listed")?;
    }
    Ok(())
}

fn census_key(number: usize) -> Bytes {
    Bytes::from(format!("inhabitant-{number}"))
}
