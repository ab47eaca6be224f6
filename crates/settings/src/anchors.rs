//! Relative paths of a configuration, and what they are relative to.

use std::path::Path;

use crate::kind::Kind;
use crate::problem::Place;

/// Directories that relative paths are relative to. A path is left as it is where there is none.
///
/// A program that is called from anywhere, as the links `riak` and `riak-admin` are, has to find the same
/// directories each time: so what a file says, and defaults beside it, go by where the file is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchors {
    /// The configuration file's: for its own paths, those of files beside it, and defaults, if there is one.
    pub file: Option<String>,
    /// The working directory: for `--set`, and for defaults where there is no file.
    pub working: Option<String>,
}

impl Anchors {
    /// The text of a path that was written at `place`, absolute if it can be. References in it have been
    /// followed: what they begin with may be relative too.
    pub(crate) fn anchored(&self, place: Place, text: &str) -> String {
        let directory = match place {
            Place::Set(_) => self.working.as_deref(),
            Place::Default | Place::Line(_) | Place::Terms(_) => {
                self.file.as_deref().or(self.working.as_deref())
            }
        };
        match directory {
            Some(directory) if !Path::new(text).is_absolute() => {
                let mut rest = text;
                while let Some(shorter) = rest.strip_prefix("./") {
                    rest = shorter.trim_start_matches('/');
                }
                match rest {
                    "" | "." => directory.to_owned(),
                    rest => format!("{}/{rest}", directory.trim_end_matches('/')),
                }
            }
            _ => text.to_owned(),
        }
    }

    pub(crate) fn of_kind(&self, kind: &Kind, place: Place, text: &str) -> String {
        match kind {
            Kind::Path(_) => self.anchored(place, text),
            _ => text.to_owned(),
        }
    }
}
