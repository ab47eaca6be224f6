//! Terms to Erlang's external term format and back.
//!
//! A text in Erlang's old form takes one byte per character there, and one term here, so the terms
//! of a job are counted.

use std::borrow::Cow;

use bytes::Bytes;
use kvorum_erlang_terms::external_term::{Term as External, TermReader, inflated};

use crate::print::flat;
use crate::term::Term;

/// The most terms of a job.
const TERMS_MAX: usize = 1 << 20;

/// The longest list of small numbers that has a short form.
const TEXT_BYTES_MAX: usize = 65_535;

/// The longest name, in bytes.
const ATOM_BYTES_MAX: usize = 255;

/// A term that has no external form: an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no external form of {term}")]
pub(crate) struct NoExternal {
    /// The term, as Erlang prints it.
    pub(crate) term: String,
}

/// Reads a term behind its format byte, compressed or not; none if it is invalid or too large.
pub(crate) fn term_of_external(bytes: &Bytes) -> Option<Term> {
    let bytes = inflated(bytes).ok()?;
    let external = TermReader::begin(&bytes).ok()?.next_term().ok()?;
    let mut left = TERMS_MAX;
    read(external, &mut left)
}

fn read(external: External, left: &mut usize) -> Option<Term> {
    *left = left.checked_sub(1)?;
    Some(match external {
        External::Integer(number) => Term::Integer(number),
        External::Float(number) if number.is_finite() => Term::Float(number),
        External::Atom(name) => Term::Atom(Cow::Owned(String::from_utf8(name.to_vec()).ok()?)),
        External::Binary(bytes) => Term::Binary(bytes),
        External::Text(characters) => {
            *left = left.checked_sub(characters.len())?;
            Term::characters(&characters)
        }
        External::Tuple(elements) => Term::Tuple(read_all(elements, left)?),
        External::List(elements, None) => Term::List(read_all(elements, left)?),
        // Jobs have none of these.
        External::Float(_) | External::List(_, Some(_)) | External::Map(_) => return None,
    })
}

fn read_all(elements: Vec<External>, left: &mut usize) -> Option<Vec<Term>> {
    elements.into_iter().map(|it| read(it, left)).collect()
}

/// The bytes of a list of terms.
pub(crate) fn external_of_list(terms: &[Term]) -> Result<Bytes, NoExternal> {
    Ok(list(terms)?.encode())
}

fn list(terms: &[Term]) -> Result<External, NoExternal> {
    if let Some(text) = characters(terms) {
        return Ok(External::Text(text));
    }
    Ok(External::List(written(terms)?, None))
}

fn written(terms: &[Term]) -> Result<Vec<External>, NoExternal> {
    terms.iter().map(external).collect()
}

/// The short form of a list of small numbers, which Erlang uses wherever possible.
fn characters(terms: &[Term]) -> Option<Bytes> {
    if terms.is_empty() || terms.len() > TEXT_BYTES_MAX {
        return None;
    }
    let byte = |term: &Term| match term {
        Term::Integer(number) => u8::try_from(*number).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = terms.iter().map(byte).collect();
    bytes.map(Bytes::from)
}

fn external(term: &Term) -> Result<External, NoExternal> {
    Ok(match term {
        Term::Integer(number) => External::Integer(*number),
        Term::Float(number) => External::Float(*number),
        Term::Atom(name) if name.len() <= ATOM_BYTES_MAX => {
            External::Atom(Bytes::copy_from_slice(name.as_bytes()))
        }
        Term::Binary(bytes) => External::Binary(bytes.clone()),
        Term::List(elements) => list(elements)?,
        Term::Tuple(elements) => External::Tuple(written(elements)?),
        Term::Atom(_) | Term::Object(_) => return Err(NoExternal { term: flat(term) }),
    })
}
