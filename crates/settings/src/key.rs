//! The declaration of a key.

use crate::kind::Kind;

/// One key that Kvorum honours: its declaration, and through [`Kind`] the field of its value.
#[derive(Debug, Clone)]
pub struct Key {
    /// The name, or a pattern with one free word: `listener.http.$name`.
    pub name: &'static str,
    /// The type of the value and the field of [`crate::Settings`] that takes it.
    pub kind: Kind,
    /// The default value, as text that [`Kind`] reads; `None` for keys without effect until they are
    /// set.
    pub default: Option<&'static str>,
    /// For a pattern: the word that stands for `$...` in the default's name.
    pub default_word: &'static str,
    /// The event that puts a change into effect.
    pub change: Change,
    /// The first version that had the key.
    pub since: &'static str,
    /// The origin of the key: Riak's or not.
    pub ancestry: Ancestry,
    /// Its effect and the reasons to change it, in whole sentences.
    pub help: &'static str,
}

/// The keys under one heading of the reference page and the sample file.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Key {
    /// A key of Riak's with the same name and meaning, read at start.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        help: &'static str,
    ) -> Key {
        Key {
            name,
            kind,
            default,
            default_word: "internal",
            change: Change::Restart,
            since: "0.1.0",
            ancestry: Ancestry::Riak,
            help,
        }
    }

    /// The same key, marked as one that Riak does not have.
    pub(crate) const fn own(self) -> Key {
        Key {
            ancestry: Ancestry::Own,
            ..self
        }
    }
}

/// A key of Riak's that has a default.
pub(crate) const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key::new(name, kind, Some(default), help)
}

/// A key that Riak does not have, with a default.
pub(crate) const fn own_key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Key {
    key(name, kind, default, help).own()
}

/// The event that puts a changed value into effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At the next start of the server.
    Restart,
    /// When the server reads its configuration again.
    Reload,
    /// Only before the node first starts.
    Fixed,
}

impl Change {
    /// The sentence of the reference page.
    pub fn sentence(self) -> &'static str {
        match self {
            Change::Restart => "restart the node",
            Change::Reload => "reload the configuration",
            Change::Fixed => "set it before the first start; it stays as it was then",
        }
    }
}

/// The origin of a key: Riak's or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ancestry {
    /// A riak.conf key of the same name.
    Riak,
    /// Riak has it under another name or in another place.
    RiakAs(&'static str),
    /// Kvorum's own.
    Own,
}

impl Ancestry {
    /// The sentence of the reference page.
    pub fn sentence(self) -> String {
        match self {
            Ancestry::Riak => "the same key".to_owned(),
            Ancestry::RiakAs(place) => place.to_owned(),
            Ancestry::Own => "has no such key".to_owned(),
        }
    }
}
