//! Starting and stopping a node as an operator does: in the background, with waits, under Riak's
//! names.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kvorum_settings::Settings;
use serde_json::{Value, json};

use crate::admin_client;
use crate::arguments::ConfigurationArguments;
use crate::configuration_file;
use crate::console::say;
use crate::data_directory::lock_holder;
use crate::riak_names;
use crate::start_report::StartReport;
use kvorum_admin::{AdminReply, AdminRequest};

/// The time that a node may take to answer after its start: one with much data opens for a while.
const START_WAIT: Duration = Duration::from_secs(300);
/// The time that a stop may take: requests drain and everything is synced.
const STOP_WAIT: Duration = Duration::from_secs(180);
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// The time between two lines about a service that is not up yet.
const SAY_PERIOD: Duration = Duration::from_secs(3);
/// The end of the output of a node that did not start, in bytes.
const LAST_WORDS: usize = 2_000;

/// Starts a node in the background, and waits until its stores are open.
pub(crate) fn start(arguments: &ConfigurationArguments, is_json: bool) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.source())?.in_background();
    let settings = &loaded.configuration.settings;
    if is_answering(settings) {
        bail!("Node is already running!");
    }
    // A node that still opens its ring and its log does not answer yet.
    if let Some(holder) = holder(settings)? {
        bail!(
            "Node is already running! {holder} has the data directory {} and does not answer yet: it \
             starts or stops",
            settings.node.data_dir.display()
        );
    }
    // Made before the server creates the data directory.
    let report = StartReport::of(&loaded);
    let output = settings.node.log_dir.join("start.log");
    let mut child = spawn(arguments, &output)?;
    let process = child.id();
    if !is_json {
        say(&report.text(Some(process)));
    }
    let health = wait_until_open(settings, &mut child, &output, is_json)?;
    if is_json {
        let mut data = report.json(Some(process));
        data["health"] = health["status"].clone();
        data["reasons"] = health["reasons"].clone();
        say(&format!("{data:#}"));
    } else {
        say(&format!("{:<14} {}", "health", health_line(&health)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The health of a node that has answered, once no store is being opened any more, or after [`START_WAIT`].
/// Prints the reason for the wait at intervals.
fn wait_until_open(
    settings: &Settings,
    child: &mut Child,
    output: &Path,
    is_silent: bool,
) -> anyhow::Result<Value> {
    let deadline = Instant::now() + START_WAIT;
    let mut said_at = Instant::now();
    loop {
        let answer = admin_client::ask(settings, &AdminRequest::Health).ok();
        if let Some(status) = child.try_wait().context("look after the server")? {
            let said = last_words(output);
            bail!("the server did not start ({status}):\n{said}");
        }
        let is_late = Instant::now() >= deadline;
        match answer {
            Some(reply) if reply.data["opening"] == 0 || is_late => return Ok(reply.data),
            None if is_late => bail!(
                "the server does not answer after {} s; it goes on, see {}",
                START_WAIT.as_secs(),
                output.display()
            ),
            answer => {
                if !is_silent && said_at.elapsed() >= SAY_PERIOD {
                    said_at = Instant::now();
                    let what = answer.map_or_else(
                        || "the server reads its ring and its log".to_owned(),
                        |reply| health_line(&reply.data),
                    );
                    say(&format!("{:<14} {what}", "waiting"));
                }
            }
        }
        sleep(LOOK_PERIOD);
    }
}

/// The state of a node and its reasons, in a line.
fn health_line(health: &Value) -> String {
    let status = health["status"].as_str().unwrap_or("unknown");
    let reasons = health["reasons"].as_array().into_iter().flatten();
    let reasons: Vec<&str> = reasons.filter_map(|it| it["text"].as_str()).collect();
    match reasons.is_empty() {
        true => status.to_owned(),
        false => format!("{status}: {}", reasons.join("; ")),
    }
}

fn spawn(arguments: &ConfigurationArguments, output: &Path) -> anyhow::Result<Child> {
    if let Some(directory) = output.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("create the log directory {}", directory.display()))?;
    }
    // The file is emptied, since earlier output would look like the reason of a failure. It is
    // opened for appending, so that another process's lines are not overwritten.
    let options = File::options().create(true).append(true).open(output);
    let file = options.with_context(|| format!("open {}", output.display()))?;
    let emptied = file.set_len(0);
    emptied.with_context(|| format!("empty {}", output.display()))?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command
        .args(["server", "--background"])
        .args(arguments.words());
    command.stdin(Stdio::null());
    command.stdout(file.try_clone().context("share the log file")?);
    command.stderr(file);
    // With its own group, the server gets no signals to this terminal's programs.
    command.process_group(0);
    command.spawn().context("start the server")
}

/// The reason for a server's end: its last message, or the end of its output.
fn last_words(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    if let Some(at) = text.rfind("\nkvorum: ") {
        return text[at + 1..].trim_end().to_owned();
    }
    let mut from = text.len().saturating_sub(LAST_WORDS);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].trim_end().to_owned()
}

fn is_answering(settings: &Settings) -> bool {
    admin_client::ask(settings, &AdminRequest::Ping).is_ok()
}

/// The process that has locked a node's data directory, answering or not.
fn holder(settings: &Settings) -> anyhow::Result<Option<String>> {
    let directory = &settings.node.data_dir;
    let holder = lock_holder(directory);
    holder.with_context(|| format!("look at the lock in {}", directory.display()))
}

/// Stops a node, and waits for its end.
pub(crate) fn stop(arguments: &ConfigurationArguments) -> anyhow::Result<AdminReply> {
    let loaded = configuration_file::load(&arguments.source())?;
    wait_until_stopped(&loaded.configuration.settings)?;
    Ok(AdminReply::ok("ok", json!({"stopped": true})))
}

fn wait_until_stopped(settings: &Settings) -> anyhow::Result<()> {
    admin_client::ask(settings, &AdminRequest::Stop)?;
    let deadline = Instant::now() + STOP_WAIT;
    // The lock is held until everything is closed.
    while holder(settings)?.is_some() {
        if Instant::now() >= deadline {
            bail!("the node has not stopped after {} s", STOP_WAIT.as_secs());
        }
        sleep(LOOK_PERIOD);
    }
    Ok(())
}

/// The process of the node that runs.
pub(crate) fn process(arguments: &ConfigurationArguments) -> anyhow::Result<AdminReply> {
    let loaded = configuration_file::load(&arguments.source())?;
    let reply = admin_client::ask(&loaded.configuration.settings, &AdminRequest::Ping)?;
    let process = reply.data["process"].as_u64();
    let process = process.context("the version of the running node does not report it")?;
    let data = json!({"process": process});
    Ok(AdminReply::ok(process.to_string(), data))
}

/// Stops a node if it runs, and starts it.
pub(crate) fn restart(
    arguments: &ConfigurationArguments,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.source())?;
    let settings = &loaded.configuration.settings;
    if is_answering(settings) {
        wait_until_stopped(settings)?;
        if !is_json {
            say("ok");
        }
    }
    start(arguments, is_json)
}

/// Waits until a node serves, even one that is not started yet. Meanwhile, reports the reason
/// through `say_meanwhile`.
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
        let why = match admin_client::ask(settings, &request) {
            Ok(reply) if reply.is_ok && has_service(&reply.data, wanted) => {
                let data = json!({"service": wanted, "node": node, "up": true});
                return Ok(AdminReply::ok(format!("{wanted} is up"), data));
            }
            Ok(reply) if reply.is_ok => reasons(&reply.data),
            Ok(reply) => reply.text,
            Err(error) => format!("{error:#}"),
        };
        if said_at.is_none_or(|said_at| said_at.elapsed() >= SAY_PERIOD) {
            said_at = Some(Instant::now());
            say_meanwhile(&format!("{wanted} is not up: {why}"));
        }
        sleep(LOOK_PERIOD);
    }
}

fn has_service(data: &Value, wanted: &str) -> bool {
    let services = data["services"].as_array().into_iter().flatten();
    services.into_iter().any(|service| service == wanted)
}

/// The reasons in a node's health for not serving.
fn reasons(data: &Value) -> String {
    let reasons = data["health"]["reasons"].as_array().into_iter().flatten();
    let reasons: Vec<&str> = reasons.filter_map(|it| it["text"].as_str()).collect();
    match reasons.is_empty() {
        true => "[]".to_owned(),
        false => reasons.join("; "),
    }
}

/// Makes the links under which Riak's commands are called.
pub(crate) fn install_links(directory: &Path, is_json: bool) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("create the directory {}", directory.display()))?;
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
        if !is_json {
            say(&format!("{} -> {}", link.display(), program.display()));
        }
    }
    if is_json {
        let links = riak_names::NAMES.map(|name| directory.join(name).display().to_string());
        let program = program.display().to_string();
        say(&format!(
            "{:#}",
            json!({"links": links, "program": program})
        ));
    }
    Ok(ExitCode::SUCCESS)
}
