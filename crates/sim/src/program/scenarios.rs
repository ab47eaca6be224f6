//! Named scenarios, each with some seeds.

use anyhow::Context as _;
use kvorum_runtime::Runtime;
use kvorum_sim::Scenario;

use crate::arguments::Arguments;
use crate::campaign::Campaign;
use crate::console::{conclude, line};
use crate::single::PlantedDefect;
use crate::sum::Sum;

/// The most sets of seeds that are run. In some seeds the fault of a scenario never occurs, since
/// no node qualifies at its time.
const TRIES: usize = 10;

/// Runs one scenario or `all`; true if nothing was found and each was shown.
pub(crate) fn run(
    runtime: &Runtime,
    arguments: &Arguments,
    defect: Option<PlantedDefect>,
    wanted: &str,
) -> anyhow::Result<bool> {
    let scenarios = match wanted {
        "all" => Scenario::ALL.to_vec(),
        id => vec![Scenario::of_id(id).with_context(|| {
            let ids = Scenario::ALL.map(|it| it.id);
            format!("{id} is none of {ids:?}")
        })?],
    };
    let first = arguments.first_seed(runtime);
    let mut failed = 0;
    for scenario in &scenarios {
        let mut first = first;
        let mut tries = 1;
        let (sum, has_happened) = loop {
            let of_this = Arguments {
                seed: Some(first),
                ..arguments.clone()
            };
            let campaign = Campaign::new(runtime, of_this, defect, Some(*scenario));
            let sum = campaign.carry_out()?;
            let has_happened = has_happened(scenario, &sum);
            if has_happened || !sum.failed_seeds.is_empty() || tries == TRIES {
                break (sum, has_happened);
            }
            tries += 1;
            first = first.wrapping_add(arguments.runs);
        };
        let verdict = match (sum.failed_seeds.is_empty(), has_happened) {
            (true, true) => "ok    ",
            (true, false) => "FAILED, for nothing happened,",
            (false, _) => "FAILED",
        };
        failed += usize::from(!sum.failed_seeds.is_empty() || !has_happened);
        line(&format!(
            "{verdict}  {} {}: {}; {} seeds from {first}, {} acknowledged, {} faults",
            scenario.id,
            scenario.name,
            scenario.rule,
            sum.runs,
            sum.operations.acknowledged(),
            sum.fault_count(),
        ));
    }
    Ok(conclude(scenarios.len() - failed, failed))
}

fn has_happened(scenario: &Scenario, sum: &Sum) -> bool {
    let named = scenario.kinds.first();
    named.is_some_and(|kind| sum.faults.contains_key(kind))
        // A plan has one of the faults that make a machine lose data; any of them counts.
        || scenario.kinds.iter().any(|it| it.is_amnesia() && sum.faults.contains_key(it))
}
