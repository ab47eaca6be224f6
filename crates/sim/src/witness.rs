//! Invariants of members' states, under any faults: no two members ever have different states of
//! one version, and no member falls back to an older version, not even in a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_cluster::{ClusterId, ClusterState};

/// The observed states of members.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// For each version, the state of the first member observed with it.
    states: BTreeMap<(ClusterId, u64), Arc<ClusterState>>,
    /// The last state of the node on each machine.
    last: BTreeMap<u8, Arc<ClusterState>>,
}

impl Witness {
    /// Records the state of a machine's node; returns the violation in it, if there is one.
    pub(crate) fn sees(&mut self, number: u8, state: &Arc<ClusterState>) -> Option<String> {
        let before = self.last.insert(number, state.clone());
        if before.as_ref().is_some_and(|it| Arc::ptr_eq(it, state)) {
            return None;
        }
        let (id, version) = (state.id(), state.version());
        let before = before.filter(|before| before.id() == id);
        if let Some(before) = before.filter(|before| before.version() > version) {
            let before = before.version();
            return Some(format!(
                "node {number} knew version {before} of what is agreed, and knows {version} now"
            ));
        }
        let first = self.states.entry((id, version));
        let first = first.or_insert_with(|| state.clone());
        (**first != **state).then(|| {
            format!("node {number} knows another version {version} of what is agreed than others")
        })
    }
}

#[cfg(test)]
mod tests {
    use kvorum_cluster::{Command, Member, apply};
    use kvorum_ring::{Claimant, RingSize, claim};

    use super::*;
    use kvorum_test_cluster::node_id;

    fn founded() -> ClusterState {
        let size = RingSize::new(8).unwrap();
        let ring = claim(size, &[Claimant::new(node_id(1))], 3, None).unwrap();
        let id = ClusterId::from_random([9; 16]);
        ClusterState::found(id, "simulated", node_id(1), Member::new("node1"), ring)
    }

    fn renamed(state: &ClusterState, name: &str) -> Arc<ClusterState> {
        Arc::new(apply(state, Command::NameCluster(name.into())).unwrap())
    }

    #[test]
    fn states_that_follow_one_another_are_fine_and_versions_may_be_skipped() {
        let (mut witness, first) = (Witness::default(), founded());
        let second = renamed(&first, "second");
        let third = renamed(&second, "third");
        for (number, state) in [(1, &second), (1, &third), (2, &second), (3, &third)] {
            assert_eq!(witness.sees(number, state), None);
        }
    }

    #[test]
    fn two_states_of_one_version_and_one_that_is_forgotten_are_not() {
        let (mut witness, first) = (Witness::default(), founded());
        let (one, other) = (renamed(&first, "one"), renamed(&first, "other"));
        assert_eq!(witness.sees(1, &one), None);
        let differs = witness.sees(2, &other).unwrap();
        assert!(differs.contains("another version"), "{differs}");
        let forgets = witness.sees(1, &Arc::new(first)).unwrap();
        assert!(forgets.contains("knew version"), "{forgets}");
    }
}
