//! The effect of setting a property, as the table has it.

/// The effect of setting a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Requests follow it.
    Honoured,
    /// A value that this server would not keep is refused; all others have the effect of the default.
    Guarded,
    /// It is kept and shown, without effect. The text is the reason why that is harmless.
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
