//! A bucket without writers, listed repeatedly: every list has every key once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::cluster::{survey, writers};

/// The number of keys in the listed bucket, which do not change.
const KEYS: usize = 300;
const BUCKET: &[u8] = b"census";

/// Results of the lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) exact: u32,
    /// Lists that were answered with an error, and the last of these errors.
    refused: u32,
    refusal: Option<String>,
    wrong: Vec<String>,
}

impl Lists {
    /// # Errors
    /// If a list was not exact or was refused, or there was no list.
    pub(super) fn require_exact(&self) -> anyhow::Result<()> {
        writers::require_none("lists", &self.wrong)?;
        ensure!(
            self.refused == 0 && self.exact > 0,
            "{} lists were refused and {} exact: {:?}",
            self.refused,
            self.exact,
            self.refusal
        );
        Ok(())
    }
}

/// A running lister.
pub(super) struct Listing {
    stop: Arc<AtomicBool>,
    lister: JoinHandle<Lists>,
}

impl Listing {
    /// Ends the listing; returns its results.
    pub(super) fn finish(self, runtime: &Handle) -> anyhow::Result<Lists> {
        self.stop.store(true, Ordering::SeqCst);
        runtime.block_on(self.lister).context("a lister died")
    }
}

/// Lists the bucket at one node after the other until stopped.
pub(super) fn start_listing(runtime: &Handle, nodes: &[SocketAddr]) -> Listing {
    let stop = Arc::new(AtomicBool::new(false));
    let lister = runtime.spawn(list_again_and_again(nodes.to_vec(), Arc::clone(&stop)));
    Listing { stop, lister }
}

async fn list_again_and_again(nodes: Vec<SocketAddr>, stop: Arc<AtomicBool>) -> Lists {
    let expected: BTreeSet<Bytes> = (0..KEYS).map(key).collect();
    let mut lists = Lists::default();
    for &node in nodes.iter().cycle() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        match survey::list(node, BUCKET).await {
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

/// Writes the keys to be listed.
pub(super) async fn take(node: SocketAddr) -> anyhow::Result<()> {
    let mut client = writers::connect(node).await.context("connecting")?;
    for key in (0..KEYS).map(key) {
        let put = client.put_value(BUCKET, &key, Bytes::from_static(b"here"));
        put.await.context("writing what is to be listed")?;
    }
    Ok(())
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("inhabitant-{number}"))
}
