//! Keys of Riak's, in families.

/// A key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiakKey {
    /// The name, or a pattern with one free word.
    pub name: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// Riak's default, for keys of directories: other values refer to them as `$(name)`.
    pub default: Option<&'static str>,
}

/// What becomes of a key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is taken as a value of this key of ours.
    Mapped(&'static str),
    /// It has no effect; the reason fits after "ignored because".
    Ignored(&'static str),
    /// It would change what becomes of data, so that it is refused unless it is empty; the reason.
    Guarded(&'static str),
}

/// Keys of Riak's that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// What they are about.
    pub title: &'static str,
    /// The keys.
    pub keys: &'static [RiakKey],
}

/// A key without effect.
pub(super) const fn ignored(name: &'static str, reason: &'static str) -> RiakKey {
    RiakKey {
        name,
        fate: Fate::Ignored(reason),
        default: None,
    }
}

/// A key that is taken as one of ours.
pub(super) const fn mapped(name: &'static str, to: &'static str) -> RiakKey {
    RiakKey {
        name,
        fate: Fate::Mapped(to),
        default: None,
    }
}
