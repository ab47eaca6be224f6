//! A broken promise, with all data to replay it.

use std::fmt;

use kvorum_backend::BackendError;

use crate::Group;

/// The result of a check.
pub type Checked<T = ()> = Result<T, Violation>;

/// Behaviour of an engine that the contract forbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The engine's name.
    pub engine: String,
    /// The group that found it; `None` before it is known.
    pub group: Option<Group>,
    /// The contract's sentence; `None` if the rule is in the documentation of a method.
    pub sentence: Option<u8>,
    /// The seed that reproduces it.
    pub seed: u64,
    /// The events, in lines.
    pub story: String,
}

impl Violation {
    /// A violation of a sentence.
    pub fn of(sentence: u8, story: impl Into<String>) -> Self {
        Self {
            engine: String::new(),
            group: None,
            sentence: Some(sentence),
            seed: 0,
            story: story.into(),
        }
    }

    /// A violation of a method's documentation.
    pub fn of_method(story: impl Into<String>) -> Self {
        Self {
            sentence: None,
            ..Self::of(0, story)
        }
    }

    /// Adds the preceding event.
    #[must_use]
    pub fn after(mut self, what: impl fmt::Display) -> Self {
        self.story.push_str("\n  after: ");
        self.story.push_str(&what.to_string());
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} breaks ", self.engine)?;
        match self.sentence {
            Some(sentence) => write!(f, "sentence {sentence} of the contract")?,
            None => write!(f, "a method's promise")?,
        }
        if let Some(group) = self.group {
            write!(f, " (group {group:?})")?;
        }
        write!(f, "\n  {}", self.story)?;
        write!(f, "\n  replay: KVORUM_TEST_SEED={} cargo test", self.seed)
    }
}

impl std::error::Error for Violation {}

/// Fails with a story unless the condition holds.
pub(crate) fn ensure(
    holds: bool,
    sentence: u8,
    story: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(Violation::of(sentence, story()))
    }
}

/// A call that has no reason to fail.
pub(crate) trait MustSucceed<T> {
    /// Turns an error into a violation that names the call.
    fn must(self, call: &str) -> Checked<T>;
}

impl<T> MustSucceed<T> for kvorum_backend::Result<T> {
    fn must(self, call: &str) -> Checked<T> {
        self.map_err(|error| unexpected(call, &error))
    }
}

/// A call failed although nothing was wrong.
pub(crate) fn unexpected(call: &str, error: &BackendError) -> Violation {
    Violation::of_method(format!("{call} failed without cause: {error}"))
}
