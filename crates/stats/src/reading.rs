//! One entry of the table of figures, with its names, as the forms of output read it.

use crate::counter::{Counter, Gauge, Total};
use crate::histogram::{Histogram, Unit};

/// One entry of the table for a reader.
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

// Names are literals, which a function cannot put together.
macro_rules! five_names {
    ($($part:tt)*) => {
        [
            concat!($($part)*, "_mean"),
            concat!($($part)*, "_median"),
            concat!($($part)*, "_95"),
            concat!($($part)*, "_99"),
            concat!($($part)*, "_100"),
        ]
    };
}

pub(crate) use five_names;
