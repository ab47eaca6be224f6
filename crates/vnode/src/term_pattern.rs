//! Patterns that terms of an index query have to match.
//!
//! Riak takes PCRE. Here patterns are those of the `regex` crate, whose time is linear in the
//! input: one request cannot hold a thread. So back references and look-around are refused.

use regex::bytes::{Regex, RegexBuilder};

/// A compiled pattern may take this much memory, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled pattern; terms are bytes, and so are the characters of their pattern.
#[derive(Clone, Debug)]
pub struct TermPattern(Regex);

/// A text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidPattern {
    /// The reason, in one line.
    pub reason: String,
}

impl TermPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The error in the pattern.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let built = RegexBuilder::new(text)
            .unicode(false)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        built.map(Self).map_err(|error| {
            // The text of a syntax error draws the pattern and points into it; its last line has the
            // reason.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            InvalidPattern {
                reason: reason.trim_start_matches("error: ").to_owned(),
            }
        })
    }

    /// The text that it was compiled from.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// True when some part of the term matches.
    pub fn matches(&self, term: &[u8]) -> bool {
        self.0.is_match(term)
    }
}

impl PartialEq for TermPattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TermPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_a_part_of_any_bytes() {
        let pattern = TermPattern::new("b.r$").unwrap();
        assert!(pattern.matches(b"foo b\xffr"));
        assert!(!pattern.matches(b"bar foo"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_one_line() {
        for wrong in ["(", "a{2", r"(a)\1", "(?=a)", "(a{1000}){1000}"] {
            let error = TermPattern::new(wrong).unwrap_err();
            assert!(
                !error.reason.is_empty() && !error.reason.contains('\n'),
                "{error}"
            );
        }
    }
}
