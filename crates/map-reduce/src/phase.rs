//! The `query` of a job: its phases, read and checked.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::iolist::iolist_of_json;
use crate::json::term_of_json;
use crate::map_function::MapFunction;
use crate::reduce_function::ReduceFunction;
use crate::refusal::Refusal;
use crate::term::Term;

/// A phase of a job.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its work.
    pub work: Work,
    /// True if its results go to the client.
    pub keep: bool,
}

/// The work of a phase.
#[derive(Clone, Debug)]
pub enum Work {
    /// Applies a function to each object, with the argument.
    Map(MapFunction, Term),
    /// Applies a function to this many inputs at a time, and to its results for the inputs before.
    Reduce(ReduceFunction, usize),
    /// Follows links of this bucket and this tag; `None` means any.
    Link(Option<Bytes>, Option<Bytes>),
    /// A client's Erlang source, which is not run. It is refused at the first input, as in Riak.
    Source,
}

/// The module of the built-in functions.
const MODULE: &str = "riak_kv_mapreduce";

/// The number of inputs that a reduce function takes at a time by default.
pub(crate) const BATCH_INPUTS: usize = 20;

/// Reads the value of `query`.
///
/// All phases are read before the first one is checked, as in Riak, so that a job with two mistakes
/// gets Riak's answer.
pub(crate) fn phases_of_json(query: &Value) -> Result<Vec<Phase>, Refusal> {
    let Value::Array(phases) = query else {
        return Err(query_error(
            "The value of the \"query\" field was not a list:\n   ",
            query,
            "\n",
        ));
    };
    let steps = phases
        .iter()
        .enumerate()
        .map(|(index, phase)| step_of_json(phase, index + 1 == phases.len()))
        .collect::<Result<Vec<_>, _>>()?;
    steps
        .into_iter()
        .enumerate()
        .map(|(index, step)| checked(index, step))
        .collect()
}

fn characters(text: &str) -> Term {
    Term::characters(text.as_bytes())
}

fn query_error(before: &str, of: &Value, behind: &str) -> Refusal {
    Refusal::Query(Term::List(vec![
        characters(before),
        iolist_of_json(of),
        characters(behind),
    ]))
}

/// A parsed phase, with the name of its function.
struct Step<'a> {
    kind: Kind,
    call: Call<'a>,
    argument: Option<&'a Value>,
    keep: bool,
}

/// Kinds of phases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Map,
    Reduce,
    Link,
}

enum Call<'a> {
    Function(&'a str, &'a str),
    Links(Option<Bytes>, Option<Bytes>),
    Source,
    JavaScript,
}

fn step_of_json(phase: &Value, last: bool) -> Result<Step<'_>, Refusal> {
    let unrecognized = || {
        query_error(
            "Unrecognized format of query phase:\n   ",
            phase,
            "\n\nValid formats are:\n   {\"map\":{...spec...}}\n   {\"reduce\":{...spec...}}\n   {\"link:{...spec}}\n",
        )
    };
    let (name, definition) = only_member(phase).ok_or_else(unrecognized)?;
    let kind = match name {
        "map" => Kind::Map,
        "reduce" => Kind::Reduce,
        "link" => Kind::Link,
        _ => return Err(unrecognized()),
    };
    let members = definition.as_object().ok_or_else(unrecognized)?;
    let keep = match members.get("keep") {
        None => last,
        Some(Value::Bool(keep)) => *keep,
        Some(_) => {
            let before = "The \"keep\" field was not a boolean value in:\n   ";
            return Err(query_error(before, phase, "\n"));
        }
    };
    let call = match kind {
        Kind::Link => links_of_json(definition, members)?,
        _ => call_of_json(definition, members)?,
    };
    Ok(Step {
        kind,
        call,
        argument: members.get("arg"),
        keep,
    })
}

fn only_member(phase: &Value) -> Option<(&str, &Value)> {
    let members = phase.as_object().filter(|it| it.len() == 1)?;
    members
        .iter()
        .next()
        .map(|(name, value)| (name.as_str(), value))
}

fn links_of_json<'a>(
    definition: &Value,
    members: &Map<String, Value>,
) -> Result<Call<'a>, Refusal> {
    let pattern = |name: &str| match members.get(name) {
        None => Ok(None),
        Some(Value::String(any)) if any == "_" => Ok(None),
        Some(Value::String(text)) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        Some(_) => Err(query_error(
            "Invalid link step specification:\n   ",
            definition,
            "\n\n \"bucket\" and \"tag\" fields must have string values.\n",
        )),
    };
    Ok(Call::Links(pattern("bucket")?, pattern("tag")?))
}

fn call_of_json<'a>(
    definition: &Value,
    members: &'a Map<String, Value>,
) -> Result<Call<'a>, Refusal> {
    match members.get("language") {
        Some(Value::String(language)) if language == "erlang" => erlang_call(definition, members),
        Some(Value::String(language)) if language == "javascript" => {
            javascript_call(definition, members)
        }
        None => Err(Refusal::Query(Term::List(vec![
            characters("No \"language\" was specified for the phase:\n"),
            characters("   "),
            iolist_of_json(definition),
            characters("\n"),
        ]))),
        Some(language) => Err(Refusal::Query(Term::List(vec![
            characters("Unknown language "),
            iolist_of_json(language),
            characters(" in phase:\n"),
            characters("   "),
            iolist_of_json(definition),
            characters("\n"),
        ]))),
    }
}

fn is_stored(members: &Map<String, Value>) -> bool {
    members.contains_key("bucket") && members.contains_key("key")
}

fn erlang_call<'a>(
    definition: &Value,
    members: &'a Map<String, Value>,
) -> Result<Call<'a>, Refusal> {
    if members.contains_key("source") || is_stored(members) {
        return Ok(Call::Source);
    }
    let text = |name| members.get(name).and_then(Value::as_str);
    match (text("module"), text("function")) {
        (Some(module), Some(function)) => Ok(Call::Function(module, function)),
        _ => Err(query_error(
            "No function specified in Erlang phase:\n   ",
            definition,
            "\n\nFunctions may be specified by:\n   - a \"source\" field, with source for an Erlang function\n   - \"module\" and \"function\" fields, specifying an Erlang module and function\n   - \"bucket\" and \"key\" fields, specifying a Riak object containing Erlang function source\n",
        )),
    }
}

fn javascript_call<'a>(
    definition: &Value,
    members: &Map<String, Value>,
) -> Result<Call<'a>, Refusal> {
    if members.contains_key("source") || members.contains_key("name") || is_stored(members) {
        return Ok(Call::JavaScript);
    }
    Err(query_error(
        "No function specified in Javascript phase:\n   ",
        definition,
        "\n\nFunctions may be specified by:\n   - a \"source\" field, with source for a Javascript function\n   - a \"name\" field, naming a predefined Javascript function\n   - \"bucket\" and \"key\" fields, specifying a Riak object containing Javascript function source\n",
    ))
}

fn checked(index: usize, step: Step<'_>) -> Result<Phase, Refusal> {
    let refused = |text| Refusal::Phase { phase: index, text };
    let work = match (step.kind, step.call) {
        (_, Call::Links(bucket, tag)) => Work::Link(bucket, tag),
        (_, Call::Source) => Work::Source,
        (kind, Call::JavaScript) => return Err(refused(no_javascript(kind))),
        (kind, Call::Function(module, function)) => {
            let argument = step.argument.map_or(Term::atom("none"), term_of_json);
            let call = (module, function);
            built_in(kind, call, argument, batch_inputs(step.argument)).map_err(refused)?
        }
    };
    Ok(Phase {
        work,
        keep: step.keep,
    })
}

/// The refusal of a JavaScript phase.
pub(crate) fn no_javascript(kind: Kind) -> String {
    let part = if kind == Kind::Map {
        "riak_kv_mrc_map"
    } else {
        "riak_kv_w_reduce"
    };
    format!(
        "The PhaseSpec part of the argument for {part} must be of one of the following forms:\n   {{modfun, Module :: atom(), Function :: atom()}}\n   {{qfun, Function :: function()}}\n   {{strfun, Source :: string()}}\n   {{strfun, {{Bucket :: binary(), Key :: binary()}}}}\n"
    )
}

/// The work of a phase with a function of a module, or the reason why there is none.
pub(crate) fn built_in(
    kind: Kind,
    (module, function): (&str, &str),
    argument: Term,
    batch: usize,
) -> Result<Work, String> {
    if module != MODULE {
        return Err(format!(
            "invalid module named in PhaseSpec function:\n must be a valid module name (failed to load {module}: nofile)"
        ));
    }
    let (work, arity) = match kind {
        Kind::Map => {
            let function = MapFunction::by_name(function);
            (function.map(|it| Work::Map(it, argument)), 3)
        }
        _ => {
            let function = ReduceFunction::by_name(function);
            (function.map(|it| Work::Reduce(it, batch)), 2)
        }
    };
    work.ok_or_else(|| {
        format!("PhaseSpec specifies {module}:{function}/{arity}, which is not exported")
    })
}

/// The batch in a reduce phase's argument.
fn batch_inputs(argument: Option<&Value>) -> usize {
    let member = |name| argument.and_then(|it| it.get(name));
    if member("reduce_phase_only_1") == Some(&Value::Bool(true)) {
        return usize::MAX;
    }
    let asked = member("reduce_phase_batch_size").and_then(Value::as_u64);
    let asked = asked.and_then(|it| usize::try_from(it).ok());
    asked.filter(|it| *it > 0).unwrap_or(BATCH_INPUTS)
}
