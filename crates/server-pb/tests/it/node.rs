//! A cluster of one node in memory, on a simulated network, and the clients of tests.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::{Bytes, BytesMut};
use kvorum_client::{Client, ClientSettings, Error, Frame, Get, GetOptions, MessageCode, Put, pb};
use kvorum_client::{DeleteOptions, PutOptions};
use kvorum_cluster::{AgreedState as _, Command, LocalState};
use kvorum_coordinator::{Coordinator, CoordinatorSettings};
use kvorum_encoding::BucketType;
use kvorum_object::Limits;
use kvorum_properties::PropertyOverlay;
use kvorum_protocol::CodedMessage;
use kvorum_protocol::frame::{self, FrameDecoder};
use kvorum_runtime::{Executor, ListenOptions, Moment, ProductionOptions, Room, Runtime, Stream};
use kvorum_server_pb::{ConnectionMeter, Server, ServerSettings};
use kvorum_test_cluster::{LoneNode, Vnodes, coordinator_settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const NAME: &str = "kvorum@127.0.0.1";
/// Small, so that a frame above it is quickly made.
pub(crate) const FRAME_BYTES_MAX: u32 = 2 << 20;
/// Bytes for large requests together; enough for most tests.
pub(crate) const ROOM_BYTES: usize = 64 << 20;

pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
    pub(crate) cluster: Arc<LocalState>,
    pub(crate) vnodes: Arc<Vnodes>,
    pub(crate) open_connections: Arc<OpenConnections>,
    pub(crate) room: Room,
    address: SocketAddr,
}

#[derive(Default)]
pub(crate) struct OpenConnections {
    count: AtomicI64,
    panicked: AtomicI64,
}

impl OpenConnections {
    pub(crate) fn count(&self) -> i64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Connections whose task panicked; to their peers they look like those of a server that closes.
    pub(crate) fn panicked(&self) -> i64 {
        self.panicked.load(Ordering::SeqCst)
    }
}

impl ConnectionMeter for OpenConnections {
    fn connected(&self, _now: Moment) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn disconnected(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        let panicked = i64::from(std::thread::panicking());
        self.panicked.fetch_add(panicked, Ordering::SeqCst);
    }
}

/// Runs a test against a fresh node with several copies of everything. No connection may panic.
pub(crate) fn with_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F) {
    with_settings(ServerSettings::new(NAME), test);
}

/// The same with settings of its own.
pub(crate) fn with_settings<F: Future<Output = ()>>(
    settings: ServerSettings,
    test: impl FnOnce(Node) -> F,
) {
    let executor = Runtime::simulated(1).unwrap();
    let panicked = run(&executor, settings, test).panicked();
    assert_eq!(panicked, 0, "connections panicked");
}

/// The same on real threads and sockets.
pub(crate) fn with_real_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F) {
    let executor = Runtime::production(&ProductionOptions::default()).unwrap();
    let panicked = run(&executor, ServerSettings::new(NAME), test).panicked();
    assert_eq!(panicked, 0, "connections panicked");
}

/// The same for a test that makes connections panic.
pub(crate) fn with_node_that_may_panic<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F) {
    let executor = Runtime::simulated(1).unwrap();
    run(&executor, ServerSettings::new(NAME), test);
}

fn run<F: Future<Output = ()>>(
    executor: &Executor,
    settings: ServerSettings,
    test: impl FnOnce(Node) -> F,
) -> Arc<OpenConnections> {
    let runtime = executor.runtime();
    executor.block_on(async move {
        let node = Node::start(runtime, settings);
        let open_connections = Arc::clone(&node.open_connections);
        test(node).await;
        open_connections
    })
}

impl Node {
    fn start(runtime: Runtime, settings: ServerSettings) -> Self {
        let node = LoneNode::found(&runtime, NAME, 8, Limits::default()).unwrap();
        node.open().unwrap();
        let coordinator = CoordinatorSettings {
            colocated_replicas: true,
            ..coordinator_settings()
        };
        let coordinator = Arc::new(Coordinator::new(node.parts(), coordinator));
        let settings = ServerSettings {
            frame_bytes_max: FRAME_BYTES_MAX,
            ..settings
        };
        let open_connections = Arc::<OpenConnections>::default();
        let meter = Arc::clone(&open_connections) as Arc<dyn ConnectionMeter>;
        let room = Room::new(ROOM_BYTES as u64);
        let server = Server::within(room.clone(), coordinator, settings, meter);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.listen(any, ListenOptions::default()).unwrap();
        let address = listener.local_address();
        let serving = server.clone();
        runtime.spawn("pb server", async move { serving.serve(listener).await });
        Self {
            runtime,
            server,
            cluster: node.cluster,
            vnodes: node.vnodes,
            open_connections,
            room,
            address,
        }
    }

    pub(crate) async fn connect(&self) -> Stream {
        self.runtime.connect(self.address).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client<Stream> {
        Client::over(self.connect().await, &ClientSettings::default())
    }

    pub(crate) async fn raw(&self) -> RawConnection {
        RawConnection {
            stream: self.connect().await,
            input: BytesMut::new(),
        }
    }

    /// True if no listener is left.
    pub(crate) async fn is_refusing(&self) -> bool {
        self.runtime.connect(self.address).await.is_err()
    }

    /// Creates and activates a bucket type.
    pub(crate) fn add_type(&self, name: &'static str, properties: PropertyOverlay) {
        let bucket_type = BucketType::from(name);
        let create = Command::CreateType {
            bucket_type: bucket_type.clone(),
            properties,
        };
        self.cluster.propose(create).unwrap();
        let activate = Command::ActivateType { bucket_type };
        self.cluster.propose(activate).unwrap();
    }
}

/// A connection on which a test sends bytes that no client would.
pub(crate) struct RawConnection {
    pub(crate) stream: Stream,
    input: BytesMut,
}

impl RawConnection {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next frame; `None` when the server has closed.
    pub(crate) async fn receive(&mut self) -> Option<Frame> {
        let decoder = FrameDecoder::new(u32::MAX);
        loop {
            if let Some(frame) = decoder.decode(&mut self.input).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap() == 0 {
                assert!(self.input.is_empty(), "closed within a frame");
                return None;
            }
        }
    }
}

pub(crate) fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A request as bytes.
pub(crate) fn encoded(message: &impl CodedMessage) -> Vec<u8> {
    let mut buffer = BytesMut::new();
    frame::encode(message, &mut buffer).unwrap();
    buffer.to_vec()
}

/// The text of an error frame.
pub(crate) fn error_text(frame: &Frame) -> String {
    assert_eq!(frame.code, MessageCode::RPB_ERROR_RESP);
    let error: pb::RpbErrorResp = frame.decode().unwrap();
    assert_eq!(error.errcode, 0);
    String::from_utf8(error.errmsg.to_vec()).unwrap()
}

/// The server's refusal of a request.
pub(crate) fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Server { text, .. }) => text,
        other => panic!("{other:?} where the server should have refused"),
    }
}

/// A value as content.
pub(crate) fn text_content(value: &'static str) -> pb::RpbContent {
    pb::RpbContent {
        value: bytes(value),
        content_type: Some(bytes("text/plain")),
        ..Default::default()
    }
}

/// Gets a key of the type `multi` (siblings) or of another one.
pub(crate) async fn get(
    client: &mut Client<Stream>,
    bucket_type: Option<&'static str>,
    key: &str,
    options: &GetOptions,
) -> Result<pb::RpbGetResp, Error> {
    let bucket_type = bucket_type.map(str::as_bytes);
    client
        .get(&Get {
            bucket_type,
            bucket: b"b",
            key: key.as_bytes(),
            options,
        })
        .await
}

/// Puts a value at a key.
pub(crate) async fn put(
    client: &mut Client<Stream>,
    bucket_type: Option<&'static str>,
    key: Option<&str>,
    vclock: Option<&[u8]>,
    content: &pb::RpbContent,
    options: &PutOptions,
) -> Result<pb::RpbPutResp, Error> {
    let bucket_type = bucket_type.map(str::as_bytes);
    client
        .put(&Put {
            bucket_type,
            bucket: b"b",
            key: key.map(str::as_bytes),
            vclock,
            content,
            options,
        })
        .await
}

/// Deletes a key.
pub(crate) async fn delete(
    client: &mut Client<Stream>,
    key: &str,
    vclock: Option<&[u8]>,
    options: &DeleteOptions,
) -> Result<(), Error> {
    client
        .delete(&kvorum_client::Delete {
            bucket_type: None,
            bucket: b"b",
            key: key.as_bytes(),
            vclock,
            options,
        })
        .await
}
