//! Group Model: random scripts against the model, over every variation of the settings.

use std::sync::Arc;

use kvorum_disk::MemoryDisk;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::script::Script;
use crate::shrink::shrink;
use crate::trial::Trial;
use crate::{Checked, EngineUnderTest, Plan, Violation, generate};

/// Where this group's randomness starts.
const STREAM: u64 = 1 << 32;

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    let scripts = plan.share(engine, 200, 5_000);
    for number in 0..scripts as u64 {
        let mut rng = plan.rng(STREAM + number);
        let variation = rng.random_range(0..engine.variations().max(1));
        let len = [12, 40, 120][rng.random_range(0..3)];
        let script = generate::script(&mut rng, len);
        let fails = |script: &Script| play(engine, script, variation, rng.clone()).err();
        if let Some(violation) = fails(&script) {
            let (script, violation) = shrink(script, violation, fails);
            return Err(violation.after(format!("variation {variation} of {script}")));
        }
    }
    Ok(())
}

fn play(
    engine: &dyn EngineUnderTest,
    script: &Script,
    variation: u32,
    rng: ChaCha8Rng,
) -> Result<(), Violation> {
    let disk = Arc::new(MemoryDisk::new());
    Trial::open(engine, disk, variation, rng)?.play(script)
}
