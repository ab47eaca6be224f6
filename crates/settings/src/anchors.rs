//! Relative paths of a configuration, and the directories that they are relative to.

use std::path::Path;

use crate::kind::Kind;
use crate::problem::Place;

/// Directories that relative paths are relative to. Without a directory a path stays as it is.
///
/// The program and its links `riak` and `riak-admin` have to find the same directories from
/// anywhere. So paths in a file, and defaults beside it, are relative to the file's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchors {
    /// The directory of the configuration file, if there is one: for its paths, those of files
    /// beside it, and defaults.
    pub file: Option<String>,
    /// The working directory: for `--set`, and for defaults without a file.
    pub working: Option<String>,
}

impl Anchors {
    /// The text of a path that was written at `place`, absolute if possible. References in it are
    /// already replaced, and a first one may be relative.
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
