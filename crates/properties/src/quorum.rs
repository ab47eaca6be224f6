//! Quorum values: how many replicas must answer, as a number or as a word.

use std::fmt;

use serde_json::Value;

/// The number of n replicas that must answer.
///
/// "default" is not a variant: it means that the value is absent. So a request has an `Option`, and
/// the value is resolved only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quorum {
    /// One replica.
    One,
    /// More than half of them.
    Quorum,
    /// All of them.
    All,
    /// A number of replicas; may exceed n, in which case requests that use it are refused.
    Number(u32),
}

/// A value that is not a quorum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a number nor one, quorum, all or default")]
pub struct NotQuorum {
    /// The text as it was given.
    pub text: String,
}

/// The numbers for the words in Protocol Buffers messages.
const WIRE_ONE: u32 = u32::MAX - 1;
const WIRE_QUORUM: u32 = u32::MAX - 2;
const WIRE_ALL: u32 = u32::MAX - 3;
const WIRE_DEFAULT: u32 = u32::MAX - 4;

impl Quorum {
    /// The number of replicas that this means, out of `n`. A plain number is returned unchanged,
    /// also above `n`.
    pub fn resolve(self, n: u32) -> u32 {
        match self {
            Self::One => 1,
            Self::Quorum => n / 2 + 1,
            Self::All => n,
            Self::Number(number) => number,
        }
    }

    /// Reads a number of a Protocol Buffers message; `None` is its word for "default".
    pub fn from_wire(number: u32) -> Option<Self> {
        match number {
            WIRE_ONE => Some(Self::One),
            WIRE_QUORUM => Some(Self::Quorum),
            WIRE_ALL => Some(Self::All),
            WIRE_DEFAULT => None,
            number => Some(Self::Number(number)),
        }
    }

    /// The number for this value in Protocol Buffers messages.
    pub fn to_wire(self) -> u32 {
        match self {
            Self::One => WIRE_ONE,
            Self::Quorum => WIRE_QUORUM,
            Self::All => WIRE_ALL,
            Self::Number(number) => number,
        }
    }

    /// Reads the text of a query parameter or setting; `None` is "default".
    pub fn parse(text: &str) -> Result<Option<Self>, NotQuorum> {
        match text {
            "one" => Ok(Some(Self::One)),
            "quorum" => Ok(Some(Self::Quorum)),
            "all" => Ok(Some(Self::All)),
            "default" => Ok(None),
            digits => match digits.parse() {
                Ok(number) if !digits.starts_with('+') => Ok(Some(Self::Number(number))),
                _ => Err(NotQuorum {
                    text: text.to_owned(),
                }),
            },
        }
    }

    /// Reads the value of a property: an integer or a word, but not "default".
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) if !word.starts_with(|first: char| first.is_ascii_digit()) => {
                Self::parse(word).ok().flatten()
            }
            Value::Number(number) => number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .map(Self::Number),
            _ => None,
        }
    }

    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Number(number) => number.into(),
            word => word.to_string().into(),
        }
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("one"),
            Self::Quorum => f.write_str("quorum"),
            Self::All => f.write_str("all"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_resolve_against_n() {
        let resolved = |quorum: Quorum| [1, 2, 3, 4, 5].map(|n| quorum.resolve(n));
        assert_eq!(resolved(Quorum::One), [1; 5]);
        assert_eq!(resolved(Quorum::Quorum), [1, 2, 2, 3, 3]);
        assert_eq!(resolved(Quorum::All), [1, 2, 3, 4, 5]);
        assert_eq!(resolved(Quorum::Number(9)), [9; 5]);
    }

    #[test]
    fn wire_numbers_are_those_of_the_protocol() {
        assert_eq!(Quorum::from_wire(4_294_967_294), Some(Quorum::One));
        assert_eq!(Quorum::from_wire(4_294_967_293), Some(Quorum::Quorum));
        assert_eq!(Quorum::from_wire(4_294_967_292), Some(Quorum::All));
        assert_eq!(Quorum::from_wire(4_294_967_291), None);
        for number in [
            0,
            1,
            3,
            4_294_967_290,
            4_294_967_292,
            4_294_967_293,
            4_294_967_294,
        ] {
            assert_eq!(Quorum::from_wire(number).map(Quorum::to_wire), Some(number));
        }
    }

    #[test]
    fn texts_read_as_they_print() {
        for quorum in [Quorum::One, Quorum::Quorum, Quorum::All, Quorum::Number(2)] {
            assert_eq!(Quorum::parse(&quorum.to_string()), Ok(Some(quorum)));
            assert_eq!(Quorum::from_json(&quorum.to_json()), Some(quorum));
        }
        assert_eq!(Quorum::parse("default"), Ok(None));
        for text in ["", "most", "-1", "+1", "1.0", "4294967296"] {
            assert!(Quorum::parse(text).is_err(), "{text}");
        }
    }
}
