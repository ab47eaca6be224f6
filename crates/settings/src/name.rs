//! Names of keys: words joined by dots, and patterns in which a word such as `$name` is free.

use std::fmt;

/// A key's name as written, cut into words.
///
/// `\.` puts a dot into a word, as in Riak (`listener.http.my\.host`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    words: Vec<String>,
}

impl Name {
    /// Cuts text into words; `None` if a word is empty or has a character outside
    /// `A-Z a-z 0-9 _ -`.
    pub fn parse(text: &str) -> Option<Name> {
        let mut words = vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '.' => words.push(String::new()),
                '\\' if characters.next()? == '.' => words.last_mut()?.push('.'),
                c if c.is_ascii_alphanumeric() || c == '_' || c == '-' => {
                    words.last_mut()?.push(c);
                }
                _ => return None,
            }
        }
        words
            .iter()
            .all(|word| !word.is_empty())
            .then_some(Name { words })
    }

    /// The words in order.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The part from the word at `index` on.
    pub(crate) fn from(&self, index: usize) -> Name {
        Name {
            words: self.words.get(index..).unwrap_or_default().to_vec(),
        }
    }

    /// Compares with a pattern; `Some` holds the word that stands for `$...`, empty if there is none.
    pub fn matches(&self, pattern: &str) -> Option<String> {
        let mut free = String::new();
        let mut words = self.words.iter();
        for expected in pattern.split('.') {
            let word = words.next()?;
            if expected.starts_with('$') {
                free.clone_from(word);
            } else if word != expected {
                return None;
            }
        }
        words.next().is_none().then_some(free)
    }

    /// The pattern with this name's word in place of `$...`, for suggestions.
    pub(crate) fn fill(&self, pattern: &str) -> String {
        let mut filled = Vec::new();
        for (index, expected) in pattern.split('.').enumerate() {
            let word = self.words.get(index).map_or(expected, String::as_str);
            filled.push(if expected.starts_with('$') {
                word
            } else {
                expected
            });
        }
        filled.join(".")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            if index > 0 {
                formatter.write_str(".")?;
            }
            formatter.write_str(&word.replace('.', "\\."))?;
        }
        Ok(())
    }
}

/// A pattern with its free word given: `listener.http.$name` and `internal` make
/// `listener.http.internal`.
pub(crate) fn instance(pattern: &str, word: &str) -> String {
    let escaped = word.replace('.', "\\.");
    pattern
        .split('.')
        .map(|part| {
            if part.starts_with('$') {
                escaped.as_str()
            } else {
                part
            }
        })
        .collect::<Vec<_>>()
        .join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap_or_else(|| panic!("{text} is a name"))
    }

    #[test]
    fn an_escaped_dot_belongs_to_its_word() {
        let name = name("listener.http.my\\.host");
        assert_eq!(name.words(), ["listener", "http", "my.host"]);
        assert_eq!(name.to_string(), "listener.http.my\\.host");
        assert_eq!(
            name.matches("listener.http.$name"),
            Some("my.host".to_owned())
        );
    }

    #[test]
    fn a_pattern_matches_whole_names_only() {
        assert_eq!(name("ring_size").matches("ring_size"), Some(String::new()));
        assert_eq!(name("listener.http").matches("listener.http.$name"), None);
        assert_eq!(
            name("listener.http.a.b").matches("listener.http.$name"),
            None
        );
        assert_eq!(
            name("listener.https.a").matches("listener.http.$name"),
            None
        );
    }

    #[test]
    fn text_that_is_no_name_is_recognized() {
        for text in ["", ".", "a..b", "a b", "a=b", "a.\\", "a\\b", "\u{e9}"] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
