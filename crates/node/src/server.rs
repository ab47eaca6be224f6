//! `kvorum server`: opens the node, listens, waits for a signal, drains and closes. Stores are opened
//! while clients are answered.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_cluster::AgreedState as _;
use kvorum_disk::RealDisk;
use kvorum_member::Member;
use kvorum_runtime::{Executor, ListenOptions, Listener, ProductionOptions, Runtime};
use kvorum_server_http::Opening;
use kvorum_settings::Settings;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::allocator;
use crate::configuration_file::Loaded;
use crate::data_directory::{admin_socket, check_unlocked};
use crate::figures::{self, RIAK_VERSION};
use crate::logging::{self, NodeNames};
use crate::node::Node;
use crate::open_files;
use crate::start_report::StartReport;
use kvorum_admin::{AdminServer, stop_this_process};

/// Time for requests in progress to finish after a signal.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Time for which a request may wait for the node to open: the time-out of a request.
const REQUEST_TIME: Duration = crate::node::REQUEST_TIMEOUT;

/// The `Server` header of answers over HTTP.
const SERVER_HEADER: &str = concat!("Kvorum/", env!("CARGO_PKG_VERSION"));

/// Time to stop for a node whose standard input has ended.
const STOP_WITH_INPUT_MAX: Duration = Duration::from_secs(10);

/// Runs a node until a signal to stop.
pub(crate) fn run(loaded: &Loaded, stops_with_input: bool) -> anyhow::Result<()> {
    let settings = loaded.configuration.settings.clone();
    let names = logging::start(&settings.log)?;
    report(loaded);
    let starting = StartReport::of(loaded);
    let process = std::process::id();
    say_to_terminal(&starting.text(Some(process)));
    starting.log_event(process);
    allocator::keep_until_given_back();
    let executor: Executor = Runtime::production(&threads(&settings))?;
    let runtime = executor.runtime();
    let files = open_files::settle(&RealDisk, &settings)?;
    // Installed before anything answers: an answered client may request a stop at once.
    let mut stop = executor.block_on(async { StopSignals::install() })?;
    if stops_with_input {
        let _for_the_life_of_the_process = std::thread::spawn(stop_with_input);
    }
    // Checked before the ports of the same process are found taken, which would be a less useful
    // error.
    check_unlocked(&settings.node.data_dir)?;
    let listeners = Listeners::open(&settings, &executor)?;
    let Listeners {
        peer,
        protobuf,
        http,
    } = listeners;
    let opening = Opening::new(runtime.clone(), SERVER_HEADER, REQUEST_TIME);
    let http_addresses: Vec<_> = http.iter().map(Listener::local_address).collect();
    executor.block_on(async { http.into_iter().for_each(|it| opening.listen(it)) });
    let node = Node::open(&settings, &executor, peer)?;
    let clients_max = match files.clients_max(node.others()) {
        Ok(clients_max) => clients_max,
        Err(refusal) => {
            let _closed_or_opened_anew = node.close(&executor);
            return Err(refusal);
        }
    };
    let clients = Clients {
        protobuf,
        opening,
        http_addresses,
        connections_max: clients_max,
    };
    let learning = learn_names(node.member.clone(), names);
    let learning = runtime.spawn("node names", learning).abort_on_drop();
    executor.block_on(serve(&node, clients, &settings, &runtime, &mut stop))?;
    drop(learning);
    tracing::info!(event = "closing");
    // A store that is still being opened may be used until the runtime has shut down.
    let _locked_to_the_end = node.data.clone();
    let closed = node.close(&executor);
    let _socket_may_be_gone = std::fs::remove_file(admin_socket(&settings.node.data_dir));
    executor.shut_down(Duration::from_secs(5));
    closed?;
    tracing::info!(event = "stopped");
    Ok(())
}

/// Adds the nodes' names to lines of the log.
async fn learn_names(member: Arc<Member>, names: NodeNames) {
    let mut versions = member.state().versions();
    loop {
        versions.see();
        let state = member.state().current();
        let members = state.members().iter();
        names.learn(members.map(|(node, it)| (node.to_string(), it.name.clone())));
        if versions.changed().await.is_err() {
            return;
        }
    }
}

fn threads(settings: &Settings) -> ProductionOptions {
    let workers = settings.node.worker_threads;
    let workers = workers.and_then(|workers| usize::try_from(workers).ok());
    ProductionOptions {
        workers: workers.and_then(NonZeroUsize::new),
        ..ProductionOptions::default()
    }
}

/// Stops this process when its standard input ends, gracefully if that is quick.
///
/// Linux can also signal the death of a parent, but its "parent" is the thread that started the
/// child. A pipe ends with the process at its other end, on every system.
fn stop_with_input() {
    let mut nothing = [0; 64];
    loop {
        match std::io::stdin().read(&mut nothing) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let _ends_below_if_refused = stop_this_process();
    std::thread::sleep(STOP_WITH_INPUT_MAX);
    std::process::exit(1);
}

/// Reports key by key the effect of a configuration file, and warns of likely mistakes.
fn report(loaded: &Loaded) {
    if let Some(file) = &loaded.file {
        let text = loaded.configuration.report();
        say_to_terminal(&format!("{}:\n{}", file.display(), text.trim_end()));
    }
    for warning in &loaded.configuration.warnings {
        tracing::warn!(event = "configuration", warning = %warning);
    }
}

fn say_to_terminal(text: &str) {
    let mut out = std::io::stdout().lock();
    let _nobody_may_listen = writeln!(out, "{}", text.trim_end());
}

/// Sockets are opened first: a port in use is reported at once, before any store is touched.
struct Listeners {
    peer: Vec<Listener>,
    protobuf: Vec<Listener>,
    http: Vec<Listener>,
}

impl Listeners {
    fn open(settings: &Settings, executor: &Executor) -> anyhow::Result<Self> {
        let runtime = executor.runtime();
        executor.block_on(async {
            let backlog = settings.protobuf.backlog;
            let open = |kind: &str, name: &str, address: SocketAddr| {
                let options = ListenOptions {
                    backlog,
                    ..ListenOptions::default()
                };
                runtime.listen(address, options).with_context(|| {
                    format!("open listener.{kind}.{name}; choose another address if it is taken")
                })
            };
            let protobuf = settings.listeners.protobuf.iter();
            let http = settings.listeners.http.iter();
            let peer = settings.listeners.peer.iter();
            Ok(Self {
                peer: peer
                    .map(|(name, address)| open("peer", name, *address))
                    .collect::<anyhow::Result<_>>()?,
                protobuf: protobuf
                    .map(|(name, address)| open("protobuf", name, *address))
                    .collect::<anyhow::Result<_>>()?,
                http: http
                    .map(|(name, address)| open("http", name, *address))
                    .collect::<anyhow::Result<_>>()?,
            })
        })
    }
}

/// The listeners for clients.
struct Clients {
    protobuf: Vec<Listener>,
    /// The HTTP listeners, which answer probes already.
    opening: Opening,
    http_addresses: Vec<SocketAddr>,
    connections_max: u64,
}

async fn serve(
    node: &Node,
    clients: Clients,
    settings: &Settings,
    runtime: &Runtime,
    stop: &mut StopSignals,
) -> anyhow::Result<()> {
    // Each interface may have half of the connections.
    let connections_max = usize::try_from(clients.connections_max / 2).unwrap_or(usize::MAX);
    let protobuf = Arc::new(kvorum_server_pb::Server::within(
        node.room.clone(),
        node.coordinator.clone(),
        kvorum_server_pb::ServerSettings {
            connections_max,
            ..protobuf_settings(settings)
        },
        node.figures.clone(),
    ));
    let http = Arc::new(kvorum_server_http::Server::within(
        node.room.clone(),
        node.coordinator.clone(),
        kvorum_server_http::HttpSettings {
            connections_max,
            ..http_settings(settings)
        },
        node.figures.clone(),
    ));
    for address in &node.peer_addresses {
        tracing::info!(event = "listening", interface = "peer", %address);
    }
    for listener in clients.protobuf {
        tracing::info!(event = "listening", interface = "protobuf", address = %listener.local_address());
        let server = protobuf.clone();
        runtime.spawn(
            "protobuf listener",
            async move { server.serve(listener).await },
        );
    }
    for address in clients.http_addresses {
        tracing::info!(event = "listening", interface = "http", %address);
    }
    clients.opening.open(http.clone());
    let admin_listener = AdminServer::listen(&admin_socket(&settings.node.data_dir))?;
    let admin = AdminServer::new(kvorum_admin::Parts {
        runtime: runtime.clone(),
        node_name: settings.node.nodename.clone(),
        coordinator: node.coordinator.clone(),
        facts: node.figures.clone(),
        vnodes: node.vnodes.clone(),
        member: node.member.clone(),
        maintenance: node.maintenance.clone(),
        backups: node.backups.clone(),
    });
    runtime.spawn("admin listener", admin.serve(admin_listener));
    let noted = kvorum_backup::keep_others_noted(
        runtime.clone(),
        Arc::new(RealDisk),
        node.data.path().to_owned(),
        node.member.clone(),
    );
    let _noter = runtime.spawn("other members", noted).abort_on_drop();
    let announced = kvorum_admin::announce(node.vnodes.clone(), settings.node.nodename.clone());
    let feeding = figures::feed_always(node.figures.clone());
    let _feeder = runtime.spawn("index figures", feeding).abort_on_drop();
    let _announcer = runtime.spawn("readiness", announced).abort_on_drop();

    stop.received().await;
    tracing::info!(event = "draining");
    node.coordinator.stop_waiting();
    http.stop(DRAIN_MAX).await;
    if runtime.timeout(DRAIN_MAX, protobuf.stop()).await.is_err() {
        tracing::warn!(event = "drain_timed_out");
    }
    Ok(())
}

pub(crate) fn protobuf_settings(settings: &Settings) -> kvorum_server_pb::ServerSettings {
    let jobs = &settings.requests.jobs;
    let frame_bytes_max = u32::try_from(settings.protobuf.frame_bytes_max).unwrap_or(u32::MAX);
    kvorum_server_pb::ServerSettings {
        server_version: RIAK_VERSION.to_owned(),
        frame_bytes_max,
        nodelay: !settings.protobuf.nagle,
        keepalive: settings.protobuf.keepalive,
        jobs: kvorum_server_pb::JobSwitches {
            list_buckets: jobs.list_buckets,
            stream_list_buckets: jobs.stream_list_buckets,
            stream_list_keys: jobs.stream_list_keys,
            secondary_index: jobs.secondary_index,
            stream_secondary_index: jobs.stream_secondary_index,
            map_reduce: jobs.map_reduce,
        },
        index_timeout: settings.requests.secondary_index_timeout,
        ..kvorum_server_pb::ServerSettings::new(settings.node.nodename.clone())
    }
}

fn http_settings(settings: &Settings) -> kvorum_server_http::HttpSettings {
    let jobs = &settings.requests.jobs;
    kvorum_server_http::HttpSettings {
        body_bytes_max: settings.http.body_bytes_max,
        secure_referer_check: settings.http.secure_referer_check,
        jobs: kvorum_server_http::JobSwitches {
            list_buckets: jobs.list_buckets,
            stream_list_buckets: jobs.stream_list_buckets,
            list_keys: jobs.list_keys,
            stream_list_keys: jobs.stream_list_keys,
            secondary_index: jobs.secondary_index,
            stream_secondary_index: jobs.stream_secondary_index,
            map_reduce: jobs.map_reduce,
        },
        index_timeout: settings.requests.secondary_index_timeout,
        server_header: SERVER_HEADER.to_owned(),
        ..kvorum_server_http::HttpSettings::default()
    }
}

/// SIGTERM and SIGINT, caught from the moment of installation.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Must be called within the runtime.
    fn install() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("catch SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("catch SIGINT")?;
        Ok(Self {
            terminate,
            interrupt,
        })
    }

    /// Waits for the first signal. An earlier one counts too.
    async fn received(&mut self) {
        std::future::poll_fn(|context| {
            let terminated = self.terminate.poll_recv(context).is_ready();
            if terminated || self.interrupt.poll_recv(context).is_ready() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}
