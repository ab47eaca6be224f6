//! Reasons why a job is not begun, in Riak's texts over HTTP and over protocol buffers.

use crate::json::{json_of_term, put_string};
use crate::print::printed;
use crate::term::Term;

/// A job that is refused before it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The body is not JSON; with the parser's reason.
    InvalidJson(String),
    /// The bytes are not a valid list of Erlang's terms.
    NoTerm,
    /// The body is JSON, but not an object.
    NotAnObject,
    /// `inputs` or `query` is missing.
    MissingField,
    /// `inputs` cannot be read; with the reason in Riak's form.
    Inputs(Term),
    /// `query` cannot be read; with the reason in Riak's form.
    Query(Term),
    /// A phase names a function that is not built in.
    Phase {
        /// The number of the phase, from 0.
        phase: usize,
        /// The error in it.
        text: String,
    },
    /// Unknown key filter.
    UnknownFilter(Term),
    /// A key filter cannot work with its arguments.
    FilterArguments {
        /// The filter.
        name: String,
        /// The error, as a fragment.
        reason: String,
    },
    /// Inputs that only an application's function or a search index could return.
    InputsUnavailable,
}

/// A refusal as an HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    /// 400 or 500.
    pub status: u16,
    /// `text/plain` or `application/json`.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Refusal {
    /// The answer over HTTP.
    pub fn http(&self) -> HttpRefusal {
        let (status, content_type) = match self {
            Self::Phase { .. } => (400, "application/json"),
            Self::UnknownFilter(_) | Self::FilterArguments { .. } | Self::InputsUnavailable => {
                (500, "application/json")
            }
            _ => (400, "text/plain"),
        };
        HttpRefusal {
            status,
            content_type,
            body: self.http_body(),
        }
    }

    fn http_body(&self) -> String {
        match self {
            Self::InvalidJson(reason) => format!(
                "The POST body was not valid JSON.\nThe error from the parser was:\n{reason}\n"
            ),
            Self::NoTerm => "badarg".to_string(),
            Self::NotAnObject => "The POST body was not a JSON object.\n".to_string(),
            Self::MissingField => {
                "The post body was missing the \"inputs\" or \"query\" field.\n".to_string()
            }
            Self::Inputs(reason) => field("inputs", reason),
            Self::Query(reason) => field("query", reason),
            Self::Phase { phase, text } => {
                let mut body = format!("{{\"phase\":{phase},\"error\":");
                put_string(&mut body, text);
                body + "}"
            }
            Self::UnknownFilter(name) => filter_json(&json_or_printed(name)),
            Self::FilterArguments { name, reason } => {
                let mut text = String::new();
                put_string(&mut text, &format!("{name}: {reason}"));
                filter_json(&text)
            }
            Self::InputsUnavailable => "{\"error\":\"map_reduce_error\"}".to_string(),
        }
    }

    /// The text of the error message over protocol buffers.
    pub fn protocol_buffers(&self) -> String {
        match self {
            Self::InvalidJson(reason) => {
                let reason = Term::characters(reason.as_bytes());
                printed(&Term::pair(Term::atom("invalid_json"), reason))
            }
            Self::NoTerm => "badarg".to_string(),
            Self::NotAnObject => "not_json".to_string(),
            Self::MissingField => "missing_field".to_string(),
            Self::Inputs(reason) => printed(&Term::pair(Term::atom("inputs"), reason.clone())),
            Self::Query(reason) => printed(&Term::pair(Term::atom("query"), reason.clone())),
            Self::Phase { phase, text } => format!("Phase {phase}: {text}"),
            Self::UnknownFilter(name) => {
                printed(&Term::pair(Term::atom("bad_filter"), name.clone()))
            }
            Self::FilterArguments { name, reason } => {
                format!("{{bad_filter,<<\"{name}\">>}}: {reason}")
            }
            Self::InputsUnavailable => self.http_body(),
        }
    }
}

fn field(name: &str, reason: &Term) -> String {
    format!(
        "An error occurred parsing the \"{name}\" field.\n{}",
        printed(reason)
    )
}

fn filter_json(name: &str) -> String {
    format!("{{\"bad_filter\":{name}}}")
}

fn json_or_printed(term: &Term) -> String {
    json_of_term(term).unwrap_or_else(|_| {
        let mut out = String::new();
        put_string(&mut out, &printed(term));
        out
    })
}
