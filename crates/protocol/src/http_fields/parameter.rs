//! Values of query parameters: quorums, booleans and timeouts, with the texts of their refusals.

use std::str;

use crate::quorum::Quorum;

/// A query parameter that cannot be read; the request is answered with 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Neither a number nor a quorum word.
    #[error("parameter {name} is no quorum")]
    Quorum {
        /// The parameter.
        name: &'static str,
    },
    /// Neither true nor false.
    #[error("parameter {name} is no boolean")]
    Boolean {
        /// The parameter.
        name: &'static str,
    },
    /// Not a number of milliseconds.
    #[error("timeout {value:?} is no number of milliseconds")]
    Timeout {
        /// The text that was given; lossy if it was no text.
        value: String,
    },
}

impl ParameterError {
    /// The text of the 400 answer, as Riak words it.
    pub fn response_text(&self) -> String {
        match self {
            ParameterError::Quorum { name } => format!(
                "{name} query parameter must be an integer or one of the following words: \
                 'one', 'quorum' or 'all'\n"
            ),
            ParameterError::Boolean { name } => {
                format!("{name} query parameter must be true or false\n")
            }
            ParameterError::Timeout { value } => format!("Bad timeout value {value:?}\n"),
        }
    }
}

/// Reads a quorum: `one`, `quorum`, `all`, `default` or a number.
///
/// A number beyond 32 bits becomes the largest one, which no bucket satisfies either.
///
/// # Errors
/// [`ParameterError::Quorum`] for anything else, negative numbers included.
pub fn parse_quorum(name: &'static str, value: &[u8]) -> Result<Quorum, ParameterError> {
    match value {
        b"default" => Ok(Quorum::Default),
        b"one" => Ok(Quorum::One),
        b"quorum" => Ok(Quorum::Quorum),
        b"all" => Ok(Quorum::All),
        digits => match parse_saturating(digits) {
            Some(count) => Ok(Quorum::Count(u32::try_from(count).unwrap_or(u32::MAX))),
            None => Err(ParameterError::Quorum { name }),
        },
    }
}

/// Reads `true`, `false` or `default` in any case; `None` is default. For `basic_quorum`,
/// `notfound_ok` and `asis`.
///
/// # Errors
/// [`ParameterError::Boolean`] for anything else.
pub fn parse_tristate(name: &'static str, value: &[u8]) -> Result<Option<bool>, ParameterError> {
    match value {
        word if word.eq_ignore_ascii_case(b"true") => Ok(Some(true)),
        word if word.eq_ignore_ascii_case(b"false") => Ok(Some(false)),
        word if word.eq_ignore_ascii_case(b"default") => Ok(None),
        _ => Err(ParameterError::Boolean { name }),
    }
}

/// True if a value is the exact word `true`. For `returnbody`, `keys` and the like, where any other
/// value means no.
pub fn parse_boolean(value: Option<&[u8]>) -> bool {
    value == Some(b"true")
}

/// Reads a timeout in milliseconds. One beyond 64 bits becomes the largest.
///
/// # Errors
/// [`ParameterError::Timeout`] if the value is not a number, or negative.
pub fn parse_timeout_ms(value: &[u8]) -> Result<u64, ParameterError> {
    parse_saturating(value).ok_or_else(|| ParameterError::Timeout {
        value: String::from_utf8_lossy(value).into_owned(),
    })
}

/// A decimal number with an optional `+`; the largest one if it does not fit.
fn parse_saturating(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(str::from_utf8(digits).ok()?.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_are_words_or_numbers() {
        assert_eq!(parse_quorum("r", b"quorum"), Ok(Quorum::Quorum));
        assert_eq!(parse_quorum("r", b"default"), Ok(Quorum::Default));
        assert_eq!(parse_quorum("r", b"2"), Ok(Quorum::Count(2)));
        assert_eq!(
            parse_quorum("r", b"99999999999999999999"),
            Ok(Quorum::Count(u32::MAX))
        );
        for bad in [&b""[..], b"-1", b"two", b"ALL", b"1 ", b"\xff"] {
            let error = parse_quorum("pw", bad).unwrap_err();
            assert_eq!(
                error.response_text(),
                "pw query parameter must be an integer or one of the following words: \
                 'one', 'quorum' or 'all'\n"
            );
        }
    }

    #[test]
    fn booleans_know_default_and_case_while_flags_know_one_word() {
        assert_eq!(parse_tristate("asis", b"True"), Ok(Some(true)));
        assert_eq!(parse_tristate("asis", b"false"), Ok(Some(false)));
        assert_eq!(parse_tristate("asis", b"default"), Ok(None));
        let error = parse_tristate("notfound_ok", b"yes").unwrap_err();
        assert_eq!(
            error.response_text(),
            "notfound_ok query parameter must be true or false\n"
        );
        assert!(parse_boolean(Some(b"true")));
        assert!(!parse_boolean(Some(b"True")));
        assert!(!parse_boolean(None));
    }

    #[test]
    fn timeouts_are_milliseconds() {
        assert_eq!(parse_timeout_ms(b"1500"), Ok(1500));
        let error = parse_timeout_ms(b"soon").unwrap_err();
        assert_eq!(error.response_text(), "Bad timeout value \"soon\"\n");
        assert!(parse_timeout_ms(b"-1").is_err());
        assert!(parse_timeout_ms(b"1.5").is_err());
    }
}
