//! The network between the nodes: a relay before each, which can be cut without root rights.
//!
//! Every node announces the address of its relay, so all messages between nodes pass through here.
//! The relay takes the caller's identity from the hello at the beginning of a connection. Nothing
//! passes between the sides of a cut: data waits in both directions, as in TCP while packets are
//! lost, and new connections get no answer. Rejected alternatives: firewall rules, which need root
//! rights; and a switch in the server to refuse peers, which would let anyone break a cluster, and
//! would not test the detection of silence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_peer::hello::{self, CALLER_BYTES};
use kvorum_ring::NodeId;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script::NodeNumber;

/// Time for a caller's hello.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// Time for which a connection made during a cut is held.
const CALL_WAIT: Duration = Duration::from_secs(10);

/// Bytes read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// One side of a cut; `None` without a cut.
type Side = Option<BTreeSet<NodeNumber>>;

/// All relays. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network {
    side: watch::Sender<Side>,
    callers: Arc<Mutex<BTreeMap<NodeId, NodeNumber>>>,
}

/// The relay before one node; connections through it end when it is dropped.
pub(crate) struct Relay {
    /// The address to which other nodes connect.
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
    ended: watch::Sender<bool>,
}

/// The gate between two nodes: passes or holds their messages.
#[derive(Clone)]
struct Gate {
    side: watch::Receiver<Side>,
    nodes: [NodeNumber; 2],
}

impl Network {
    pub(crate) fn whole() -> Self {
        Self {
            side: watch::Sender::new(None),
            callers: Arc::default(),
        }
    }

    /// Begins a cut: nothing passes between `side` and the others.
    pub(crate) fn cut(&self, side: BTreeSet<NodeNumber>) {
        self.side.send_replace(Some(side));
    }

    /// Ends the cut: everything passes.
    pub(crate) fn mend(&self) {
        self.side.send_replace(None);
    }

    /// Records the identity of a node.
    pub(crate) fn introduce(&self, id: NodeId, node: NodeNumber) {
        self.callers.lock().insert(id, node);
    }

    /// Sets a relay before `node`, which listens at `target`.
    pub(crate) async fn relay(
        &self,
        node: NodeNumber,
        target: SocketAddr,
    ) -> anyhow::Result<Relay> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = bound.context("opening a port for a relay")?;
        let address = listener.local_addr().context("the port of a relay")?;
        let ended = watch::Sender::new(false);
        let end = ended.subscribe();
        let network = self.clone();
        let accepting = tokio::spawn(async move {
            loop {
                // File descriptors may have run out; the caller tries again.
                let Ok((caller, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (network, mut end) = (network.clone(), end.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = network.pass_on(caller, node, target) => {}
                        _ = end.wait_for(|ended| *ended) => {}
                    }
                });
            }
        });
        Ok(Relay {
            address,
            accepting,
            ended,
        })
    }

    /// Relays one connection, both ways, until it ends.
    async fn pass_on(
        &self,
        mut caller: TcpStream,
        node: NodeNumber,
        target: SocketAddr,
    ) -> std::io::Result<()> {
        let mut start = [0; CALLER_BYTES];
        tokio::time::timeout(HELLO_WAIT, caller.read_exact(&mut start)).await??;
        // An unknown caller is node 0, which is never on the first side of a cut.
        let known = hello::caller(&start).and_then(|id| self.callers.lock().get(&id).copied());
        let mut gate = Gate {
            side: self.side.subscribe(),
            nodes: [known.unwrap_or(0), node],
        };
        // The caller has given up by then.
        tokio::time::timeout(CALL_WAIT, gate.open()).await?;
        let mut target = TcpStream::connect(target).await?;
        target.write_all(&start).await?;
        caller.set_nodelay(true)?;
        target.set_nodelay(true)?;
        let (from_caller, to_caller) = caller.into_split();
        let (from_target, to_target) = target.into_split();
        let there = pump(from_caller, to_target, gate.clone());
        let back = pump(from_target, to_caller, gate);
        tokio::try_join!(there, back).map(drop)
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut gate: Gate,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        gate.open().await;
        let read = from.read(&mut piece).await?;
        // The gate may have closed meanwhile.
        gate.open().await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..read]).await?;
    }
}

impl Gate {
    /// Waits until the gate is open.
    async fn open(&mut self) {
        let [one, other] = self.nodes;
        let passes = |side: &Side| {
            side.as_ref()
                .is_none_or(|side| side.contains(&one) == side.contains(&other))
        };
        if self.side.wait_for(passes).await.is_err() {
            // The network is gone, so nothing can pass.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: NodeId = NodeId::from_bytes([7; 16]);
    const MOMENT: Duration = Duration::from_millis(200);

    fn hello() -> [u8; CALLER_BYTES] {
        let mut hello = [0; CALLER_BYTES];
        hello[..8].copy_from_slice(b"KvPeer\r\n");
        hello[CALLER_BYTES - 16..].copy_from_slice(CALLER.as_bytes());
        hello
    }

    /// Connects from node 1 to node 2 through its relay.
    async fn call(network: &Network) -> (Relay, TcpStream, TcpListener) {
        network.introduce(CALLER, 1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = network.relay(2, listener.local_addr().unwrap()).await;
        let relay = relay.unwrap();
        let mut caller = TcpStream::connect(relay.address).await.unwrap();
        caller.write_all(&hello()).await.unwrap();
        (relay, caller, listener)
    }

    async fn hear<const COUNT: usize>(stream: &mut TcpStream) -> Option<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        let heard = tokio::time::timeout(MOMENT, stream.read_exact(&mut bytes)).await;
        heard.ok()?.ok().map(|_| bytes)
    }

    #[tokio::test]
    async fn what_is_said_passes_both_ways_and_nothing_passes_a_cut() {
        let network = Network::whole();
        let (_relay, mut caller, listener) = call(&network).await;
        let (mut called, _) = listener.accept().await.unwrap();
        assert_eq!(hear(&mut called).await, Some(hello()));
        called.write_all(b"yes").await.unwrap();
        assert_eq!(hear(&mut caller).await, Some(*b"yes"));

        network.cut(BTreeSet::from([1, 3]));
        caller.write_all(b"one").await.unwrap();
        called.write_all(b"two").await.unwrap();
        assert_eq!(hear::<1>(&mut called).await, None);
        assert_eq!(hear::<1>(&mut caller).await, None);
        network.mend();
        assert_eq!(hear(&mut called).await, Some(*b"one"));
        assert_eq!(hear(&mut caller).await, Some(*b"two"));

        network.cut(BTreeSet::from([1, 2]));
        caller.write_all(b"ours").await.unwrap();
        assert_eq!(hear(&mut called).await, Some(*b"ours"), "on one side");
    }

    #[tokio::test]
    async fn a_connection_begun_during_a_cut_waits_for_its_end() {
        let network = Network::whole();
        network.cut(BTreeSet::from([1]));
        let (_relay, _caller, listener) = call(&network).await;
        let reached = tokio::time::timeout(MOMENT, listener.accept()).await;
        assert!(reached.is_err());
        network.mend();
        let (mut called, _) = listener.accept().await.unwrap();
        assert_eq!(hear(&mut called).await, Some(hello()));
    }

    #[tokio::test]
    async fn connections_end_with_their_relay() {
        let network = Network::whole();
        let (relay, mut caller, listener) = call(&network).await;
        let (_called, _) = listener.accept().await.unwrap();
        drop(relay);
        assert_eq!(caller.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}
