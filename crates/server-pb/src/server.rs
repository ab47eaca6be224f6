//! The server: accepts connections, gives each a task, and stops without cutting off a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_coordinator::Coordinator;
use kvorum_runtime::{Listener, Moment, Room, Stream};

use crate::connection::{Connection, Shared};
use crate::seats::{Seat, Seats};
use crate::settings::ServerSettings;

/// Pause after a failed accept. Its usual cause, a lack of file descriptors, does not end at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The receiver of the numbers of connections.
pub trait ConnectionMeter: Send + Sync {
    /// A connection was accepted.
    fn connected(&self, now: Moment);

    /// A connection has ended.
    fn disconnected(&self);
}

/// The protocol-buffer server of a node. Clones are handles to the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    meter: Arc<dyn ConnectionMeter>,
    seats: Arc<Seats>,
    /// The last connection exceeded the limit.
    is_crowded: Arc<AtomicBool>,
}

impl Server {
    /// A server that passes requests to `coordinator`.
    pub fn new(
        coordinator: Arc<Coordinator>,
        settings: ServerSettings,
        meter: Arc<dyn ConnectionMeter>,
    ) -> Self {
        Self::within(Room::default(), coordinator, settings, meter)
    }

    /// A server whose large requests and replies share `room` with other servers.
    pub fn within(
        room: Room,
        coordinator: Arc<Coordinator>,
        settings: ServerSettings,
        meter: Arc<dyn ConnectionMeter>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                coordinator,
                settings,
                room,
                fault_quotas: Arc::default(),
            }),
            meter,
            seats: Arc::default(),
            is_crowded: Arc::default(),
        }
    }

    /// Accepts connections until the server is stopped; then the address is free again. Several
    /// listeners may be served at once.
    pub async fn serve(&self, listener: Listener) {
        let Some(seat) = self.seats.take() else {
            return;
        };
        let mut is_failing = false;
        while let Some(accepted) = seat.unless_stopping(listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => {
                    is_failing = false;
                    self.open(stream, peer);
                }
                Err(error) => {
                    if !is_failing {
                        tracing::error!(event = "pb_accept_failed", error = %error);
                    }
                    is_failing = true;
                    let pause = self.shared.coordinator.runtime().sleep(ACCEPT_PAUSE);
                    seat.unless_stopping(pause).await;
                }
            }
        }
        drop(listener); // before the seat, so that a finished stop means a free address
    }

    /// Stops accepting, closes idle connections, lets requests in progress finish and their replies
    /// be sent; returns when every connection has ended. A peer that does not read its reply delays
    /// this, so the caller sets a time limit.
    pub async fn stop(&self) {
        self.seats.stop().await;
    }

    fn open(&self, stream: Stream, peer: SocketAddr) {
        if self.seats.taken() > self.shared.settings.connections_max {
            if !self.is_crowded.swap(true, Ordering::Relaxed) {
                let most = self.shared.settings.connections_max;
                tracing::warn!(event = "pb_connections_refused", peer = %peer, most);
            }
            return;
        }
        self.is_crowded.store(false, Ordering::Relaxed);
        let Some(seat) = self.seats.take() else {
            return;
        };
        if self.shared.settings.nodelay
            && let Err(error) = stream.set_nodelay(true)
        {
            tracing::debug!(event = "pb_nodelay_refused", peer = %peer, error = %error);
        }
        if self.shared.settings.keepalive
            && let Err(error) = stream.set_keepalive(true)
        {
            tracing::debug!(event = "pb_keepalive_refused", peer = %peer, error = %error);
        }
        let runtime = self.shared.coordinator.runtime();
        self.meter.connected(runtime.now());
        let open = Open {
            meter: Arc::clone(&self.meter),
            peer,
            seat,
        };
        let connection = Connection::new(Arc::clone(&self.shared), stream, peer);
        runtime.spawn("pb connection", async move {
            let open = open;
            connection.run(&open.seat).await;
        });
    }
}

/// An open connection, which is counted until it ends in any way.
struct Open {
    meter: Arc<dyn ConnectionMeter>,
    peer: SocketAddr,
    seat: Seat,
}

impl Drop for Open {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Only this task and its connection end.
            tracing::error!(event = "pb_connection_panicked", peer = %self.peer);
        }
        self.meter.disconnected();
    }
}
