//! Keys of the Erlang virtual machine.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Erlang virtual machine",
    keys: KEYS,
};

const ERLANG: &str = "Kvorum does not run on the Erlang virtual machine";

const DISTRIBUTION: &str = "nodes do not talk to each other by the distribution protocol of Erlang";

const SCHEDULERS: &str =
    "there are no Erlang schedulers; threads follow the number of cores, or `worker_threads`";

const KEYS: &[RiakKey] = &[
    ignored("erlang.smp", ERLANG),
    ignored("erlang.W", ERLANG),
    ignored("erlang.K", ERLANG),
    ignored("erlang.async_threads", ERLANG),
    ignored("erlang.async_threads.stack_size", ERLANG),
    ignored("erlang.fullsweep_after", ERLANG),
    ignored("erlang.crash_dump", ERLANG),
    ignored("erlang.max_ets_tables", ERLANG),
    ignored("erlang.process_limit", ERLANG),
    ignored("erlang.max_ports", ERLANG),
    ignored("erlang.vm.ignore_break_signal", ERLANG),
    ignored("erlang.virtual_heap.hmbs", ERLANG),
    ignored("erlang.virtual_heap.hms", ERLANG),
    ignored("erlang.eheap_memory.sbct", ERLANG),
    ignored("erlang.eheap_memory.lmbcs", ERLANG),
    ignored("erlang.eheap_memory.smbcs", ERLANG),
    ignored("erlang.eheap_memory.as", ERLANG),
    ignored("erlang.binary_memory.sbct", ERLANG),
    ignored("erlang.binary_memory.lmbcs", ERLANG),
    ignored("erlang.binary_memory.smbcs", ERLANG),
    ignored("erlang.binary_memory.as", ERLANG),
    ignored("erlang.distribution_buffer_size", DISTRIBUTION),
    ignored("erlang.distribution.port_range.minimum", DISTRIBUTION),
    ignored("erlang.distribution.port_range.maximum", DISTRIBUTION),
    ignored("erlang.distribution.interface", DISTRIBUTION),
    ignored("erlang.distribution.net_ticktime", DISTRIBUTION),
    ignored("erlang.schedulers.total", SCHEDULERS),
    ignored("erlang.schedulers.online", SCHEDULERS),
    ignored("erlang.schedulers.force_wakeup_interval", SCHEDULERS),
    ignored("erlang.schedulers.compaction_of_load", SCHEDULERS),
    ignored("erlang.schedulers.utilization_balancing", SCHEDULERS),
    ignored("erlang.schedulers_binding", SCHEDULERS),
    ignored("erlang.schedulers_busywait", SCHEDULERS),
    ignored("erlang.schedulers_busywait_dirtycpu", SCHEDULERS),
    ignored("erlang.schedulers_busywait_dirtyio", SCHEDULERS),
    ignored("erlang.schedulers_online_percentage", SCHEDULERS),
    ignored("erlang.schedulers_dirtycpu_online_percentage", SCHEDULERS),
    ignored("erlang.schedulers_dirtyio_online", SCHEDULERS),
    ignored(
        "erlang.shutdown_time",
        "a stop ends when the requests under way are answered",
    ),
];
