//! The kinds of values that properties have, each with its JSON form.

use serde_json::Value;

use crate::commit_hook::CommitHook;
use crate::function::{KeyFunction, LinkFunction};
use crate::quorum::Quorum;

/// A value that a property can have. `None` from [`PropertyValue::from_json`] is a value of another
/// kind; the table decides which values of the kind a property accepts.
pub(crate) trait PropertyValue: Sized {
    fn from_json(value: &Value) -> Option<Self>;
    fn to_json(&self) -> Value;
}

impl PropertyValue for bool {
    /// True and false as such, as words in any case, and as integers: above 0 is true.
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(*value),
            Value::String(word) => word.to_ascii_lowercase().parse().ok(),
            Value::Number(number) if number.is_u64() => Some(number.as_u64() != Some(0)),
            Value::Number(number) if number.is_i64() => Some(false),
            _ => None,
        }
    }

    fn to_json(&self) -> Value {
        (*self).into()
    }
}

macro_rules! integer_values {
    // The three widths differ only in their names.
    ($($integer:ident),*) => {$(
        impl PropertyValue for $integer {
            fn from_json(value: &Value) -> Option<Self> {
                value.as_u64().and_then(|number| $integer::try_from(number).ok())
            }

            fn to_json(&self) -> Value {
                (*self).into()
            }
        }
    )*};
}
integer_values!(u8, u32, u64);

impl PropertyValue for String {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn to_json(&self) -> Value {
        self.as_str().into()
    }
}

impl PropertyValue for Vec<CommitHook> {
    fn from_json(value: &Value) -> Option<Self> {
        value
            .as_array()?
            .iter()
            .map(CommitHook::from_json)
            .collect()
    }

    fn to_json(&self) -> Value {
        self.iter().map(CommitHook::to_json).collect()
    }
}

impl PropertyValue for Quorum {
    fn from_json(value: &Value) -> Option<Self> {
        Self::from_json(value)
    }

    fn to_json(&self) -> Value {
        Self::to_json(*self)
    }
}

impl PropertyValue for KeyFunction {
    fn from_json(value: &Value) -> Option<Self> {
        Self::from_json(value)
    }

    fn to_json(&self) -> Value {
        Self::to_json(*self)
    }
}

impl PropertyValue for LinkFunction {
    fn from_json(value: &Value) -> Option<Self> {
        Self::from_json(value)
    }

    fn to_json(&self) -> Value {
        self.to_json()
    }
}

macro_rules! word_values {
    // An enum with a word for each value: otherwise the pairs would be written for both directions.
    ($(#[$doc:meta])* $kind:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$variant_doc])* $variant),*
        }

        impl $kind {
            /// The value for this word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The word for it in JSON and in messages.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }
    };
}

word_values! {
    /// The replicas that flush a write to stable storage before they acknowledge it.
    SyncOnWrite {
        /// The coordinating replica.
        One = "one",
        /// Every replica.
        All = "all",
        /// According to the backend's own settings.
        Backend = "backend",
    }
}

word_values! {
    /// The data type of all objects of a bucket type.
    Datatype {
        /// A counter.
        Counter = "counter",
        /// A set.
        Set = "set",
        /// A set that only grows.
        GrowOnlySet = "gset",
        /// A map.
        Map = "map",
        /// A HyperLogLog.
        HyperLogLog = "hll",
    }
}

word_values! {
    /// The ways of replication between clusters for a bucket.
    Replication {
        /// None.
        Off = "false",
        /// As writes happen.
        Realtime = "realtime",
        /// By comparison.
        Fullsync = "fullsync",
        /// Either way.
        Both = "both",
        /// Either way; the form of the default.
        On = "true",
    }
}

impl PropertyValue for SyncOnWrite {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_word)
    }

    fn to_json(&self) -> Value {
        self.word().into()
    }
}

impl PropertyValue for Datatype {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_word)
    }

    fn to_json(&self) -> Value {
        self.word().into()
    }
}

impl PropertyValue for Replication {
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(false) => Some(Self::Off),
            Value::Bool(true) => Some(Self::On),
            Value::String(word) => Self::from_word(word),
            _ => None,
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Off => false.into(),
            Self::On => true.into(),
            named => named.word().into(),
        }
    }
}
