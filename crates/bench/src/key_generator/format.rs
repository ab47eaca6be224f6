//! Formats of Erlang's `io_lib:format` that take one argument, as in `{to_binstr, Format, G}`.

use super::key::{Key, Kind};
use kvorum_erlang_terms::Term;

/// A parsed format string with exactly one directive that takes an argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Format {
    before: String,
    directive: Directive,
    after: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Directive {
    conversion: Conversion,
    /// Field width; negative pads on the right.
    width: Option<i32>,
    padding: char,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Conversion {
    /// `~w`: strings and binaries as numbers.
    Plain,
    /// `~p`: strings and binaries as texts.
    Readable,
    /// `~s`, with the number of characters that are kept.
    Text(Option<u32>),
    /// `~b` and `~B`: a number in a base.
    Number { base: u32, upper: bool },
}

impl Format {
    /// Reads a format; the error names the part that is not supported.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut literals = vec![String::new()];
        let mut directive = None;
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            let Some(literal) = literals.last_mut() else {
                break;
            };
            if character != '~' {
                literal.push(character);
                continue;
            }
            match parse_directive(&mut rest)? {
                Parsed::Literal(character) => literal.push(character),
                Parsed::Directive(found) => {
                    if directive.replace(found).is_some() {
                        return Err(format!(
                            "the format \"{text}\" takes more than one argument"
                        ));
                    }
                    literals.push(String::new());
                }
            }
        }
        let directive =
            directive.ok_or_else(|| format!("the format \"{text}\" takes no argument"))?;
        let after = literals.pop().unwrap_or_default();
        Ok(Self {
            before: literals.pop().unwrap_or_default(),
            directive,
            after,
        })
    }

    /// True if keys of the kind fit the format.
    pub(super) fn accepts(&self, kind: Kind) -> bool {
        match self.directive.conversion {
            Conversion::Plain | Conversion::Readable => true,
            Conversion::Text(_) => kind != Kind::Integer,
            Conversion::Number { .. } => kind == Kind::Integer,
        }
    }

    /// The text for one key.
    pub(super) fn apply(&self, key: &Key) -> Vec<u8> {
        let mut text = self.before.clone().into_bytes();
        text.extend(self.directive.apply(key));
        text.extend_from_slice(self.after.as_bytes());
        text
    }
}

impl Directive {
    fn apply(&self, key: &Key) -> Vec<u8> {
        let body = match self.conversion {
            Conversion::Plain => term(key).to_plain_text().into_bytes(),
            Conversion::Readable => term(key).to_string().into_bytes(),
            Conversion::Text(kept) => {
                let mut bytes = key.clone().into_bytes().to_vec();
                bytes.truncate(
                    kept.and_then(|kept| usize::try_from(kept).ok())
                        .unwrap_or(bytes.len()),
                );
                bytes
            }
            Conversion::Number { base, upper } => in_base(key.integer(), base, upper).into_bytes(),
        };
        self.pad(body)
    }

    /// Pads to the width. A text that is too long is cut; anything else becomes stars.
    fn pad(&self, mut body: Vec<u8>) -> Vec<u8> {
        let Some(signed) = self.width else {
            return body;
        };
        let width = usize::try_from(signed.unsigned_abs()).unwrap_or(0);
        if body.len() > width {
            if matches!(self.conversion, Conversion::Text(_)) {
                body.truncate(width);
                return body;
            }
            return vec![b'*'; width];
        }
        let padding: String = std::iter::repeat_n(self.padding, width - body.len()).collect();
        let at = if signed < 0 { body.len() } else { 0 };
        body.splice(at..at, padding.into_bytes());
        body
    }
}

enum Parsed {
    Literal(char),
    Directive(Directive),
}

/// The directive after a tilde: `[width][.[precision][.padding]]letter`.
fn parse_directive(rest: &mut std::str::Chars<'_>) -> Result<Parsed, String> {
    let width = take_number(rest)?;
    let mut precision = None;
    let mut padding = ' ';
    if take(rest, '.') {
        precision = take_number(rest)?.and_then(|number| u32::try_from(number).ok());
        if take(rest, '.') {
            padding = rest.next().ok_or("the format ends inside a directive")?;
        }
    }
    while take(rest, 't') || take(rest, 'l') {}
    let base = precision.unwrap_or(10);
    let conversion = match rest.next() {
        Some('~') => return Ok(Parsed::Literal('~')),
        Some('n') => return Ok(Parsed::Literal('\n')),
        Some('w') => Conversion::Plain,
        Some('p') => Conversion::Readable,
        Some('s') => Conversion::Text(precision),
        Some(letter @ ('b' | 'B')) if (2..=36).contains(&base) => Conversion::Number {
            base,
            upper: letter == 'B',
        },
        Some(other) => {
            return Err(format!(
                "the directive ~{other} is not supported; ~w, ~p, ~s, ~b and ~B are"
            ));
        }
        None => return Err("the format ends inside a directive".to_owned()),
    };
    Ok(Parsed::Directive(Directive {
        conversion,
        width,
        padding,
    }))
}

fn take(rest: &mut std::str::Chars<'_>, wanted: char) -> bool {
    let mut ahead = rest.clone();
    let found = ahead.next() == Some(wanted);
    if found {
        *rest = ahead;
    }
    found
}

fn take_number(rest: &mut std::str::Chars<'_>) -> Result<Option<i32>, String> {
    let text = rest.as_str();
    let sign = usize::from(text.starts_with('-'));
    let digits = text
        .bytes()
        .skip(sign)
        .take_while(u8::is_ascii_digit)
        .count();
    if digits == 0 {
        return Ok(None);
    }
    let (number, after) = text.split_at(sign + digits);
    *rest = after.chars();
    let number: i32 = number
        .parse()
        .map_err(|_| format!("the width {number} is too large"))?;
    if number.unsigned_abs() > 10_000 {
        return Err(format!("the width {number} is too large"));
    }
    Ok(Some(number))
}

fn term(key: &Key) -> Term {
    match key {
        Key::Integer(value) => Term::Integer(i128::from(*value)),
        Key::String(bytes) => Term::String(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Key::Binary(bytes) => Term::Binary(bytes.to_vec()),
    }
}

fn in_base(value: i64, base: u32, upper: bool) -> String {
    let mut rest = value.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(rest % u64::from(base)).unwrap_or(0);
        let character = char::from_digit(digit, base).unwrap_or('0');
        digits.push(if upper {
            character.to_ascii_uppercase()
        } else {
            character
        });
        rest /= u64::from(base);
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        digits.push('-');
    }
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn apply(format: &str, key: &Key) -> String {
        String::from_utf8(Format::parse(format).unwrap().apply(key)).unwrap()
    }

    #[test]
    fn numbers_are_formatted_as_erlang_does() {
        let key = Key::Integer(255);
        assert_eq!(apply("user-~w", &key), "user-255");
        assert_eq!(apply("~10..0B|", &key), "0000000255|");
        assert_eq!(apply("~8.16.0b", &key), "000000ff");
        assert_eq!(apply("~.16B", &key), "FF");
        assert_eq!(apply("~-6w|", &key), "255   |");
        assert_eq!(apply("~2w", &key), "**");
        assert_eq!(apply("100~~ ~p~n", &key), "100~ 255\n");
        assert_eq!(apply("~b", &Key::Integer(-7)), "-7");
    }

    #[test]
    fn texts_are_formatted_as_erlang_does() {
        let key = Key::String(Bytes::from_static(b"abc"));
        assert_eq!(apply("~s!", &key), "abc!");
        assert_eq!(apply("~5s", &key), "  abc");
        assert_eq!(apply("~2s", &key), "ab");
        assert_eq!(apply("~w", &key), "[97,98,99]");
        assert_eq!(apply("~p", &key), "\"abc\"");
    }

    #[test]
    fn formats_that_take_no_single_argument_are_refused() {
        for text in ["plain", "~w ~w", "~", "~q", "~99999w"] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
    }
}
