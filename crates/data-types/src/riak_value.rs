//! Whole values as Riak stores them in its objects, for importers and for reads of raw objects.
//!
//! ```text
//! value    = tag       u8      69
//!            version   u8      1, a counter of Riak 1.4, or 2
//!   version 1: counter in version 1, see below
//!   version 2: length  u32     big-endian, of the module's name
//!            module            such as riak_dt_orswot
//!            tag       u8      the module's
//!            version   u8      the module's
//!            term              in Erlang's external format, of some types compressed
//! counter in version 1: tag u8 71, version u8 1, two of (length u32, sums): increments, decrements
//! sums     = tag       u8      70
//!            version   u8      1
//!            term              [{Actor, Sum}]
//! ```

use bytes::{Buf as _, BufMut as _, Bytes};
use kvorum_erlang_terms::external_term::{Term, TermError};
use std::collections::BTreeMap;

use crate::counter::{Counter, Tally};
use crate::data_type::DataType;
use crate::dot::{Actor, Dot};
use crate::kind::Kind;
use crate::riak_clock::{actor_of, actor_term};
use crate::riak_parts::{map_of, map_term, set_of, set_term, sum_of, sum_term};
use crate::riak_sketch::{sketch_of, sketch_term};

/// The first byte of every data type in an object of Riak's.
pub const RIAK_TAG: u8 = 69;
const LEGACY_VERSION: u8 = 1;
const MODULE_VERSION: u8 = 2;
const SUMS_TAG: u8 = 70;
const COUNTER_TAG: u8 = 71;
const TAGGED_VERSION: u8 = 1;

/// A value that was read from an object of Riak's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiakValue {
    /// The value.
    pub value: DataType,
    /// True for a counter of Riak 1.4, which lives in a bucket without type.
    pub is_legacy: bool,
}

/// Bytes are no data type of Riak's, or one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RiakFormError {
    /// The first byte is not that of data types: a plain value.
    #[error("value is no data type of Riak's")]
    Plain,
    /// The bytes end early, or their version or tag is unknown.
    #[error("malformed data type of Riak's at byte {offset}")]
    Malformed {
        /// The offset at which reading stopped, in bytes.
        offset: usize,
    },
    /// The module is none of the data types that Riak stores.
    #[error("data type of unknown module {}", .module.escape_ascii())]
    Module {
        /// The module's name.
        module: Bytes,
    },
    /// The term cannot be read.
    #[error("data type of Riak's holds no term")]
    Term(#[from] TermError),
    /// The term is not of the form that the module writes.
    #[error("term is no {kind} of Riak's")]
    Shape {
        /// The type that was expected of the term.
        kind: Kind,
    },
}

/// Riak's stored form of a type.
struct Form {
    kind: Kind,
    module: &'static [u8],
    tag: u8,
    /// The version that is written.
    version: u8,
    /// The newest version that can be read.
    version_max: u8,
}

const FORMS: [Form; 5] = [
    Form {
        kind: Kind::Counter,
        module: b"riak_dt_pncounter",
        tag: COUNTER_TAG,
        version: 2,
        version_max: 2,
    },
    Form {
        kind: Kind::Set,
        module: b"riak_dt_orswot",
        tag: 75,
        version: 1,
        version_max: 2,
    },
    Form {
        kind: Kind::GrowSet,
        module: b"riak_dt_gset",
        tag: 82,
        version: 2,
        version_max: 2,
    },
    Form {
        kind: Kind::Map,
        module: b"riak_dt_map",
        tag: 77,
        version: 1,
        version_max: 2,
    },
    Form {
        kind: Kind::HyperLogLog,
        module: b"riak_kv_hll",
        tag: 86,
        version: 1,
        version_max: 1,
    },
];

/// Reads a data type from an object of Riak's.
///
/// # Errors
/// [`RiakFormError::Plain`] for other values; the rest for damage, and for types that no release
/// stores at the top of an object.
pub fn decode_riak_value(bytes: &Bytes) -> Result<RiakValue, RiakFormError> {
    let mut rest = bytes.clone();
    if rest.first() != Some(&RIAK_TAG) {
        return Err(RiakFormError::Plain);
    }
    rest.advance(1);
    match take_u8(&mut rest, bytes)? {
        LEGACY_VERSION => {
            let head = [COUNTER_TAG, TAGGED_VERSION];
            take_exactly(&mut rest, bytes, &head)?;
            Ok(RiakValue {
                value: DataType::Counter(two_sums(&mut rest, bytes)?),
                is_legacy: true,
            })
        }
        MODULE_VERSION => Ok(RiakValue {
            value: of_module(&mut rest, bytes)?,
            is_legacy: false,
        }),
        _ => Err(RiakFormError::Malformed { offset: 1 }),
    }
}

/// The bytes that Riak would store.
pub fn encode_riak_value(value: &DataType) -> Bytes {
    let mut forms = FORMS.iter();
    let form = forms.find(|form| form.kind == value.kind());
    let mut out = vec![RIAK_TAG, MODULE_VERSION];
    if let Some(form) = form {
        put_prefixed(&mut out, form.module);
        out.extend([form.tag, form.version]);
    }
    let term = match value {
        DataType::Counter(counter) => counter_term(counter),
        DataType::Set(set) => set_term(set),
        DataType::GrowSet(set) => {
            Term::List(set.members().cloned().map(Term::Binary).collect(), None)
        }
        DataType::Map(map) => map_term(map),
        DataType::HyperLogLog(sketch) => sketch_term(sketch),
    };
    out.extend_from_slice(&term.encode());
    out.into()
}

/// The bytes of a counter of Riak 1.4.
pub fn encode_legacy_counter(counter: &Counter) -> Bytes {
    let mut out = vec![RIAK_TAG, LEGACY_VERSION, COUNTER_TAG, TAGGED_VERSION];
    let sums: [fn(&Tally) -> u128; 2] = [|it| it.increments, |it| it.decrements];
    for sum in sums {
        put_prefixed(&mut out, &sums_bytes(counter, sum));
    }
    out.into()
}

fn sums_bytes(counter: &Counter, sum: fn(&Tally) -> u128) -> Vec<u8> {
    let tallies = counter.tallies().iter().filter(|tally| sum(tally) > 0);
    let terms = tallies.map(|tally| {
        let actor = actor_term(tally.dot.actor);
        Term::Tuple(vec![actor, sum_term(sum(tally))])
    });
    let mut out = vec![SUMS_TAG, TAGGED_VERSION];
    out.extend_from_slice(&Term::List(terms.collect(), None).encode());
    out
}

/// # Panics
/// If there are 4 GB or more.
fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len());
    assert!(len.is_ok(), "a part of a data type has less than 4 GB");
    out.put_u32(len.unwrap_or(0));
    out.extend_from_slice(bytes);
}

fn malformed(rest: &Bytes, whole: &Bytes) -> RiakFormError {
    let offset = whole.len() - rest.len();
    RiakFormError::Malformed { offset }
}

fn take_u8(rest: &mut Bytes, whole: &Bytes) -> Result<u8, RiakFormError> {
    rest.try_get_u8().map_err(|_| malformed(rest, whole))
}

fn take_exactly(rest: &mut Bytes, whole: &Bytes, expected: &[u8]) -> Result<(), RiakFormError> {
    if !rest.starts_with(expected) {
        return Err(malformed(rest, whole));
    }
    rest.advance(expected.len());
    Ok(())
}

fn take_prefixed(rest: &mut Bytes, whole: &Bytes) -> Result<Bytes, RiakFormError> {
    let len = rest.try_get_u32().map_err(|_| malformed(rest, whole))?;
    let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
    let len = len.ok_or_else(|| malformed(rest, whole))?;
    Ok(rest.split_to(len))
}

fn of_module(rest: &mut Bytes, whole: &Bytes) -> Result<DataType, RiakFormError> {
    let module = take_prefixed(rest, whole)?;
    let form = FORMS.iter().find(|form| form.module == module);
    let Some(form) = form else {
        return Err(RiakFormError::Module { module });
    };
    take_exactly(rest, whole, &[form.tag])?;
    let version = take_u8(rest, whole)?;
    if version == 0 || version > form.version_max {
        return Err(malformed(rest, whole));
    }
    if form.kind == Kind::Counter && version == TAGGED_VERSION {
        return two_sums(rest, whole).map(DataType::Counter);
    }
    let kind = form.kind;
    value_of(kind, Term::decode(rest)?).ok_or(RiakFormError::Shape { kind })
}

fn value_of(kind: Kind, term: Term) -> Option<DataType> {
    Some(match kind {
        Kind::Counter => DataType::Counter(counter_of(term)?),
        Kind::Set => DataType::Set(set_of(term)?),
        Kind::GrowSet => {
            let members = term.into_list()?.into_iter();
            let members = members.map(|member| member.as_binary().cloned());
            DataType::GrowSet(members.collect::<Option<_>>()?)
        }
        Kind::Map => DataType::Map(map_of(term)?),
        Kind::HyperLogLog => DataType::HyperLogLog(sketch_of(&term)?),
    })
}

/// A counter, `[{Actor, Increments, Decrements}]`.
fn counter_of(term: Term) -> Option<Counter> {
    let tallies = term
        .into_list()?
        .into_iter()
        .map(|entry| match entry.as_tuple()? {
            [actor, increments, decrements] => {
                let (increments, decrements) = (sum_of(increments)?, sum_of(decrements)?);
                Some(tally(actor_of(actor)?, increments, decrements))
            }
            _ => None,
        });
    let tallies: Vec<Tally> = tallies.collect::<Option<_>>()?;
    Some(Counter::from_tallies(tallies))
}

fn counter_term(counter: &Counter) -> Term {
    let entries = counter.tallies().iter().map(|tally| {
        Term::Tuple(vec![
            actor_term(tally.dot.actor),
            sum_term(tally.increments),
            sum_term(tally.decrements),
        ])
    });
    Term::List(entries.collect(), None)
}

/// Riak's counters name no updates. An actor's sums only grow, so that their total counts its updates
/// as well as anything: of two tallies of an actor the later has the higher.
fn tally(actor: Actor, increments: u128, decrements: u128) -> Tally {
    let total = increments.saturating_add(decrements);
    let counter = u64::try_from(total).unwrap_or(u64::MAX).max(1);
    Tally {
        dot: Dot { actor, counter },
        increments,
        decrements,
    }
}

/// A counter in version 1: increments and decrements apart.
fn two_sums(rest: &mut Bytes, whole: &Bytes) -> Result<Counter, RiakFormError> {
    let mut sums = BTreeMap::<Actor, (u128, u128)>::new();
    for (actor, sum) in one_sum(&take_prefixed(rest, whole)?)? {
        sums.entry(actor).or_default().0 = sum;
    }
    for (actor, sum) in one_sum(&take_prefixed(rest, whole)?)? {
        sums.entry(actor).or_default().1 = sum;
    }
    if !rest.is_empty() {
        return Err(malformed(rest, whole));
    }
    let tallies = sums.into_iter();
    let tallies =
        tallies.map(|(actor, (increments, decrements))| tally(actor, increments, decrements));
    Ok(Counter::from_tallies(tallies))
}

fn one_sum(bytes: &Bytes) -> Result<Vec<(Actor, u128)>, RiakFormError> {
    let mut rest = bytes.clone();
    take_exactly(&mut rest, bytes, &[SUMS_TAG, TAGGED_VERSION])?;
    let entries = Term::decode(&rest)?.into_list();
    let sums = entries.map(|entries| {
        let sums = entries.iter().map(|entry| match entry.as_tuple()? {
            [actor, sum] => Some((actor_of(actor)?, sum_of(sum)?)),
            _ => None,
        });
        sums.collect::<Option<Vec<_>>>()
    });
    let kind = Kind::Counter;
    sums.flatten().ok_or(RiakFormError::Shape { kind })
}
