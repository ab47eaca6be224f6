//! Group Model: random scripts against the model, over every variation of the settings.

use std::sync::Arc;

use kvorum_disk::MemoryDisk;
use rand::RngExt;

use crate::shrink::check_script;
use crate::trial::Trial;
use crate::{Checked, EngineUnderTest, Plan, generate};

/// The start of this group's random numbers.
const STREAM: u64 = 1 << 32;

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    let scripts = plan.share(engine, 200, 5_000);
    for number in 0..scripts as u64 {
        let mut rng = plan.rng(STREAM + number);
        let variation = rng.random_range(0..engine.variations().max(1));
        let len = [12, 40, 120][rng.random_range(0..3)];
        let script = generate::script(&mut rng, len);
        check_script(script, variation, |script| {
            let disk = Arc::new(MemoryDisk::new());
            Trial::open(engine, disk, variation, rng.clone())?.play(&script.steps)
        })?;
    }
    Ok(())
}
