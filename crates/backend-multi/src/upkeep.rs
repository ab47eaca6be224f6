//! Tasks of the children under the numbers of the whole store.
//!
//! ```text
//! subject of a task   bits 56..64  the child, or 255 for a task of the whole store
//!                     bits  0..56  the child's own subject; bits 56..64 of that are as its bit 55
//! ```

use kvorum_backend::Task;

use crate::child::ChildNumber;

const OWN_BITS: u32 = 56;
/// Takes the place of a child.
const WHOLE: u64 = 255;
/// The survey of buckets.
pub(crate) const SURVEY_SUBJECT: u64 = WHOLE << OWN_BITS;
/// The subject of a move that the survey found.
pub(crate) const MOVE_SUBJECT: u64 = SURVEY_SUBJECT + 1;

/// A task of a child, as a task of the whole.
pub(crate) fn of_whole(child: ChildNumber, task: &Task) -> Task {
    assert!((child as u64) < WHOLE, "a store has fewer children");
    let subject = ((child as u64) << OWN_BITS) | (task.subject & ((1 << OWN_BITS) - 1));
    let tagged = Task {
        subject,
        ..task.clone()
    };
    let restored = of_child(&tagged).map(|(_, task)| task.subject);
    assert_eq!(
        restored,
        Some(task.subject),
        "subjects are small numbers or near the end of all"
    );
    tagged
}

/// The child of a task, and the task in the child's numbering; `None` for a task of the whole.
pub(crate) fn of_child(task: &Task) -> Option<(ChildNumber, Task)> {
    let child = task.subject >> OWN_BITS;
    if child == WHOLE {
        return None;
    }
    let spare = u64::BITS - OWN_BITS;
    // The bits above are copies of the highest kept bit.
    let subject = (task.subject << spare).cast_signed() >> spare;
    let own = Task {
        subject: subject.cast_unsigned(),
        ..task.clone()
    };
    Some((usize::try_from(child).unwrap_or(usize::MAX), own))
}

#[cfg(test)]
mod tests {
    use kvorum_backend::TaskKind;

    use super::*;

    #[test]
    fn the_child_and_its_own_subject_come_back() {
        for child in [0, 1, 31] {
            for subject in [0, 1, 77, 1 << 33, u64::MAX, u64::MAX - 1] {
                let task = Task::normal(TaskKind::Merge, subject, 5);
                let tagged = of_whole(child, &task);
                assert_eq!(of_child(&tagged), Some((child, task)));
            }
        }
        assert_eq!(
            of_child(&Task::normal(TaskKind::Scrub, SURVEY_SUBJECT, 1)),
            None
        );
    }
}
