//! Riak's actors, dots and clocks as terms.
//!
//! Riak's actors are byte strings of 8 or 12 bytes; ours are numbers. An imported actor is the hash
//! of its bytes, so that replicas that are imported one by one agree. Our own actors are written as
//! nine bytes, a length that Riak's never have, and are read back unchanged.

use bytes::Bytes;
use kvorum_erlang_terms::external_term::Term;
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Clock;
use crate::dot::{Actor, Dot};
use crate::dot_store::{DotStore as _, Dots};

const OUR_ACTOR: u8 = b'K';

/// Reads a context of Riak's.
pub(crate) fn clock_from_riak(bytes: &Bytes) -> Option<Clock> {
    clock_of(Term::decode(bytes).ok()?)
}

/// The clock of a list of dots, `[{Actor, Counter}]`.
pub(crate) fn clock_of(term: Term) -> Option<Clock> {
    let dots = term.into_list()?.into_iter().map(|dot| dot_of(&dot));
    dots.collect()
}

/// The dots of such a list.
pub(crate) fn dots_of(term: Term) -> Option<Dots> {
    let dots = term.into_list()?.into_iter().map(|dot| dot_of(&dot));
    dots.collect()
}

/// A dot, `{Actor, Counter}`.
pub(crate) fn dot_of(term: &Term) -> Option<Dot> {
    match term.as_tuple()? {
        [actor, counter] => Some(Dot {
            actor: actor_of(actor)?,
            counter: counter.as_u64().filter(|counter| *counter > 0)?,
        }),
        _ => None,
    }
}

/// An actor.
pub(crate) fn actor_of(term: &Term) -> Option<Actor> {
    let bytes = term.as_binary()?;
    let ours = bytes
        .strip_prefix(&[OUR_ACTOR])
        .and_then(|it| it.try_into().ok());
    let number = ours.map_or_else(|| xxh3_64(bytes), u64::from_be_bytes);
    Some(Actor(number.max(1)))
}

/// The term of a clock.
pub(crate) fn clock_term(clock: &Clock) -> Term {
    Term::List(clock.entries().map(dot_term).collect(), None)
}

/// The term of dots.
pub(crate) fn dots_term(dots: &Dots) -> Term {
    let mut terms = Vec::new();
    dots.each_dot(&mut |dot| terms.push(dot_term(dot)));
    Term::List(terms, None)
}

/// The term of a dot.
pub(crate) fn dot_term(dot: Dot) -> Term {
    let counter = Term::Integer(dot.counter.into());
    Term::Tuple(vec![actor_term(dot.actor), counter])
}

/// The term of an actor.
pub(crate) fn actor_term(actor: Actor) -> Term {
    let bytes = [&[OUR_ACTOR][..], &actor.0.to_be_bytes()].concat();
    Term::Binary(bytes.into())
}
