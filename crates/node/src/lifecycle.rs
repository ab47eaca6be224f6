//! A node as its operator starts and stops it: in the background, waited for, under Riak's names.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kvorum_disk::{Disk as _, RealDisk};
use kvorum_settings::Settings;
use serde_json::json;

use crate::admin_client;
use crate::admin_request::{AdminReply, AdminRequest};
use crate::command_line::{ConfigurationArguments, say};
use crate::configuration_file;
use crate::riak_names;

/// How long a node may take to answer after its start: one with much data opens for a while.
const START_WAIT: Duration = Duration::from_secs(300);
/// How long a stop may take: requests drain and everything is synced.
const STOP_WAIT: Duration = Duration::from_secs(180);
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How often it is said that a service is not there yet.
const SAY_PERIOD: Duration = Duration::from_secs(3);
/// What a node that did not start said last, in bytes.
const LAST_WORDS: usize = 2_000;

/// Starts a node in the background, and waits until it answers.
pub(crate) fn start(arguments: &ConfigurationArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.source())?;
    let settings = &loaded.configuration.settings;
    if is_answering(settings) {
        bail!("Node is already running!");
    }
    let output = settings.node.log_dir.join("console.log");
    let mut child = spawn(arguments, &output)?;
    let deadline = Instant::now() + START_WAIT;
    while !is_answering(settings) {
        if let Some(status) = child.try_wait().context("look after the server")? {
            let said = last_words(&output);
            bail!("the server ended with {status} before it answered:\n{said}");
        }
        if Instant::now() >= deadline {
            let (seconds, output) = (START_WAIT.as_secs(), output.display());
            bail!("the server does not answer after {seconds} s; it goes on, see {output}");
        }
        sleep(LOOK_PERIOD);
    }
    Ok(ExitCode::SUCCESS)
}

fn spawn(arguments: &ConfigurationArguments, output: &Path) -> anyhow::Result<Child> {
    if let Some(directory) = output.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("create the log directory {}", directory.display()))?;
    }
    let opened = OpenOptions::new().create(true).append(true).open(output);
    let file: File = opened.with_context(|| format!("open {}", output.display()))?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.arg("server").args(arguments.words());
    command.stdin(Stdio::null());
    command.stdout(file.try_clone().context("share the log file")?);
    command.stderr(file);
    // Of its own: what ends this terminal's programs does not end it.
    command.process_group(0);
    command.spawn().context("start the server")
}

fn last_words(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let from = text.len().saturating_sub(LAST_WORDS);
    String::from_utf8_lossy(&text[from..]).into_owned()
}

fn is_answering(settings: &Settings) -> bool {
    admin_client::ask(settings, &AdminRequest::Ping).is_ok()
}

/// Has a node stop, and waits until it has.
pub(crate) fn stop(arguments: &ConfigurationArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.source())?;
    let settings = &loaded.configuration.settings;
    admin_client::ask(settings, &AdminRequest::Stop)?;
    let lock = settings.node.data_dir.join("LOCK");
    let deadline = Instant::now() + STOP_WAIT;
    // It is held until everything is closed.
    while RealDisk.lock(&lock, "nobody\n").is_err() {
        if Instant::now() >= deadline {
            bail!("the node has not stopped after {} s", STOP_WAIT.as_secs());
        }
        sleep(LOOK_PERIOD);
    }
    say("ok");
    Ok(ExitCode::SUCCESS)
}

/// Stops a node if it runs, and starts it.
pub(crate) fn restart(arguments: &ConfigurationArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.source())?;
    if is_answering(&loaded.configuration.settings) {
        stop(arguments)?;
    }
    start(arguments)
}

/// Waits until a node serves; one that is not started yet is waited for as well. Meanwhile it says what it
/// waits for by `say_meanwhile`.
pub(crate) fn wait_for_service(
    settings: &Settings,
    service: &str,
    node: Option<&str>,
    say_meanwhile: impl Fn(&str),
) -> anyhow::Result<AdminReply> {
    let wanted = match service {
        "riak_kv" | "kv" => "riak_kv",
        other => bail!("there is no service {other:?}; riak_kv is the one that nodes have"),
    };
    let words = ["services"].into_iter().chain(node).map(str::to_owned);
    let request = AdminRequest::Cluster {
        words: words.collect(),
    };
    let mut said_at: Option<Instant> = None;
    loop {
        let services = match admin_client::ask(settings, &request) {
            Ok(reply) if reply.is_ok => reply.text,
            Ok(_) | Err(_) => "[]".to_owned(),
        };
        if services.contains(wanted) {
            let data = json!({"service": wanted, "node": node, "up": true});
            return Ok(AdminReply::ok(format!("{wanted} is up"), data));
        }
        if said_at.is_none_or(|said_at| said_at.elapsed() >= SAY_PERIOD) {
            said_at = Some(Instant::now());
            say_meanwhile(&format!("{wanted} is not up: {services}"));
        }
        sleep(LOOK_PERIOD);
    }
}

/// Makes the links under which Riak's commands are called.
pub(crate) fn install_links(directory: &Path) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    for name in riak_names::NAMES {
        let link: PathBuf = directory.join(name);
        match std::fs::read_link(&link) {
            Ok(there) if there == program => {}
            Ok(there) => bail!(
                "{} is a link to {}; remove it first",
                link.display(),
                there.display()
            ),
            Err(_) if link.exists() => {
                bail!("{} is there already and is no link of ours", link.display());
            }
            Err(_) => std::os::unix::fs::symlink(&program, &link)
                .with_context(|| format!("make the link {}", link.display()))?,
        }
        say(&format!("{} -> {}", link.display(), program.display()));
    }
    Ok(ExitCode::SUCCESS)
}
