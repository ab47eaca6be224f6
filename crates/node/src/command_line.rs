//! The command line: one binary, its verbs, and their output.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use kvorum_settings::{Configuration, Effective, Settings};
use serde_json::Value;

use crate::admin_verbs::{BackendVerb, BucketVerb, ClusterVerb, FoldArguments, RingVerb};
use crate::arguments::{AdminArguments, ConfigurationArguments};
use crate::configuration_file;
use crate::console::{exit_code, say, say_error};
use crate::embedded_engines::EMBEDDED;
use crate::progress::Progress;
use crate::riak_names::{self, Called};
use crate::start_report::StartReport;
use crate::tls_issuing::{self, TlsVerb};
use crate::{
    admin_client, advise, demo, import, inspect, json_failures, lifecycle, repair, server,
    shown_keys, tls_files, verify,
};
use kvorum_admin::{AdminReply, AdminRequest};

/// A distributed key-value database for Riak's clients.
#[derive(Parser)]
#[command(name = "kvorum", version, propagate_version = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a node in the foreground; SIGTERM or SIGINT stops it gracefully
    Server(ServerArguments),
    /// Start a node in the background and wait until its stores are open
    Start(AdminArguments),
    /// Stop a running node gracefully and wait until it has
    Stop(AdminArguments),
    /// Stop a node if it runs, and start it in the background
    Restart(AdminArguments),
    /// Make links called riak and riak-admin, for runbooks that call these
    InstallLinks {
        /// Directory of the links
        directory: PathBuf,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration and print, key by key, its effect
    Chkconfig(CheckArguments),
    /// Show a configuration key: its purpose, its default, its value; without one, all values
    Describe {
        /// A key, a key of Riak's, or the beginning of several
        key: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Ask whether the node of this configuration is running
    Ping(PingArguments),
    /// Print the process of the node of this configuration
    Pid(AdminArguments),
    /// Look into a running node and change its cluster's agreed state
    Admin {
        #[command(subcommand)]
        verb: AdminVerb,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Work out capacity, and choose backends; without a verb, as `backend` without arguments
    Advise {
        #[command(subcommand)]
        verb: Option<advise::AdviseVerb>,
    },
    /// Bring data over from Riak
    #[command(subcommand)]
    Import(import::ImportVerb),
    /// Check every checksum of a directory, and that its files agree; writes nothing
    Verify(verify::VerifyArguments),
    /// Repair damaged stores from the files in their directories; deletes nothing
    ///
    /// For directories that are not in use. Damaged tables are written anew without their damaged
    /// parts; a store that lost its manifest is rebuilt from its tables and logs. Replaced files
    /// move to lost/ beside it. An interrupted repair resumes when it is started again.
    Repair(repair::RepairArguments),
    /// Show a file of a data directory as annotated bytes
    Inspect(inspect::InspectArguments),
    /// Play with a cluster of five nodes on this machine, and a load that checks that nothing is lost
    ///
    /// Nothing else is needed, and nothing is left behind. Keys, or a script, kill nodes, cut the
    /// network between two halves, heal, add and remove a node. The last line has the numbers of
    /// acknowledged and of lost writes; the exit code is 0 when none was lost.
    Demo(kvorum_demo::DemoArguments),
    /// Run load tests in basho_bench's configuration format, and compare their results
    #[command(subcommand)]
    Bench(BenchVerb),
}

#[derive(Subcommand)]
enum BenchVerb {
    #[command(flatten)]
    Load(kvorum_bench::BenchCommand),
    #[command(flatten)]
    Pages(kvorum_experiments::ReportCommand),
}

#[derive(Args, Clone)]
struct ServerArguments {
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// Log to the file unless the configuration sets an output, as under `kvorum start`
    #[arg(long, hide = true)]
    background: bool,
    /// Stop when standard input ends, and so with the program that started this one
    #[arg(long)]
    stop_with_input: bool,
}

#[derive(Args, Clone)]
struct CheckArguments {
    #[command(flatten)]
    arguments: AdminArguments,
    /// Show all keys with their values and origins if this is debug
    #[arg(short, long, value_name = "LEVEL")]
    level: Option<String>,
}

#[derive(Args, Clone)]
struct PingArguments {
    #[command(flatten)]
    arguments: AdminArguments,
    /// Report whether it can serve, and the reasons if it cannot; fails then
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Subcommand)]
enum AdminVerb {
    /// All statistics of the node
    Status,
    /// Every vnode: its store, sizes and backlog
    VnodeStatus,
    /// The last comparison of the replicas of each partition, the last complete one, and repaired keys
    AaeStatus,
    /// Trees of this node, and comparisons of replicas on or off
    #[command(subcommand)]
    Tictacaae(TictacaaeVerb),
    /// Background work: running steps, the backlog, its rate, and the time until it is done
    Maintenance,
    /// Back up the whole node, while it serves, by hard links: DIRECTORY is a data directory then
    Backup {
        /// Target directory on the filesystem of the data directory; empty, or not there yet
        directory: PathBuf,
    },
    /// Bucket types
    #[command(subcommand)]
    BucketType(BucketTypeVerb),
    /// The keys of a bucket, counted or deleted
    #[command(subcommand)]
    Bucket(BucketVerb),
    /// Properties of buckets without a type, agreed on by all nodes
    #[command(subcommand)]
    BucketDefaults(BucketDefaultsVerb),
    /// Moves of data between the backends of a node that has several
    #[command(subcommand)]
    Backend(BackendVerb),
    /// Members, staged changes and plans
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Wait until a node serves
    WaitForService {
        /// riak_kv, or kv
        service: String,
        /// The node's name; without one, this one
        node: Option<String>,
    },
    /// The values of keys of the configuration on this node
    Show {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Set a key on this node until its next start; only transfer_limit can be
    Set {
        /// The key and its value
        #[arg(required = true, value_name = "KEY=VALUE")]
        assignments: Vec<String>,
    },
    /// Write, read and delete an object, as a client would
    Test,
    /// Encryption between nodes: certificates, and its present state
    #[command(subcommand)]
    Tls(TlsVerb),
    #[command(flatten)]
    Ring(RingVerb),
}

#[derive(Subcommand)]
enum TictacaaeVerb {
    /// The trees of each vnode: built or not, keys and memory
    Treestatus,
    /// Waiting tombstones, the rounds that remove them in a cluster, and why some stay
    Tombstones,
    /// Compare replicas again
    Enable,
    /// Stop comparing replicas until the next start, and end comparisons under way
    Disable,
    /// Questions about the keys of a bucket; reaps, erases and repairs those of a range
    Fold(FoldArguments),
}

#[derive(Subcommand)]
enum BucketDefaultsVerb {
    /// The agreed properties, and the differences of this node's configuration
    Show,
    /// Make buckets.default.* of this node's configuration the agreed properties
    Apply,
    /// Change some of the agreed properties; the others stay
    Set {
        /// The properties to change, as in {"props":{"allow_mult":true}}
        properties: String,
    },
}

#[derive(Subcommand)]
enum BucketTypeVerb {
    /// All bucket types, active or not
    List,
    /// The properties of a type
    Status {
        /// The type
        name: String,
    },
    /// Create a type, or replace one that is not active yet
    Create {
        /// The type
        name: String,
        /// Its properties, as in {"props":{"n_val":3}}
        #[arg(default_value = "{\"props\":{}}")]
        properties: String,
    },
    /// Make a created type usable
    Activate {
        /// The type
        name: String,
    },
    /// Change properties of an active type
    Update {
        /// The type
        name: String,
        /// The properties to change, as in {"props":{"n_val":3}}
        properties: String,
    },
    /// Reset properties of an active type; those that are chosen at its creation stay
    Reset {
        /// The type
        name: String,
        /// The one property; without it, all
        property: Option<String>,
    },
    /// Remove a type of which no node holds a key
    Remove {
        /// The type
        name: String,
    },
}

/// Runs the verb that the command line names.
pub(crate) fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let is_json = json_failures::is_wanted(&given);
    let words = match riak_names::called(given) {
        Called::Words(words) => words,
        Called::CannotApply(why) => {
            say_failure(&why, is_json);
            return ExitCode::FAILURE;
        }
    };
    let line = match CommandLine::try_parse_from(&words) {
        Ok(line) => line,
        Err(error) if is_json && error.use_stderr() => {
            say_failure(&json_failures::of_words(&error, &words), is_json);
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
        Err(error) => error.exit(),
    };
    let outcome = match line.verb {
        Verb::Server(arguments) => serve(&arguments),
        Verb::Start(arguments) => lifecycle::start(&arguments.configuration, arguments.json),
        Verb::Stop(arguments) => {
            lifecycle::stop(&arguments.configuration).map(|reply| show(&reply, &arguments))
        }
        Verb::Restart(arguments) => lifecycle::restart(&arguments.configuration, arguments.json),
        Verb::InstallLinks { directory, json } => lifecycle::install_links(&directory, json),
        Verb::Chkconfig(arguments) => check_configuration(&arguments),
        Verb::Describe { key, arguments } => describe(key.as_deref(), &arguments),
        Verb::Ping(arguments) => ping(&arguments),
        Verb::Pid(arguments) => {
            lifecycle::process(&arguments.configuration).map(|reply| show(&reply, &arguments))
        }
        Verb::Admin { verb, arguments } => administer(verb, &arguments),
        Verb::Advise { verb } => advise::main(verb.as_ref()),
        Verb::Import(verb) => import::main(&verb),
        Verb::Verify(arguments) => verify::main(&arguments),
        Verb::Repair(arguments) => repair::main(&arguments),
        Verb::Inspect(arguments) => inspect::main(&arguments),
        Verb::Demo(arguments) => demo::main(&arguments),
        Verb::Bench(verb) => bench(&verb),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            say_failure(&format!("kvorum: {error:#}"), is_json);
            ExitCode::FAILURE
        }
    }
}

/// Prints the failure of a verb: as text to standard error, as JSON to standard output.
fn say_failure(text: &str, is_json: bool) {
    match is_json {
        true => {
            let text = text.strip_prefix("kvorum: ").unwrap_or(text);
            say(&serde_json::json!({"error": text}).to_string());
        }
        false => say_error(text),
    }
}

fn serve(arguments: &ServerArguments) -> anyhow::Result<ExitCode> {
    let mut loaded = configuration_file::load(&arguments.configuration.source())?;
    if arguments.background {
        loaded = loaded.in_background();
    }
    server::run(&loaded, arguments.stop_with_input)?;
    Ok(ExitCode::SUCCESS)
}

fn check_configuration(check: &CheckArguments) -> anyhow::Result<ExitCode> {
    let arguments = &check.arguments;
    let loaded = configuration_file::load(&arguments.configuration.source())?;
    let files = tls_files::check(&loaded.configuration.settings);
    let doubtful = files.map_err(|problems| {
        anyhow::anyhow!("the files of cluster.tls cannot be used:\n{problems}")
    })?;
    let doubtful: Vec<String> = doubtful.iter().map(ToString::to_string).collect();
    let report = StartReport::of(&loaded);
    if arguments.json {
        let warnings = loaded.configuration.warnings.iter().chain(&doubtful);
        let mut data = report.json(None);
        data["warnings"] = warnings.cloned().collect();
        data["keys"] = keys_json(&loaded.configuration);
        say(&format!("{data:#}"));
        return Ok(ExitCode::SUCCESS);
    }
    say(&loaded.configuration.report());
    if check.level.as_deref() == Some("debug") {
        say(&loaded.configuration.effective());
    }
    for warning in doubtful {
        say(&format!("warning: {warning}"));
    }
    say(&report.text(None));
    say("config is OK");
    Ok(ExitCode::SUCCESS)
}

/// Every honoured key with its value.
fn keys_json(configuration: &Configuration) -> Value {
    let entries = configuration.effective.iter();
    let entry = |it: &Effective| (it.name.clone(), Value::from(it.value.clone()));
    Value::Object(entries.map(entry).collect())
}

fn describe(key: Option<&str>, arguments: &AdminArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.configuration.source())?;
    match key {
        _ if arguments.json => {
            let described = described_json(&loaded.configuration, key)?;
            say(&format!("{described:#}"));
        }
        None => say(&loaded.configuration.effective()),
        Some(key) => say(&loaded
            .configuration
            .describe(key)
            .map_err(|problem| anyhow::anyhow!("{problem}"))?),
    }
    Ok(ExitCode::SUCCESS)
}

/// The keys that match `key`, or all, with their values; with `key`, also its description.
fn described_json(configuration: &Configuration, key: Option<&str>) -> anyhow::Result<Value> {
    let Some(key) = key else {
        return Ok(keys_json(configuration));
    };
    let text = configuration.describe(key);
    let text = text.map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let mut keys = keys_json(configuration);
    if let Value::Object(members) = &mut keys {
        members.retain(|name, _| name.starts_with(key));
    }
    Ok(serde_json::json!({"key": key, "values": keys, "text": text}))
}

fn ping(ping: &PingArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&ping.arguments.configuration.source())?;
    let request = match ping.verbose {
        true => AdminRequest::Health,
        false => AdminRequest::Ping,
    };
    let reply = admin_client::ask(&loaded.configuration.settings, &request)?;
    Ok(show(&reply, &ping.arguments))
}

fn administer(verb: AdminVerb, arguments: &AdminArguments) -> anyhow::Result<ExitCode> {
    let load = || configuration_file::load(&arguments.configuration.source());
    let request = match verb {
        AdminVerb::Status => AdminRequest::Status,
        AdminVerb::VnodeStatus => AdminRequest::VnodeStatus,
        AdminVerb::AaeStatus => AdminRequest::AaeStatus,
        AdminVerb::Tictacaae(verb) => match verb {
            TictacaaeVerb::Treestatus => AdminRequest::TreeStatus,
            TictacaaeVerb::Tombstones => AdminRequest::Tombstones,
            TictacaaeVerb::Enable => AdminRequest::ExchangesEnable,
            TictacaaeVerb::Disable => AdminRequest::ExchangesDisable,
            TictacaaeVerb::Fold(fold) => return fold_keys(fold, arguments),
        },
        AdminVerb::Maintenance => AdminRequest::Maintenance,
        AdminVerb::Backup { directory } => {
            let directory = std::path::absolute(&directory).context("name the directory")?;
            let directory = directory.to_str().map(str::to_owned);
            let directory = directory.context("the directory's name has to be UTF-8")?;
            AdminRequest::Backup { directory }
        }
        AdminVerb::BucketDefaults(verb) => match verb {
            BucketDefaultsVerb::Show => AdminRequest::BucketDefaultsShow,
            BucketDefaultsVerb::Apply => AdminRequest::BucketDefaultsApply,
            BucketDefaultsVerb::Set { properties } => {
                AdminRequest::BucketDefaultsSet { properties }
            }
        },
        AdminVerb::BucketType(verb) => verb.into_request(),
        AdminVerb::Bucket(verb) => {
            let reply = ask_to_the_end(&load()?.configuration.settings, verb, arguments.json)?;
            return Ok(show(&reply, arguments));
        }
        AdminVerb::Backend(verb) => verb.into_request(),
        AdminVerb::Cluster(verb) => verb.into_request(),
        AdminVerb::Ring(verb) => verb.into_request(),
        AdminVerb::Show { keys } => {
            let reply = shown_keys::reply(&load()?.configuration, &keys);
            return Ok(show(&reply, arguments));
        }
        AdminVerb::Set { assignments } => {
            let reply = shown_keys::set(&load()?.configuration, &assignments)?;
            return Ok(show(&reply, arguments));
        }
        AdminVerb::Test => AdminRequest::Test,
        AdminVerb::Tls(verb) => match verb {
            TlsVerb::Init(init) => return tls_issuing::init(&init, arguments),
            TlsVerb::Issue(issue) => return tls_issuing::issue(&issue, arguments),
            TlsVerb::Status => AdminRequest::TlsStatus,
        },
        AdminVerb::WaitForService { service, node } => {
            let say_meanwhile = |text: &str| {
                if !arguments.json {
                    say(text);
                }
            };
            let settings = load()?.configuration.settings;
            let reply =
                lifecycle::wait_for_service(&settings, &service, node.as_deref(), say_meanwhile)?;
            return Ok(show(&reply, arguments));
        }
    };
    let reply = admin_client::ask(&load()?.configuration.settings, &request)?;
    Ok(show(&reply, arguments))
}

/// Repeats a request until all is done, and shows the progress.
fn ask_to_the_end(
    settings: &Settings,
    verb: BucketVerb,
    is_json: bool,
) -> anyhow::Result<AdminReply> {
    let request = verb.into_request();
    let mut progress = Progress::begin();
    loop {
        let reply = admin_client::ask(settings, &request)?;
        if !reply.is_ok || reply.data["done"] != Value::Bool(false) {
            progress.end();
            return Ok(reply);
        }
        if !is_json {
            progress.show_line(&reply.text);
        }
    }
}

/// Asks for a fold over keys, and prints the results or writes them to a file.
fn fold_keys(fold: FoldArguments, arguments: &AdminArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.configuration.source())?;
    let FoldArguments { verb, outfile } = fold;
    let reply = admin_client::ask(&loaded.configuration.settings, &verb.into_request())?;
    let Some(path) = outfile.filter(|_| reply.is_ok) else {
        return Ok(show(&reply, arguments));
    };
    // The output is the same as that of Riak's command, for scripts.
    let as_data = || format!("{:#}", reply.data);
    let results = reply.riak.as_deref().map_or_else(as_data, str::to_owned);
    std::fs::write(&path, format!("{results}\n"))
        .with_context(|| format!("write the results to {}", path.display()))?;
    let written = serde_json::json!({"results": path.display().to_string()});
    let text = format!("the results are in {}\n", path.display());
    Ok(show(&AdminReply::ok(text, written), arguments))
}

/// Prints a node's answer, for people or for programs.
fn show(reply: &AdminReply, arguments: &AdminArguments) -> ExitCode {
    let riak = reply.riak.as_ref().filter(|_| arguments.as_riak);
    match (arguments.json, riak) {
        (true, _) => say(&format!("{:#}", reply.data)),
        (false, Some(text)) => say(text),
        (false, None) => say(&reply.text),
    }
    exit_code(reply.is_ok)
}

fn bench(verb: &BenchVerb) -> anyhow::Result<ExitCode> {
    let out = &mut std::io::stdout();
    match verb {
        BenchVerb::Load(command) => kvorum_bench::execute_command_with(command, &EMBEDDED, out),
        BenchVerb::Pages(command) => {
            let program = kvorum_experiments::Program {
                binary: std::env::current_exe().context("cannot find this program's own file")?,
                engines: EMBEDDED.iter().map(|it| it.name.to_owned()).collect(),
            };
            kvorum_experiments::execute(command, &program, out)
        }
    }
}

impl BucketTypeVerb {
    fn into_request(self) -> AdminRequest {
        match self {
            Self::List => AdminRequest::BucketTypeList,
            Self::Status { name } => AdminRequest::BucketTypeStatus { name },
            Self::Create { name, properties } => {
                AdminRequest::BucketTypeCreate { name, properties }
            }
            Self::Activate { name } => AdminRequest::BucketTypeActivate { name },
            Self::Update { name, properties } => {
                AdminRequest::BucketTypeUpdate { name, properties }
            }
            Self::Reset { name, property } => AdminRequest::BucketTypeReset { name, property },
            Self::Remove { name } => AdminRequest::BucketTypeRemove { name },
        }
    }
}
