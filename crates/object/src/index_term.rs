//! Index terms: the values of index fields in a form whose byte order is the order of the values.
//!
//! The ending of a field's name decides the order of its values: those of `_bin` compare as bytes,
//! those of `_int` as whole numbers. Like Riak's, numbers have no bound: they are kept as decimal
//! digits behind the count of digits.

use bytes::{BufMut as _, Bytes};

use crate::Object;

/// Fields of indexes, each with a term.
pub type IndexTerms = Vec<(Bytes, Bytes)>;

/// The order of an index field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexOrder {
    /// As bytes: `_bin`.
    Bytes,
    /// As whole numbers: `_int`.
    Numbers,
}

impl IndexOrder {
    /// The order of a field; `None` for a name that ends in neither, or has nothing in front of the
    /// ending.
    pub fn of_field(field: &[u8]) -> Option<Self> {
        match field {
            [_, .., b'_', b'b', b'i', b'n'] => Some(Self::Bytes),
            [_, .., b'_', b'i', b'n', b't'] => Some(Self::Numbers),
            _ => None,
        }
    }

    /// The term of a value; `None` for a text that is not a whole number.
    ///
    /// ```text
    /// number = sign   u8  0 negative, 1 other
    ///          count  u8  of digits; 255 for 255 and more, then the count as u32, big-endian
    ///          digits     ASCII, without leading zeros
    /// ```
    ///
    /// For a negative number, all bits behind the sign are flipped.
    pub fn term_of(self, value: &Bytes) -> Option<Bytes> {
        match self {
            Self::Bytes => Some(value.clone()),
            Self::Numbers => number_term(value),
        }
    }

    /// The value of a term: of a number, its shortest decimal text.
    pub fn value_of(self, term: &Bytes) -> Bytes {
        match self {
            Self::Bytes => term.clone(),
            Self::Numbers => number_text(term),
        }
    }
}

const NEGATIVE: u8 = 0;
const OTHER: u8 = 1;
/// Counts from here on take four more bytes.
const LONG_COUNT: u8 = u8::MAX;

fn number_term(text: &[u8]) -> Option<Bytes> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = &digits[zeros.min(digits.len() - 1)..];
    let is_negative = is_negative && digits != b"0";
    let mut term = Vec::with_capacity(2 + digits.len());
    term.push(if is_negative { NEGATIVE } else { OTHER });
    match u8::try_from(digits.len()) {
        Ok(count) if count < LONG_COUNT => term.push(count),
        _ => {
            term.push(LONG_COUNT);
            term.put_u32(u32::try_from(digits.len()).ok()?);
        }
    }
    term.extend_from_slice(digits);
    if is_negative {
        flip(&mut term[1..]);
    }
    Some(term.into())
}

/// The text of a term from [`IndexOrder::term_of`]; other bytes come out as they are.
fn number_text(term: &Bytes) -> Bytes {
    let (is_negative, rest) = match &term[..] {
        [NEGATIVE, rest @ ..] => (true, rest),
        [OTHER, rest @ ..] => (false, rest),
        _ => return term.clone(),
    };
    let flips = if is_negative { u8::MAX } else { 0 };
    let count_bytes = match rest.first().map(|count| count ^ flips) {
        Some(LONG_COUNT) => 5,
        _ => 1,
    };
    let Some(digits) = rest.get(count_bytes..) else {
        return term.clone();
    };
    if !is_negative {
        return term.slice_ref(digits);
    }
    let mut text = Vec::with_capacity(1 + digits.len());
    text.push(b'-');
    text.extend_from_slice(digits);
    flip(&mut text[1..]);
    text.into()
}

fn flip(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

impl Object {
    /// The fields and terms of this object in indexes: the union of its siblings', sorted, each
    /// once; none of a tombstone. An entry without a term, possible in objects stored as they are,
    /// is kept with the object and is in no index.
    pub fn index_terms(&self) -> IndexTerms {
        let has_any = |sibling: &crate::Sibling| !sibling.metadata.indexes.is_empty();
        if !self.siblings().iter().any(has_any) || self.is_tombstone() {
            return Vec::new();
        }
        let entries = self.index_entries().into_iter().filter_map(|entry| {
            let term = IndexOrder::of_field(&entry.field)?.term_of(&entry.value)?;
            Some((entry.field, term))
        });
        let mut terms: Vec<_> = entries.collect();
        terms.sort_unstable();
        terms.dedup();
        terms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Clock, Content, IndexEntry, Metadata, Timestamp};

    fn number(text: &str) -> Bytes {
        let text = Bytes::copy_from_slice(text.as_bytes());
        IndexOrder::Numbers.term_of(&text).unwrap()
    }

    fn text(term: &Bytes) -> String {
        String::from_utf8(IndexOrder::Numbers.value_of(term).to_vec()).unwrap()
    }

    #[test]
    fn the_ending_of_a_field_is_its_order() {
        let of = |field: &str| IndexOrder::of_field(field.as_bytes());
        assert_eq!(of("a_bin"), Some(IndexOrder::Bytes));
        assert_eq!(of("a_int"), Some(IndexOrder::Numbers));
        for field in ["_bin", "_int", "a", "a_BIN", "$key", ""] {
            assert_eq!(of(field), None, "{field}");
        }
    }

    #[test]
    fn numbers_of_any_length_are_in_order() {
        let nines = |count| "9".repeat(count);
        let ascending = [
            format!("-1{}", "0".repeat(300)),
            format!("-{}", nines(300)),
            format!("-{}", nines(255)),
            format!("-{}", nines(254)),
            "-10".into(),
            "-9".into(),
            "-1".into(),
            "0".into(),
            "1".into(),
            "9".into(),
            "10".into(),
            nines(254),
            nines(255),
            nines(256),
            format!("1{}", "0".repeat(70_000)),
        ];
        let terms: Vec<Bytes> = ascending.iter().map(|it| number(it)).collect();
        assert!(terms.is_sorted_by(|a, b| a < b));
        let texts: Vec<String> = terms.iter().map(text).collect();
        assert_eq!(texts, ascending);
    }

    #[test]
    fn one_number_is_one_term_however_it_is_written() {
        for (written, shortest) in [("-0", "0"), ("+007", "7"), ("-0070", "-70"), ("000", "0")] {
            assert_eq!(number(written), number(shortest));
            assert_eq!(text(&number(written)), shortest);
        }
        for wrong in ["", "-", "+", "x", "1x", "1.5", "--1", " 1", "0x1"] {
            let value = Bytes::copy_from_slice(wrong.as_bytes());
            assert_eq!(IndexOrder::Numbers.term_of(&value), None, "{wrong}");
        }
    }

    #[test]
    fn an_object_is_indexed_by_what_has_a_term() {
        let entry = |field: &'static str, value: &'static str| IndexEntry {
            field: field.into(),
            value: value.into(),
        };
        let metadata = Metadata {
            indexes: vec![
                entry("n_int", "07"),
                entry("n_int", "7"),
                entry("n_int", "seven"),
                entry("odd", "1"),
                entry("b_bin", ""),
            ],
            ..Metadata::default()
        };
        let object = |metadata| {
            let content = Content {
                metadata,
                value: Bytes::new(),
            };
            Object::as_is(Clock::new(), content, Timestamp::ZERO)
        };
        let terms = object(metadata.clone()).index_terms();
        let expected = [
            ("b_bin".into(), Bytes::new()),
            ("n_int".into(), number("7")),
        ];
        assert_eq!(terms, expected);
        let deleted = Metadata {
            deleted: true,
            ..metadata
        };
        assert_eq!(object(deleted).index_terms(), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn terms_compare_as_their_numbers(a: i128, b: i128, small_a in -300_i128..300, small_b in -300_i128..300) {
            for (a, b) in [(a, b), (small_a, small_b), (a, small_b)] {
                let (term_a, term_b) = (number(&a.to_string()), number(&b.to_string()));
                prop_assert_eq!(a.cmp(&b), term_a.cmp(&term_b));
                prop_assert_eq!(text(&term_a), a.to_string());
            }
        }

        #[test]
        fn any_bytes_have_some_value(bytes: Vec<u8>) {
            let _ = IndexOrder::Numbers.value_of(&bytes.into());
        }
    }
}
