//! The table of everything that is recorded, under Riak's names.
//!
//! The names are an interface of dashboards and collectors, so they are Riak's to the letter, also
//! where they are odd (`fsm`: every request was one). Names of events that cannot happen to a Kvorum
//! node are absent rather than zero for ever: hooks, queues of vnodes that overflow, a stand-in that is
//! read-repaired because it has nothing.

use std::time::Duration;

use crate::counter::{Counter, Gauge, Total};
use crate::histogram::{Histogram, Unit};

/// One entry of the table, as a reader meets it.
#[derive(Clone, Copy, Debug)]
pub enum Reading<'a> {
    /// A counter with Riak's names for its window and its total.
    Counter {
        /// The name without suffix.
        name: &'static str,
        /// Riak's name for the last minute.
        window_name: &'static str,
        /// Riak's name for the total.
        total_name: &'static str,
        /// The counter.
        counter: &'a Counter,
    },
    /// A total without window.
    Total {
        /// The name without suffix.
        name: &'static str,
        /// Riak's name.
        total_name: &'static str,
        /// The total.
        total: &'a Total,
    },
    /// A present amount.
    Gauge {
        /// Riak's name.
        name: &'static str,
        /// The amount.
        gauge: &'a Gauge,
    },
    /// A histogram with Riak's names for mean, median, 95, 99 and 100.
    Histogram {
        /// The name without suffix.
        name: &'static str,
        /// Riak's five names.
        names: [&'static str; 5],
        /// The unit of its values.
        unit: Unit,
        /// The values.
        histogram: &'a Histogram,
    },
}

macro_rules! stats {
    // A field, a default, a name and a help text each: in four lists they would drift apart.
    (
        counters { $(#[doc = $counter_help:literal] $counter:ident,)* }
        named_counters { $(#[doc = $named_help:literal] $named:ident: $window:literal, $total_of:literal,)* }
        totals { $(#[doc = $total_help:literal] $total:ident: $total_name:literal,)* }
        gauges { $(#[doc = $gauge_help:literal] $gauge:ident,)* }
        histograms { $(#[doc = $histogram_help:literal] $histogram:ident: $unit:ident,)* }
    ) => {
        /// All that a node records; every field can be recorded to from any thread.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(#[doc = $counter_help] pub $counter: Counter,)*
            $(#[doc = $named_help] pub $named: Counter,)*
            $(#[doc = $total_help] pub $total: Total,)*
            $(#[doc = $gauge_help] pub $gauge: Gauge,)*
            $(#[doc = $histogram_help] pub $histogram: Histogram,)*
        }

        impl Stats {
            /// Calls `visit` with every entry and its help text, in the order of the table.
            pub fn visit<'a>(&'a self, mut visit: impl FnMut(Reading<'a>, &'static str)) {
                $(visit(Reading::Counter {
                    name: stringify!($counter),
                    window_name: stringify!($counter),
                    total_name: concat!(stringify!($counter), "_total"),
                    counter: &self.$counter,
                }, $counter_help.trim_ascii());)*
                $(visit(Reading::Counter {
                    name: stringify!($named),
                    window_name: $window,
                    total_name: $total_of,
                    counter: &self.$named,
                }, $named_help.trim_ascii());)*
                $(visit(Reading::Total {
                    name: stringify!($total),
                    total_name: $total_name,
                    total: &self.$total,
                }, $total_help.trim_ascii());)*
                $(visit(Reading::Gauge {
                    name: stringify!($gauge),
                    gauge: &self.$gauge,
                }, $gauge_help.trim_ascii());)*
                $(visit(Reading::Histogram {
                    name: stringify!($histogram),
                    names: [
                        concat!(stringify!($histogram), "_mean"),
                        concat!(stringify!($histogram), "_median"),
                        concat!(stringify!($histogram), "_95"),
                        concat!(stringify!($histogram), "_99"),
                        concat!(stringify!($histogram), "_100"),
                    ],
                    unit: Unit::$unit,
                    histogram: &self.$histogram,
                }, $histogram_help.trim_ascii());)*
            }
        }
    };
}

stats! {
    counters {
        /// Reads coordinated by this node.
        node_gets,
        /// Writes coordinated by this node.
        node_puts,
        /// Reads that this node coordinated and could not answer.
        node_get_fsm_errors,
        /// Reads of whole objects by vnodes.
        vnode_gets,
        /// Reads of heads by vnodes.
        vnode_heads,
        /// Writes by vnodes.
        vnode_puts,
        /// Index queries that vnodes began.
        vnode_index_reads,
        /// Objects written by vnodes whose stores have indexes.
        vnode_index_writes,
        /// Index entries written.
        vnode_index_writes_postings,
        /// Objects deleted by vnodes whose stores have indexes.
        vnode_index_deletes,
        /// Index entries deleted.
        vnode_index_deletes_postings,
        /// Replicas found behind and repaired by a read.
        read_repairs,
        /// Repairs that a read left out.
        skipped_read_repairs,
        /// Merges of objects that had not seen each other.
        object_merge,
        /// Listings of keys or buckets that ended, one way or the other.
        list_fsm_create,
        /// Listings that failed.
        list_fsm_create_error,
        /// Index queries that ended, one way or the other.
        index_fsm_create,
        /// Index queries that failed.
        index_fsm_create_error,
        /// Index queries that gave all of their results.
        index_fsm_complete,
        /// Writes to write-once buckets.
        write_once_puts,
        /// Protocol Buffers connections accepted.
        pbc_connects,
    }
    named_counters {
        /// Reads refused because too many were under way.
        node_get_fsm_rejected: "node_get_fsm_rejected_60s", "node_get_fsm_rejected_total",
        /// Writes refused because too many were under way.
        node_put_fsm_rejected: "node_put_fsm_rejected_60s", "node_put_fsm_rejected_total",
        /// Primaries repaired that held an older object.
        read_repairs_primary_outofdate:
            "read_repairs_primary_outofdate_one", "read_repairs_primary_outofdate_count",
        /// Primaries repaired that held nothing.
        read_repairs_primary_notfound:
            "read_repairs_primary_notfound_one", "read_repairs_primary_notfound_count",
        /// Fallbacks repaired that held an older object.
        read_repairs_fallback_outofdate:
            "read_repairs_fallback_outofdate_one", "read_repairs_fallback_outofdate_count",
    }
    totals {
        /// Writes handed to another node because this one holds no replica.
        coord_redirs: "coord_redirs_total",
    }
    gauges {
        /// Reads under way that wait for a device or another node.
        node_get_fsm_active,
        /// Writes under way.
        node_put_fsm_active,
        /// Listings under way.
        list_fsm_active,
        /// Index queries under way.
        index_fsm_active,
        /// Protocol Buffers connections open.
        pbc_active,
        /// Vnodes running.
        riak_kv_vnodes_running,
    }
    histograms {
        /// Time from a read's arrival to its answer.
        node_get_fsm_time: Microseconds,
        /// Size of the objects read.
        node_get_fsm_objsize: Bytes,
        /// Siblings of the objects read.
        node_get_fsm_siblings: Things,
        /// Time from a write's arrival to its answer.
        node_put_fsm_time: Microseconds,
        /// Time from an index query's arrival to its last result.
        index_fsm_time: Microseconds,
        /// Time of a vnode's read, of one in eight.
        vnode_get_fsm_time: Microseconds,
        /// Time of a vnode's read of a head, of one in eight.
        vnode_head_fsm_time: Microseconds,
        /// Time of a vnode's write, of one in eight.
        vnode_put_fsm_time: Microseconds,
        /// Time of a merge of objects that had not seen each other.
        object_merge_time: Microseconds,
        /// Time from the arrival of a write to a write-once bucket to its answer.
        write_once_put_time: Microseconds,
        /// Size of the objects written to write-once buckets.
        write_once_put_objsize: Bytes,
    }
}

impl Stats {
    /// Every number under Riak's name, in the order of the table.
    pub fn riak_values(&self, now: Duration) -> Vec<(&'static str, i64)> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut values = Vec::new();
        self.visit(|reading, _| match reading {
            Reading::Counter {
                window_name,
                total_name,
                counter,
                ..
            } => {
                values.push((window_name, number(counter.last_minute(now))));
                values.push((total_name, number(counter.total())));
            }
            Reading::Total {
                total_name, total, ..
            } => {
                values.push((total_name, number(total.total())));
            }
            Reading::Gauge { name, gauge } => values.push((name, gauge.get())),
            Reading::Histogram {
                names, histogram, ..
            } => {
                let summary = histogram.summary(now);
                let five = [
                    summary.mean,
                    summary.median,
                    summary.percentile_95,
                    summary.percentile_99,
                    summary.maximum,
                ];
                values.extend(names.into_iter().zip(five.map(number)));
            }
        });
        values
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn values_stand_under_riaks_names() {
        let stats = Stats::default();
        stats.node_gets.add(Duration::from_secs(10), 2);
        stats.node_gets.count(NOW);
        stats.coord_redirs.count();
        stats.pbc_active.add(3);
        stats.pbc_active.add(-1);
        stats
            .node_get_fsm_time
            .record_time(NOW, Duration::from_micros(25));
        stats.read_repairs_primary_notfound.count(NOW);
        let values: BTreeMap<_, _> = stats.riak_values(NOW).into_iter().collect();
        for (name, expected) in [
            ("node_gets", 1),
            ("node_gets_total", 3),
            ("coord_redirs_total", 1),
            ("pbc_active", 2),
            ("node_get_fsm_time_mean", 25),
            ("node_get_fsm_time_median", 25),
            ("node_get_fsm_time_95", 25),
            ("node_get_fsm_time_99", 25),
            ("node_get_fsm_time_100", 25),
            ("node_get_fsm_siblings_100", 0),
            ("read_repairs_primary_notfound_one", 1),
            ("read_repairs_primary_notfound_count", 1),
            ("node_puts_total", 0),
            ("list_fsm_active", 0),
            ("pbc_connects_total", 0),
        ] {
            assert_eq!(values.get(name), Some(&expected), "{name}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<_> = Stats::default()
            .riak_values(NOW)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
