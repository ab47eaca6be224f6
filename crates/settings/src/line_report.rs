//! Reports of the outcome of each setting.

use std::borrow::Cow;

use crate::problem::Place;

/// The outcome of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineReport {
    /// Its place.
    pub place: Place,
    /// The name as written.
    pub name: String,
    /// The value as written.
    pub value: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The setting has its effect.
    Honoured,
    /// The setting has the effect of this key of ours.
    MappedTo(String),
    /// The setting has no effect; the reason fits after "ignored because".
    Ignored(Cow<'static, str>),
    /// A later setting of the same key overrides it.
    Overridden(Place),
}
