//! The present faults of links and machines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kvorum_runtime::Link;

/// Links without faults.
pub(crate) const FAIR: Link = Link {
    delay_min: Duration::from_micros(100),
    delay_max: Duration::from_millis(2),
    is_cut: false,
};

/// The present faults of links, by the number of the fault in the plan.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    pub(crate) cuts: BTreeMap<usize, BTreeSet<(u8, u8)>>,
    pub(crate) delays: BTreeMap<usize, (Vec<u8>, Link)>,
    /// Machines that stay down.
    pub(crate) holds: BTreeMap<u8, BTreeSet<usize>>,
    /// Machines whose nodes receive no news, each with the fault behind it.
    pub(crate) deaf: BTreeMap<usize, u8>,
}

impl Weather {
    /// The link from one machine to another, with the worst of all its faults.
    pub(crate) fn link(&self, from: u8, to: u8) -> Link {
        let mut link = FAIR;
        for (numbers, slow) in self.delays.values() {
            if numbers.contains(&from) || numbers.contains(&to) {
                link.delay_min = link.delay_min.max(slow.delay_min);
                link.delay_max = link.delay_max.max(slow.delay_max);
            }
        }
        link.is_cut = self.cuts.values().any(|cut| cut.contains(&(from, to)));
        link
    }

    /// True while a machine's node receives no agreed state.
    pub(crate) fn is_deaf(&self, number: u8) -> bool {
        self.deaf.values().any(|deaf| *deaf == number)
    }
}
