//! Texts from terms and terms from texts, as Erlang's functions make them.

use crate::print::flat;
use crate::term::Term;

/// The text of any term; for a binary, its bytes.
pub(crate) fn text_of(term: &Term) -> Vec<u8> {
    match term {
        Term::Binary(bytes) => bytes.to_vec(),
        Term::List(_) => term
            .as_characters()
            .unwrap_or_else(|| flat(term).into_bytes()),
        Term::Float(number) => text_of_float(*number).into_bytes(),
        _ => flat(term).into_bytes(),
    }
}

/// A whole number in decimal, with or without a sign.
pub(crate) fn integer_of_text(text: &[u8]) -> Option<i128> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number with digits on both sides of a point, with or without a sign and an exponent.
pub(crate) fn float_of_text(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = unsigned.split_once('.')?;
    let (fraction, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    if ![whole, fraction, exponent].into_iter().all(digits) {
        return None;
    }
    text.parse().ok().filter(|it: &f64| it.is_finite())
}

/// A number in the form of Erlang's `float_to_list`: `6.00000000000000000000e+00`.
pub(crate) fn text_of_float(number: f64) -> String {
    let text = format!("{number:.20e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |it| ('-', it));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// A text of a URL's query with its escapes decoded, up to a separator.
pub(crate) fn url_decoded(text: &[u8]) -> Vec<u8> {
    let end = text
        .iter()
        .position(|it| matches!(it, b'&' | b';'))
        .unwrap_or(text.len());
    let mut rest = &text[..end];
    let mut out = Vec::with_capacity(end);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, escaped(behind)) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &behind[2..];
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*first),
        }
    }
    out
}

/// The byte of two hexadecimal digits.
fn escaped(text: &[u8]) -> Option<u8> {
    let digit = |index: usize| char::from(*text.get(index)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
