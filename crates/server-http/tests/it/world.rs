//! A node with an HTTP interface, in one process with its clients.

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_cluster::{AgreedState as _, Command};
use kvorum_coordinator::{Coordinator, CoordinatorSettings};
use kvorum_encoding::BucketType;
use kvorum_object::Limits;
use kvorum_properties::{Datatype, PropertyOverlay};
use kvorum_runtime::{ListenOptions, Room, Runtime, Stream};
use kvorum_server_http::{HttpSettings, NodeFacts, Server};
use kvorum_test_cluster::{LoneNode, coordinator_settings};
use serde_json::Value;

use crate::client::Client;

/// Bytes for large requests together; enough for most tests.
pub(crate) const ROOM_BYTES: usize = 64 << 20;

/// A test's changes of the node.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) http: HttpSettings,
    pub(crate) requests_max: Option<usize>,
    pub(crate) limits: Limits,
}

/// A running node.
pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) server: Arc<Server>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) room: Room,
    pub(crate) coordinator: Arc<Coordinator>,
    address: SocketAddr,
}

impl World {
    pub(crate) async fn client(&self) -> Client {
        Client::new(self.connect().await)
    }

    pub(crate) async fn connect(&self) -> Stream {
        self.runtime.connect(self.address).await.unwrap()
    }

    pub(crate) async fn stop(&self) {
        self.server.stop(Duration::from_secs(5)).await;
    }
}

/// Runs a test against a node with default settings.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    run_with(Options::default(), test);
}

/// Runs a test against a node. Bucket types: `typed` (siblings), `single` (no siblings), and
/// `inactive`, which is created but not activated.
pub(crate) fn run_with<F: Future<Output = ()>>(options: Options, test: impl FnOnce(World) -> F) {
    let executor = Runtime::simulated(7).unwrap();
    let runtime = executor.runtime();
    let coordinator = coordinator(&runtime, &options);
    let facts = Arc::new(Facts::default());
    executor.block_on(async {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.listen(any, ListenOptions::default()).unwrap();
        let address = listener.local_address();
        let room = Room::new(ROOM_BYTES as u64);
        let server = Server::within(
            room.clone(),
            coordinator.clone(),
            options.http,
            facts.clone(),
        );
        let server = Arc::new(server);
        let serving = server.clone();
        runtime.spawn("listener", async move { serving.serve(listener).await });
        let world = World {
            runtime: runtime.clone(),
            server: server.clone(),
            facts,
            room,
            coordinator,
            address,
        };
        test(world).await;
        server.stop(Duration::from_secs(1)).await;
    });
}

fn coordinator(runtime: &Runtime, options: &Options) -> Arc<Coordinator> {
    let node = LoneNode::found(runtime, "riak@127.0.0.1", 8, options.limits).unwrap();
    let state = &node.cluster;
    for (name, overlay) in [
        ("typed", PropertyOverlay::default()),
        (
            "single",
            PropertyOverlay {
                allow_mult: Some(false),
                ..PropertyOverlay::default()
            },
        ),
        (
            "sets",
            PropertyOverlay {
                datatype: Some(Datatype::Set),
                ..PropertyOverlay::default()
            },
        ),
        (
            "once",
            PropertyOverlay {
                write_once: Some(true),
                ..PropertyOverlay::default()
            },
        ),
        ("inactive", PropertyOverlay::default()),
    ] {
        let bucket_type = BucketType::from(name);
        let create = Command::CreateType {
            bucket_type: bucket_type.clone(),
            properties: overlay,
        };
        state.propose(create).unwrap();
        if name != "inactive" {
            state
                .propose(Command::ActivateType { bucket_type })
                .unwrap();
        }
    }
    node.open().unwrap();
    let settings = CoordinatorSettings {
        requests_max: options.requests_max.unwrap_or(1_000),
        ..coordinator_settings()
    };
    Arc::new(Coordinator::new(node.parts(), settings))
}

/// A node's statistics, with a switch for panics.
#[derive(Default)]
pub(crate) struct Facts {
    panics: AtomicBool,
}

impl Facts {
    pub(crate) fn panic_from_now_on(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }
}

impl NodeFacts for Facts {
    fn stats(&self) -> Vec<(Cow<'static, str>, Value)> {
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants it");
        vec![
            ("vnode_gets".into(), 3.into()),
            ("riak_kv_version".into(), "3.4.0".into()),
            ("ring_members".into(), vec!["riak@127.0.0.1"].into()),
        ]
    }

    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }
}
