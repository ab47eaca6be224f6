//! The merged configuration of a run: key-value pairs of one or more files and overrides.
//!
//! Like basho_bench, every pair is kept whatever its key; unlike it, the run reports which keys
//! nobody read. For this the configuration remembers what it was asked for, which needs no list
//! of keys that could fall behind the code that reads them.

mod scale;
mod settings;

#[cfg(test)]
mod configuration_test;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::eterm::{Position, SyntaxError, Term, parse_term, parse_terms};

pub use scale::{scaled_count, scaled_keys};
pub use settings::{Mode, Operation, Settings};

/// A configuration that cannot be used; each variant tells what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file holds something that is no Erlang term.
    #[error("{}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: SyntaxError,
    },
    /// An override on the command line is not of the form key=term.
    #[error("--set {text}: {reason}")]
    Override {
        /// The override as given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key has a value that it cannot have.
    #[error("{origin}: {key} cannot be {got}: {reason}")]
    Value {
        /// Where the value was set.
        origin: Origin,
        /// The key.
        key: String,
        /// The value.
        got: String,
        /// What is wrong, and which forms are allowed.
        reason: String,
    },
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A term of a file.
    File(PathBuf, Position),
    /// `--set` on the command line.
    CommandLine,
    /// Nobody set it.
    Default,
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

/// All settings of a run; later files win over earlier ones, `--set` over files.
#[derive(Debug, Default)]
pub struct Configuration {
    entries: BTreeMap<String, Entry>,
    read: RefCell<BTreeSet<&'static str>>,
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

    /// Keeps a pair; lists are taken apart, everything else is ignored as basho_bench does.
    fn add_term(&mut self, term: Term, origin: &Origin) {
        match term {
            Term::List(elements) => {
                for element in elements {
                    self.add_term(element, origin);
                }
            }
            Term::Tuple(elements) => {
                if let Ok([Term::Atom(key), value]) = <[Term; 2]>::try_from(elements) {
                    self.entries.insert(
                        key,
                        Entry {
                            value,
                            origin: origin.clone(),
                        },
                    );
                }
            }
            _ => {}
        }
    }

    /// The value of a key, if it is set.
    pub fn get(&self, key: &'static str) -> Option<&Term> {
        self.read.borrow_mut().insert(key);
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Converts the value of a key; `None` if it is not set.
    ///
    /// The conversion returns what is wrong and which forms are allowed.
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
        let origin = self
            .entries
            .get(key)
            .map_or(Origin::Default, |entry| entry.origin.clone());
        ConfigurationError::Value {
            origin,
            key: key.to_owned(),
            got: got.to_string(),
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

    /// Every key that is set, with its value as an Erlang term.
    pub fn printed(&self) -> BTreeMap<String, String> {
        let printed = |(key, entry): (&String, &Entry)| (key.clone(), entry.value.to_string());
        self.entries.iter().map(printed).collect()
    }

    /// The keys that are set and that nobody has read so far, with where they stand.
    pub fn unread(&self) -> Vec<(&str, &Origin)> {
        let read = self.read.borrow();
        self.entries
            .iter()
            .filter(|(key, _)| !read.contains(key.as_str()))
            .map(|(key, entry)| (key.as_str(), &entry.origin))
            .collect()
    }
}
