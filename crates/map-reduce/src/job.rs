//! A job: inputs, phases and a time-out, as a client's JSON gives them.

use std::time::Duration;

use serde_json::Value;

use crate::inputs::{Inputs, inputs_of_json};
use crate::phase::{Phase, Work, phases_of_json};
use crate::refusal::Refusal;

/// A job that can be run.
#[derive(Debug)]
pub struct Job {
    /// Where its inputs come from.
    pub inputs: Inputs,
    /// Its phases, in order. Without any, the inputs are the results.
    pub phases: Vec<Phase>,
    /// How long it may take.
    pub timeout: Duration,
}

/// How long a job may take if it does not say.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time that is taken, in milliseconds: a larger one is this one.
const TIMEOUT_MILLIS_MAX: f64 = 4_294_967_295.0;

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    ///
    /// What Riak refuses is refused with its text, in its order: JSON, missing members, inputs, the form
    /// of the query, what phases name. Filters are read with the inputs.
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
        })
    }

    /// Whether results are inputs, which are then shown as lists: no phase has a function.
    pub(crate) fn shows_inputs(&self) -> bool {
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

/// Milliseconds; what is no number above zero is as if it were not there.
fn timeout_of_json(timeout: Option<&Value>) -> Duration {
    match timeout.and_then(Value::as_f64) {
        Some(millis) if millis > 0.0 => {
            Duration::from_secs_f64(millis.min(TIMEOUT_MILLIS_MAX) / 1000.0)
        }
        _ => TIMEOUT,
    }
}
