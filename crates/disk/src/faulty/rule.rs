//! Rules: the operations that fail, and their faults.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::{ErrorKind, Operation};

/// The effect in place of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation does nothing and fails: [`ErrorKind::Device`] for EIO, [`ErrorKind::NoSpace`]
    /// for ENOSPC. A failed sync leaves the file suspect.
    Error(ErrorKind),
    /// A write stores its first `bytes` bytes and fails with [`ErrorKind::Device`].
    TornWrite {
        /// The length that reaches the file.
        bytes: usize,
    },
    /// A read returns at most `bytes` bytes, as if the file ended there.
    ShortRead {
        /// The length that is returned.
        bytes: usize,
    },
    /// A read succeeds with this bit of its result inverted. Bits are counted from the lowest bit
    /// of the first byte, and from there again after the end.
    FlippedBit {
        /// The number of the bit.
        bit: usize,
    },
    /// A cached-only read fails with [`ErrorKind::WouldBlock`].
    NotCached,
    /// A sync, of a file or of a directory, does nothing and succeeds.
    Forgotten,
}

impl Fault {
    fn applies_to(self, call: &Call<'_>) -> bool {
        match self {
            Self::Error(_) => true,
            Self::TornWrite { .. } => call.operation == Operation::Write,
            Self::ShortRead { .. } | Self::FlippedBit { .. } => call.operation == Operation::Read,
            Self::NotCached => call.is_cached_read,
            Self::Forgotten => {
                matches!(call.operation, Operation::Sync | Operation::SyncDirectory)
            }
        }
    }
}

/// The matching operations that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occurrence {
    Every,
    Nth(u64),
    From(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPattern {
    Any,
    Is(PathBuf),
    EndsWith(String),
    Contains(String),
}

/// A fault and the operations that it hits: all to which it can apply, unless the rule is narrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    operation: Option<Operation>,
    path: PathPattern,
    /// The operation touches one of these bytes.
    bytes: Option<Range<u64>>,
    occurrence: Occurrence,
    fault: Fault,
}

impl Rule {
    /// A rule for every operation to which the fault can apply.
    pub fn new(fault: Fault) -> Self {
        Self {
            operation: None,
            path: PathPattern::Any,
            bytes: None,
            occurrence: Occurrence::Every,
            fault,
        }
    }

    /// Only operations of this kind.
    #[must_use]
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only this path. Either path of a rename or link matches.
    #[must_use]
    pub fn path(mut self, path: &Path) -> Self {
        self.path = PathPattern::Is(path.to_owned());
        self
    }

    /// Only paths that end with this text, such as `.hint`.
    #[must_use]
    pub fn path_ends_with(mut self, text: &str) -> Self {
        self.path = PathPattern::EndsWith(text.to_owned());
        self
    }

    /// Only paths that contain this text.
    #[must_use]
    pub fn path_contains(mut self, text: &str) -> Self {
        self.path = PathPattern::Contains(text.to_owned());
        self
    }

    /// Only reads and writes that touch one of these bytes of a file, such as a bad sector.
    #[must_use]
    pub fn over(mut self, bytes: Range<u64>) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Only the n-th matching operation, counted from 1 after the rule is added.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.occurrence = Occurrence::Nth(n);
        self
    }

    /// Only the n-th matching operation and all that follow.
    #[must_use]
    pub fn from_nth(mut self, n: u64) -> Self {
        self.occurrence = Occurrence::From(n);
        self
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        self.fault.applies_to(call)
            && self
                .operation
                .is_none_or(|operation| operation == call.operation)
            && self.bytes.as_ref().is_none_or(|it| call.touches(it))
            && (self.path.matches(call.path) || call.other.is_some_and(|it| self.path.matches(it)))
    }
}

impl PathPattern {
    fn matches(&self, path: &Path) -> bool {
        match self {
            Self::Any => true,
            Self::Is(expected) => path == expected,
            Self::EndsWith(text) => path.to_string_lossy().ends_with(text),
            Self::Contains(text) => path.to_string_lossy().contains(text),
        }
    }
}

/// An operation about to happen.
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    pub(super) path: &'a Path,
    /// The second path of a rename or link.
    pub(super) other: Option<&'a Path>,
    pub(super) offset: Option<u64>,
    pub(super) bytes: usize,
    pub(super) is_cached_read: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(operation: Operation, path: &'a Path) -> Self {
        Self {
            operation,
            path,
            other: None,
            offset: None,
            bytes: 0,
            is_cached_read: false,
        }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.offset.is_some_and(|from| {
            let to = from.saturating_add(self.bytes as u64);
            from < range.end && range.start < to
        })
    }

    pub(super) fn at(mut self, offset: u64, bytes: usize) -> Self {
        self.offset = Some(offset);
        self.bytes = bytes;
        self
    }
}

/// A rule and its counts.
pub(super) struct RuleCount {
    rule: Rule,
    matched: u64,
    pub(super) fired: u64,
}

impl RuleCount {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            matched: 0,
            fired: 0,
        }
    }

    /// Counts a call, and returns the fault if this rule makes it fail.
    pub(super) fn meet(&mut self, call: &Call<'_>) -> Option<Fault> {
        if !self.rule.matches(call) {
            return None;
        }
        self.matched += 1;
        let fires = match self.rule.occurrence {
            Occurrence::Every => true,
            Occurrence::Nth(n) => self.matched == n,
            Occurrence::From(n) => self.matched >= n,
        };
        self.fired += u64::from(fires);
        fires.then_some(self.rule.fault)
    }
}
