//! `kvorum advise`: the questions, and the sources of answers.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use kvorum_advise::{
    Advice, BenchResult, CapacityQuestion, EngineTable, Facts, Kind, Mix, RuleTable, Value, advise,
    capacity, facts_of_stats, mix, parse_value,
};

use crate::admin_client;
use crate::arguments::ConfigurationArguments;
use crate::configuration_file;
use crate::console::{exit_code, say};
use crate::engine_names::BUILT_IN;
use kvorum_admin::AdminRequest;

/// Name of the subject for all bucket types if none is named.
const ALL_TYPES: &str = "all bucket types";
const PATIENCE: Duration = Duration::from_secs(10);
/// Statistics are far shorter.
const STATS_BYTES_MAX: u64 = 16 << 20;

/// The kind of advice.
#[derive(Subcommand)]
pub(crate) enum AdviseVerb {
    /// Report how much memory and disk a number of objects takes
    Capacity(CapacityArguments),
    /// Recommend a backend for each bucket type, with the reasons
    ///
    /// Facts come from load tests, from a node's statistics and from the command line; later ones
    /// override earlier ones. On a terminal and without any facts, questions ask for them.
    Backend(BackendArguments),
}

/// Arguments of `kvorum advise capacity`.
#[derive(Args)]
pub(crate) struct CapacityArguments {
    /// The backend
    #[arg(long, default_value = "bitcask")]
    backend: String,
    /// Distinct keys, as 60m
    #[arg(long, value_name = "N")]
    keys: String,
    /// Length of a key, in bytes
    #[arg(long, value_name = "BYTES")]
    key_bytes: String,
    /// Length of a value, in bytes
    #[arg(long, value_name = "BYTES")]
    value_bytes: String,
    /// Length of bucket type and bucket together, in bytes
    #[arg(long, value_name = "BYTES", default_value = "10")]
    bucket_bytes: String,
    /// Copies of each object
    #[arg(long, value_name = "N", default_value_t = 3)]
    n_val: u64,
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u64,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Arguments of `kvorum advise backend`.
#[derive(Args, Default)]
pub(crate) struct BackendArguments {
    /// Result directory of `kvorum bench`; may be repeated, for several backends under one test
    #[arg(long, value_name = "DIR")]
    bench: Vec<PathBuf>,
    /// Statistics of a node: a file, or the URL of /stats or /metrics
    #[arg(long, value_name = "FILE|URL")]
    stats: Option<String>,
    /// Take the statistics and the bucket types of the running node of the configuration
    #[arg(long)]
    node: bool,
    /// State a fact; may be repeated. `kvorum advise backend --facts` lists them
    #[arg(long = "say", value_name = "FACT=VALUE")]
    said: Vec<String>,
    /// Advise on a bucket type with these facts; may be repeated
    #[arg(long = "type", value_name = "NAME[:FACT=VALUE,...]")]
    types: Vec<String>,
    /// List the facts that can be given
    #[arg(long)]
    facts: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    configuration: ConfigurationArguments,
}

/// Advises by the command line.
pub(crate) fn main(verb: Option<&AdviseVerb>) -> anyhow::Result<ExitCode> {
    match verb {
        Some(AdviseVerb::Capacity(arguments)) => advise_capacity(arguments),
        Some(AdviseVerb::Backend(arguments)) => advise_backend(arguments),
        None => advise_backend(&BackendArguments::default()),
    }
}

/// The declared engines, with marks on the built-in ones.
fn engine_table() -> anyhow::Result<EngineTable> {
    Ok(EngineTable::built_in()?.with_built_in(&BUILT_IN))
}

fn advise_capacity(arguments: &CapacityArguments) -> anyhow::Result<ExitCode> {
    let rules = RuleTable::built_in()?;
    let number = |fact: &str, text: &str| -> anyhow::Result<u64> {
        match parse_value(rules.fact(fact)?, text)? {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "numbers of facts are not negative, and the conversion saturates"
            )]
            Value::Number(number) => Ok(number as u64),
            Value::Flag(_) => bail!("{fact} is a number"),
        }
    };
    if arguments.nodes == 0 || arguments.n_val == 0 {
        bail!("there is at least one node and one copy");
    }
    let question = CapacityQuestion {
        backend: arguments.backend.clone(),
        keys: number("keys", &arguments.keys)?,
        key_bytes: number("key_bytes", &arguments.key_bytes)?,
        value_bytes: number("value_bytes", &arguments.value_bytes)?,
        bucket_bytes: number("key_bytes", &arguments.bucket_bytes)?,
        n_val: arguments.n_val,
        nodes: arguments.nodes,
    };
    let answer = capacity(&engine_table()?, question)?;
    match arguments.json {
        true => say(&serde_json::to_string_pretty(&answer)?),
        false => say(&answer.to_string()),
    }
    Ok(ExitCode::SUCCESS)
}

fn advise_backend(arguments: &BackendArguments) -> anyhow::Result<ExitCode> {
    let rules = RuleTable::built_in()?;
    if arguments.facts {
        list_facts(&rules);
        return Ok(ExitCode::SUCCESS);
    }
    let runs = read_runs(&arguments.bench)?;
    let mut facts = Facts::default();
    for run in &runs {
        facts.extend(&run.facts);
    }
    let mut types = arguments.types.clone();
    if let Some(place) = &arguments.stats {
        let text = read_stats(place)?;
        facts.extend(&facts_of_stats(&text).with_context(|| format!("read {place}"))?);
    }
    if arguments.node {
        let (measured, found) = ask_node(&arguments.configuration)?;
        facts.extend(&measured);
        if types.is_empty() {
            types = found;
        }
    }
    let said: Vec<&str> = arguments.said.iter().map(|said| &said[..]).collect();
    facts.extend(&parse_facts(&rules, &said)?);
    let has_input = !facts.is_empty() || !types.is_empty();
    if !has_input && std::io::stdin().is_terminal() {
        facts = ask_person(&rules)?;
    }
    let (advice, mix) = advise_types(&rules, &facts, &types, &runs)?;
    if arguments.json {
        say(&json_of(&advice, mix.as_ref())?);
    } else {
        let texts = advice.iter().map(ToString::to_string);
        let texts: Vec<String> = texts.chain(mix.map(|it| it.to_string())).collect();
        say(&texts.join("\n"));
    }
    let all_fit = advice.iter().all(|advice| advice.recommended.is_some());
    Ok(exit_code(all_fit))
}

/// The advice on each subject, with the lines of the mix for each subject in it.
fn json_of(advice: &[Advice], mix: Option<&Mix>) -> anyhow::Result<String> {
    let mut all = serde_json::to_value(advice)?;
    for one in all.as_array_mut().into_iter().flatten() {
        one["several_backends"] = serde_json::to_value(mix)?;
    }
    Ok(serde_json::to_string_pretty(&all)?)
}

/// Advises on each bucket type. Facts about a type override facts about all types.
fn advise_types(
    rules: &RuleTable,
    facts: &Facts,
    types: &[String],
    runs: &[BenchResult],
) -> anyhow::Result<(Vec<Advice>, Option<Mix>)> {
    let engines = engine_table()?;
    if types.is_empty() {
        let all = advise(&engines, rules, ALL_TYPES, facts, runs);
        return Ok((vec![all], None));
    }
    let advices = types.iter().map(|named| {
        let (name, said) = named.split_once(':').unwrap_or((named, ""));
        let said: Vec<&str> = said.split(',').filter(|said| !said.is_empty()).collect();
        let mut of_type = facts.clone();
        of_type.extend(&parse_facts(rules, &said)?);
        let subject = format!("bucket type {name}");
        Ok(advise(&engines, rules, &subject, &of_type, runs))
    });
    let mut advices = advices.collect::<anyhow::Result<Vec<Advice>>>()?;
    let mix = mix(&mut advices);
    Ok((advices, mix))
}

fn parse_facts(rules: &RuleTable, said: &[&str]) -> anyhow::Result<Facts> {
    let mut facts = Facts::default();
    for said in said {
        let (name, value) = said
            .split_once('=')
            .with_context(|| format!("{said} is no FACT=VALUE"))?;
        let declaration = rules.fact(name.trim())?;
        let value = parse_value(declaration, value)?;
        facts.set(&declaration.name, value, "said");
    }
    Ok(facts)
}

fn read_runs(directories: &[PathBuf]) -> anyhow::Result<Vec<BenchResult>> {
    let runs = directories.iter().map(|directory| {
        let path = directory.join("run.json");
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        BenchResult::parse(&text).with_context(|| format!("read {}", path.display()))
    });
    runs.collect()
}

/// A file's text, or a node's answer. This one request is all of HTTP that is needed.
fn read_stats(place: &str) -> anyhow::Result<String> {
    let Some(rest) = place.strip_prefix("http://") else {
        let text = std::fs::read_to_string(Path::new(place));
        return text.with_context(|| format!("read {place}"));
    };
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) if !path.is_empty() => (host, path),
        _ => (rest.trim_end_matches('/'), "stats"),
    };
    let mut stream =
        TcpStream::connect(host).with_context(|| format!("connect to {host} (HOST:PORT)"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    let answered = stream.take(STATS_BYTES_MAX).read_to_end(&mut answer);
    answered.with_context(|| format!("read the answer of {host}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{host} does not speak HTTP"))?;
    let status = head.split_whitespace().nth(1);
    if status != Some("200") {
        bail!(
            "{place} answers {}",
            head.lines().next().unwrap_or("nothing")
        );
    }
    Ok(body.to_owned())
}

/// The running node's facts, and its bucket types.
fn ask_node(configuration: &ConfigurationArguments) -> anyhow::Result<(Facts, Vec<String>)> {
    let loaded = configuration_file::load(&configuration.source())?;
    let settings = &loaded.configuration.settings;
    let mut status = admin_client::ask(settings, &AdminRequest::Status)?.data;
    let vnodes = admin_client::ask(settings, &AdminRequest::VnodeStatus)?;
    let vnodes = vnodes.data.as_array().into_iter().flatten();
    let keys: u64 = vnodes.filter_map(|vnode| vnode.get("keys")?.as_u64()).sum();
    if let Some(fields) = status.as_object_mut() {
        // Named as in the metrics, since Riak's statistics have no such name.
        fields.insert("store_keys".to_owned(), keys.into());
    }
    let facts = facts_of_stats(&status.to_string()).context("read the node's statistics")?;
    let types = admin_client::ask(settings, &AdminRequest::BucketTypeList)?;
    let entries = types.data.as_array().into_iter().flatten();
    let names = entries.filter_map(|entry| entry.get("name")?.as_str().map(str::to_owned));
    Ok((facts, names.collect()))
}

/// Asks every question; an empty answer leaves a fact unknown.
fn ask_person(rules: &RuleTable) -> anyhow::Result<Facts> {
    let mut facts = Facts::default();
    say("Press Enter where you do not know.");
    let mut lines = std::io::stdin().lock().lines();
    for declaration in &rules.facts {
        let hint = match declaration.kind {
            Kind::Flag => " [y/n]",
            Kind::Number | Kind::Bytes => "",
        };
        loop {
            let mut out = std::io::stdout();
            write!(out, "{}{hint} ", declaration.question)?;
            out.flush()?;
            let Some(line) = lines.next().transpose()? else {
                return Ok(facts);
            };
            if line.trim().is_empty() {
                break;
            }
            match parse_value(declaration, &line) {
                Ok(value) => {
                    facts.set(&declaration.name, value, "said");
                    break;
                }
                Err(problem) => say(&problem.to_string()),
            }
        }
    }
    Ok(facts)
}

fn list_facts(rules: &RuleTable) {
    for fact in &rules.facts {
        let kind = match fact.kind {
            Kind::Flag => "yes or no",
            Kind::Number => "number",
            Kind::Bytes => "bytes",
        };
        say(&format!("{:<16} {kind:<10} {}", fact.name, fact.question));
    }
}
