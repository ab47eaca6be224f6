//! The link between two machines of a simulation: slow, cut, or broken.
//!
//! A connection is a stream of bytes, so a link has the effects of a network on TCP. Bytes arrive
//! late, but never out of order. A link that is cut holds bytes back, in one direction only. Both
//! ends notice a broken connection. Lost, doubled or reordered messages occur only in protocols
//! over datagrams.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::{Randomness, SeededRandomness};

/// The properties of a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The shortest delay.
    pub delay_min: Duration,
    /// The longest delay. Delays are drawn between the two.
    pub delay_max: Duration,
    /// While this is true, nothing arrives.
    pub is_cut: bool,
}

/// Bytes that a link carries at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks on their way in one direction of a connection before its writer waits.
const CHUNKS_MAX: usize = 64;

/// All links of a simulation and the connections over them.
#[derive(Debug)]
pub(crate) struct Links {
    handle: Handle,
    randomness: SeededRandomness,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    /// Tasks that carry bytes between two machines, the lower address first.
    carriers: BTreeMap<(IpAddr, IpAddr), Vec<AbortHandle>>,
}

impl std::fmt::Debug for SeededRandomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SeededRandomness")
    }
}

/// One direction of a connection.
struct Way {
    links: Arc<Links>,
    from: IpAddr,
    to: IpAddr,
}

impl Links {
    pub(crate) fn new(handle: Handle, seed: u64) -> Self {
        Self {
            handle,
            randomness: SeededRandomness::new(seed),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn set(&self, from: IpAddr, to: IpAddr, link: Link) {
        self.state.lock().links.insert((from, to), link);
        self.changed.notify_waiters();
    }

    pub(crate) fn link(&self, from: IpAddr, to: IpAddr) -> Link {
        let link = self.state.lock().links.get(&(from, to)).copied();
        link.unwrap_or_default()
    }

    /// Breaks every connection between two machines.
    pub(crate) fn break_connections(&self, one: IpAddr, other: IpAddr) {
        let carriers = self.state.lock().carriers.remove(&pair(one, other));
        for carrier in carriers.into_iter().flatten() {
            carrier.abort();
        }
    }

    /// Waits for the delay of a packet, and while the link is cut.
    pub(crate) async fn cross(&self, from: IpAddr, to: IpAddr) {
        tokio::time::sleep(self.draw_delay(from, to)).await;
        self.until_mended(from, to).await;
    }

    async fn until_mended(&self, from: IpAddr, to: IpAddr) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enabled before the check, so that no change is missed.
            changed.as_mut().enable();
            if !self.link(from, to).is_cut {
                return;
            }
            changed.await;
        }
    }

    fn draw_delay(&self, from: IpAddr, to: IpAddr) -> Duration {
        let link = self.link(from, to);
        let span = link.delay_max.saturating_sub(link.delay_min).as_nanos();
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        if span == 0 {
            return link.delay_min;
        }
        link.delay_min + Duration::from_nanos(self.randomness.next_u64() % span)
    }

    /// Carries bytes between two pipes, whose other ends two machines hold.
    pub(crate) fn carry(
        self: &Arc<Self>,
        (from, near): (IpAddr, DuplexStream),
        (to, far): (IpAddr, DuplexStream),
    ) {
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        let mut carriers = Vec::new();
        for (from, to, read, write) in [
            (from, to, near_read, far_write),
            (to, from, far_read, near_write),
        ] {
            let way = Way {
                links: self.clone(),
                from,
                to,
            };
            carriers.push(self.handle.spawn(way.carry(read, write)).abort_handle());
        }
        let mut state = self.state.lock();
        let known = state.carriers.entry(pair(from, to)).or_default();
        known.retain(|carrier| !carrier.is_finished());
        known.extend(carriers);
    }
}

fn pair(one: IpAddr, other: IpAddr) -> (IpAddr, IpAddr) {
    (one.min(other), one.max(other))
}

impl Way {
    async fn carry(self, read: ReadHalf<DuplexStream>, write: WriteHalf<DuplexStream>) {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        // A broken pipe at either end ends the other as well.
        let _broken_or_ended = tokio::join!(
            biased;
            self.take_up(read, sender),
            self.deliver(receiver, write)
        );
    }

    async fn take_up(
        &self,
        mut read: ReadHalf<DuplexStream>,
        sender: mpsc::Sender<(Instant, Vec<u8>)>,
    ) -> io::Result<()> {
        let mut latest = Instant::now();
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let count = read.read(&mut chunk).await?;
            chunk.truncate(count);
            latest = latest.max(Instant::now() + self.links.draw_delay(self.from, self.to));
            // An empty chunk is the end of the output.
            if sender.send((latest, chunk)).await.is_err() || count == 0 {
                return Ok(());
            }
        }
    }

    async fn deliver(
        &self,
        mut receiver: mpsc::Receiver<(Instant, Vec<u8>)>,
        mut write: WriteHalf<DuplexStream>,
    ) -> io::Result<()> {
        while let Some((due, chunk)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            self.links.until_mended(self.from, self.to).await;
            if chunk.is_empty() {
                return write.shutdown().await;
            }
            write.write_all(&chunk).await?;
        }
        Ok(())
    }
}
