//! Reasons why a running job ends without all of its results, and their JSON for clients.

use crate::json::put_string;

/// A job's failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A function of a map phase failed on an input.
    #[error("phase {phase}: {error} on {input}")]
    Map {
        /// The phase.
        phase: usize,
        /// The reason, as Erlang names it.
        error: String,
        /// The function's input, in Erlang's printed form.
        input: String,
    },
    /// A function of a map phase returned something other than a list.
    #[error("phase {phase}: the function's result for {input} is no list")]
    NonListResult {
        /// The phase.
        phase: usize,
        /// The function's input.
        input: String,
    },
    /// A phase with a client's source as its function.
    #[error("phase {phase}: source is not run")]
    Source {
        /// The phase.
        phase: usize,
        /// Its first input.
        input: String,
    },
    /// A function of a reduce phase failed.
    #[error("phase {phase}: {error}")]
    Reduce {
        /// The phase.
        phase: usize,
        /// The reason, as Erlang names it.
        error: String,
    },
    /// A key filter failed on a key.
    #[error("key filters: {error} on {input}")]
    Filter {
        /// The reason, as Erlang names it.
        error: String,
        /// The key.
        input: String,
    },
    /// The job would exceed its memory limit.
    #[error("phase {phase}: the job would hold more than {bytes_max} bytes")]
    Memory {
        /// The phase that needed more.
        phase: usize,
        /// The memory limit of a job.
        bytes_max: usize,
    },
    /// Results without a form in JSON, or in Erlang's external term format for a job in that form.
    #[error("phase {phase}: {error}")]
    NoForm {
        /// The phase of the results.
        phase: usize,
        /// The part without a form.
        error: String,
    },
    /// An object could not be read.
    #[error("phase {phase}: {error} on {input}")]
    Read {
        /// The phase that needs it.
        phase: usize,
        /// The reason, from the caller.
        error: String,
        /// The object's place.
        input: String,
    },
    /// The inputs could not be read.
    #[error("inputs: {error}")]
    Inputs {
        /// The reason, from the caller.
        error: String,
    },
    /// The job's time limit has passed.
    #[error("timeout")]
    Timeout,
}

/// A member of the JSON of a failure.
enum Part<'a> {
    Number(usize),
    Text(&'a str),
    Null,
}

impl Failure {
    /// The JSON: the body of an answer with status 500, the last line of a stream, or an error message.
    pub fn json(&self) -> String {
        use Part::{Null, Number, Text};
        match self {
            Self::Map {
                phase,
                error,
                input,
            } => object(&[
                ("phase", Number(*phase)),
                ("error", Text(error)),
                ("input", Text(input)),
                ("type", Text("error")),
                ("stack", Text("[]")),
            ]),
            Self::Read {
                phase,
                error,
                input,
            } => object(&[
                ("phase", Number(*phase)),
                ("error", Text(error)),
                ("input", Text(input)),
            ]),
            Self::NonListResult { phase, input } => object(&[
                ("phase", Number(*phase)),
                ("error", Text("non_list_result")),
                ("input", Text(input)),
            ]),
            Self::Source { phase, input } => object(&[
                ("phase", Number(*phase)),
                ("error", Text("[worker_startup_failed]")),
                ("input", Text(input)),
                ("type", Text("result")),
                ("stack", Text("[]")),
            ]),
            Self::Reduce { phase, error } => object(&[
                ("phase", Number(*phase)),
                ("error", Text(error)),
                ("input", Null),
                ("type", Null),
                ("stack", Null),
            ]),
            Self::Filter { error, input } => object(&[
                ("phase", Text("listkeys")),
                ("error", Text(error)),
                ("input", Text(input)),
                ("type", Text("error")),
                ("stack", Text("[]")),
            ]),
            Self::Memory { phase, .. } | Self::NoForm { phase, .. } => object(&[
                ("phase", Number(*phase)),
                ("error", Text(&self.to_string())),
            ]),
            Self::Inputs { error } => object(&[("error", Text(error))]),
            Self::Timeout => object(&[("error", Text("timeout"))]),
        }
    }
}

fn object(members: &[(&str, Part<'_>)]) -> String {
    let mut out = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put_string(&mut out, name);
        out.push(':');
        match value {
            Part::Number(number) => out.push_str(&number.to_string()),
            Part::Text(text) => put_string(&mut out, text),
            Part::Null => out.push_str("null"),
        }
    }
    out + "}"
}
