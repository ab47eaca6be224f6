//! Types of values: the reading of each, the error for bad ones, and the target field.
//!
//! The type and the setter are one value. Rejected: a table of names and types with a second
//! table, or a `match`, that copies values into the struct; the two drift apart, and a key that is
//! declared but never copied looks valid.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::{RangeFrom, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use crate::byte_size;
use crate::duration::{self, Unit};
use crate::settings::{DeleteMode, LogFormat, QuorumValue, Settings};

/// The type of a key's value, with the setter of the field it fills.
#[derive(Clone)]
pub enum Kind {
    /// `on`/`off`, `true`/`false`, `enabled`/`disabled`.
    Flag(fn(&mut Settings, bool)),
    /// A whole number within bounds.
    Integer(RangeInclusive<u64>, fn(&mut Settings, u64)),
    /// The word for no limit (the setter gets `None`), or a whole number within bounds.
    IntegerOr(
        &'static str,
        RangeInclusive<u64>,
        fn(&mut Settings, Option<u64>),
    ),
    /// A power of two within bounds.
    PowerOfTwo(RangeInclusive<u64>, fn(&mut Settings, u64)),
    /// An hour of the day, 0 to 23.
    Hour(fn(&mut Settings, u8)),
    /// 0 to 100, with or without `%`; a fraction is rounded.
    Percent(fn(&mut Settings, u8)),
    /// A duration of at least a minimum; a bare number is in the unit.
    Duration(Unit, RangeFrom<Duration>, fn(&mut Settings, Duration)),
    /// The word that stands for none, or a duration above zero; a bare number is in the unit.
    DurationOr(&'static str, Unit, fn(&mut Settings, Option<Duration>)),
    /// A size in bytes, of at least a minimum.
    Bytes(RangeFrom<u64>, fn(&mut Settings, u64)),
    /// The word that stands for none, or a size in bytes, of at least a minimum.
    BytesOr(&'static str, RangeFrom<u64>, fn(&mut Settings, Option<u64>)),
    /// `ip:port`, or `off`, under the free word of the key's name.
    Address(fn(&mut Settings, &str, Option<SocketAddr>)),
    /// One of some words.
    Choice(&'static [Choice]),
    /// A path; a relative one is relative to the configuration file, or with `--set` to the working
    /// directory.
    Path(fn(&mut Settings, PathBuf)),
    /// `name@host`.
    NodeName(fn(&mut Settings, String)),
    /// A word of at most 64 letters, digits, `-`, `_` and `.`.
    Word(fn(&mut Settings, String)),
    /// `one`, `quorum`, `all` or a count of replicas, of at least a minimum, which may be 0.
    Quorum(RangeFrom<u64>, fn(&mut Settings, QuorumValue)),
    /// `keep`, `immediate` or a duration (bare numbers are milliseconds).
    DeleteMode(fn(&mut Settings, DeleteMode)),
    /// `logfmt` or `json`; a template of Erlang's logger is ignored.
    LogFormat(fn(&mut Settings, LogFormat)),
}

/// One word of [`Kind::Choice`], and its effect.
#[derive(Clone, Copy)]
pub struct Choice(pub &'static str, pub fn(&mut Settings));

impl Choice {
    /// The word.
    pub fn word(self) -> &'static str {
        self.0
    }
}

/// A value that is not of the key's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal;

/// The reason why a template of Erlang's logger has no effect.
const TEMPLATE: &str =
    "it is a template of Erlang's logger; lines have the form `logfmt` or `json`";

impl Kind {
    /// The reason why a known value of Riak's has no effect, and the default applies; `None` for
    /// other values.
    pub(crate) fn passes_over(&self, text: &str) -> Option<&'static str> {
        match self {
            Kind::LogFormat(_) => text.trim_start().starts_with('[').then_some(TEMPLATE),
            _ => None,
        }
    }

    /// Reads `text` and puts the value into `settings`; `word` is the free word of the key's name.
    ///
    /// # Errors
    /// The value is not of this type, or is known but not built in.
    pub fn apply(&self, settings: &mut Settings, word: &str, text: &str) -> Result<(), Refusal> {
        match self {
            Kind::Choice(choices) => return choose(settings, choices, text),
            _ => self.read(settings, word, text),
        }
        .ok_or(Refusal)
    }

    fn read(&self, settings: &mut Settings, free: &str, text: &str) -> Option<()> {
        match self {
            Kind::Flag(set) => set(settings, flag(text)?),
            Kind::Integer(bounds, set) => set(settings, integer(text, bounds)?),
            Kind::IntegerOr(word, bounds, set) => {
                set(settings, or_word(text, word, |text| integer(text, bounds))?);
            }
            Kind::PowerOfTwo(bounds, set) => {
                let value = integer(text, bounds).filter(|value| value.is_power_of_two())?;
                set(settings, value);
            }
            Kind::Hour(set) => set(settings, text.parse().ok().filter(|hour| *hour < 24)?),
            Kind::Percent(set) => set(settings, percent(text)?),
            Kind::Duration(unit, bounds, set) => {
                let value = duration::parse(text, *unit).filter(|value| bounds.contains(value))?;
                set(settings, value);
            }
            Kind::DurationOr(word, unit, set) => {
                let read =
                    |text: &str| duration::parse(text, *unit).filter(|value| !value.is_zero());
                set(settings, or_word(text, word, read)?);
            }
            Kind::Bytes(bounds, set) => set(settings, size(text, bounds)?),
            Kind::BytesOr(word, bounds, set) => {
                set(settings, or_word(text, word, |text| size(text, bounds))?);
            }
            Kind::Address(set) => set(settings, free, or_word(text, "off", address)?),
            Kind::Choice(_) => return None,
            Kind::Path(set) => set(settings, PathBuf::from(text)),
            Kind::NodeName(set) => set(settings, node_name(text)?),
            Kind::Word(set) => set(settings, word_of(text)?),
            Kind::Quorum(counts, set) => set(settings, quorum(text, counts)?),
            Kind::DeleteMode(set) => set(settings, delete_mode(text)?),
            Kind::LogFormat(set) => match text {
                "logfmt" => set(settings, LogFormat::Logfmt),
                "json" => set(settings, LogFormat::Json),
                _ => return None,
            },
        }
        Some(())
    }

    /// The values of this type, as a phrase that fits after "expected".
    pub fn expected(&self) -> String {
        match self {
            Kind::Flag(_) => "on or off (also true, false, enabled, disabled)".to_owned(),
            Kind::Integer(bounds, _) => range("a whole number", bounds),
            Kind::IntegerOr(word, bounds, _) => {
                format!("`{word}` or {}", range("a whole number", bounds))
            }
            Kind::PowerOfTwo(bounds, _) => range("a power of two", bounds),
            Kind::Hour(_) => "a whole number from 0 to 23".to_owned(),
            Kind::Percent(_) => "a percentage from 0 to 100".to_owned(),
            Kind::Duration(unit, bounds, _) if bounds.start.is_zero() => {
                format!(
                    "a duration such as 10s, 1h or 500ms (a bare number is {})",
                    plural(*unit)
                )
            }
            Kind::Duration(unit, bounds, _) => format!(
                "a duration of at least {}, such as 10s, 1h or 500ms (a bare number is {})",
                duration::render(bounds.start),
                plural(*unit)
            ),
            Kind::DurationOr(word, unit, _) => format!(
                "`{word}` or a duration above zero such as 10s, 1h or 500ms (a bare number is {})",
                plural(*unit)
            ),
            Kind::Bytes(bounds, _) => sizes(bounds),
            Kind::BytesOr(word, bounds, _) => format!("`{word}` or {}", sizes(bounds)),
            Kind::Address(_) => "ip:port such as 127.0.0.1:8087 or [::1]:8087, or `off`".to_owned(),
            Kind::Choice(choices) => format!("one of {}", words(choices)),
            Kind::Path(_) => "a path".to_owned(),
            Kind::NodeName(_) => "name@host without spaces, such as kvorum@127.0.0.1".to_owned(),
            Kind::Word(_) => {
                "at most 64 letters, digits, `-`, `_` and `.`, such as orders".to_owned()
            }
            Kind::Quorum(counts, _) => {
                let counts = range("a count", &(counts.start..=REPLICAS_MAX));
                format!("`one`, `quorum`, `all` or {counts}")
            }
            Kind::DeleteMode(_) => {
                "`keep`, `immediate` or a duration such as 3s (a bare number is milliseconds)"
                    .to_owned()
            }
            Kind::LogFormat(_) => "one of `logfmt`, `json`".to_owned(),
        }
    }

    /// The unit of a bare number, if the type has one.
    pub fn unit(&self) -> Option<&'static str> {
        match self {
            Kind::Duration(unit, ..) | Kind::DurationOr(_, unit, _) => Some(unit.symbol()),
            Kind::DeleteMode(_) => Some(Unit::Milliseconds.symbol()),
            Kind::Bytes(..) | Kind::BytesOr(..) => Some("bytes"),
            Kind::Percent(_) => Some("%"),
            _ => None,
        }
    }

    /// The type's name in one or two words.
    pub fn label(&self) -> &'static str {
        match self {
            Kind::Flag(_) => "flag",
            Kind::Integer(..) | Kind::IntegerOr(..) | Kind::Hour(_) => "integer",
            Kind::PowerOfTwo(..) => "power of two",
            Kind::Percent(_) => "percent",
            Kind::Duration(..) | Kind::DurationOr(..) | Kind::DeleteMode(_) => "duration",
            Kind::Bytes(..) | Kind::BytesOr(..) => "byte size",
            Kind::Address(_) => "address",
            Kind::Choice(_) | Kind::LogFormat(_) => "choice",
            Kind::Path(_) => "path",
            Kind::NodeName(_) | Kind::Word(_) => "text",
            Kind::Quorum(..) => "quorum",
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

/// Replica counts beyond this are typing errors.
pub(crate) const REPLICAS_MAX: u64 = 1024;

fn choose(settings: &mut Settings, choices: &[Choice], text: &str) -> Result<(), Refusal> {
    let choice = choices.iter().find(|choice| choice.word() == text);
    let Choice(_, set) = choice.ok_or(Refusal)?;
    set(settings);
    Ok(())
}

/// `Some(None)` for the word, `Some(Some(value))` for a value, `None` for neither.
#[expect(
    clippy::option_option,
    reason = "the outer option is failure, the inner one the value"
)]
fn or_word<T>(text: &str, word: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text == word {
        Some(None)
    } else {
        read(text).map(Some)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "enabled" => Some(true),
        "off" | "false" | "disabled" => Some(false),
        _ => None,
    }
}

fn integer(text: &str, bounds: &RangeInclusive<u64>) -> Option<u64> {
    text.parse().ok().filter(|value| bounds.contains(value))
}

fn size(text: &str, bounds: &RangeFrom<u64>) -> Option<u64> {
    byte_size::parse(text).filter(|value| bounds.contains(value))
}

fn percent(text: &str) -> Option<u8> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse().ok().filter(|value| *value <= 100);
    };
    let is_up = matches!(fraction.as_bytes(), [b'5'..=b'9', ..]);
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|it| it.is_ascii_digit());
    let rounded = whole.parse::<u8>().ok()?.checked_add(u8::from(is_up))?;
    (is_fraction && rounded <= 100).then_some(rounded)
}

fn address(text: &str) -> Option<SocketAddr> {
    // Riak's form for IPv6 has no brackets: the port follows the last colon.
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Some(SocketAddr::new(
        host.parse::<IpAddr>().ok()?,
        port.parse().ok()?,
    ))
}

/// `None` if it is invalid as a name in hellos and files.
fn word_of(text: &str) -> Option<String> {
    let is_clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=64).contains(&text.len()) && text.chars().all(is_clean);
    fits.then(|| text.to_owned())
}

fn node_name(text: &str) -> Option<String> {
    let (name, host) = text.split_once('@')?;
    let clean =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == '@');
    (clean(name) && clean(host)).then(|| text.to_owned())
}

fn quorum(text: &str, counts: &RangeFrom<u64>) -> Option<QuorumValue> {
    match text {
        "one" => Some(QuorumValue::One),
        "quorum" => Some(QuorumValue::Quorum),
        "all" => Some(QuorumValue::All),
        _ => u32::try_from(integer(text, &(counts.start..=REPLICAS_MAX))?)
            .ok()
            .map(QuorumValue::Count),
    }
}

fn delete_mode(text: &str) -> Option<DeleteMode> {
    match text {
        "keep" => Some(DeleteMode::Keep),
        "immediate" => Some(DeleteMode::Immediate),
        _ => duration::parse(text, Unit::Milliseconds).map(DeleteMode::After),
    }
}

fn range(what: &str, bounds: &RangeInclusive<u64>) -> String {
    let (least, most) = (bounds.start(), bounds.end());
    if *most == u64::MAX {
        format!("{what}, at least {least}")
    } else {
        format!("{what} from {least} to {most}")
    }
}

fn sizes(bounds: &RangeFrom<u64>) -> String {
    let what = "a size such as 4096, 5MB or 1GB";
    match bounds.start {
        0 => what.to_owned(),
        least => format!("{what}, at least {}", byte_size::render(least)),
    }
}

fn plural(unit: Unit) -> &'static str {
    match unit {
        Unit::Milliseconds => "milliseconds",
        Unit::Seconds => "seconds",
        Unit::Minutes => "minutes",
    }
}

fn words(choices: &[Choice]) -> String {
    choices
        .iter()
        .filter(|choice| matches!(choice, Choice(..)))
        .map(|choice| choice.word())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_brackets() {
        for (text, expected) in [
            ("127.0.0.1:8087", "127.0.0.1:8087"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("::1:8087", "[::1]:8087"),
            ("[::1]:8087", "[::1]:8087"),
        ] {
            assert_eq!(
                address(text).map(|a| a.to_string()).as_deref(),
                Some(expected)
            );
        }
        for text in [
            "localhost:8087",
            "127.0.0.1",
            "127.0.0.1:65536",
            ":8087",
            "[::1:8087",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn flags_have_three_spellings() {
        for (text, value) in [("on", true), ("true", true), ("enabled", true)] {
            assert_eq!(flag(text), Some(value));
        }
        for (text, value) in [("off", false), ("false", false), ("disabled", false)] {
            assert_eq!(flag(text), Some(value));
        }
        assert_eq!(flag("yes"), None);
    }

    #[test]
    fn percentages_end_at_a_hundred() {
        assert_eq!(percent("60"), Some(60));
        assert_eq!(percent("60%"), Some(60));
        assert_eq!(percent("101"), None);
        assert_eq!(percent("25.0"), Some(25));
        assert_eq!(percent("62.5%"), Some(63));
        assert_eq!(percent("100.5"), None);
        assert_eq!(percent("25."), None);
        assert_eq!(percent("25.x"), None);
        assert_eq!(percent("-1"), None);
    }

    #[test]
    fn quorums_take_zero_only_where_it_makes_sense() {
        assert_eq!(quorum("0", &(0..)), Some(QuorumValue::Count(0)));
        assert_eq!(quorum("0", &(1..)), None);
        assert_eq!(quorum("quorum", &(1..)), Some(QuorumValue::Quorum));
        assert_eq!(quorum("most", &(1..)), None);
    }

    #[test]
    fn node_names_have_two_parts() {
        assert_eq!(
            node_name("riak@127.0.0.1").as_deref(),
            Some("riak@127.0.0.1")
        );
        for text in ["riak", "@host", "riak@", "ri ak@host", "a@b@c"] {
            assert_eq!(node_name(text), None, "{text}");
        }
    }
}
