//! The form of riak.conf: `a.b.c = value` lines, comments after `#`, values perhaps in quotes.
//!
//! As in Riak, a `#` begins a comment anywhere, except between single quotes. Unlike in Riak, an
//! unreadable line does not end the reading: all such lines are reported.

use std::borrow::Cow;

use crate::catalogue::{self, Known};
use crate::name::Name;
use crate::problem::{Place, Problem};
use crate::secret;

/// One setting as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) place: Place,
    pub(crate) name: Name,
    pub(crate) value: String,
    /// Its original name and value, if they had another form.
    pub(crate) written: Option<Written>,
}

/// Name and value in a file of another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Setting {
    /// The name for messages.
    pub(crate) fn written_name(&self) -> String {
        match &self.written {
            Some(written) => written.name.clone(),
            None => self.name.to_string(),
        }
    }
}

const FORM: &str = "`key = value`";

/// Reads a file's text.
pub(crate) fn parse(text: &str) -> (Vec<Setting>, Vec<Problem>) {
    let mut settings = Vec::new();
    let mut problems = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line, Place::Line(index + 1)) {
            Ok(setting) => settings.push(setting),
            Err(problem) => problems.push(problem),
        }
    }
    (settings, problems)
}

/// Reads the `key=value` of one `--set`, in which a `#` is an ordinary character.
pub(crate) fn parse_override(text: &str, place: Place) -> Result<Setting, Problem> {
    let unreadable = |expected| Problem::Unreadable {
        place,
        text: secret::line_without_it(text),
        expected,
    };
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| unreadable("`key=value`"))?;
    let name = Name::parse(key.trim()).ok_or_else(|| unreadable("a key made of words and dots"))?;
    let value = value.trim();
    let value = quoted(value, str::is_empty).unwrap_or(value);
    setting(place, name, value).ok_or_else(|| unreadable("a value after the `=`"))
}

fn parse_line(line: &str, place: Place) -> Result<Setting, Problem> {
    let unreadable = |expected| Problem::Unreadable {
        place,
        text: secret::line_without_it(line),
        expected,
    };
    let is_include = line
        .strip_prefix("include")
        .is_some_and(|rest| rest.starts_with([' ', '\t']) && !rest.trim_start().starts_with('='));
    if is_include {
        return Err(unreadable("no `include`: a configuration is one file"));
    }
    let (key, rest) = line.split_once('=').ok_or_else(|| unreadable(FORM))?;
    let name = Name::parse(key.trim()).ok_or_else(|| unreadable(FORM))?;
    let rest = rest.trim_start();
    let value = quoted(rest, |tail| tail.is_empty() || tail.starts_with('#'))
        .unwrap_or_else(|| rest.split('#').next().unwrap_or_default().trim_end());
    setting(place, name, value).ok_or_else(|| unreadable("a value after the `=`"))
}

/// `None` if a required value is missing.
fn setting(place: Place, name: Name, value: &str) -> Option<Setting> {
    let is_whole = !value.is_empty() || takes_nothing(&name);
    is_whole.then(|| Setting {
        place,
        name,
        value: value.to_owned(),
        written: None,
    })
}

/// True if an empty value of this key has a meaning.
fn takes_nothing(name: &Name) -> bool {
    matches!(catalogue::lookup(name), Some(Known::Guarded { .. }))
}

/// The value in the form that reads back as the same value, in quotes if necessary.
pub(crate) fn written(value: &str) -> Cow<'_, str> {
    let needs_quotes = value.contains('#') || value.trim() != value;
    if needs_quotes {
        Cow::Owned(format!("'{value}'"))
    } else {
        Cow::Borrowed(value)
    }
}

/// The text between single quotes, if the text begins with one and may end after the other.
fn quoted(text: &str, may_end: impl Fn(&str) -> bool) -> Option<&str> {
    let (inside, tail) = text.strip_prefix('\'')?.split_once('\'')?;
    may_end(tail.trim_start()).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(usize, String, String)> {
        let (settings, problems) = parse(text);
        assert_eq!(problems, []);
        settings
            .into_iter()
            .map(|setting| {
                let Place::Line(line) = setting.place else {
                    panic!("a line")
                };
                (line, setting.name.to_string(), setting.value)
            })
            .collect()
    }

    fn pair(line: usize, key: &str, value: &str) -> (usize, String, String) {
        (line, key.to_owned(), value.to_owned())
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_and_lines_counted() {
        let text = "\u{feff}## title\r\n\r\n \t\nring_size = 16\r\n# ring_size = 8\n  a.b=c  \n";
        assert_eq!(
            values(text),
            [pair(4, "ring_size", "16"), pair(6, "a.b", "c")]
        );
    }

    #[test]
    fn a_comment_may_follow_a_value() {
        assert_eq!(values("a = b # c"), [pair(1, "a", "b")]);
        assert_eq!(values("a = b#c"), [pair(1, "a", "b")]);
    }

    #[test]
    fn quotes_keep_the_comment_sign() {
        assert_eq!(values("a = 'b # c' # d"), [pair(1, "a", "b # c")]);
        assert_eq!(values("a = 'b' c"), [pair(1, "a", "'b' c")]);
        assert_eq!(values("a = 'b"), [pair(1, "a", "'b")]);
    }

    #[test]
    fn a_value_may_have_an_equals_sign_and_spaces() {
        assert_eq!(values("a = -d64 -XX:x=y"), [pair(1, "a", "-d64 -XX:x=y")]);
    }

    #[test]
    fn every_line_that_cannot_be_read_is_reported() {
        let (settings, problems) =
            parse("ring_size 16\ninclude conf.d/*.conf\n= 3\na =\na = #b\nok = 1");
        assert_eq!(settings.len(), 1);
        let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "cannot read `ring_size 16` on line 1: expected `key = value`",
                "cannot read `include conf.d/*.conf` on line 2: expected no `include`: a \
                 configuration is one file",
                "cannot read `= 3` on line 3: expected `key = value`",
                "cannot read `a =` on line 4: expected a value after the `=`",
                "cannot read `a = #b` on line 5: expected a value after the `=`",
            ]
        );
    }

    #[test]
    fn an_override_keeps_the_comment_sign() {
        let setting = parse_override("a.b = c#d", Place::Set(1)).map(|setting| setting.value);
        assert_eq!(setting.as_deref(), Ok("c#d"));
        assert!(parse_override("a.b", Place::Set(1)).is_err());
        assert!(parse_override("a.b=", Place::Set(1)).is_err());
    }
}
