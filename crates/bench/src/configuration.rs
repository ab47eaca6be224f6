//! The merged configuration of a run: key-value pairs of one or more files and overrides.
//!
//! As in basho_bench, every pair is kept, read or not. Unlike basho_bench, a run reports the keys
//! that were not read. For this the configuration records each key that is read, since a list of
//! keys could fall behind the code.

pub(crate) mod scale;

#[cfg(test)]
mod configuration_test;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kvorum_erlang_terms::{Position, SyntaxError, Term, parse_term, parse_terms};

pub use scale::{scaled_count, scaled_keys};

/// A configuration that cannot be used; each variant states what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file holds something that is not an Erlang term.
    #[error("{}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The position and the error.
        source: SyntaxError,
    },
    /// An override on the command line is not of the form key=term.
    #[error("--set {text}: {reason}")]
    Override {
        /// The override as given.
        text: String,
        /// The error in it.
        reason: String,
    },
    /// The value of a key is invalid.
    #[error("{origin}: {key} cannot be {got}: {reason}")]
    Value {
        /// The origin of the value.
        origin: Origin,
        /// The key.
        key: String,
        /// The value.
        got: String,
        /// The error, and the forms that are allowed.
        reason: String,
    },
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A term of a file.
    File(PathBuf, Position),
    /// `--set` on the command line.
    CommandLine,
    /// The key is not set.
    Default,
}

impl Origin {
    fn is_same_file(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(path, _), Self::File(other, _)) => path == other,
            _ => false,
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, position) => write!(formatter, "{}:{position}", path.display()),
            Self::CommandLine => formatter.write_str("--set"),
            Self::Default => formatter.write_str("default"),
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    value: Term,
    origin: Origin,
}

/// A part of a configuration that a run does not honour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHonoured {
    /// Its origin.
    pub origin: Origin,
    /// The key, or the key and an option in its value.
    pub what: String,
    /// The reason.
    pub reason: String,
}

impl std::fmt::Display for NotHonoured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (origin, what, reason) = (&self.origin, &self.what, &self.reason);
        write!(formatter, "{origin}: {what} has no effect: {reason}")
    }
}

/// All settings of a run; later files win over earlier ones, `--set` over files.
#[derive(Debug, Default)]
pub struct Configuration {
    entries: BTreeMap<String, Entry>,
    read: RefCell<BTreeSet<&'static str>>,
    /// Parts without effect, found while files or keys were read.
    not_honoured: RefCell<Vec<NotHonoured>>,
}

impl Configuration {
    /// Reads and merges files, then applies overrides of the form `key=term`.
    pub fn load(files: &[PathBuf], overrides: &[String]) -> Result<Self, ConfigurationError> {
        let mut configuration = Self::default();
        for path in files {
            let bytes = std::fs::read(path).map_err(|source| ConfigurationError::Read {
                path: path.clone(),
                source,
            })?;
            configuration.add_file(path, &bytes)?;
        }
        for text in overrides {
            configuration.add_override(text)?;
        }
        Ok(configuration)
    }

    /// Merges the terms of one file.
    pub fn add_file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), ConfigurationError> {
        let terms = parse_terms(bytes).map_err(|source| ConfigurationError::Syntax {
            path: path.to_path_buf(),
            source,
        })?;
        for located in terms {
            self.add_term(
                located.term,
                &Origin::File(path.to_path_buf(), located.position),
            );
        }
        Ok(())
    }

    /// Applies one override of the form `key=term`.
    pub fn add_override(&mut self, text: &str) -> Result<(), ConfigurationError> {
        let refuse = |reason: String| ConfigurationError::Override {
            text: text.to_owned(),
            reason,
        };
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| refuse("expected key=term, for example concurrent=10".to_owned()))?;
        let value = parse_term(value).map_err(|error| refuse(error.to_string()))?;
        self.entries.insert(
            key.trim().to_owned(),
            Entry {
                value,
                origin: Origin::CommandLine,
            },
        );
        Ok(())
    }

    /// Keeps a pair, and every pair in a list. Anything else has no effect, as in basho_bench.
    fn add_term(&mut self, term: Term, origin: &Origin) {
        match term {
            Term::List(elements) => {
                for element in elements {
                    self.add_term(element, origin);
                }
            }
            Term::Tuple(elements) => match <[Term; 2]>::try_from(elements) {
                Ok([Term::Atom(key), value]) => self.add_pair(key, value, origin),
                Ok(pair) => self.add_other(&Term::Tuple(pair.to_vec()), origin),
                Err(elements) => self.add_other(&Term::Tuple(elements), origin),
            },
            other => self.add_other(&other, origin),
        }
    }

    /// Keeps a pair. The later pair counts, also one of a later file.
    fn add_pair(&mut self, key: String, value: Term, origin: &Origin) {
        let entry = Entry {
            value,
            origin: origin.clone(),
        };
        let earlier = self.entries.insert(key.clone(), entry);
        if let Some(earlier) = earlier.filter(|earlier| earlier.origin.is_same_file(origin)) {
            let reason = format!("{origin} sets it again");
            self.note(earlier.origin, key, reason);
        }
    }

    fn add_other(&mut self, term: &Term, origin: &Origin) {
        let reason = "a setting has the form {Key, Value} with an atom as key".to_owned();
        self.note(origin.clone(), masked(term).to_string(), reason);
    }

    fn note(&self, origin: Origin, what: String, reason: String) {
        let note = NotHonoured {
            origin,
            what,
            reason,
        };
        self.not_honoured.borrow_mut().push(note);
    }

    /// Notes that a part of the value of a key has no effect. `part` is empty for all of it.
    pub fn without_effect(&self, key: &str, part: &str, reason: &str) {
        let origin = self.origin(key);
        let gap = if part.is_empty() { "" } else { ": " };
        self.note(origin, format!("{key}{gap}{part}"), reason.to_owned());
    }

    /// The parts found to have no effect so far, without keys that were never read.
    pub fn not_honoured(&self) -> Vec<NotHonoured> {
        self.not_honoured.borrow().clone()
    }

    fn origin(&self, key: &str) -> Origin {
        self.entries
            .get(key)
            .map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// The value of a key, if it is set.
    pub fn get(&self, key: &'static str) -> Option<&Term> {
        self.read.borrow_mut().insert(key);
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Converts the value of a key; `None` if it is not set.
    ///
    /// The conversion returns the error and the forms that are allowed.
    pub fn convert<T>(
        &self,
        key: &'static str,
        conversion: impl FnOnce(&Term) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigurationError> {
        self.get(key)
            .map(|value| conversion(value).map_err(|reason| self.refusal(key, value, reason)))
            .transpose()
    }

    /// An error about the value of a key.
    pub fn refusal(&self, key: &str, got: &Term, reason: String) -> ConfigurationError {
        ConfigurationError::Value {
            origin: self.origin(key),
            key: key.to_owned(),
            got: masked(got).to_string(),
            reason,
        }
    }

    /// An integer within bounds, or the default.
    pub fn integer<T: TryFrom<i128>>(
        &self,
        key: &'static str,
        bounds: std::ops::RangeInclusive<i128>,
        default: T,
    ) -> Result<T, ConfigurationError> {
        let expected = format!(
            "expected an integer from {} to {}",
            bounds.start(),
            bounds.end()
        );
        let value = self.convert(key, |term| {
            term.as_integer()
                .filter(|value| bounds.contains(value))
                .and_then(|value| T::try_from(value).ok())
                .ok_or(expected)
        })?;
        Ok(value.unwrap_or(default))
    }

    /// Every key that is set, with its value as an Erlang term; passwords are masked.
    pub fn printed(&self) -> BTreeMap<String, String> {
        let printed =
            |(key, entry): (&String, &Entry)| (key.clone(), masked(&entry.value).to_string());
        self.entries.iter().map(printed).collect()
    }

    /// The keys that are set and not read so far, with their origins.
    pub fn unread(&self) -> Vec<(&str, &Origin)> {
        let read = self.read.borrow();
        self.entries
            .iter()
            .filter(|(key, _)| !read.contains(key.as_str()))
            .map(|(key, entry)| (key.as_str(), &entry.origin))
            .collect()
    }
}

/// The term with the password of every `{credentials, User, Password}` in it replaced.
fn masked(term: &Term) -> Term {
    let all = |terms: &[Term]| terms.iter().map(masked).collect();
    match term {
        Term::Tuple(parts) if term.is_tagged("credentials") => {
            let mask = |(index, part): (usize, &Term)| match index {
                0 | 1 => part.clone(),
                _ => Term::String("***".to_owned()),
            };
            Term::Tuple(parts.iter().enumerate().map(mask).collect())
        }
        Term::Tuple(parts) => Term::Tuple(all(parts)),
        Term::List(parts) => Term::List(all(parts)),
        other => other.clone(),
    }
}
