//! The state of an import through an index of records, kept to resume it after an interruption.

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::record_format::RecordChoices;

const FORMAT: u32 = 1;

/// Position of an import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State<S, C> {
    format: u32,
    /// Files at the beginning of the import.
    pub(crate) source: S,
    /// Options that change the result.
    pub(crate) choices: Choices<C>,
    pub(crate) stage: Stage,
    /// Lengths of the index files, in bytes.
    pub(crate) index_lens: Vec<u64>,
    /// Bucket types seen, as text, without the default type.
    pub(crate) bucket_types: Vec<String>,
    pub(crate) counts: Counts,
    /// Length of the file of findings, in bytes.
    pub(crate) findings_len: u64,
}

/// Options fixed for the duration of one import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices<C> {
    /// The target, as text; `None` for a dry run.
    pub target: Option<String>,
    /// Tombstones are not imported.
    pub leave_out_tombstones: bool,
    /// The options of the format.
    #[serde(flatten)]
    pub of_format: C,
}

/// Stage of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The survey for records is under way.
    Survey {
        /// Stores that are done.
        stores: usize,
    },
    /// Objects are being put.
    Transfer {
        /// Index files that are done.
        index_files: usize,
        /// Keys of the present index file that are done.
        keys: usize,
    },
    /// Nothing is left to do.
    Done,
}

impl<S: PartialEq, C: RecordChoices> State<S, C> {
    /// The beginning of an import.
    pub(crate) fn begin(source: S, choices: Choices<C>, index_files: usize) -> Self {
        Self {
            format: FORMAT,
            source,
            choices,
            stage: Stage::Survey { stores: 0 },
            index_lens: vec![0; index_files],
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

impl<C: RecordChoices> Choices<C> {
    /// The difference for which an import with these choices cannot be resumed with other choices,
    /// in words; `None` if it can be.
    pub(crate) fn difference(&self, other: &Self, is_same_source: bool) -> Option<String> {
        if self.target != other.target {
            let name = |target: &Option<String>| {
                let name = target.as_deref();
                name.unwrap_or("a dry run").to_owned()
            };
            Some(format!(
                "it goes to {}, not to {}",
                name(&self.target),
                name(&other.target)
            ))
        } else if self.leave_out_tombstones != other.leave_out_tombstones
            || !self.of_format.is_same(&other.of_format)
        {
            Some("it has other options".to_owned())
        } else if !is_same_source {
            Some("the source's files have changed since it began".to_owned())
        } else {
            None
        }
    }
}
