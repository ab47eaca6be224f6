//! The order of work: urgency first, then its purpose.

use kvorum_backend::{Task, TaskKind, Urgency};

/// Scarce resources: upkeep that frees one comes before everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scarcity {
    pub(crate) memory: bool,
    pub(crate) open_files: bool,
    pub(crate) disk: bool,
}

/// A place in the order; lower is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u8);

const KIND_RANKS: u8 = 5;

impl Rank {
    /// The number of ranks.
    pub(crate) const COUNT: usize = 3 * KIND_RANKS as usize;

    pub(crate) fn of(task: &Task, scarcity: Scarcity) -> Self {
        let urgency = match urgency_of(task, scarcity) {
            Urgency::Pressing => 0,
            Urgency::Normal => 1,
            Urgency::Idle => 2,
        };
        let kind = match task.kind {
            TaskKind::Flush | TaskKind::Sync | TaskKind::Reclaim => 0,
            // Flushes wait for level 0.
            TaskKind::Compact if is_level_0(task) => 0,
            TaskKind::Merge | TaskKind::Collect | TaskKind::Compact | TaskKind::Rebuild => 1,
            TaskKind::Expire => 2,
            TaskKind::Checkpoint | TaskKind::Hint | TaskKind::Reindex | TaskKind::Move => 3,
            TaskKind::Scrub => 4,
        };
        Self(urgency * KIND_RANKS + kind)
    }

    /// True when only the I/O ceiling limits the work, not foreground requests or the processor's
    /// budget.
    pub(crate) fn is_pressing(self) -> bool {
        self.0 < KIND_RANKS
    }

    /// True for work that is done in idle times.
    pub(crate) fn is_idle(self) -> bool {
        self.0 >= 2 * KIND_RANKS
    }

    pub(crate) fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// Compactions are numbered by their level. In a store made of several, the highest byte is the
/// number of the inner store.
fn is_level_0(task: &Task) -> bool {
    task.subject << u8::BITS == 0
}

fn urgency_of(task: &Task, scarcity: Scarcity) -> Urgency {
    let frees_memory = matches!(task.kind, TaskKind::Flush | TaskKind::Expire);
    let frees_files = matches!(
        task.kind,
        TaskKind::Merge | TaskKind::Collect | TaskKind::Compact | TaskKind::Reclaim
    );
    // Data that is only in memory keeps segments of the log.
    let frees_disk = frees_files || frees_memory;
    if (scarcity.memory && frees_memory)
        || (scarcity.open_files && frees_files)
        || (scarcity.disk && frees_disk)
    {
        return Urgency::Pressing;
    }
    task.urgency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(kind: TaskKind, subject: u64, urgency: Urgency) -> Task {
        Task {
            kind,
            subject,
            urgency,
            cost_bytes: 1,
        }
    }

    #[test]
    fn urgency_comes_before_kind_and_writers_come_before_scrubs() {
        let order = [
            task(TaskKind::Flush, 3, Urgency::Pressing),
            task(TaskKind::Scrub, 0, Urgency::Pressing),
            task(TaskKind::Compact, 0, Urgency::Normal),
            task(TaskKind::Compact, 2, Urgency::Normal),
            task(TaskKind::Expire, 0, Urgency::Normal),
            task(TaskKind::Checkpoint, 0, Urgency::Normal),
            task(TaskKind::Scrub, 0, Urgency::Normal),
            task(TaskKind::Merge, 9, Urgency::Idle),
        ];
        let ranks: Vec<Rank> = order
            .iter()
            .map(|task| Rank::of(task, Scarcity::default()))
            .collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        assert!(ranks.iter().all(|rank| rank.place() < Rank::COUNT));
    }

    #[test]
    fn level_0_of_a_part_of_a_store_is_level_0() {
        let rank = |subject| {
            let compaction = task(TaskKind::Compact, subject, Urgency::Normal);
            Rank::of(&compaction, Scarcity::default())
        };
        assert_eq!(rank(3 << 56), rank(0));
        assert_eq!(rank((3 << 56) + 1), rank(1));
        assert!(rank(0) < rank(1));
    }

    #[test]
    fn what_frees_a_scarce_thing_presses() {
        let scarcity = Scarcity {
            memory: true,
            ..Scarcity::default()
        };
        assert!(Rank::of(&task(TaskKind::Flush, 0, Urgency::Idle), scarcity).is_pressing());
        assert!(!Rank::of(&task(TaskKind::Merge, 0, Urgency::Idle), scarcity).is_pressing());
        let scarcity = Scarcity {
            open_files: true,
            ..Scarcity::default()
        };
        assert!(Rank::of(&task(TaskKind::Merge, 0, Urgency::Idle), scarcity).is_pressing());
        assert!(!Rank::of(&task(TaskKind::Hint, 0, Urgency::Normal), scarcity).is_pressing());
        let scarcity = Scarcity {
            disk: true,
            ..Scarcity::default()
        };
        for frees in [
            TaskKind::Merge,
            TaskKind::Collect,
            TaskKind::Compact,
            TaskKind::Flush,
            TaskKind::Expire,
        ] {
            assert!(Rank::of(&task(frees, 1, Urgency::Idle), scarcity).is_pressing());
        }
        assert!(!Rank::of(&task(TaskKind::Checkpoint, 0, Urgency::Normal), scarcity).is_pressing());
    }
}
