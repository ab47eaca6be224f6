//! Sets and maps as Riak's terms, and the content of maps.
//!
//! Version 1 writes dictionaries as sorted lists of pairs, version 2 as the records of Erlang's
//! module `dict`. Both are read. Version 1, which every release reads, is written: the places of a
//! `dict`'s buckets depend on a hash of terms that only Erlang has.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_erlang_terms::external_term::Term;

use crate::causal::{Map, Set};
use crate::clock::Clock;
use crate::counter::{Counter, Tally};
use crate::deferred::{Deferred, Removal, Target};
use crate::dot::Dot;
use crate::dot_store::{DotStore as _, Dots, clock_of as clock_of_parts};
use crate::field::{Content, Field, Fields, Members};
use crate::field_name::{FieldKind, FieldName};
use crate::operation::DEPTH_MAX;
use crate::register::{Assignment, Register};
use crate::riak_clock::{
    actor_of, actor_term, clock_of, clock_term, dot_of, dot_term, dots_of, dots_term,
};

/// Reads a set, `{Clock, Entries, Deferred}`.
pub(crate) fn set_of(term: Term) -> Option<Set> {
    let mut deferred = Deferred::default();
    let (parts, mut clock) = members_of(term, &[], &mut deferred)?;
    clock.merge(&clock_of_parts(&parts));
    Some(Set {
        clock,
        parts,
        deferred,
    })
}

/// Reads a map, `{Clock, Fields, Deferred}`.
pub(crate) fn map_of(term: Term) -> Option<Map> {
    let mut deferred = Deferred::default();
    let (parts, mut clock) = fields_of(term, &[], &mut deferred)?;
    clock.merge(&clock_of_parts(&parts));
    Some(Map {
        clock,
        parts,
        deferred,
    })
}

/// The term of a set.
pub(crate) fn set_term(set: &Set) -> Term {
    members_term(&set.parts, &set.clock, &[], &set.deferred)
}

/// The term of a map. Removes that wait inside of an absent field are left out: Riak keeps
/// such removes in the field, and loses them with it.
pub(crate) fn map_term(map: &Map) -> Term {
    fields_term(&map.parts, &map.clock, &[], &map.deferred)
}

fn tuple<const N: usize>(term: Term) -> Option<[Term; N]> {
    match term {
        Term::Tuple(elements) => elements.try_into().ok(),
        _ => None,
    }
}

/// The pairs of a dictionary of either version.
fn pairs_of(term: Term) -> Option<Vec<(Term, Term)>> {
    if let Term::Tuple(elements) = term {
        return pairs_of_dict(elements);
    }
    let pairs = term.into_list()?.into_iter().map(|pair| {
        let [key, value] = tuple(pair)?;
        Some((key, value))
    });
    pairs.collect()
}

/// The pairs of `{dict, Size, N, MaxN, Bso, ExpSize, ConSize, Empty, Segments}`: tuples of tuples of
/// buckets, which are lists of `[Key | Value]`.
fn pairs_of_dict(elements: Vec<Term>) -> Option<Vec<(Term, Term)>> {
    let elements: [Term; 9] = elements.try_into().ok()?;
    let [name, size, .., segments] = elements;
    let Term::Tuple(segments) = segments else {
        return None;
    };
    if !name.is_atom("dict") {
        return None;
    }
    let mut pairs = Vec::new();
    for segment in segments {
        let Term::Tuple(buckets) = segment else {
            return None;
        };
        for bucket in buckets {
            let found = bucket.into_list()?.into_iter().map(cons_of);
            pairs.extend(found.collect::<Option<Vec<_>>>()?);
        }
    }
    (size.as_u64() == Some(pairs.len() as u64)).then_some(pairs)
}

/// Head and tail of a list.
fn cons_of(term: Term) -> Option<(Term, Term)> {
    let Term::List(mut elements, tail) = term else {
        return None;
    };
    if elements.is_empty() {
        return None;
    }
    let head = elements.remove(0);
    let rest = match (elements.is_empty(), tail) {
        (true, Some(tail)) => *tail,
        (_, tail) => Term::List(elements, tail),
    };
    Some((head, rest))
}

fn target(path: &[FieldName], removal: Removal) -> Target {
    Target {
        path: path.to_vec(),
        removal,
    }
}

fn members_of(term: Term, path: &[FieldName], deferred: &mut Deferred) -> Option<(Members, Clock)> {
    let [clock, entries, waiting] = tuple(term)?;
    let members = pairs_of(entries)?.into_iter().map(|(member, dots)| {
        let dots = dots_of(dots).filter(|dots| !dots.is_empty())?;
        Some((member.as_binary()?.clone(), dots))
    });
    for (context, removed) in pairs_of(waiting)? {
        let context = clock_of(context)?;
        for member in removed.into_list()? {
            let removal = Removal::Member(member.as_binary()?.clone());
            deferred.insert(context.clone(), target(path, removal));
        }
    }
    Some((members.collect::<Option<_>>()?, clock_of(clock)?))
}

fn fields_of(term: Term, path: &[FieldName], deferred: &mut Deferred) -> Option<(Fields, Clock)> {
    let [clock, entries, waiting] = tuple(term)?;
    let mut fields = Fields::new();
    for (name, value) in pairs_of(entries)? {
        let name = name_of(&name)?;
        let path = [path, std::slice::from_ref(&name)].concat();
        fields.insert(name, field_of(value, &path, deferred)?);
    }
    fields.retain(|_, field| !field.is_empty());
    for (context, removed) in pairs_of(waiting)? {
        let context = clock_of(context)?;
        for name in removed.into_list()? {
            let removal = Removal::Field(name_of(&name)?);
            deferred.insert(context.clone(), target(path, removal));
        }
    }
    Some((fields, clock_of(clock)?))
}

/// A field, `{[{Dot, Value}], Tombstone}`: a value for each concurrent update, and an empty value
/// with the clock of the parts removed from them.
fn field_of(term: Term, path: &[FieldName], deferred: &mut Deferred) -> Option<Field> {
    let kind = path.last()?.kind;
    let [values, tombstone] = tuple(term)?;
    let mut field = Field::vacant(kind);
    let mut clock = Clock::new();
    for (dot, value) in pairs_of(values)? {
        let dot = dot_of(&dot)?;
        let (content, seen) = content_of(value, dot, path, deferred)?;
        field.presence.insert(dot);
        field.content.reconcile(content, &clock, &seen);
        clock.merge(&seen);
    }
    let removed = removed_by(tombstone, kind)?;
    field.content.remove_seen(&removed);
    Some(field)
}

fn removed_by(tombstone: Term, kind: FieldKind) -> Option<Clock> {
    let clock = match kind {
        FieldKind::Register => return Some(Clock::new()),
        FieldKind::Counter => tuple::<2>(tombstone)?.into_iter().next(),
        FieldKind::Map | FieldKind::Flag | FieldKind::Set => {
            tuple::<3>(tombstone)?.into_iter().next()
        }
    };
    clock_of(clock?)
}

/// A value in a field, and the clock that it has seen.
fn content_of(
    term: Term,
    dot: Dot,
    path: &[FieldName],
    deferred: &mut Deferred,
) -> Option<(Content, Clock)> {
    if path.len() > DEPTH_MAX {
        return None;
    }
    Some(match path.last()?.kind {
        FieldKind::Counter => {
            let (counter, clock) = counter_of(term)?;
            (Content::Counter(counter), clock)
        }
        FieldKind::Register => {
            let register = register_of(term, dot)?;
            (Content::Register(register), Clock::new())
        }
        FieldKind::Flag => {
            let (dots, clock) = flag_of(term, path, deferred)?;
            (Content::Flag(dots), clock)
        }
        FieldKind::Set => {
            let (members, clock) = members_of(term, path, deferred)?;
            (Content::Set(members), clock)
        }
        FieldKind::Map => {
            let (fields, clock) = fields_of(term, path, deferred)?;
            (Content::Map(fields), clock)
        }
    })
}

/// A counter in a map, `{Clock, [{Actor, {Event, Increments, Decrements}}]}`.
fn counter_of(term: Term) -> Option<(Counter, Clock)> {
    let [clock, entries] = tuple(term)?;
    let tallies = pairs_of(entries)?.into_iter().map(|(actor, tally)| {
        let [event, increments, decrements] = tuple(tally)?;
        Some(Tally {
            dot: Dot {
                actor: actor_of(&actor)?,
                counter: event.as_u64().filter(|event| *event > 0)?,
            },
            increments: sum_of(&increments)?,
            decrements: sum_of(&decrements)?,
        })
    });
    let tallies: Vec<Tally> = tallies.collect::<Option<_>>()?;
    Some((Counter::from_tallies(tallies), clock_of(clock)?))
}

/// A sum of increments or of decrements.
pub(crate) fn sum_of(term: &Term) -> Option<u128> {
    match term {
        Term::Integer(value) => u128::try_from(*value).ok(),
        _ => None,
    }
}

/// The term of such a sum.
pub(crate) fn sum_term(sum: u128) -> Term {
    Term::Integer(i128::try_from(sum).unwrap_or(i128::MAX))
}

/// A register, `{Value, Micros}`.
fn register_of(term: Term, dot: Dot) -> Option<Register> {
    let [value, micros] = tuple(term)?;
    let assignment = Assignment {
        dot,
        micros: micros.as_u64()?,
        value: value.as_binary()?.clone(),
    };
    Some(Register::from_assignments([assignment]))
}

/// A flag, `{Clock, Dots, [Context]}`.
fn flag_of(term: Term, path: &[FieldName], deferred: &mut Deferred) -> Option<(Dots, Clock)> {
    let [clock, dots, waiting] = tuple(term)?;
    for context in waiting.into_list()? {
        deferred.insert(clock_of(context)?, target(path, Removal::Flag));
    }
    Some((dots_of(dots)?, clock_of(clock)?))
}

/// The names of Riak's modules.
fn module_of(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Counter => "riak_dt_emcntr",
        FieldKind::Register => "riak_dt_lwwreg",
        FieldKind::Map => "riak_dt_map",
        FieldKind::Flag => "riak_dt_od_flag",
        FieldKind::Set => "riak_dt_orswot",
    }
}

/// A field's name, `{Name, Module}`.
fn name_of(term: &Term) -> Option<FieldName> {
    let [name, module] = term.as_tuple()? else {
        return None;
    };
    let mut kinds = FieldKind::ALL.into_iter();
    let kind = kinds.find(|kind| module.is_atom(module_of(*kind)))?;
    Some(FieldName::new(name.as_binary()?.clone(), kind))
}

impl FieldName {
    /// The Erlang module of the field's kind, which stands for the kind in Riak's error texts.
    pub fn riak_module(&self) -> &'static str {
        module_of(self.kind)
    }
}

fn name_term(name: &FieldName) -> Term {
    let module = Term::Atom(Bytes::from_static(module_of(name.kind).as_bytes()));
    Term::Tuple(vec![Term::Binary(name.name.clone()), module])
}

fn list(terms: impl IntoIterator<Item = Term>) -> Term {
    Term::List(terms.into_iter().collect(), None)
}

fn pair(key: Term, value: Term) -> Term {
    Term::Tuple(vec![key, value])
}

/// Waiting removals at a place, by context.
fn waiting_at<T: Ord>(
    path: &[FieldName],
    deferred: &Deferred,
    pick: impl Fn(&Removal) -> Option<T>,
) -> BTreeMap<Clock, Vec<T>> {
    let mut waiting = BTreeMap::<Clock, Vec<T>>::new();
    for (context, targets) in deferred.iter() {
        let here = targets.iter().filter(|target| target.path == path);
        let picked: Vec<T> = here.filter_map(|target| pick(&target.removal)).collect();
        if !picked.is_empty() {
            waiting.insert(context.clone(), picked);
        }
    }
    waiting
}

fn members_term(members: &Members, clock: &Clock, path: &[FieldName], deferred: &Deferred) -> Term {
    let entries = members
        .iter()
        .map(|(member, dots)| pair(Term::Binary(member.clone()), dots_term(dots)));
    let waiting = waiting_at(path, deferred, |removal| match removal {
        Removal::Member(member) => Some(member.clone()),
        Removal::Field(_) | Removal::Flag => None,
    });
    let waiting = waiting.into_iter().map(|(context, members)| {
        let members = list(members.into_iter().map(Term::Binary));
        pair(clock_term(&context), members)
    });
    Term::Tuple(vec![clock_term(clock), list(entries), list(waiting)])
}

fn fields_term(fields: &Fields, clock: &Clock, path: &[FieldName], deferred: &Deferred) -> Term {
    let entries = fields.iter().map(|(name, field)| {
        let path = [path, std::slice::from_ref(name)].concat();
        pair(name_term(name), field_term(field, clock, &path, deferred))
    });
    let waiting = waiting_at(path, deferred, |removal| match removal {
        Removal::Field(name) => Some(name.clone()),
        Removal::Member(_) | Removal::Flag => None,
    });
    let waiting = waiting
        .into_iter()
        .map(|(context, names)| pair(clock_term(&context), list(names.iter().map(name_term))));
    Term::Tuple(vec![clock_term(clock), list(entries), list(waiting)])
}

fn field_term(field: &Field, clock: &Clock, path: &[FieldName], deferred: &Deferred) -> Term {
    let mut presence = field.presence.clone();
    if presence.is_empty() {
        field.content.each_dot(&mut |dot| presence.insert(dot));
    }
    let content = content_term(&field.content, clock, path, deferred);
    let values = presence.as_slice().iter().map(|dot| {
        let assigned = assigned_at(&field.content, *dot);
        pair(dot_term(*dot), assigned.unwrap_or_else(|| content.clone()))
    });
    let tombstone = content_term(
        &Content::new(field.content.kind()),
        &Clock::new(),
        path,
        &Deferred::default(),
    );
    pair(list(values), tombstone)
}

/// The assignment of one update to a register. Everything else is merged for all updates alike.
fn assigned_at(content: &Content, dot: Dot) -> Option<Term> {
    let Content::Register(register) = content else {
        return None;
    };
    let mut assignments = register.assignments().iter();
    let assignment = assignments.find(|assignment| assignment.dot == dot)?;
    Some(register_term(assignment.value.clone(), assignment.micros))
}

fn register_term(value: Bytes, micros: u64) -> Term {
    pair(Term::Binary(value), Term::Integer(micros.into()))
}

fn content_term(content: &Content, clock: &Clock, path: &[FieldName], deferred: &Deferred) -> Term {
    match content {
        Content::Counter(counter) => {
            let entries = counter.tallies().iter().map(tally_term);
            pair(clock_term(clock), list(entries))
        }
        Content::Register(register) => {
            let (value, micros) = register.value();
            register_term(value, micros)
        }
        Content::Flag(dots) => {
            let waiting = waiting_at(path, deferred, |removal| {
                (*removal == Removal::Flag).then_some(())
            });
            let waiting = waiting.keys().map(clock_term);
            Term::Tuple(vec![clock_term(clock), dots_term(dots), list(waiting)])
        }
        Content::Set(members) => members_term(members, clock, path, deferred),
        Content::Map(fields) => fields_term(fields, clock, path, deferred),
    }
}

fn tally_term(tally: &Tally) -> Term {
    let event = Term::Integer(tally.dot.counter.into());
    let sums = [tally.increments, tally.decrements].map(sum_term);
    let [increments, decrements] = sums;
    pair(
        actor_term(tally.dot.actor),
        Term::Tuple(vec![event, increments, decrements]),
    )
}
