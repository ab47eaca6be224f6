//! Why properties are refused: pairs of property and reason, all of them at once.

use std::fmt;

use serde_json::{Map, Value};

/// Why one property is refused. The first ones are Riak's atoms, to the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Neither true nor false.
    NotBoolean,
    /// Not an integer, or one out of range.
    NotInteger,
    /// Neither a number that fits nor one, quorum or all.
    NotValidQuorum,
    /// None of one, all and backend.
    NotValidSyncParam,
    /// Not a text.
    NotString,
    /// Not a function or a list of functions in one of their forms.
    NotFunction,
    /// None of the values that this property can have.
    NotSupported,
    /// No property of this name is known.
    UnknownProperty,
    /// `datatype`, `consistent` or `write_once` would change.
    Immutable,
    /// `n_val` would change where consistency rests on it.
    ImmutableWhenConsistent,
    /// `hll_precision` would rise: registers can be folded, not split.
    PrecisionRaised,
    /// `allow_mult` is off where data types need siblings.
    DatatypeNeedsSiblings,
    /// `dvv_enabled` is on together with `last_write_wins`.
    DottedLastWriteWins,
    /// `write_once` excludes `datatype` and `consistent`.
    ExclusiveWithWriteOnce,
}

impl Reason {
    /// The reason as a client reads it: an atom, or a sentence where an atom would not say enough.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotBoolean => "not_boolean",
            Self::NotInteger => "not_integer",
            Self::NotValidQuorum => "not_valid_quorum",
            Self::NotValidSyncParam => "not_valid_sync_param",
            Self::NotString => "not_string",
            Self::NotFunction => "not_function",
            Self::NotSupported => "not_supported",
            Self::UnknownProperty => "unknown_property",
            Self::Immutable => "cannot change once the bucket type is created",
            Self::ImmutableWhenConsistent => "cannot change on a consistent bucket type",
            Self::PrecisionRaised => "can only stay the same or be reduced",
            Self::DatatypeNeedsSiblings => "data types need allow_mult=true",
            Self::DottedLastWriteWins => "cannot be true together with last_write_wins=true",
            Self::ExclusiveWithWriteOnce => "cannot be combined with write_once=true",
        }
    }

    fn is_atom(self) -> bool {
        self.text()
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Every property that was refused, with the reason; nothing was changed.
///
/// Displayed in the form of Riak's PB errors: `[{n_val,not_integer},{r,not_valid_quorum}]`.
#[derive(Clone, Debug, PartialEq, Eq, Default, thiserror::Error)]
pub struct PropertyErrors {
    /// Property and reason, in the order in which they were met; never empty in an error.
    pub pairs: Vec<(String, Reason)>,
}

impl PropertyErrors {
    /// A single refusal.
    pub fn one(property: &str, reason: Reason) -> Self {
        Self {
            pairs: vec![(property.to_owned(), reason)],
        }
    }

    /// The body of Riak's HTTP 400: an object of property to reason.
    pub fn to_json(&self) -> Map<String, Value> {
        let pair = |(property, reason): &(String, Reason)| (property.clone(), reason.text().into());
        self.pairs.iter().map(pair).collect()
    }

    pub(crate) fn push(&mut self, property: &str, reason: Reason) {
        self.pairs.push((property.to_owned(), reason));
    }

    pub(crate) fn or_else_ok<T>(self, ok: T) -> Result<T, Self> {
        if self.pairs.is_empty() {
            Ok(ok)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for PropertyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, (property, reason)) in self.pairs.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let quote = if reason.is_atom() { "" } else { "\"" };
            write!(
                f,
                "{comma}{{{},{quote}{reason}{quote}}}",
                property.escape_debug()
            )?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_riak_prints_them() {
        let mut errors = PropertyErrors::one("n_val", Reason::NotInteger);
        assert_eq!(errors.to_string(), "[{n_val,not_integer}]");
        errors.push("datatype", Reason::Immutable);
        let text =
            "[{n_val,not_integer},{datatype,\"cannot change once the bucket type is created\"}]";
        assert_eq!(errors.to_string(), text);
        assert_eq!(errors.to_json()["n_val"], "not_integer");
    }
}
