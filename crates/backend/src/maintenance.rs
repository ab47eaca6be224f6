//! Maintenance: the upkeep of a store, cut into steps that the node schedules.
//!
//! An engine lists its due tasks ([`Task`]) and does a bounded part of one on demand. The node's
//! arbiter decides when and how fast, over all vnodes at once. A step that is interrupted (by a
//! crash) must be repeatable.

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskKind {
    /// Copies the live entries of one finished segment elsewhere, so that it can be removed.
    Merge,
    /// Copies live bodies or whole entries out of a file, so that the file can be removed.
    Collect,
    /// Rewrites sorted tables into deeper ones.
    Compact,
    /// Moves memory to disk.
    Flush,
    /// Makes puts so far durable, so that their memory or log can be freed.
    Sync,
    /// Writes the hint file of a finished segment.
    Hint,
    /// Writes the files for a fast opening.
    Checkpoint,
    /// Frees the space of expired entries.
    Expire,
    /// Re-reads stored bytes and checks them.
    Scrub,
    /// Removes files without references.
    Reclaim,
    /// Rebuilds lost tables from the journal with their entries.
    Rebuild,
    /// Rebuilds lost index entries, and removes those without an object.
    Reindex,
    /// Moves buckets to another part of a store that consists of several.
    Move,
}

impl TaskKind {
    /// The word for operators.
    pub fn word(self) -> &'static str {
        match self {
            Self::Collect => "collection",
            Self::Compact => "compaction",
            other => other.name(),
        }
    }

    /// The name in logs, metrics and JSON, where collections count as merges, as in earlier versions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge | Self::Collect => "merge",
            Self::Compact => "compact",
            Self::Flush => "flush",
            Self::Sync => "sync",
            Self::Hint => "hint",
            Self::Checkpoint => "checkpoint",
            Self::Expire => "expire",
            Self::Scrub => "scrub",
            Self::Reclaim => "reclaim",
            Self::Rebuild => "rebuild",
            Self::Reindex => "reindex",
            Self::Move => "move",
        }
    }
}

/// The urgency of a task; the arbiter's first order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// When nothing else is due.
    Idle,
    /// In the normal course.
    Normal,
    /// Without it soon, puts will be slowed or space will run out.
    Pressing,
}

/// Pending upkeep of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its kind.
    pub kind: TaskKind,
    /// Its subject in the engine's own numbering: a segment, a level.
    pub subject: u64,
    /// Its urgency.
    pub urgency: Urgency,
    /// The rest of it, in bytes read plus bytes written.
    pub cost_bytes: u64,
}

impl Task {
    /// A task that is neither pressing nor left for idle times.
    pub fn normal(kind: TaskKind, subject: u64, cost_bytes: u64) -> Self {
        Self {
            kind,
            subject,
            urgency: Urgency::Normal,
            cost_bytes,
        }
    }
}

/// The most that one step may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBudget {
    /// Bytes read plus bytes written.
    pub bytes: u64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// Bytes read plus bytes written. With 0 the task is held back for a while, since it makes no progress.
    pub cost_bytes: u64,
    /// True when nothing is left of the task.
    pub is_done: bool,
}

impl StepOutcome {
    /// A step that found nothing left to do.
    pub fn nothing_left() -> Self {
        Self::done(0)
    }

    /// A step that finishes the task.
    pub fn done(cost_bytes: u64) -> Self {
        Self {
            cost_bytes,
            is_done: true,
        }
    }

    /// A step that leaves a part of the task.
    pub fn partial(cost_bytes: u64) -> Self {
        Self {
            cost_bytes,
            is_done: false,
        }
    }
}
