//! The figures of one data type. Riak counts fetches and operations of a type in place of gets and puts,
//! and merges of its objects in place of other merges.

use crate::counter::Counter;
use crate::histogram::Histogram;

/// All that a node records of the values of one data type.
#[derive(Debug, Default)]
pub struct TypeStats {
    /// Fetches coordinated by this node.
    pub gets: Counter,
    /// Time from a fetch's arrival to its answer.
    pub get_time: Histogram,
    /// Size of the objects fetched.
    pub get_objsize: Histogram,
    /// Siblings of the objects fetched.
    pub get_siblings: Histogram,
    /// Operations coordinated by this node.
    pub puts: Counter,
    /// Time from an operation's arrival to its answer.
    pub put_time: Histogram,
    /// Replicas found behind and repaired by a read.
    pub read_repairs: Counter,
    /// Operations carried out by vnodes.
    pub updates: Counter,
    /// Time in which a vnode changed a value.
    pub update_time: Histogram,
    /// Merges of objects that had not seen each other.
    pub merges: Counter,
    /// Time of such a merge.
    pub merge_time: Histogram,
}

// Names are literals, which a function cannot put together.
macro_rules! visit_type {
    ($visit:ident, $stats:expr, $type:ident) => {
        $visit(
            $crate::reading::Reading::Counter {
                name: concat!("node_gets_", stringify!($type)),
                window_name: concat!("node_gets_", stringify!($type)),
                total_name: concat!("node_gets_", stringify!($type), "_total"),
                counter: &$stats.gets,
            },
            concat!(
                "Fetches of type ",
                stringify!($type),
                " coordinated by this node"
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("node_get_fsm_", stringify!($type), "_time"),
                names: $crate::reading::five_names!("node_get_fsm_", stringify!($type), "_time"),
                unit: $crate::histogram::Unit::Microseconds,
                histogram: &$stats.get_time,
            },
            concat!(
                "Time from the arrival of a fetch of type ",
                stringify!($type),
                " to its answer"
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("node_get_fsm_", stringify!($type), "_objsize"),
                names: $crate::reading::five_names!("node_get_fsm_", stringify!($type), "_objsize"),
                unit: $crate::histogram::Unit::Bytes,
                histogram: &$stats.get_objsize,
            },
            concat!(
                "Size of the objects fetched with a value of type ",
                stringify!($type)
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("node_get_fsm_", stringify!($type), "_siblings"),
                names: $crate::reading::five_names!(
                    "node_get_fsm_",
                    stringify!($type),
                    "_siblings"
                ),
                unit: $crate::histogram::Unit::Things,
                histogram: &$stats.get_siblings,
            },
            concat!(
                "Siblings of the objects fetched with a value of type ",
                stringify!($type)
            ),
        );
        $visit(
            $crate::reading::Reading::Counter {
                name: concat!("node_puts_", stringify!($type)),
                window_name: concat!("node_puts_", stringify!($type)),
                total_name: concat!("node_puts_", stringify!($type), "_total"),
                counter: &$stats.puts,
            },
            concat!(
                "Operations of type ",
                stringify!($type),
                " coordinated by this node"
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("node_put_fsm_", stringify!($type), "_time"),
                names: $crate::reading::five_names!("node_put_fsm_", stringify!($type), "_time"),
                unit: $crate::histogram::Unit::Microseconds,
                histogram: &$stats.put_time,
            },
            concat!(
                "Time from the arrival of an operation of type ",
                stringify!($type),
                " to its answer"
            ),
        );
        $visit(
            $crate::reading::Reading::Counter {
                name: concat!("read_repairs_", stringify!($type)),
                window_name: concat!("read_repairs_", stringify!($type)),
                total_name: concat!("read_repairs_", stringify!($type), "_total"),
                counter: &$stats.read_repairs,
            },
            concat!(
                "Read repairs of objects with a value of type ",
                stringify!($type)
            ),
        );
        $visit(
            $crate::reading::Reading::Counter {
                name: concat!("vnode_", stringify!($type), "_update"),
                window_name: concat!("vnode_", stringify!($type), "_update"),
                total_name: concat!("vnode_", stringify!($type), "_update_total"),
                counter: &$stats.updates,
            },
            concat!(
                "Operations of type ",
                stringify!($type),
                " carried out by vnodes"
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("vnode_", stringify!($type), "_update_time"),
                names: $crate::reading::five_names!("vnode_", stringify!($type), "_update_time"),
                unit: $crate::histogram::Unit::Microseconds,
                histogram: &$stats.update_time,
            },
            concat!(
                "Time in which a vnode changed a value of type ",
                stringify!($type)
            ),
        );
        $visit(
            $crate::reading::Reading::Counter {
                name: concat!("object_", stringify!($type), "_merge"),
                window_name: concat!("object_", stringify!($type), "_merge"),
                total_name: concat!("object_", stringify!($type), "_merge_total"),
                counter: &$stats.merges,
            },
            concat!(
                "Merges of objects with a value of type ",
                stringify!($type),
                " that had not seen each other"
            ),
        );
        $visit(
            $crate::reading::Reading::Histogram {
                name: concat!("object_", stringify!($type), "_merge_time"),
                names: $crate::reading::five_names!("object_", stringify!($type), "_merge_time"),
                unit: $crate::histogram::Unit::Microseconds,
                histogram: &$stats.merge_time,
            },
            concat!(
                "Time of a merge of objects with a value of type ",
                stringify!($type)
            ),
        );
    };
}

pub(crate) use visit_type;
