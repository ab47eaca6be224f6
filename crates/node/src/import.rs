//! `kvorum import`: bringing data over from Riak, into a node that runs or one that does not.
//!
//! A stopped node is started for the import within this process, on a loopback port of its own that is
//! not announced. Imported objects are written like a client's.

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use kvorum_disk::RealDisk;
use kvorum_import::{ImportError, ImportTarget, Progress, SharedOptions, Summary, System};
use kvorum_runtime::{Executor, ListenOptions, ProductionOptions, Runtime, TaskGuard};
use kvorum_settings::Settings;
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, test_kill_process};

use crate::admin_client;
use crate::arguments::ConfigurationArguments;
use crate::configuration_file;
use crate::console::say;
use crate::node::Node;
use crate::server::protobuf_settings;
use kvorum_admin::AdminRequest;

/// The exit code of an import that ended without importing everything.
const EXIT_WITH_LOSSES: u8 = 3;
/// Time between two reports of progress on a terminal, and elsewhere.
const TICK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(10);

/// The source of an import.
#[derive(Subcommand)]
pub(crate) enum ImportVerb {
    /// Import the bitcask directories of Riak nodes.
    ///
    /// Resumes if it is interrupted and started again. Exit code: 0 when everything was
    /// imported, 3 when the import ended and something could not be read or converted, 1 when it
    /// stopped before its end.
    #[command(name = "riak-bitcask")]
    Bitcask(RiakBitcaskArguments),
    /// Import the LevelDB stores of Riak nodes.
    ///
    /// Resumes if it is interrupted and started again. Exit code: 0 when everything was
    /// imported, 3 when the import ended and something could not be read or converted, 1 when it
    /// stopped before its end.
    #[command(name = "riak-leveldb")]
    Leveldb(RiakLeveldbArguments),
    /// Import the leveled stores of Riak nodes, from their journals.
    ///
    /// Resumes if it is interrupted and started again. Exit code: 0 when everything was
    /// imported, 3 when the import ended and something could not be read or converted, 1 when it
    /// stopped before its end.
    #[command(name = "riak-leveled")]
    Leveled(RiakLeveledArguments),
    /// Import Riak nodes with several backends: their bitcask, LevelDB and leveled stores, one after the other.
    ///
    /// Resumes if it is interrupted and started again. Exit code: 0 when everything was
    /// imported, 3 when the import ended and something could not be read or converted, 1 when it
    /// stopped before its end.
    #[command(name = "riak-multi")]
    Multi(RiakMultiArguments),
    /// Stores of HanoiDB are not imported: names the alternative.
    #[command(name = "riak-hanoidb", hide = true)]
    Hanoidb(NotImportedArguments),
    /// Stores of Innostore are not imported: names the alternative.
    #[command(name = "riak-innostore", hide = true)]
    Innostore(NotImportedArguments),
}

/// The stores of one backend, with the options of their import.
#[derive(Clone)]
enum Source {
    Bitcask(RiakBitcaskArguments),
    Leveldb(RiakLeveldbArguments),
    Leveled(RiakLeveledArguments),
}

/// Arguments of an import that does not exist.
#[derive(Args)]
pub(crate) struct NotImportedArguments {
    /// Any arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    any: Vec<String>,
}

/// The reason why there is no import from HanoiDB.
const HANOIDB_NOT_IMPORTED: &str = "stores of HanoiDB are not imported: no Riak that was released ran on it. \
    Read the objects from the cluster that has them and put them here, as any client does";

/// The reason why there is no import from Innostore.
const INNOSTORE_NOT_IMPORTED: &str = "stores of Innostore are not imported: Riak 1.0 was the last with that \
    backend. Read the objects from the cluster that has them and put them here, as any client does";

/// Arguments of `kvorum import riak-bitcask`.
#[derive(Args, Clone)]
pub(crate) struct RiakBitcaskArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Directory for the import's index and progress
    #[arg(long, value_name = "DIR", default_value = "riak-bitcask-import")]
    state: PathBuf,
    /// Leave out objects written longer ago than this, as bitcask.expiry would
    #[arg(long, value_name = "SECONDS")]
    expiry_secs: Option<u64>,
    /// Scan data files even where a hint file is valid
    #[arg(long)]
    ignore_hints: bool,
}

/// Arguments of `kvorum import riak-leveldb`.
#[derive(Args, Clone)]
pub(crate) struct RiakLeveldbArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Directory for the import's sorted logs and progress
    #[arg(long, value_name = "DIR", default_value = "riak-leveldb-import")]
    state: PathBuf,
    /// Slow tier of a DIR (leveldb.tiered.path.slow with leveldb.data_root behind it); once for each
    /// DIR, in the same order
    #[arg(long, value_name = "DIR")]
    tiered_slow: Vec<PathBuf>,
    /// Leave out objects written longer ago than this, as leveldb.expiration.retention_time would
    #[arg(long, value_name = "MINUTES")]
    retention_minutes: Option<u64>,
    /// Take all tables and logs that are there, ignoring manifests
    #[arg(long)]
    ignore_manifests: bool,
}

/// Arguments of `kvorum import riak-multi`.
#[derive(Args)]
pub(crate) struct RiakMultiArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Directory for the imports' indexes and progress, one below it for each backend
    #[arg(long, value_name = "DIR", default_value = "riak-multi-import")]
    state: PathBuf,
}

/// Arguments of `kvorum import riak-leveled`.
#[derive(Args, Clone)]
pub(crate) struct RiakLeveledArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Directory for the import's index and progress
    #[arg(long, value_name = "DIR", default_value = "riak-leveled-import")]
    state: PathBuf,
}

/// Arguments of every import.
#[derive(Args, Clone)]
struct CommonArguments {
    /// Directories with the files of a partition, or directories of such directories
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Import into the node at this protocol-buffer address [default: the node of the
    /// configuration, started for the import if it is not running]
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Forget the progress of an earlier import and begin anew
    #[arg(long)]
    restart: bool,
    /// Read and check everything, count it, and import nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave out tombstones; sound when the directories hold all replicas
    #[arg(long)]
    leave_out_tombstones: bool,
    /// Import although a running process holds a lock, or has files of a store open
    #[arg(long)]
    ignore_locks: bool,
    /// Connections to the node
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    /// Seconds for which the node may be away or refuse before the import stops
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience_secs: u64,
    /// Print the summary as JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    configuration: ConfigurationArguments,
}

impl ImportVerb {
    fn common(&self) -> anyhow::Result<&CommonArguments> {
        match self {
            Self::Bitcask(arguments) => Ok(&arguments.common),
            Self::Leveldb(arguments) => Ok(&arguments.common),
            Self::Leveled(arguments) => Ok(&arguments.common),
            Self::Multi(arguments) => Ok(&arguments.common),
            Self::Hanoidb(arguments) => {
                bail!(
                    "{HANOIDB_NOT_IMPORTED} (not read: {})",
                    arguments.any.join(" ")
                )
            }
            Self::Innostore(arguments) => {
                bail!(
                    "{INNOSTORE_NOT_IMPORTED} (not read: {})",
                    arguments.any.join(" ")
                )
            }
        }
    }

    /// The sources, in the order of their import.
    fn sources(&self) -> Vec<Source> {
        match self {
            Self::Bitcask(arguments) => vec![Source::Bitcask(arguments.clone())],
            Self::Leveldb(arguments) => vec![Source::Leveldb(arguments.clone())],
            Self::Leveled(arguments) => vec![Source::Leveled(arguments.clone())],
            Self::Multi(arguments) => arguments.sources(),
            Self::Hanoidb(_) | Self::Innostore(_) => Vec::new(),
        }
    }
}

impl RiakMultiArguments {
    /// The stores of each backend, as its own verb takes them without further options.
    fn sources(&self) -> Vec<Source> {
        let common = || self.common.clone();
        vec![
            Source::Bitcask(RiakBitcaskArguments {
                common: common(),
                state: self.state.join("bitcask"),
                expiry_secs: None,
                ignore_hints: false,
            }),
            Source::Leveldb(RiakLeveldbArguments {
                common: common(),
                state: self.state.join("leveldb"),
                tiered_slow: Vec::new(),
                retention_minutes: None,
                ignore_manifests: false,
            }),
            Source::Leveled(RiakLeveledArguments {
                common: common(),
                state: self.state.join("leveled"),
            }),
        ]
    }
}

impl Source {
    fn common(&self) -> &CommonArguments {
        match self {
            Self::Bitcask(arguments) => &arguments.common,
            Self::Leveldb(arguments) => &arguments.common,
            Self::Leveled(arguments) => &arguments.common,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Bitcask(_) => "bitcask",
            Self::Leveldb(_) => "leveldb",
            Self::Leveled(_) => "leveled",
        }
    }

    /// The operation under way, for an error.
    fn action(&self) -> String {
        format!("import the {} stores", self.name())
    }

    /// The same from only these directories.
    fn from(&self, directories: Vec<PathBuf>) -> Self {
        let mut source = self.clone();
        let common = match &mut source {
            Self::Bitcask(arguments) => &mut arguments.common,
            Self::Leveldb(arguments) => &mut arguments.common,
            Self::Leveled(arguments) => &mut arguments.common,
        };
        common.directories = directories;
        source
    }
}

/// Imports by the command line.
pub(crate) fn main(verb: &ImportVerb) -> anyhow::Result<ExitCode> {
    // Refused before anything is begun.
    verb.common()?;
    let executor: Executor = Runtime::production(&ProductionOptions::default())?;
    let sources = verb.sources();
    let summaries = match &sources[..] {
        [only] => vec![(only.name(), import(&executor, only)?)],
        several => import_each(&executor, several)?,
    };
    print_summaries(verb, &summaries)?;
    Ok(match summaries.iter().all(|(_, it)| it.is_whole()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_WITH_LOSSES),
    })
}

/// The stores of each backend, from the directories that have some of it. A directory without stores of any
/// backend is an error.
fn with_stores(executor: &Executor, sources: &[Source]) -> anyhow::Result<Vec<Source>> {
    let Some(first) = sources.first() else {
        return Ok(Vec::new());
    };
    let mut having: Vec<Vec<PathBuf>> = sources.iter().map(|_| Vec::new()).collect();
    for directory in &first.common().directories {
        let mut nothing = None;
        for (source, having) in sources.iter().zip(&mut having) {
            match check_source(executor, &source.from(vec![directory.clone()])) {
                Ok(()) => having.push(directory.clone()),
                Err(error @ ImportError::NothingFound { .. }) => nothing = Some(error),
                Err(error) => return Err(advise(error).context(source.action())),
            }
        }
        if let Some(error) = nothing
            && !having.iter().any(|it| it.contains(directory))
        {
            return Err(advise(error));
        }
    }
    let with_some = sources.iter().zip(having).filter(|it| !it.1.is_empty());
    Ok(with_some
        .map(|(source, directories)| source.from(directories))
        .collect())
}

/// Imports one after the other.
fn import_each(
    executor: &Executor,
    sources: &[Source],
) -> anyhow::Result<Vec<(&'static str, Summary)>> {
    let mut summaries = Vec::new();
    for source in with_stores(executor, sources)? {
        let imported = import(executor, &source).with_context(|| source.action())?;
        summaries.push((source.name(), imported));
    }
    Ok(summaries)
}

fn import(executor: &Executor, source: &Source) -> anyhow::Result<Summary> {
    let arguments = source.common();
    if arguments.dry_run {
        return run(executor, source, None);
    }
    let Some(name) = &arguments.to else {
        return import_into_configured(executor, source);
    };
    let address = resolve(name)?;
    let name = name.clone();
    run(executor, source, Some(ImportTarget { address, name }))
}

fn import_into_configured(executor: &Executor, source: &Source) -> anyhow::Result<Summary> {
    let loaded = configuration_file::load(&source.common().configuration.source())?;
    let settings = &loaded.configuration.settings;
    let data = std::path::absolute(&settings.node.data_dir)?;
    let name = format!("the node of {}", data.display());
    if admin_client::ask(settings, &AdminRequest::Ping).is_ok() {
        let listeners = &settings.listeners.protobuf;
        let Some((_, address)) = listeners.iter().next() else {
            bail!("the running node's configuration has no listener.protobuf; name one with --to");
        };
        let address = reachable(*address);
        return run(executor, source, Some(ImportTarget { address, name }));
    }
    check_source(executor, source).map_err(advise)?;
    let temporary = TemporaryServer::start(executor, settings)?;
    let address = temporary.address;
    let outcome = run(executor, source, Some(ImportTarget { address, name }));
    let stopped = temporary.stop(executor);
    let summary = outcome?;
    stopped.map(|()| summary)
}

/// Checked first, since a node that is started in vain leaves a data directory.
fn check_source(executor: &Executor, source: &Source) -> Result<(), ImportError> {
    let system = system(executor);
    match source {
        Source::Bitcask(arguments) => {
            kvorum_import_bitcask::check_source(&system, &bitcask_options(arguments, None))
        }
        Source::Leveldb(arguments) => {
            kvorum_import_leveldb::check_source(&system, &leveldb_options(arguments, None))
        }
        Source::Leveled(arguments) => {
            let options = shared_options(&arguments.common, &arguments.state, None);
            kvorum_import_leveled::check_source(&system, &options)
        }
    }
}

fn system(executor: &Executor) -> System {
    System {
        disk: Arc::new(RealDisk),
        runtime: executor.runtime(),
        file_mode,
        is_running,
        lock_holder,
        open_file,
    }
}

fn run(
    executor: &Executor,
    source: &Source,
    target: Option<ImportTarget>,
) -> anyhow::Result<Summary> {
    let runtime = executor.runtime();
    let system = system(executor);
    let progress = Arc::new(Progress::default());
    let shown = show(&runtime, progress.clone());
    let outcome = match source {
        Source::Bitcask(arguments) => {
            let options = bitcask_options(arguments, target);
            executor.block_on(kvorum_import_bitcask::import(system, options, progress))
        }
        Source::Leveldb(arguments) => {
            let options = leveldb_options(arguments, target);
            executor.block_on(kvorum_import_leveldb::import(system, options, progress))
        }
        Source::Leveled(arguments) => {
            let options = shared_options(&arguments.common, &arguments.state, target);
            executor.block_on(kvorum_import_leveled::import(system, options, progress))
        }
    };
    drop(shown);
    if std::io::stderr().is_terminal() {
        // Ends the line of progress. A failure to show it is no reason to fail.
        let _unseen = writeln!(std::io::stderr());
    }
    outcome.map_err(advise)
}

fn bitcask_options(
    arguments: &RiakBitcaskArguments,
    target: Option<ImportTarget>,
) -> kvorum_import_bitcask::ImportOptions {
    kvorum_import_bitcask::ImportOptions {
        shared: shared_options(&arguments.common, &arguments.state, target),
        expiry: arguments.expiry_secs.map(Duration::from_secs),
        ignore_hints: arguments.ignore_hints,
    }
}

fn leveldb_options(
    arguments: &RiakLeveldbArguments,
    target: Option<ImportTarget>,
) -> kvorum_import_leveldb::ImportOptions {
    let retention = arguments.retention_minutes;
    kvorum_import_leveldb::ImportOptions {
        shared: shared_options(&arguments.common, &arguments.state, target),
        slow_tiers: arguments.tiered_slow.clone(),
        retention: retention.map(|minutes| Duration::from_secs(minutes.saturating_mul(60))),
        ignore_manifests: arguments.ignore_manifests,
    }
}

fn shared_options(
    common: &CommonArguments,
    state: &Path,
    target: Option<ImportTarget>,
) -> SharedOptions {
    SharedOptions {
        directories: common.directories.clone(),
        state_directory: state.to_owned(),
        target,
        ignore_locks: common.ignore_locks,
        leave_out_tombstones: common.leave_out_tombstones,
        connections: common.connections,
        patience: Duration::from_secs(common.patience_secs),
        restart: common.restart,
    }
}

/// Adds advice to the error of an import that stopped.
fn advise(error: ImportError) -> anyhow::Error {
    let advice = match &error {
        ImportError::MissingTypes { names } => {
            let commands = names.iter().map(|name| {
                format!(
                    "\n  kvorum admin bucket-type create {name} '{{\"props\":{{}}}}' && \
                     kvorum admin bucket-type activate {name}"
                )
            });
            let commands: String = commands.collect();
            format!("nothing was imported; give the types their properties first:{commands}")
        }
        ImportError::InUse { .. } => {
            "stop Riak, or import a copy of the directory; --ignore-locks \
             if the lock was left behind and the process is another one"
                .to_owned()
        }
        ImportError::OtherImport { .. } => "name another directory with --state, or begin anew \
             with --restart"
            .to_owned(),
        ImportError::StateDamaged { .. } => "begin anew with --restart; nothing is imported \
             twice"
            .to_owned(),
        ImportError::NothingFound { what, .. } => {
            format!("name the directory of a Riak node that has {what}, or one partition in it")
        }
        ImportError::NoDirectory { .. } => {
            "name the data directory of a Riak node, or one partition in it".to_owned()
        }
        ImportError::SeveralRoots { .. } => {
            "Riak serves those that its riak.conf names as data_root, and others may be left over \
             from a move: name the right ones, each by itself"
                .to_owned()
        }
        ImportError::NoManifest { .. } => {
            "if this is the slow half of a tiered store, name it with \
             --tiered-slow beside the fast half; if the manifest is lost, --ignore-manifests takes \
             all tables that are there"
                .to_owned()
        }
        ImportError::TierCount { .. } => {
            "name one --tiered-slow for each directory, in the same order".to_owned()
        }
        ImportError::AllMarkedForDeletion { .. } => {
            "take the mark away from the copy with chmod o-x".to_owned()
        }
        ImportError::Unavailable { .. } | ImportError::Disk(_) | ImportError::Runtime(_) => {
            "the same command goes on from here".to_owned()
        }
    };
    anyhow::Error::new(error).context(advice)
}

fn print_summaries(verb: &ImportVerb, summaries: &[(&'static str, Summary)]) -> anyhow::Result<()> {
    let is_json = verb.common()?.json;
    let one = |summary: &Summary| match is_json {
        true => serde_json::to_string_pretty(summary),
        false => Ok(summary.to_string()),
    };
    let text = match (summaries, verb) {
        ([(_, only)], verb) if !matches!(verb, ImportVerb::Multi(_)) => one(only)?,
        (several, _) if is_json => {
            let by_name: BTreeMap<_, _> = several.iter().map(|(name, it)| (*name, it)).collect();
            serde_json::to_string_pretty(&by_name)?
        }
        (several, _) => {
            let texts = several.iter().map(|(name, it)| format!("{name}:\n{it}"));
            texts.collect::<Vec<_>>().join("\n")
        }
    };
    say(&text);
    Ok(())
}

/// Shows progress until the guard is dropped.
fn show(runtime: &Runtime, progress: Arc<Progress>) -> TaskGuard<()> {
    let runtime_of_task = runtime.clone();
    let is_terminal = std::io::stderr().is_terminal();
    let task = async move {
        loop {
            let pause = if is_terminal { TICK } else { LINE };
            runtime_of_task.sleep(pause).await;
            if let Some(view) = progress.view(runtime_of_task.now()) {
                let _unseen = match is_terminal {
                    true => write!(std::io::stderr(), "\r{view}\x1b[K"),
                    false => writeln!(std::io::stderr(), "{view}"),
                };
            }
        }
    };
    runtime.spawn("import progress", task).abort_on_drop()
}

/// A node that serves only this process.
struct TemporaryServer {
    node: Node,
    server: Arc<kvorum_server_pb::Server>,
    address: SocketAddr,
}

impl TemporaryServer {
    fn start(executor: &Executor, settings: &Settings) -> anyhow::Result<Self> {
        let runtime = executor.runtime();
        let node = Node::open(settings, executor, Vec::new());
        let node = node.context("start the node for the import")?;
        let listening = executor.block_on(async {
            let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            runtime.listen(loopback, ListenOptions::default())
        });
        let listener = match listening {
            Ok(listener) => listener,
            Err(error) => {
                let _first_error_counts = node.close(executor);
                return Err(error).context("listen on a loopback port");
            }
        };
        let address = listener.local_address();
        let server = Arc::new(kvorum_server_pb::Server::new(
            node.coordinator.clone(),
            protobuf_settings(settings),
            node.figures.clone(),
        ));
        let serving = server.clone();
        runtime.spawn("protobuf listener", async move {
            serving.serve(listener).await;
        });
        Ok(Self {
            node,
            server,
            address,
        })
    }

    fn stop(self, executor: &Executor) -> anyhow::Result<()> {
        executor.block_on(self.server.stop());
        self.node.close(executor)
    }
}

fn resolve(name: &str) -> anyhow::Result<SocketAddr> {
    let mut found = name
        .to_socket_addrs()
        .with_context(|| format!("{name} is no HOST:PORT"))?;
    found
        .next()
        .with_context(|| format!("{name} has no address"))
}

/// An address to connect to, for one to listen on.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

fn file_mode(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode())
}

/// Queries the lock without taking it, so that the source stays unchanged.
fn lock_holder(path: &Path) -> Option<u32> {
    let file = std::fs::File::open(path).ok()?;
    let blocking = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    // A holder in another namespace has no number here, but holds the lock.
    let process = blocking.pid.map_or(0, Pid::as_raw_pid);
    Some(u32::try_from(process).unwrap_or(0))
}

/// Searches the open files of all accessible processes; finds none on systems without `/proc`.
fn open_file(paths: &[PathBuf]) -> Option<(PathBuf, u32)> {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let wanted: HashMap<_, _> = paths
        .iter()
        .filter_map(|path| Some((identity(path)?, path)))
        .collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let descriptors = std::fs::read_dir(entry.path().join("fd")).ok()?;
        Some((process, descriptors))
    });
    processes.find_map(|(process, descriptors)| {
        let mut files = descriptors.flatten();
        let path = files.find_map(|descriptor| wanted.get(&identity(&descriptor.path())?))?;
        Some(((*path).clone(), process))
    })
}

fn is_running(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    // A process of another user cannot be signalled, but runs.
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))
}
