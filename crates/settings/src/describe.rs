//! Descriptions of one key, or of all of them, for operators.

use std::fmt::Write as _;

use crate::catalogue::{self, Known};
use crate::conf_file;
use crate::configuration::{Configuration, Effective, Origin};
use crate::former_names::present_name;
use crate::honoured::ENGINE;
use crate::key::Key;
use crate::name::Name;
use crate::problem::Problem;

impl Configuration {
    /// Every honoured key with its value, one a line, in the form of a configuration file; values that
    /// were set are marked with their places.
    pub fn effective(&self) -> String {
        list(self.effective.iter())
    }

    /// The description of one key, or the values of all keys with a common prefix
    /// (`bitcask.merge`).
    ///
    /// # Errors
    /// [`Problem::NothingToDescribe`].
    pub fn describe(&self, name: &str) -> Result<String, Problem> {
        let unknown = |nearest| Problem::NothingToDescribe {
            key: name.to_owned(),
            nearest,
        };
        // A pattern is found by its own name too.
        let parsed = Name::parse(&name.replace('$', "")).ok_or_else(|| unknown(Vec::new()))?;
        match catalogue::lookup(&parsed) {
            Some(Known::Honoured { pattern, .. }) => Ok(self.about(pattern)),
            Some(Known::Mapped { to }) => {
                let about = self.about(to);
                let what = match present_name(&parsed) {
                    Some(_) => "a former name",
                    None => "a key of Riak's",
                };
                Ok(format!("`{name}` is {what}, taken as `{to}`.\n\n{about}"))
            }
            Some(Known::OfBackend) => self.of_backend(name, &parsed),
            Some(Known::Ignored { reason }) => Ok(format!(
                "`{name}` is a key of Riak's, ignored because {reason}.\n"
            )),
            Some(Known::Guarded { reason }) => Ok(format!(
                "`{name}` is a key of Riak's, refused unless its value is empty (`[]`): {reason}.\n"
            )),
            None => {
                let prefix = format!("{name}.");
                let text = list(
                    self.effective
                        .iter()
                        .filter(|e| e.name.starts_with(&prefix)),
                );
                if text.is_empty() {
                    Err(unknown(catalogue::nearest(&parsed)))
                } else {
                    Ok(text)
                }
            }
        }
    }

    /// A key of one of several backends is described as the key of its engine.
    fn of_backend(&self, name: &str, parsed: &Name) -> Result<String, Problem> {
        let rest = catalogue::of_backend(parsed).map(|(_, rest)| rest.to_string());
        match rest.as_deref() {
            None | Some(catalogue::BUCKET_PREFIX) => Ok(format!(
                "`{name}` takes prefixes of bucket names, separated by commas: with `storage_backend = \
                 prefix_multi` these buckets are in this backend.\n"
            )),
            Some(rest) => {
                let about = match rest == ENGINE.name {
                    true => declared(&ENGINE),
                    false => self.describe(rest)?,
                };
                Ok(format!(
                    "`{name}` is for one of several backends.\n\n{about}"
                ))
            }
        }
    }

    fn about(&self, pattern: &str) -> String {
        let mut text = String::new();
        let values = self
            .effective
            .iter()
            .filter(|effective| effective.key.name == pattern);
        text.push_str(&list(values));
        if let Some(key) = catalogue::declaration(pattern) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{}", declared(key));
        }
        text
    }
}

fn declared(key: &Key) -> String {
    let mut text = format!("{}\n\n", key.help);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "takes     {}", key.kind.expected());
    let _ = writeln!(text, "default   {}", key.default.unwrap_or("not set"));
    let _ = writeln!(text, "change    {}", key.change.sentence());
    let _ = writeln!(text, "since     {}", key.since);
    let _ = writeln!(text, "in Riak   {}", key.ancestry.sentence());
    text
}

fn list<'a>(entries: impl Iterator<Item = &'a Effective>) -> String {
    let mut text = String::new();
    for entry in entries {
        let value = match &entry.value {
            Some(value) => format!("{} = {}", entry.name, conf_file::written(value)),
            None => format!("## {} is not set", entry.name),
        };
        let _ = match &entry.origin {
            Origin::Default => writeln!(text, "{value}"),
            Origin::Set {
                place,
                through: None,
            } => writeln!(text, "{value}  # {}", place.in_short()),
            Origin::Set {
                place,
                through: Some(name),
            } => {
                writeln!(text, "{value}  # {}, as {name}", place.in_short())
            }
        };
    }
    text
}
