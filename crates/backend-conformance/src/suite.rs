//! The suite: the one entry that runs a group of it.

use crate::{Checked, EngineUnderTest, Group, Plan, crash, damage, faults, model_based, sentences};

/// Runs one group against an engine; the first violation ends it.
pub fn run(engine: &dyn EngineUnderTest, group: Group, plan: &Plan) -> Checked {
    let quick = Plan::quick(plan.seed);
    let plan = if engine.is_spike() { &quick } else { plan };
    let outcome = match group {
        Group::Sentences => sentences::check(engine, plan),
        Group::Model => model_based::check(engine, plan),
        Group::Crash => crash::check(engine, plan),
        Group::Faults => faults::check(engine, plan),
        Group::Damage => damage::check(engine, plan),
    };
    outcome.map_err(|mut violation| {
        violation.engine = engine.name().to_owned();
        violation.group = Some(group);
        violation.seed = plan.seed;
        violation
    })
}
