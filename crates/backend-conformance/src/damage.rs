//! Group Damage: files of a store that has ended are damaged. The store is then opened, written to,
//! killed and opened once more.
//!
//! A store ends by being closed, or by the death of its process, which leaves the contents of the page
//! cache. Damage is a flipped bit, a cut, zeros, bytes behind the end, a missing file, an older file or
//! directory put back, or a file of another store in place of this one's.
//!
//! Every value shown then was put once under that key. A key without its latest value is reported:
//! by the error of the read, or as a lost range in the status. Writes acknowledged after the
//! damage, and keys read right after it, outlive the next death of the process.
//!
//! An engine may exclude files from the damage after the death of the process
//! ([`EngineUnderTest::left_out_after_kill`]): files that may have a torn end, which looks like
//! damage. `docs/scenarios.md` lists them.

mod kind;
mod left_out;
mod subject;
mod verdict;

use rand::RngExt;

pub use self::left_out::expect_left_out_listed;
use self::subject::{End, Subject};
use crate::{Checked, EngineUnderTest, Plan};

/// The start of this group's random numbers.
const STREAM: u64 = 4 << 32;
/// One closed store and one killed store.
const SUBJECTS_MIN: usize = 2;

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    if !engine.capabilities().persistent {
        return Ok(());
    }
    let subjects = plan.share(engine, 4, 16).max(SUBJECTS_MIN);
    for number in 0..subjects as u64 {
        let mut rng = plan.rng(STREAM + number);
        let variation = rng.random_range(0..engine.variations().max(1));
        let end = match number % 2 {
            0 => End::Closed,
            _ => End::Killed,
        };
        let subject = Subject::make(engine, variation, end, &mut rng)?;
        let story = |damage: &str| format!("{damage}, {end:?}, variation {variation}");
        subject
            .check_undamaged()
            .map_err(|violation| violation.after(story("nothing was damaged")))?;
        for (path, damage) in subject.damages(plan, &mut rng)? {
            subject
                .check(&path, &damage, &mut rng)
                .map_err(|violation| {
                    violation.after(story(&format!("{} in {}", damage.brief(), path.display())))
                })?;
        }
    }
    Ok(())
}
