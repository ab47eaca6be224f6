//! An opener's record of a store: the place that the store belongs to, and its former contents.
//!
//! Engines have no notion of partitions. The label is text that the node chooses, such as the index
//! of a partition; engines write it into their small files and compare it when they open.

use std::path::Path;

use crate::StoreId;

/// The longest label. Bytes.
pub const LABEL_BYTES_MAX: usize = 255;

/// The label of the store with hints for other nodes.
pub const HINTS_LABEL: &str = "hints";

/// See the module's description. The default is empty, so that nothing is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belonging {
    /// The store's label on its node, at most [`LABEL_BYTES_MAX`] bytes; empty if unknown.
    pub label: String,
    /// The identity of the contents that the node has recorded.
    pub identity: Option<StoreId>,
}

impl Belonging {
    /// The record for a tool, which finds a store only by its directory: the directories of
    /// partitions are named after their index.
    pub fn by_directory(directory: &Path) -> Self {
        let name = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.unwrap_or("").to_owned()
        };
        let own = name(directory);
        let is_index = !own.is_empty() && own.bytes().all(|it| it.is_ascii_digit());
        let label = match directory.parent().map(name) {
            _ if is_index => own,
            Some(parent) if parent == HINTS_LABEL => parent,
            _ => String::new(),
        };
        Self {
            label,
            identity: None,
        }
    }
}

/// A store in a directory, found without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundStore {
    /// No files of a store.
    Nothing,
    /// A store.
    Store {
        /// Its identity.
        identity: StoreId,
        /// Its identity before it was erased; 0 if it never was.
        erased: StoreId,
        /// The id of the value log that holds entries of it; 0 for none.
        log: u64,
        /// True if it has the expected label; a store of an earlier version has none.
        is_labelled: bool,
    },
    /// Files that cannot be opened as the expected store; the text names the files.
    Unusable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_the_store_of_a_partition_and_that_of_the_hints() {
        let label = |path: &str| Belonging::by_directory(Path::new(path)).label;
        assert_eq!(
            label("data/bitcask/1370157784997721485815954530671515330927436759040"),
            "1370157784997721485815954530671515330927436759040"
        );
        assert_eq!(label("data/hints/leveldb"), "hints");
        assert_eq!(label("data/leveldb"), "");
        assert_eq!(label(""), "");
    }
}
