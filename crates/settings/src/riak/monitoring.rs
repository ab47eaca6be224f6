//! Keys of consoles, health checks and monitoring.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Consoles and monitoring",
    keys: KEYS,
};

const CONTROL: &str = "Riak Control is not part of Kvorum";

const HEALTH: &str =
    "it watches processes and ports of the Erlang virtual machine, which is not used";

const SNMP: &str = "there is no SNMP agent; metrics are at `/metrics` and `/stats`";

const JMX: &str = "there is no JMX server; metrics are at `/metrics` and `/stats`";

const KEYS: &[RiakKey] = &[
    ignored("riak_control", CONTROL),
    ignored("riak_control.auth.mode", CONTROL),
    ignored("riak_control.auth.user.$username.password", CONTROL),
    ignored("runtime_health.thresholds.busy_processes", HEALTH),
    ignored("runtime_health.thresholds.busy_ports", HEALTH),
    ignored("runtime_health.triggers.process.garbage_collection", HEALTH),
    ignored("runtime_health.triggers.process.long_schedule", HEALTH),
    ignored("runtime_health.triggers.process.heap_size", HEALTH),
    ignored("runtime_health.triggers.port", HEALTH),
    ignored("runtime_health.triggers.distribution_port", HEALTH),
    ignored("snmp.nodeGetTimeMeanThreshold", SNMP),
    ignored("snmp.nodeGetTimeMedianThreshold", SNMP),
    ignored("snmp.nodeGetTime95Threshold", SNMP),
    ignored("snmp.nodeGetTime99Threshold", SNMP),
    ignored("snmp.nodeGetTime100Threshold", SNMP),
    ignored("snmp.nodePutTimeMeanThreshold", SNMP),
    ignored("snmp.nodePutTimeMedianThreshold", SNMP),
    ignored("snmp.nodePutTime95Threshold", SNMP),
    ignored("snmp.nodePutTime99Threshold", SNMP),
    ignored("snmp.nodePutTime100Threshold", SNMP),
    ignored("snmp.traps.replication", SNMP),
    ignored("snmp.refresh_frequency", SNMP),
    ignored("snmp.database_dir", SNMP),
    ignored("snmp.force_reload", SNMP),
    ignored("snmp.forced_reload", SNMP),
    ignored("jmx", JMX),
    ignored("jmx.refresh_rate", JMX),
    ignored("jmx.restart_check", JMX),
    ignored("jmx.port", JMX),
    ignored("dtrace", "there are no DTrace probes"),
];
