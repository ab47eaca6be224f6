//! The phases of a job in Erlang's terms: `{map,Function,Argument,Keep}`, `{reduce,Function,Argument,Keep}`
//! and `{link,Bucket,Tag,Keep}`, with functions as `{modfun,Module,Function}`.

use bytes::Bytes;

use crate::json::members_of;
use crate::phase::{BATCH_INPUTS, Kind, Phase, Work, built_in, no_javascript};
use crate::refusal::Refusal;
use crate::term::Term;

/// Reads the value of `query`.
pub(crate) fn phases_of_term(query: Option<&Term>) -> Result<Vec<Phase>, Refusal> {
    match query {
        Some(Term::List(phases)) => phases
            .iter()
            .enumerate()
            .map(|(index, phase)| phase_of_term(index, phase))
            .collect(),
        None => Err(refused(
            "Query takes a list of step tuples",
            Term::atom("undefined"),
        )),
        Some(other) => Err(refused("Query takes a list of step tuples", other.clone())),
    }
}

fn refused(reason: &str, of: Term) -> Refusal {
    Refusal::Query(Term::pair(Term::characters(reason.as_bytes()), of))
}

fn phase_of_term(index: usize, phase: &Term) -> Result<Phase, Refusal> {
    let unknown = || {
        let forms =
            "Query phases must be {map,F,Arg,Keep}, {reduce,F,Arg,Keep} or {link,B,T,Keep}:";
        refused(forms, phase.clone())
    };
    let Term::Tuple(parts) = phase else {
        return Err(unknown());
    };
    let [kind, first, second, keep] = parts.as_slice() else {
        return Err(unknown());
    };
    let keep = match keep {
        keep if keep.is_atom("true") => true,
        keep if keep.is_atom("false") => false,
        _ => return Err(unknown()),
    };
    let work = match kind {
        kind if kind.is_atom("map") => called(index, Kind::Map, first, second)?,
        kind if kind.is_atom("reduce") => called(index, Kind::Reduce, first, second)?,
        kind if kind.is_atom("link") => links(first, second),
        _ => None,
    };
    let work = work.ok_or_else(unknown)?;
    Ok(Phase { work, keep })
}

fn links(bucket: &Term, tag: &Term) -> Option<Work> {
    Some(Work::Link(pattern(bucket)?, pattern(tag)?))
}

/// The buckets or tags that a link phase follows: the name, or `'_'` for any.
fn pattern(term: &Term) -> Option<Option<Bytes>> {
    match term {
        Term::Binary(name) if name.as_ref() == b"_" => Some(None),
        Term::Binary(name) => Some(Some(name.clone())),
        term if term.is_atom("_") => Some(None),
        _ => None,
    }
}

/// The work of a phase with a function; none if the form is invalid.
fn called(
    index: usize,
    kind: Kind,
    function: &Term,
    argument: &Term,
) -> Result<Option<Work>, Refusal> {
    let refused = |text| Refusal::Phase { phase: index, text };
    let Term::Tuple(parts) = function else {
        return Ok(None);
    };
    match parts.as_slice() {
        [form, Term::Atom(module), Term::Atom(function)] if form.is_atom("modfun") => {
            let (call, batch) = ((module.as_ref(), function.as_ref()), batch_inputs(argument));
            built_in(kind, call, argument.clone(), batch)
                .map(Some)
                .map_err(refused)
        }
        [form, _] if form.is_atom("strfun") => Ok(Some(Work::Source)),
        [form, _] if form.is_atom("jsfun") || form.is_atom("jsanon") => {
            Err(refused(no_javascript(kind)))
        }
        _ => Ok(None),
    }
}

/// The batch in a reduce phase's argument: in a list of pairs, or in the term of a JSON object.
fn batch_inputs(argument: &Term) -> usize {
    let members = match argument {
        Term::List(members) => members,
        other => members_of(other).unwrap_or_default(),
    };
    let member = |wanted: &str| members.iter().find_map(|it| value_of(it, wanted));
    let only_once = members.iter().any(|it| it.is_atom("reduce_phase_only_1"));
    if only_once || member("reduce_phase_only_1").is_some_and(|it| it.is_atom("true")) {
        return usize::MAX;
    }
    match member("reduce_phase_batch_size") {
        Some(Term::Integer(asked)) => usize::try_from(*asked)
            .ok()
            .filter(|it| *it > 0)
            .unwrap_or(BATCH_INPUTS),
        _ => BATCH_INPUTS,
    }
}

/// The value of a pair whose name is an atom or a binary.
fn value_of<'a>(member: &'a Term, wanted: &str) -> Option<&'a Term> {
    let Term::Tuple(parts) = member else {
        return None;
    };
    match parts.as_slice() {
        [Term::Binary(name), value] if name.as_ref() == wanted.as_bytes() => Some(value),
        [name, value] if name.is_atom(wanted) => Some(value),
        _ => None,
    }
}
