//! All peers of a node: the connections to them, and the answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvorum_ring::NodeId;
use kvorum_runtime::{Listener, Moment, Runtime};
use parking_lot::Mutex;

use crate::connected::{Callers, Connected};
use crate::dialler::{Asking, Call};
use crate::encryption::Encryption;
use crate::error::PeerError;
use crate::hello::{Introduction, NO_NODE};
use crate::lane::Lane;
use crate::message::Message;
use crate::service::{Caller, Directory, PeerService};
use crate::serving::{Answering, serve};
use crate::settings::PeerSettings;

/// Connections to other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    directory: Arc<dyn Directory>,
    settings: PeerSettings,
    encryption: Encryption,
    callers: Arc<Callers>,
    links: Mutex<BTreeMap<(NodeId, Lane), Arc<Link>>>,
}

/// One lane to one node: its connection, and the last failed attempt.
#[derive(Default)]
struct Link {
    open: Mutex<Option<Arc<Asking>>>,
    /// Held while connecting, so that one attempt serves all waiting tasks.
    attempts: tokio::sync::Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    failures: u32,
    /// Address, time and error of the last failure.
    last: Option<(SocketAddr, Moment, PeerError)>,
}

impl Peers {
    /// Peers without connections, which are made when they are needed and not encrypted.
    pub fn new(runtime: Runtime, directory: Arc<dyn Directory>, settings: PeerSettings) -> Self {
        Self::encrypted(runtime, directory, settings, Encryption::Off)
    }

    /// Like [`Peers::new`], with this encryption.
    pub fn encrypted(
        runtime: Runtime,
        directory: Arc<dyn Directory>,
        settings: PeerSettings,
        encryption: Encryption,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                runtime,
                directory,
                settings,
                encryption,
                callers: Arc::default(),
                links: Mutex::default(),
            }),
        }
    }

    /// Sends a request to a node and waits for its answer until `deadline`. Dropping the future
    /// cancels the request on the other side.
    pub async fn request(
        &self,
        node: NodeId,
        lane: Lane,
        message: Message,
        deadline: Moment,
    ) -> Result<Message, PeerError> {
        let Shared {
            runtime, settings, ..
        } = &*self.shared;
        let (bytes, bytes_max) = (message.len(), settings.message_bytes_max);
        if bytes > bytes_max {
            return Err(PeerError::TooLarge { bytes, bytes_max });
        }
        let asking = self.connection(node, lane, deadline).await?;
        asking.request(runtime, message, deadline).await
    }

    async fn connection(
        &self,
        node: NodeId,
        lane: Lane,
        deadline: Moment,
    ) -> Result<Arc<Asking>, PeerError> {
        if let Some(asking) = self.open_connection(node, lane) {
            return Ok(asking);
        }
        let runtime = &self.shared.runtime;
        let remaining = deadline.since(runtime.now());
        let connected = runtime.timeout(remaining, self.connect(node, lane)).await;
        connected.map_err(|_| PeerError::Timeout { node })?
    }

    /// Like [`Peers::request`], behind all earlier requests of this node on the lane: before the
    /// peer handles this request, it has answered all of them, or has received their cancellation.
    /// For requests on connections that broke earlier, the peer uses [`Peers::end_older`].
    pub async fn request_behind(
        &self,
        node: NodeId,
        lane: Lane,
        message: Message,
        deadline: Moment,
    ) -> Result<Message, PeerError> {
        let runtime = &self.shared.runtime;
        let asking = self.connection(node, lane, deadline).await?;
        asking.request_behind(runtime, message, deadline).await
    }

    /// Ends the caller's earlier connections on the same lane, and waits until nothing more is read
    /// from them.
    pub async fn end_older(&self, caller: Caller) {
        self.shared.callers.end_older(caller).await;
    }

    /// Sends a request to the node at an address, over a separate connection with `introduction`;
    /// also returns the node's identity. For a node without a cluster.
    pub async fn knock(
        &self,
        address: SocketAddr,
        introduction: Introduction,
        message: Message,
        deadline: Moment,
    ) -> Result<(NodeId, Message), PeerError> {
        let runtime = &self.shared.runtime;
        let call = Call {
            address,
            node: NO_NODE,
            name: None,
            lane: Lane::Control,
            introduction,
        };
        let Shared {
            settings,
            encryption,
            ..
        } = &*self.shared;
        let connecting = Asking::connect(runtime, call, settings.clone(), encryption);
        let remaining = deadline.since(runtime.now());
        let timed_out = |_| PeerError::Timeout { node: NO_NODE };
        let connected = runtime.timeout(remaining, connecting).await;
        let asking = connected.map_err(timed_out)??;
        let answer = asking.request(runtime, message, deadline).await?;
        Ok((asking.node(), answer))
    }

    /// Closes the connections to and from a node that is no longer a member. Requests to it fail,
    /// and its own requests end.
    pub fn forget(&self, node: NodeId) {
        self.shared.callers.dismiss(node);
        let mut links = self.shared.links.lock();
        links.retain(|(linked, _), _| *linked != node);
    }

    /// Stops serving callers over [`Lane::Requests`]: answers requests in progress, carries out no
    /// new ones, and sends each caller a farewell. Waits at most `wait_max` until all callers have
    /// received it; afterwards, requests in progress may be dropped.
    pub async fn take_leave(&self, wait_max: Duration) {
        let Shared {
            runtime, callers, ..
        } = &*self.shared;
        let left = runtime.timeout(wait_max, callers.take_leave()).await;
        if left.is_err() {
            tracing::warn!(
                event = "peer_leave_cut_short",
                wait_ms = wait_max.as_millis()
            );
        }
    }

    /// The open connections, by node, without those that are used only once.
    pub fn connections(&self) -> Vec<Connected> {
        let mut all = self.shared.callers.all();
        let links = self.shared.links.lock();
        for ((node, lane), link) in links.iter() {
            let open = link.open.lock();
            all.extend(
                open.as_ref()
                    .filter(|it| it.is_open())
                    .map(|asking| Connected {
                        node: *node,
                        lane: *lane,
                        is_asking: true,
                        is_encrypted: asking.is_encrypted(),
                    }),
            );
        }
        all.sort_unstable();
        all
    }

    /// Encryption of connections.
    pub fn encryption(&self) -> &Encryption {
        &self.shared.encryption
    }

    /// Answers all callers, for as long as the future is polled.
    pub async fn serve(&self, listener: Listener, service: Arc<dyn PeerService>) {
        let runtime = self.shared.runtime.clone();
        let answering = Arc::new(Answering {
            runtime: runtime.clone(),
            directory: self.shared.directory.clone(),
            service,
            settings: self.shared.settings.clone(),
            encryption: self.shared.encryption.clone(),
            callers: self.shared.callers.clone(),
        });
        let mut connections = Vec::new();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(guest) = self.shared.callers.welcome(peer) else {
                        continue;
                    };
                    let serving = serve(answering.clone(), stream, guest);
                    let task = runtime.spawn("peer connection", serving).abort_on_drop();
                    connections
                        .retain(|task: &kvorum_runtime::TaskGuard<()>| !task.task().is_finished());
                    connections.push(task);
                }
                Err(error) => {
                    // For example, out of file descriptors: the state passes, or an operator sees
                    // the log.
                    tracing::error!(event = "peer_accept_failed", error = %error);
                    runtime.sleep(self.shared.settings.retry_pause_min).await;
                }
            }
        }
    }

    fn link(&self, node: NodeId, lane: Lane) -> Arc<Link> {
        let mut links = self.shared.links.lock();
        links.entry((node, lane)).or_default().clone()
    }

    fn open_connection(&self, node: NodeId, lane: Lane) -> Option<Arc<Asking>> {
        let links = self.shared.links.lock();
        let open = links.get(&(node, lane))?.open.lock();
        open.as_ref().filter(|asking| asking.is_open()).cloned()
    }

    async fn connect(&self, node: NodeId, lane: Lane) -> Result<Arc<Asking>, PeerError> {
        let Shared {
            runtime,
            directory,
            settings,
            encryption,
            ..
        } = &*self.shared;
        let link = self.link(node, lane);
        let mut attempts = link.attempts.lock().await;
        if let Some(asking) = link.open.lock().as_ref().filter(|asking| asking.is_open()) {
            return Ok(asking.clone());
        }
        let address = directory.address(node);
        let address = address.ok_or(PeerError::NoAddress { node })?;
        if let Some(error) = attempts.too_soon(address, runtime.now(), settings) {
            return Err(error);
        }
        let call = Call {
            address,
            node,
            name: directory.name(node),
            lane,
            introduction: directory.introduction(),
        };
        match Asking::connect(runtime, call, settings.clone(), encryption).await {
            Ok(asking) => {
                let asking = Arc::new(asking);
                *attempts = Attempts::default();
                *link.open.lock() = Some(asking.clone());
                Ok(asking)
            }
            Err(error) => {
                if error.is_about_encryption() {
                    tracing::warn!(event = "peer_not_encrypted", node = %node, error = %error);
                }
                attempts.failures = attempts.failures.saturating_add(1);
                attempts.last = Some((address, runtime.now(), error.clone()));
                Err(error)
            }
        }
    }
}

impl Attempts {
    /// The last error, if it is too early to try the same address again.
    fn too_soon(
        &self,
        address: SocketAddr,
        now: Moment,
        settings: &PeerSettings,
    ) -> Option<PeerError> {
        let (failed, at, error) = self.last.as_ref()?;
        let doublings = self.failures.saturating_sub(1).min(16);
        let pause = settings.retry_pause_min.saturating_mul(1 << doublings);
        let is_soon = now.since(*at) < pause.min(settings.retry_pause_max);
        (*failed == address && is_soon).then(|| error.clone())
    }
}
