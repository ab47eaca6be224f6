//! Tests of real clients, written by others for Riak, against our server.
//!
//! Their dependencies are installed below the target directory, in versions that the repository
//! pins, and installed again when the pins change.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};

use crate::command::{capture, read_named_lines};
use crate::neighbours::Neighbours;
use crate::prerequisite;
use crate::run::Run;
use crate::server::{Binary, Server, Site};
use crate::stage::Stage;
use crate::tally::Tally;

/// The folder of the Python client's runner, from the root.
const PYTHON_FOLDER: &str = "tests/conformance/python";

/// The runner's lists of packages, each with further arguments of pip. Only the client's source
/// package has the tests.
const PYTHON_LISTS: &[(&str, &[&str])] = &[
    ("requirements.txt", &[]),
    (
        "client.txt",
        &["--no-deps", "--no-build-isolation", "--no-binary", "riak"],
    ),
];

/// The folder of the Node.js client's scenarios, from the root.
const NODE_FOLDER: &str = "tests/conformance/node";

/// The settings that clients' tests expect of a server: Riak's name for the node, which one test
/// compares, and several copies on one node, which one test counts.
pub(crate) const SETTINGS: &[(&str, &str)] =
    &[("nodename", "riak@127.0.0.1"), ("colocated_replicas", "on")];

/// The bucket types for the clients' tests.
const BUCKET_TYPES: &[(&str, &str)] = &[
    (
        "counters",
        r#"{"props":{"datatype":"counter","allow_mult":true}}"#,
    ),
    (
        "gsets",
        r#"{"props":{"datatype":"gset","allow_mult":true}}"#,
    ),
    (
        "hlls",
        r#"{"props":{"datatype":"hll","hll_precision":14,"allow_mult":true}}"#,
    ),
    ("maps", r#"{"props":{"datatype":"map","allow_mult":true}}"#),
    ("sets", r#"{"props":{"datatype":"set","allow_mult":true}}"#),
    ("no_siblings", r#"{"props":{"allow_mult":false}}"#),
    ("plain", r#"{"props":{}}"#),
    ("write_once", r#"{"props":{"write_once":true}}"#),
];

/// A bucket that the Python suite lists with a limit of one millisecond, which has to fail. Listing
/// its own thousand keys takes less.
const LISTED_BUCKET: &[u8] = b"random_key_bucket";

/// The number of keys added to it, so that listing takes longer.
const LISTED_KEYS: u32 = 30_000;

/// The number of connections that add them.
const LISTED_WRITERS: u32 = 32;

/// The engines that every client is tested with, and true for engines with secondary indexes.
const ENGINES: [(&str, bool); 6] = [
    ("bitcask", false),
    ("leveldb", true),
    ("leveled", true),
    ("hanoidb", true),
    ("innostore", true),
    ("memory", true),
];

/// Runs the Python client's own suite.
pub(crate) fn python(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Python.prerequisites())?;
    let folder = run.workspace.root().join(PYTHON_FOLDER);
    let python = install_python(run, &folder, "conformance/python", PYTHON_LISTS)?;
    let mut total = on_cluster(run, &python, &folder)?;
    total += on_every_engine(run, |site, has_indexes| {
        fill_listed_bucket(site.protobuf).context("adding keys to list")?;
        let mut command = Command::new(&python);
        command.arg("-B").arg(folder.join("run.py"));
        command.args(["--pb-port", &site.protobuf.port().to_string()]);
        command.args(["--http-port", &site.http.port().to_string()]);
        if !has_indexes {
            command.args(["--lacks", "indexes"]);
        }
        command.env("TMPDIR", run.workspace.scratch("tmp")?);
        Ok(command)
    })?;
    Ok(total)
}

/// Runs the Python client on three servers, over both protocols. One server is killed meanwhile.
fn on_cluster(run: &Run<'_>, python: &Path, folder: &Path) -> anyhow::Result<Tally> {
    let directory = run.workspace.clean_scratch("conformance/cluster")?;
    // The engine has index queries.
    let settings = [("storage_backend", "leveldb"), ("ring_size", "16")];
    let mut nodes = Neighbours::start(&run.binary, &directory, 3, &settings)?;
    nodes.join()?;
    let mut total = Tally::default();
    for protocol in ["pbc", "http"] {
        let mut last = nodes.servers.pop().context("no nodes")?;
        let mut command = Command::new(python);
        command.arg("-B").arg(folder.join("cluster.py"));
        command.args(["--protocol", protocol, "--stop", &last.id().to_string()]);
        command.args(nodes.sites.iter().map(|site| {
            let (place, http) = (site.protobuf, site.http.port());
            format!("{}:{}:{http}", place.ip(), place.port())
        }));
        total += run_client(&mut command, "cluster")?;
        last.kill();
        last = nodes.sites.last().context("no nodes")?.start()?;
        nodes.servers.push(last);
        nodes.await_settled()?;
    }
    let result = nodes.stop().map(|()| String::new());
    total.check("the cluster stops gracefully afterwards", &result);
    Ok(total)
}

/// Runs our scenarios with the Node.js client.
pub(crate) fn node(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Node.prerequisites())?;
    let folder = install_npm(
        run,
        &run.workspace.root().join(NODE_FOLDER),
        "conformance/node",
    )?;
    on_every_engine(run, |site, has_indexes| {
        let mut command = Command::new("node");
        command.arg("--no-warnings").arg(folder.join("run.js"));
        if !has_indexes {
            command.arg("--lacks-indexes");
        }
        command.arg(site.protobuf.port().to_string());
        Ok(command)
    })
}

/// Runs tests on a server of each engine, side by side, since clients' tests mostly wait.
fn on_every_engine(
    run: &Run<'_>,
    command: impl Fn(&Site, bool) -> anyhow::Result<Command> + Sync,
) -> anyhow::Result<Tally> {
    let mut total = Tally::default();
    let mut started = Vec::new();
    // Servers start one after the other: only the start of a server takes its port, not the search
    // for a free one.
    for (engine, has_indexes) in ENGINES {
        match start_on(run, engine) {
            Ok((site, server)) => started.push((engine, has_indexes, site, server)),
            Err(error) => total.check(engine, &Err(error)),
        }
    }
    let command = &command;
    thread::scope(|scope| {
        let asking: Vec<_> = started
            .into_iter()
            .map(|(engine, has_indexes, site, server)| {
                scope.spawn(move || ask(engine, server, || command(&site, has_indexes)))
            })
            .collect();
        for asked in asking {
            total += asked.join().unwrap_or(Tally::one(false)); // its panic has been printed
        }
    });
    Ok(total)
}

fn start_on(run: &Run<'_>, engine: &str) -> anyhow::Result<(Site, Server)> {
    let name = format!("conformance/server-{engine}");
    let directory = run.workspace.clean_scratch(&name)?;
    let site = prepare_site(&run.binary, &directory, engine)?;
    let server = site.start()?;
    create_bucket_types(&site)?;
    Ok((site, server))
}

fn ask(engine: &str, server: Server, command: impl FnOnce() -> anyhow::Result<Command>) -> Tally {
    let mut total = Tally::default();
    match command().and_then(|mut command| run_client(&mut command, engine)) {
        Ok(tally) => total += tally,
        Err(error) => total.check(engine, &Err(error)),
    }
    let result = server.stop().map(|_took| String::new());
    let name = format!("{engine}: the server stops gracefully afterwards");
    total.check(&name, &result);
    total
}

fn prepare_site(binary: &Binary, directory: &Path, engine: &str) -> anyhow::Result<Site> {
    let mut settings = SETTINGS.to_vec();
    settings.push(("storage_backend", engine));
    Site::new(binary, directory, &settings)
}

/// Creates the bucket types that clients' tests need.
pub(crate) fn create_bucket_types(site: &Site) -> anyhow::Result<()> {
    create_types(site, BUCKET_TYPES)
}

/// Creates bucket types with these names and properties.
pub(crate) fn create_types(site: &Site, types: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, properties) in types {
        site.run(&["admin", "bucket-type", "create", name, properties])?;
        site.run(&["admin", "bucket-type", "activate", name])?;
    }
    Ok(())
}

fn fill_listed_bucket(server: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let writers: Vec<_> = (0..LISTED_WRITERS)
        .map(|writer| runtime.spawn(fill_share(server, writer)))
        .collect();
    for writer in writers {
        runtime.block_on(writer)??;
    }
    Ok(())
}

async fn fill_share(server: SocketAddr, writer: u32) -> Result<(), kvorum_client::Error> {
    let mut client = Client::connect(server, &ClientSettings::default()).await?;
    for number in (writer..LISTED_KEYS).step_by(LISTED_WRITERS as usize) {
        let key = format!("listed-{number}");
        client
            .put_value(LISTED_BUCKET, key.as_bytes(), Bytes::from_static(b"{}"))
            .await?;
    }
    Ok(())
}

/// Runs a client's tests against `server`; they end with a line of counts.
pub(crate) fn run_client(command: &mut Command, server: &str) -> anyhow::Result<Tally> {
    let mut closing = None;
    let read = |line: &str| closing = Tally::parse(line).or(closing);
    let has_passed = read_named_lines(command, server, read)?;
    let tally = closing.context("the client's tests ended without a line of counts")?;
    ensure!(tally.passed > 0, "the client ran no test");
    ensure!(
        has_passed == (tally.failed == 0),
        "the client's tests counted {tally} and ended otherwise"
    );
    Ok(tally)
}

/// Makes a virtual environment `name` below the target directory, with the packages of a folder's
/// lists; returns its Python.
pub(crate) fn install_python(
    run: &Run<'_>,
    folder: &Path,
    name: &str,
    lists: &[(&str, &[&str])],
) -> anyhow::Result<PathBuf> {
    let home = run.workspace.scratch(name)?;
    let python = home.join("bin/python");
    let files: Vec<PathBuf> = lists.iter().map(|(list, _)| folder.join(list)).collect();
    let wanted = read_all(&files)?;
    if is_installed(&home, &wanted) {
        return Ok(python);
    }
    let home = run.workspace.clean_scratch(name)?;
    let temporary = run.workspace.scratch("tmp")?;
    capture(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    for (file, (_, arguments)) in files.iter().zip(lists) {
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--no-cache-dir"]);
        command
            .args(["--disable-pip-version-check"])
            .args(*arguments);
        command.arg("--requirement").arg(file);
        capture(command.env("TMPDIR", &temporary))?;
    }
    note_installed(&home, &wanted)?;
    Ok(python)
}

/// Installs the dependencies of a folder from its lock file in `name` below the target directory,
/// and copies the scripts there; returns the directory.
pub(crate) fn install_npm(run: &Run<'_>, folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let home = run.workspace.scratch(name)?;
    let manifests = ["package.json", "package-lock.json"].map(|name| folder.join(name));
    let wanted = read_all(&manifests)?;
    if !is_installed(&home, &wanted) {
        let home = run.workspace.clean_scratch(name)?;
        for manifest in &manifests {
            copy_into(manifest, &home)?;
        }
        let cache = run.workspace.scratch("conformance/npm-cache")?;
        let mut command = Command::new("npm");
        command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        command.args(["--loglevel", "error", "--cache"]).arg(&cache);
        capture(command.current_dir(&home))?;
        note_installed(&home, &wanted)?;
    }
    for entry in fs::read_dir(folder).context("listing the scripts")? {
        let path = entry.context("listing the scripts")?.path();
        if path.extension().is_some_and(|extension| extension == "js") {
            copy_into(&path, &home)?;
        }
    }
    Ok(home)
}

fn copy_into(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = file.file_name().context("a file without a name")?;
    fs::copy(file, folder.join(name))
        .map(drop)
        .with_context(|| format!("copying {}", file.display()))
}

pub(crate) fn read_all(files: &[PathBuf]) -> anyhow::Result<String> {
    let mut text = String::new();
    for file in files {
        text += &fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    }
    Ok(text)
}

/// The note is written last, so that an interrupted installation is repeated.
pub(crate) fn note_installed(home: &Path, wanted: &str) -> anyhow::Result<()> {
    fs::write(home.join("installed"), wanted).context("noting what is installed")
}

pub(crate) fn is_installed(home: &Path, wanted: &str) -> bool {
    fs::read_to_string(home.join("installed")).is_ok_and(|installed| installed == wanted)
}
