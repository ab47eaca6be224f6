//! Erlang's terms that occur in jobs, with Erlang's order.
//!
//! Riak's built-in functions and key filters are defined on terms: a sort puts numbers before texts, and a
//! result of `to_upper` is a list of numbers and equal to no binary. Results depend on this.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::object::ReadObject;

/// A value between phases.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A whole number.
    Integer(i128),
    /// A number with a fraction, always finite.
    Float(f64),
    /// A name, such as `true`, `null` or `undefined`.
    Atom(Cow<'static, str>),
    /// A fixed number of terms: `{Bucket, Key}`.
    Tuple(Vec<Term>),
    /// A sequence of terms; a text in Erlang's old form is a list of numbers.
    List(Vec<Term>),
    /// Bytes: a text of JSON, or a value.
    Binary(Bytes),
    /// An object, whose parts only the counting functions read.
    Object(Arc<ReadObject>),
}

/// The members of an object's tuple in Riak.
const OBJECT_ARITY: usize = 8;

/// The memory of a term without its bytes.
const TERM_BYTES: usize = size_of::<Term>();

impl Term {
    /// An atom of a constant name.
    pub const fn atom(name: &'static str) -> Self {
        Self::Atom(Cow::Borrowed(name))
    }

    /// A binary of a text.
    pub fn text(text: &str) -> Self {
        Self::Binary(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// `true` or `false`.
    pub const fn boolean(value: bool) -> Self {
        Self::atom(if value { "true" } else { "false" })
    }

    /// A list of the bytes, as Erlang's old functions for texts return it.
    pub fn characters(text: &[u8]) -> Self {
        Self::List(
            text.iter()
                .map(|it| Self::Integer(i128::from(*it)))
                .collect(),
        )
    }

    /// A tuple of two.
    pub fn pair(first: Self, second: Self) -> Self {
        Self::Tuple(vec![first, second])
    }

    /// True if it is the atom.
    pub fn is_atom(&self, name: &str) -> bool {
        matches!(self, Self::Atom(it) if it == name)
    }

    /// The bytes of a list of characters.
    pub(crate) fn as_characters(&self) -> Option<Vec<u8>> {
        let Self::List(elements) = self else {
            return None;
        };
        let byte = |it: &Self| match it {
            Self::Integer(it) => u8::try_from(*it).ok(),
            _ => None,
        };
        elements.iter().map(byte).collect()
    }

    /// Its approximate memory, in bytes.
    pub fn bytes(&self) -> usize {
        TERM_BYTES
            + match self {
                Self::Integer(_) | Self::Float(_) => 0,
                Self::Atom(name) => name.len(),
                Self::Tuple(elements) | Self::List(elements) => {
                    elements.iter().map(Self::bytes).sum()
                }
                Self::Binary(bytes) => bytes.len(),
                Self::Object(object) => object.bytes(),
            }
    }

    /// Erlang's order of terms, in which 1 and 1.0 are equal.
    pub fn order(&self, other: &Self) -> Ordering {
        compare(self, other, false)
    }

    /// The same order, but with whole numbers before equal ones with a fraction: equal terms are identical.
    pub(crate) fn strict_order(&self, other: &Self) -> Ordering {
        compare(self, other, true)
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Float(_) => 0,
            Self::Atom(_) => 1,
            Self::Tuple(_) | Self::Object(_) => 2,
            Self::List(_) => 3,
            Self::Binary(_) => 4,
        }
    }

    fn arity(&self) -> usize {
        match self {
            Self::Tuple(elements) => elements.len(),
            _ => OBJECT_ARITY,
        }
    }
}

fn compare(left: &Term, right: &Term, strict: bool) -> Ordering {
    match (left, right) {
        (Term::Integer(left), Term::Integer(right)) => left.cmp(right),
        (Term::Float(left), Term::Float(right)) => {
            left.partial_cmp(right).unwrap_or(Ordering::Equal)
        }
        (Term::Integer(left), Term::Float(right)) => {
            let order = compare_numbers(*left, *right);
            if strict {
                order.then(Ordering::Less)
            } else {
                order
            }
        }
        (Term::Float(_), Term::Integer(_)) => compare(right, left, strict).reverse(),
        (Term::Atom(left), Term::Atom(right)) => left.cmp(right),
        (Term::List(left), Term::List(right)) => compare_elements(left, right, strict),
        (Term::Tuple(first), Term::Tuple(second)) => first
            .len()
            .cmp(&second.len())
            .then_with(|| compare_elements(first, second, strict)),
        (Term::Object(left), Term::Object(right)) => compare_objects(left, right),
        (Term::Binary(left), Term::Binary(right)) => left.cmp(right),
        (Term::Tuple(_), Term::Object(_)) => left.arity().cmp(&right.arity()).then(Ordering::Less),
        (Term::Object(_), Term::Tuple(_)) => compare(right, left, strict).reverse(),
        _ => left.rank().cmp(&right.rank()),
    }
}

fn compare_elements(left: &[Term], right: &[Term], strict: bool) -> Ordering {
    left.iter()
        .zip(right)
        .map(|(left, right)| compare(left, right, strict))
        .find(|it| it.is_ne())
        .unwrap_or_else(|| left.len().cmp(&right.len()))
}

fn compare_objects(left: &ReadObject, right: &ReadObject) -> Ordering {
    let place = |it: &ReadObject| {
        (
            it.bucket.bucket_type.clone(),
            it.bucket.bucket.clone(),
            it.key.clone(),
        )
    };
    let values =
        |it: &ReadObject| -> Vec<Bytes> { it.siblings.iter().map(|it| it.value.clone()).collect() };
    (place(left), values(left)).cmp(&(place(right), values(right)))
}

/// Exact for all numbers: rounding would not give an order.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the number is within the range of the type, and its fraction is compared by itself"
)]
fn compare_numbers(left: i128, right: f64) -> Ordering {
    const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0; // 2^127
    if right >= BEYOND {
        return Ordering::Less;
    }
    if right < -BEYOND {
        return Ordering::Greater;
    }
    let whole = right.trunc();
    left.cmp(&(whole as i128)).then_with(|| {
        0.0_f64
            .partial_cmp(&(right - whole))
            .unwrap_or(Ordering::Equal)
    })
}
