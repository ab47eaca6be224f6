//! Secondary index entries: `X-Riak-Index-<name>_bin` and `_int` headers.
//!
//! The suffix of the field decides how a value is read. Several values are in one header,
//! separated by a comma and white space, or in repeated headers; a comma without white space is
//! part of the value.

use bytes::Bytes;

/// Prefix of index headers, in lower case.
pub const INDEX_HEADER_PREFIX: &str = "x-riak-index-";

/// One index entry of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The field in lower case, suffix included.
    pub field: Bytes,
    /// The value; for an `_int` field, the shortest decimal text of a whole number of any size.
    pub value: Bytes,
}

/// An index entry that cannot be read; the request is answered with 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexFieldError {
    /// The field ends in neither `_bin` nor `_int`, or has nothing in front of it.
    #[error("index field {field:?} has no known type")]
    UnknownFieldType {
        /// The field in lower case.
        field: Bytes,
    },
    /// The value of an `_int` field is not a whole number.
    #[error("value {value:?} of index field {field:?} is not a number")]
    FieldParsing {
        /// The field in lower case.
        field: Bytes,
        /// The value as given.
        value: Bytes,
    },
}

/// Reads one value of a field, as protocol buffers have it.
///
/// # Errors
/// [`IndexFieldError`] by the kind of error.
pub fn parse_index_value(field: &[u8], value: Bytes) -> Result<IndexEntry, IndexFieldError> {
    let field = Bytes::from(field.to_ascii_lowercase());
    let value = match *field {
        [_, .., b'_', b'b', b'i', b'n'] => value,
        [_, .., b'_', b'i', b'n', b't'] => match parse_integer(&value) {
            Some(number) => number,
            None => return Err(IndexFieldError::FieldParsing { field, value }),
        },
        _ => return Err(IndexFieldError::UnknownFieldType { field }),
    };
    Ok(IndexEntry { field, value })
}

/// Reads one header whose name was [`INDEX_HEADER_PREFIX`] and `field`, appending its entries to
/// `entries` and its errors to `errors`.
pub fn parse_index_header(
    field: &[u8],
    header: &Bytes,
    entries: &mut Vec<IndexEntry>,
    errors: &mut Vec<IndexFieldError>,
) {
    let mut start = 0;
    while start <= header.len() {
        let end = separator_after(header, start).unwrap_or(header.len());
        match parse_index_value(field, header.slice(start..end)) {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(error),
        }
        start = end + SEPARATOR_BYTES;
    }
}

/// A comma and one white space.
const SEPARATOR_BYTES: usize = 2;

fn separator_after(header: &[u8], start: usize) -> Option<usize> {
    let pairs = header[start..].windows(SEPARATOR_BYTES);
    let offset = pairs
        .into_iter()
        .position(|pair| pair[0] == b',' && pair[1].is_ascii_whitespace());
    offset.map(|offset| start + offset)
}

/// The text of the 400 answer: one line for each refused entry. It may be invalid text, since it
/// repeats the client's bytes.
pub fn index_response_text(errors: &[IndexFieldError]) -> Vec<u8> {
    let mut text = Vec::new();
    for error in errors {
        let pieces: [&[u8]; 5] = match error {
            IndexFieldError::UnknownFieldType { field } => {
                [b"Unknown field type for field: '", field, b"'.\n", b"", b""]
            }
            IndexFieldError::FieldParsing { field, value } => [
                b"Could not parse field '",
                field,
                b"', value '",
                value,
                b"'.\n",
            ],
        };
        text.extend_from_slice(&pieces.concat());
    }
    text
}

fn parse_integer(value: &Bytes) -> Option<Bytes> {
    let (sign, digits) = match &value[..] {
        [b'-', digits @ ..] => ("-", digits),
        [b'+', digits @ ..] | digits => ("", digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = &digits[zeros.min(digits.len() - 1)..];
    Some(match digits {
        b"0" => Bytes::from_static(b"0"),
        _ if sign.is_empty() => value.slice_ref(digits),
        _ => [sign.as_bytes(), digits].concat().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(field: &str, header: &'static [u8]) -> (Vec<IndexEntry>, Vec<IndexFieldError>) {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        let header = Bytes::from_static(header);
        parse_index_header(field.as_bytes(), &header, &mut entries, &mut errors);
        (entries, errors)
    }

    fn texts(entries: &[IndexEntry]) -> Vec<Bytes> {
        entries.iter().map(|entry| entry.value.clone()).collect()
    }

    #[test]
    fn a_comma_and_white_space_separates_values_a_comma_alone_does_not() {
        let (entries, errors) = parse("Tag_BIN", b"red, green,blue, ");
        assert_eq!(errors, []);
        assert_eq!(texts(&entries), ["red", "green,blue", ""]);
        assert!(entries.iter().all(|entry| entry.field == "tag_bin"));
        let (entries, _) = parse("tag_bin", b"");
        assert_eq!(texts(&entries), [""]);
        let (entries, _) = parse("tag_bin", b"a,");
        assert_eq!(texts(&entries), ["a,"]);
    }

    #[test]
    fn integers_are_whole_numbers_of_any_size() {
        let (entries, errors) = parse(
            "n_int",
            b"-07, +8, -0, 340282366920938463463374607431768211456",
        );
        assert_eq!(errors, []);
        assert_eq!(
            texts(&entries),
            ["-7", "8", "0", "340282366920938463463374607431768211456"]
        );
    }

    #[test]
    fn refusals_are_worded_line_by_line() {
        let (entries, mut errors) = parse("n_int", b"1, x, 1.5");
        assert_eq!(entries.len(), 1);
        for field in ["color", "$key", "_bin", "_int"] {
            errors.extend(parse(field, b"v").1);
        }
        assert_eq!(
            String::from_utf8(index_response_text(&errors)).unwrap(),
            "Could not parse field 'n_int', value 'x'.\n\
             Could not parse field 'n_int', value '1.5'.\n\
             Unknown field type for field: 'color'.\n\
             Unknown field type for field: '$key'.\n\
             Unknown field type for field: '_bin'.\n\
             Unknown field type for field: '_int'.\n"
        );
    }
}
