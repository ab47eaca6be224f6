//! Maintenance: the upkeep of a store, cut into steps that somebody else schedules.
//!
//! An engine says what it owes ([`Task`]) and does a bounded part of it when told to. It decides
//! neither when nor how fast: the node's arbiter does, over all vnodes at once. A step that is
//! dropped half way (a crash) must be repeatable.

/// What a task does; the word that operators see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskKind {
    /// Rewrites live entries so that dead bytes can be freed.
    Merge,
    /// Rewrites sorted tables into deeper ones.
    Compact,
    /// Moves memory to disk.
    Flush,
    /// Makes what was put so far durable, so that what held it can be let go.
    Sync,
    /// Writes the hint file of a finished segment.
    Hint,
    /// Writes what makes the next opening fast.
    Checkpoint,
    /// Frees what has expired.
    Expire,
    /// Re-reads stored bytes and checks them.
    Scrub,
    /// Removes files that nothing refers to any more.
    Reclaim,
    /// Makes lost tables again from the journal that has what they had.
    Rebuild,
    /// Makes index entries again that were lost, and removes those that no object has.
    Reindex,
    /// Moves buckets to another of the stores that make up a store.
    Move,
}

impl TaskKind {
    /// The word for logs, metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
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

/// How soon a task is wanted; the arbiter's first order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Whenever there is nothing better to do.
    Idle,
    /// In the normal course.
    Normal,
    /// Puts will be slowed or space run out if it does not happen soon.
    Pressing,
}

/// Upkeep that a store owes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it does.
    pub kind: TaskKind,
    /// Which one, in the engine's own numbering: a segment, a level.
    pub subject: u64,
    /// How soon.
    pub urgency: Urgency,
    /// What is left of it, in bytes read plus bytes written.
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

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// Bytes read plus bytes written. With 0 the task is left alone for a while, as one that got nowhere.
    pub cost_bytes: u64,
    /// True when nothing is left of the task.
    pub is_done: bool,
}

impl StepOutcome {
    /// A step that found nothing left to do.
    pub fn nothing_left() -> Self {
        Self::done(0)
    }

    /// A step after which nothing is left of the task.
    pub fn done(cost_bytes: u64) -> Self {
        Self {
            cost_bytes,
            is_done: true,
        }
    }

    /// A step that leaves something of the task to the next one.
    pub fn partial(cost_bytes: u64) -> Self {
        Self {
            cost_bytes,
            is_done: false,
        }
    }
}
