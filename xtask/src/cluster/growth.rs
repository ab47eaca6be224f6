//! One node becomes three while clients write, read and list: acknowledged objects are always
//! found, no request is refused, and every list is complete.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::runtime::Handle;

use crate::cluster::census;
use crate::cluster::fleet::Fleet;
use crate::cluster::writers::{self, Expectation, Knowledge};

/// Grows a cluster from machines that are separate clusters.
pub(super) fn growth(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let nodes = fleet.addresses();
    let first = nodes.first().copied().context("no machines")?;
    runtime.block_on(writers::allow_siblings(first))?;
    runtime.block_on(census::take(first))?;
    let alone = writers::start(runtime, 100..106, &[first], Expectation::Current, seed);
    thread::sleep(Duration::from_millis(500));
    let listing = census::start_listing(runtime, &nodes[..1]);
    let joined = fleet.join();
    let all = writers::start(runtime, 106..112, &nodes, Expectation::Current, seed);
    let settled = joined.and_then(|()| fleet.await_settled());
    // Clients continue for a moment: the partition that moved last is closed last.
    thread::sleep(Duration::from_secs(1));
    let lists = listing.finish(runtime)?;
    let mut found = alone.finish(runtime)?;
    found.add(all.finish(runtime)?);
    let outline = found.outline();
    let is_undisturbed = found.is_undisturbed();
    let sound = found.require_sound();
    known.add(found);
    let settled = settled?;
    sound?;
    lists.require_exact()?;
    ensure!(is_undisturbed, "clients saw errors: {outline}");
    Ok(format!(
        "{outline}; {} lists exact; settled after {} ms",
        lists.exact,
        settled.as_millis()
    ))
}
