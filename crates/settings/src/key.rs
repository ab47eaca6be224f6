//! What a key's declaration says.

use crate::kind::Kind;

/// One key that Kvorum honours: its declaration, and through [`Kind`] where its value goes.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The name, or a pattern with one free word: `listener.http.$name`.
    pub name: &'static str,
    /// The type of the value and the field of [`crate::Settings`] that takes it.
    pub kind: Kind,
    /// The value when nobody sets one, as text that [`Kind`] reads; `None` for keys that stand
    /// aside until they are set.
    pub default: Option<&'static str>,
    /// For a pattern: the word that stands for `$...` in the default's name.
    pub default_word: &'static str,
    /// Under which heading the reference page has it.
    pub category: Category,
    /// When a change takes effect.
    pub change: Change,
    /// The first version that had the key.
    pub since: &'static str,
    /// Whether Riak has it too.
    pub ancestry: Ancestry,
    /// What it does and when to change it, in whole sentences.
    pub help: &'static str,
}

impl Key {
    /// A key of Riak's with the same name and meaning, read at start.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        category: Category,
        help: &'static str,
    ) -> Key {
        Key {
            name,
            kind,
            default,
            default_word: "internal",
            category,
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

/// Headings of the reference page and the sample file, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// The node, its directories and its partitions.
    Node,
    /// Addresses and protocols.
    Listeners,
    /// Encryption of what goes over the network.
    Encryption,
    /// Requests: limits, deletes, jobs.
    Requests,
    /// Limits of objects.
    Objects,
    /// Default properties of buckets without a type.
    Buckets,
    /// When a write is safe.
    Durability,
    /// The bitcask backend.
    Bitcask,
    /// The leveldb backend.
    Leveldb,
    /// The leveled backend.
    Leveled,
    /// The memory backend.
    Memory,
    /// Background work.
    Maintenance,
    /// Logs.
    Log,
}

impl Category {
    /// All headings in their order.
    pub const ALL: [Category; 13] = [
        Category::Node,
        Category::Listeners,
        Category::Encryption,
        Category::Requests,
        Category::Objects,
        Category::Buckets,
        Category::Durability,
        Category::Bitcask,
        Category::Leveldb,
        Category::Leveled,
        Category::Memory,
        Category::Maintenance,
        Category::Log,
    ];

    /// The heading's text.
    pub fn title(self) -> &'static str {
        match self {
            Category::Node => "Node and directories",
            Category::Listeners => "Listeners and protocols",
            Category::Encryption => "Encryption between nodes",
            Category::Requests => "Requests",
            Category::Objects => "Object limits",
            Category::Buckets => "Default bucket properties",
            Category::Durability => "Durability",
            Category::Bitcask => "Bitcask backend",
            Category::Leveldb => "LevelDB backend",
            Category::Leveled => "Leveled backend",
            Category::Memory => "Memory backend",
            Category::Maintenance => "Background work",
            Category::Log => "Logs",
        }
    }
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At the next start of the server.
    Restart,
    /// When the server is told to read its configuration again.
    Reload,
    /// Only before the node first starts.
    Fixed,
}

impl Change {
    /// As the reference page says it.
    pub fn sentence(self) -> &'static str {
        match self {
            Change::Restart => "restart the node",
            Change::Reload => "reload the configuration",
            Change::Fixed => "set it before the first start; it stays as it was then",
        }
    }
}

/// Whether Riak has the key.
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
    /// As the reference page says it.
    pub fn sentence(self) -> String {
        match self {
            Ancestry::Riak => "the same key".to_owned(),
            Ancestry::RiakAs(place) => place.to_owned(),
            Ancestry::Own => "has no such key".to_owned(),
        }
    }
}
