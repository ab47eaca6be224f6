//! The position of an import, kept to resume it after an interruption.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_import::{Choices, Counts, RecordChoices};
use serde::{Deserialize, Serialize};

use crate::source::Source;

const FORMAT: u32 = 1;

/// Position of an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    format: u32,
    /// Files found at the beginning of the import.
    pub(crate) source: Source,
    /// Options that change the result.
    pub(crate) choices: Choices<OwnChoices>,
    pub(crate) stage: Stage,
    /// Lengths of the runs of each store's logs, in bytes.
    pub(crate) runs: BTreeMap<usize, Vec<u64>>,
    /// Lengths of the files of the index comparison, in bytes.
    pub(crate) check_lens: Vec<u64>,
    /// Bucket types seen, as text, without the default type.
    pub(crate) bucket_types: Vec<String>,
    pub(crate) counts: Counts,
    /// Length of the file of findings, in bytes.
    pub(crate) findings_len: u64,
}

/// Options of this format fixed for the duration of one import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnChoices {
    /// The beginning of the import, in microseconds since the Unix epoch; values that expired
    /// earlier are skipped.
    pub(crate) began_micros: u64,
    /// Time to live of values with a time of writing, in seconds.
    pub(crate) retention_secs: Option<u64>,
    pub(crate) ignore_manifests: bool,
}

impl RecordChoices for OwnChoices {
    fn is_same(&self, other: &Self) -> bool {
        (self.retention_secs, self.ignore_manifests)
            == (other.retention_secs, other.ignore_manifests)
    }
}

/// Stage of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Logs are being sorted.
    Survey {
        /// Stores that are done.
        stores: usize,
    },
    /// Objects are being put.
    Transfer {
        /// The last key that is done, in hexadecimal.
        after: Option<String>,
    },
    /// Nothing is left to do.
    Done,
}

impl State {
    /// The beginning of an import.
    pub(crate) fn begin(source: Source, choices: Choices<OwnChoices>, check_files: usize) -> Self {
        Self {
            format: FORMAT,
            source,
            choices,
            stage: Stage::Survey { stores: 0 },
            runs: BTreeMap::new(),
            check_lens: vec![0; check_files],
            bucket_types: Vec::new(),
            counts: Counts::default(),
            findings_len: 0,
        }
    }

    /// True if this version of the program wrote it.
    pub(crate) fn is_known(&self) -> bool {
        self.format == FORMAT
    }
}

/// A key as text, for the state.
pub(crate) fn key_to_text(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key in such a text.
pub(crate) fn key_from_text(text: &str) -> Option<Bytes> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}
