//! Results combined into one answer, for clients that do not read a stream.

use bytes::Bytes;

use crate::execution::Output;
use crate::external::external_of_list;
use crate::failure::Failure;
use crate::job::{Job, JobForm};
use crate::json::json_of_term;
use crate::term::Term;

/// The JSON of all results so far.
#[derive(Debug)]
pub struct Gathered {
    kept: Vec<(usize, Vec<Term>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Gathered {
    /// No results of a job yet; `bytes_max` is the memory limit of its results.
    pub fn new(job: &Job, bytes_max: usize) -> Self {
        let kept = job.kept_phases().into_iter().map(|it| (it, Vec::new()));
        Self {
            kept: kept.collect(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Their approximate memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds results.
    ///
    /// # Errors
    ///
    /// The results together would exceed the memory limit.
    pub fn add(&mut self, output: &Output) -> Result<(), Failure> {
        let phase = output.phase;
        self.bytes += output.results.iter().map(Term::bytes).sum::<usize>();
        if self.bytes > self.bytes_max {
            let bytes_max = self.bytes_max;
            return Err(Failure::Memory { phase, bytes_max });
        }
        let of_phase = self.kept.iter_mut().find(|(it, _)| *it == phase);
        of_phase
            .into_iter()
            .for_each(|(_, results)| results.extend(output.results.iter().cloned()));
        Ok(())
    }

    /// The answer: the results of the kept phase, or a list of the results of each if there are several.
    ///
    /// # Errors
    ///
    /// A result has no form in JSON.
    pub fn json(&self) -> Result<String, Failure> {
        let parts = self
            .kept
            .iter()
            .map(|(phase, results)| json_of_results(*phase, results));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        match parts.as_slice() {
            [] => Ok("[]".to_string()),
            [only] => Ok(only.clone()),
            _ => Ok(format!("[{}]", parts.join(","))),
        }
    }
}

impl Output {
    /// The results as a JSON array.
    ///
    /// # Errors
    ///
    /// A result has no form in JSON.
    pub fn json(&self) -> Result<String, Failure> {
        json_of_results(self.phase, &self.results)
    }

    /// The results in a job's form: the `response` of a message.
    ///
    /// # Errors
    ///
    /// A result has no such form.
    pub fn in_form(&self, form: JobForm) -> Result<Bytes, Failure> {
        match form {
            JobForm::Json => self.json().map(Bytes::from),
            JobForm::ErlangTerms => {
                external_of_list(&self.results).map_err(|error| Failure::NoForm {
                    phase: self.phase,
                    error: error.to_string(),
                })
            }
        }
    }
}

fn json_of_results(phase: usize, results: &[Term]) -> Result<String, Failure> {
    json_of_term(&Term::List(results.to_vec())).map_err(|error| Failure::NoForm {
        phase,
        error: error.to_string(),
    })
}
