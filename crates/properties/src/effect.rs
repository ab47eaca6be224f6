//! The effect of setting a property, as the table has it.

/// The effect of setting a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Requests go by it.
    Honoured,
    /// A value that this server would not keep is refused; the others are its default.
    Guarded,
    /// It is kept and shown, and nothing goes by it. The text gives the reason that this is harmless.
    Harmless(&'static str),
}

/// A property that was set without effect, or a name that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// The property.
    pub property: &'static str,
    /// The reason.
    pub because: &'static str,
}
