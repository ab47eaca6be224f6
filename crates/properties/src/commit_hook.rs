//! Hooks that run before or after a commit: the validators of this server, and functions in Erlang and
//! JavaScript, which do not run here.

use serde_json::{Value, json};

use crate::function::{ModuleFunction, sole_text};
use crate::validator::Validator;

/// A hook that runs before or after a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitHook {
    /// A validator, named like a function of the module `kvorum`.
    Validator(Validator),
    /// `{"mod": ..., "fun": ...}`: an Erlang function.
    Module(ModuleFunction),
    /// `{"name": ...}`: a JavaScript function by its name.
    Named(String),
}

impl CommitHook {
    /// The hook that a client names as a function.
    pub fn of_function(function: ModuleFunction) -> Self {
        match Validator::of(&function) {
            Some(Ok(validator)) => Self::Validator(validator),
            Some(Err(_)) | None => Self::Module(function),
        }
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let named = || sole_text(object, "name").map(Self::Named);
        ModuleFunction::from_json(object)
            .map(Self::of_function)
            .or_else(named)
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Validator(validator) => validator.function().to_json(),
            Self::Module(function) => function.to_json(),
            Self::Named(name) => json!({"name": name}),
        }
    }
}
