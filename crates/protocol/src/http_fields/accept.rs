//! Content negotiation: `Accept`, `Accept-Charset` and `Accept-Encoding`, with Riak's quirks.
//!
//! Clients depend on the rules of the server library that Riak used, which differ from the HTTP
//! standard: of media types with equal `q` the *last* listed wins, `q=0` is a low rank and no
//! exclusion, and parameters must match exactly. So `*/*, multipart/mixed` asks for multipart and
//! `multipart/mixed, */*` for the first type that the server lists.

/// Chooses among the media types provided; returns the index of the choice, `None` for 406.
///
/// Without a header the first one is chosen. A header that cannot be read accepts nothing.
pub fn choose_media_type(provided: &[&str], accept: Option<&[u8]>) -> Option<usize> {
    let Some(header) = accept else {
        return (!provided.is_empty()).then_some(0);
    };
    let offers: Vec<MediaRange<'_>> = provided.iter().copied().map(MediaRange::parse).collect();
    let mut ranges = Vec::new();
    for element in std::str::from_utf8(header).ok()?.split(',').map(str::trim) {
        if element.is_empty() {
            continue;
        }
        let range = MediaRange::parse(element);
        range.quality?; // an invalid rank makes the header invalid
        ranges.push(range);
    }
    // Stable, so that reversing it puts the last listed of equal rank first.
    ranges.sort_by(|left, right| rank(left).total_cmp(&rank(right)));
    ranges
        .iter()
        .rev()
        .find_map(|range| offers.iter().position(|offer| range.covers(offer)))
}

/// Chooses among the content encodings provided; the index of the choice, `None` for 406.
///
/// Without a header `identity` is chosen if provided, else the first. Here `q=0` does exclude.
pub fn choose_encoding(provided: &[&str], accept_encoding: Option<&[u8]>) -> Option<usize> {
    choose_word(provided, accept_encoding, "identity")
}

/// Chooses among the charsets provided; the index of the choice, `None` for 406.
pub fn choose_charset(provided: &[&str], accept_charset: Option<&[u8]>) -> Option<usize> {
    choose_word(provided, accept_charset, "ISO-8859-1")
}

struct MediaRange<'a> {
    media_type: &'a str,
    /// Sorted; without `q`.
    parameters: Vec<(&'a str, &'a str)>,
    /// `None` if the `q` parameter is not a number.
    quality: Option<f32>,
}

impl<'a> MediaRange<'a> {
    fn parse(element: &'a str) -> MediaRange<'a> {
        let mut pieces = element.split(';').map(str::trim);
        let media_type = pieces.next().unwrap_or_default();
        let mut quality = Some(1.0);
        let mut parameters = Vec::new();
        for parameter in pieces.filter(|piece| !piece.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (name.trim(), value.trim()) {
                ("q", value) => quality = parse_quality(value),
                pair => parameters.push(pair),
            }
        }
        parameters.sort_unstable();
        MediaRange {
            media_type,
            parameters,
            quality,
        }
    }

    fn covers(&self, offer: &MediaRange<'_>) -> bool {
        if self.media_type == "*/*" && self.parameters.is_empty() {
            return true;
        }
        self.parameters == offer.parameters && self.covers_type(offer.media_type)
    }

    fn covers_type(&self, offered: &str) -> bool {
        if matches!(self.media_type, "*" | "*/*") || self.media_type.eq_ignore_ascii_case(offered) {
            return true;
        }
        match (self.media_type.strip_suffix("/*"), offered.split_once('/')) {
            (Some(main_type), Some((offered_main, _))) => {
                main_type.eq_ignore_ascii_case(offered_main)
            }
            _ => false,
        }
    }
}

fn rank(range: &MediaRange<'_>) -> f32 {
    range.quality.unwrap_or(0.0)
}

/// Digits with at most one point; `NaN`, signs and exponents are not ranks.
fn parse_quality(value: &str) -> Option<f32> {
    let is_plain = value
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { value.parse().ok() } else { None }
}

/// Negotiation of plain words: ranked by `q`, first listed of equal rank first, `q=0` excludes.
/// `fallback` is acceptable unless excluded by name or by `*;q=0`.
fn choose_word(provided: &[&str], header: Option<&[u8]>, fallback: &str) -> Option<usize> {
    let position = |word: &str| {
        provided
            .iter()
            .position(|name| name.eq_ignore_ascii_case(word))
    };
    let Some(header) = header else {
        return position(fallback).or((!provided.is_empty()).then_some(0));
    };
    let text = std::str::from_utf8(header).ok()?;
    let mut wishes: Vec<MediaRange<'_>> = text
        .split(',')
        .filter(|wish| !wish.trim().is_empty())
        .map(MediaRange::parse)
        .collect();
    wishes.sort_by(|left, right| rank(right).total_cmp(&rank(left)));
    let rank_of = |word: &str| {
        let wish = wishes
            .iter()
            .find(|wish| wish.media_type.eq_ignore_ascii_case(word));
        wish.map(rank)
    };
    let named = wishes
        .iter()
        .filter(|wish| rank(wish) > 0.0 && wish.media_type != "*");
    if let Some(choice) = named.filter_map(|wish| position(wish.media_type)).next() {
        return Some(choice);
    }
    let is_excluded = |word: &str| rank_of(word) == Some(0.0);
    match rank_of("*") {
        Some(rank) if rank > 0.0 => provided.iter().position(|word| !is_excluded(word)),
        Some(_) => None,
        None if is_excluded(fallback) => None,
        None => position(fallback),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIBLINGS: [&str; 2] = ["text/plain", "multipart/mixed"];

    fn siblings(accept: &str) -> Option<&'static str> {
        choose_media_type(&SIBLINGS, Some(accept.as_bytes())).map(|choice| SIBLINGS[choice])
    }

    #[test]
    fn the_last_listed_of_equal_rank_wins() {
        assert_eq!(choose_media_type(&SIBLINGS, None), Some(0));
        assert_eq!(siblings("*/*, multipart/mixed"), Some("multipart/mixed"));
        assert_eq!(siblings("multipart/mixed, */*"), Some("text/plain"));
        assert_eq!(
            siblings("multipart/mixed, */*;q=0.9"),
            Some("multipart/mixed")
        );
        assert_eq!(siblings("text/plain, multipart/*"), Some("multipart/mixed"));
        assert_eq!(siblings("*"), Some("text/plain"));
        assert_eq!(siblings("application/json"), None);
        assert_eq!(siblings(""), None);
    }

    #[test]
    fn rank_zero_is_low_but_no_exclusion() {
        assert_eq!(siblings("multipart/mixed;q=0"), Some("multipart/mixed"));
        assert_eq!(
            siblings("multipart/mixed;q=0, text/*;q=.5"),
            Some("text/plain")
        );
    }

    #[test]
    fn parameters_must_match_exactly_and_a_bad_rank_spoils_the_header() {
        assert_eq!(siblings("text/plain;charset=utf-8"), None);
        assert_eq!(siblings("text/plain; q=1.0"), Some("text/plain"));
        assert_eq!(siblings("text/plain;q=high, */*"), None);
        assert_eq!(siblings("text/plain;q=NaN"), None);
        let level = ["text/html;level=1"];
        assert_eq!(
            choose_media_type(&level, Some(b"text/html; level=1; q=0.3")),
            Some(0)
        );
    }

    #[test]
    fn encodings_rank_and_exclude() {
        let both = ["identity", "gzip"];
        let choose = |header: &str| choose_encoding(&both, Some(header.as_bytes()));
        assert_eq!(choose_encoding(&both, None), Some(0));
        assert_eq!(choose_encoding(&["gzip"], None), Some(0));
        assert_eq!(choose("gzip, deflate"), Some(1));
        assert_eq!(choose("deflate, GZIP;q=0.5"), Some(1));
        assert_eq!(choose("identity;q=0.5, gzip"), Some(1));
        assert_eq!(choose("deflate"), Some(0));
        assert_eq!(choose("identity;q=0, *"), Some(1));
        assert_eq!(choose("*;q=0"), None);
        assert_eq!(choose("identity;q=0"), None);
        assert_eq!(choose("gzip;q=0"), Some(0));
        assert_eq!(choose_encoding(&["gzip"], Some(b"deflate")), None);
    }

    #[test]
    fn charsets_are_negotiated_without_case() {
        assert_eq!(choose_charset(&["utf-8"], Some(b"UTF-8")), Some(0));
        assert_eq!(choose_charset(&["utf-8"], Some(b"latin-1")), None);
        assert_eq!(
            choose_charset(&["utf-8"], Some(b"latin-1, *;q=0.1")),
            Some(0)
        );
    }
}
