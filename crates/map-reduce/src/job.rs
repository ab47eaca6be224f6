//! A job: inputs, phases and a time-out, from a client's JSON or Erlang terms.

use std::time::Duration;

use bytes::Bytes;
use kvorum_erlang_terms::external_term::inflated_len;
use serde_json::Value;

use crate::external::term_of_external;
use crate::inputs::{Inputs, inputs_of_json};
use crate::phase::{Phase, Work, phases_of_json};
use crate::refusal::Refusal;
use crate::term::Term;
use crate::term_inputs::inputs_of_term;
use crate::term_phases::phases_of_term;

/// A valid job.
#[derive(Debug)]
pub struct Job {
    /// The source of its inputs.
    pub inputs: Inputs,
    /// Its phases, in order. Without any, the inputs are the results.
    pub phases: Vec<Phase>,
    /// Its time limit.
    pub timeout: Duration,
    /// The form of its text and of its results.
    pub form: JobForm,
}

/// The form of a job's text and of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobForm {
    /// JSON.
    Json,
    /// Erlang's external term format.
    ErlangTerms,
}

/// The time limit of a job without one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time limit, in milliseconds; larger ones are reduced to it.
const TIMEOUT_MILLIS_MAX: f64 = 4_294_967_295.0;

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    ///
    /// Riak's refusals, with its texts, in its order: JSON, missing members, inputs, the form of
    /// the query, the functions of phases. Filters are read with the inputs.
    pub fn from_json(body: &[u8]) -> Result<Self, Refusal> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| Refusal::InvalidJson(error.to_string()))?;
        let members = body.as_object().ok_or(Refusal::NotAnObject)?;
        let (Some(inputs), Some(query)) = (members.get("inputs"), members.get("query")) else {
            return Err(Refusal::MissingField);
        };
        Ok(Self {
            inputs: inputs_of_json(inputs)?,
            phases: phases_of_json(query)?,
            timeout: timeout_of_json(members.get("timeout")),
            form: JobForm::Json,
        })
    }

    /// Reads a job in a form.
    ///
    /// # Errors
    ///
    /// As [`Job::from_json`] and [`Job::from_terms`].
    pub fn read(form: JobForm, text: &Bytes) -> Result<Self, Refusal> {
        match form {
            JobForm::Json => Self::from_json(text),
            JobForm::ErlangTerms => Self::from_terms(text),
        }
    }

    /// The length of a job's decoded text, in bytes: for a compressed job, its stated inflated
    /// size, beyond which [`Job::read`] does not inflate.
    pub fn read_bytes(form: JobForm, text: &Bytes) -> usize {
        let inflated = match form {
            JobForm::Json => None,
            JobForm::ErlangTerms => inflated_len(text).and_then(|len| usize::try_from(len).ok()),
        };
        text.len().max(inflated.unwrap_or(0))
    }

    /// Reads a job that is a list of `{inputs, Inputs}`, `{query, Phases}` and `{timeout, Milliseconds}` in
    /// Erlang's external term format, compressed or not.
    ///
    /// # Errors
    ///
    /// Riak's refusals, with its texts, functions of Erlang among them.
    pub fn from_terms(text: &Bytes) -> Result<Self, Refusal> {
        let Some(Term::List(members)) = term_of_external(text) else {
            return Err(Refusal::NoTerm);
        };
        let member = |name| members.iter().find_map(|it| value_of(it, name));
        Ok(Self {
            inputs: inputs_of_term(member("inputs"))?,
            phases: phases_of_term(member("query"))?,
            timeout: match member("timeout") {
                Some(Term::Integer(millis)) => timeout_of_millis(*millis as f64),
                Some(Term::Float(millis)) => timeout_of_millis(*millis),
                _ => TIMEOUT,
            },
            form: JobForm::ErlangTerms,
        })
    }

    /// True if results are inputs shown as lists: in JSON, without a phase with a function.
    pub(crate) fn shows_inputs(&self) -> bool {
        self.form == JobForm::Json && self.has_no_function()
    }

    fn has_no_function(&self) -> bool {
        self.phases
            .iter()
            .all(|it| matches!(it.work, Work::Link(..)))
    }

    /// The numbers of the phases whose results go to the client.
    pub fn kept_phases(&self) -> Vec<usize> {
        if self.phases.is_empty() {
            return vec![0];
        }
        let kept = |(index, phase): (usize, &Phase)| phase.keep.then_some(index);
        self.phases.iter().enumerate().filter_map(kept).collect()
    }
}

/// The value of a pair of this name.
fn value_of<'a>(member: &'a Term, name: &str) -> Option<&'a Term> {
    match member {
        Term::Tuple(parts) => match parts.as_slice() {
            [found, value] if found.is_atom(name) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

fn timeout_of_json(timeout: Option<&Value>) -> Duration {
    let millis = timeout.and_then(Value::as_f64);
    millis.map_or(TIMEOUT, timeout_of_millis)
}

/// The time limit for a number; without effect unless it is above zero.
fn timeout_of_millis(millis: f64) -> Duration {
    match millis > 0.0 {
        true => Duration::from_secs_f64(millis.min(TIMEOUT_MILLIS_MAX) / 1000.0),
        false => TIMEOUT,
    }
}
