//! Settings of both kinds of simulated nodes.

use std::time::Duration;

use kvorum_anti_entropy::{ExchangeLimits, ScheduleSettings};
use kvorum_coordinator::{BackendNames, CoordinatorSettings, TombstoneKeeping};
use kvorum_exchanges::ExchangeSettings;
use kvorum_object::Limits;
use kvorum_vnode::VnodeSettings;

use crate::plan::RunPlan;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// No limit on siblings: many siblings of blind writes are no failure here.
pub(crate) const VNODE_SETTINGS: VnodeSettings = VnodeSettings {
    limits: Limits {
        size_warning_bytes: u64::MAX,
        size_max_bytes: u64::MAX,
        siblings_warning: usize::MAX,
        siblings_max: usize::MAX,
    },
};

/// Settings of requests.
pub(crate) fn coordinator_settings(plan: &RunPlan) -> CoordinatorSettings {
    CoordinatorSettings {
        request_timeout: REQUEST_TIMEOUT,
        tombstones: match plan.is_early {
            // The coordinator of a cluster must not do this.
            false => TombstoneKeeping::Immediate,
            // With a single replica, immediate removal would be correct, but a check of later
            // writes could not see the earlier delete.
            true => TombstoneKeeping::Keep,
        },
        backend_names: BackendNames::One("simulated"),
        ..kvorum_test_cluster::coordinator_settings()
    }
}

/// Settings of the comparison of replicas, if the plan has it: those of a server, but with times
/// and bounds so small that a run has many exchanges and cuts.
pub(crate) fn exchange_settings(plan: &RunPlan) -> Option<ExchangeSettings> {
    let (schedule, limits) = match plan.has_rare_exchanges {
        true => rare_exchanges(),
        false => frequent_exchanges(),
    };
    let rebuild_wait = match plan.has_rare_exchanges {
        true => Duration::from_secs(10_000),
        false => Duration::from_secs(20),
    };
    plan.has_exchanges.then(|| ExchangeSettings {
        schedule,
        limits,
        repairs_per_second: 50,
        pause: Duration::from_millis(1_500),
        answer_wait_max: Duration::from_secs(3),
        step_entries_max: 7,
        rebuild_wait,
        rebuild_delay_max: Duration::from_secs(20),
        colocated_replicas: false,
    })
}

fn frequent_exchanges() -> (ScheduleSettings, ExchangeLimits) {
    let schedule = ScheduleSettings {
        at_once: 4,
        interval_micros: 5_000_000,
        loops_max: 4,
    };
    let limits = ExchangeLimits {
        branches_max: 8,
        leaves_max: 4,
        keys_max: 6,
        repairs_at_once: 2,
    };
    (schedule, limits)
}

/// Settings without effective bounds on branches, leaves and loops: only the number of keys listed
/// at once cuts an exchange.
fn rare_exchanges() -> (ScheduleSettings, ExchangeLimits) {
    let schedule = ScheduleSettings {
        at_once: 64,
        interval_micros: 30_000_000,
        loops_max: 1_000,
    };
    let limits = ExchangeLimits {
        branches_max: 1_000,
        leaves_max: 1_000,
        keys_max: 6,
        repairs_at_once: 2,
    };
    (schedule, limits)
}
