//! The output about a plan, line by line.

use super::super::example_cluster::{commit, founded, founded_with, join, node, settled, stage};
use super::*;

/// Each partition of the first node has a thousand objects and 3 MB; the sizes of partitions in
/// `without` are unknown.
fn sizes(state: &ClusterState, without: &[u16]) -> Sizes {
    let owned = state.ring().owned_by(node(1)).map(Partition::number);
    let known = owned.filter(|it| !without.contains(it));
    let of_each = known.map(|partition| StoreSize {
        partition,
        keys: 1_000,
        bytes: 3 << 20,
    });
    Sizes::from([(node(1), of_each.collect())])
}

const MB_A_SECOND: u64 = 1 << 20;

/// Two nodes join one.
fn joining() -> ClusterState {
    join(&join(&founded(), 2), 3)
}

fn planned(state: &ClusterState, sizes: &Sizes) -> (String, Value) {
    let plan = state.plan().unwrap();
    let costs = PlanCosts::of(&plan, sizes, MB_A_SECOND);
    (text(state, &plan, &costs), json(state, &plan, &costs))
}

#[test]
fn a_plan_names_moves_bytes_and_time() {
    let state = joining();
    let (text, json) = planned(&state, &sizes(&state, &[]));
    assert_eq!(
        text,
        "\
=============================== Staged Changes ================================
Action         Details(s)
-------------------------------------------------------------------------------
join           'b@10.0.0.2'
join           'c@10.0.0.3'
-------------------------------------------------------------------------------


NOTE: Applying these changes will result in 1 cluster transition

###############################################################################
                         After cluster transition 1/1
###############################################################################

================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
valid     100.0%     37.5%    'a@10.0.0.1'
valid       0.0%     37.5%    'b@10.0.0.2'
valid       0.0%     25.0%    'c@10.0.0.3'
-------------------------------------------------------------------------------
Valid:3 / Leaving:0 / Exiting:0 / Joining:0 / Down:0

Transfers resulting from cluster changes: 5
  3 transfers from 'a@10.0.0.1' to 'b@10.0.0.2': 3000 objects, 9.00 MB
  2 transfers from 'a@10.0.0.1' to 'c@10.0.0.3': 2000 objects, 6.00 MB

To be moved: 15.00 MB in 5 partitions; about 9.00 s at 1.00 MB/s into each node
  partition    0: 'a@10.0.0.1' => 'b@10.0.0.2', 3.00 MB
  partition    1: 'a@10.0.0.1' => 'c@10.0.0.3', 3.00 MB
  partition    3: 'a@10.0.0.1' => 'b@10.0.0.2', 3.00 MB
  partition    5: 'a@10.0.0.1' => 'c@10.0.0.3', 3.00 MB
  partition    6: 'a@10.0.0.1' => 'b@10.0.0.2', 3.00 MB
"
    );
    assert_eq!(json["bytes"], 15 << 20);
    // The time of the node that receives the most.
    assert_eq!(json["seconds"], 9);
    assert_eq!(json["bytes_per_second"], MB_A_SECOND);
    assert_eq!(json["transfers"][0]["objects"], 3_000);
    assert_eq!(json["moves"][1]["bytes"], 3 << 20);
}

#[test]
fn what_is_not_known_makes_the_sum_a_lower_bound() {
    let state = joining();
    let (text, json) = planned(&state, &sizes(&state, &[0]));
    for line in [
        "\n  3 transfers from 'a@10.0.0.1' to 'b@10.0.0.2': 2000 objects, 6.00 MB, and 1 partition of \
         unknown size\n",
        "\nTo be moved: at least 12.00 MB in 5 partitions; longer than 6.00 s at 1.00 MB/s into each \
         node\n",
        "\n  partition    0: 'a@10.0.0.1' => 'b@10.0.0.2', unknown\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(json["transfers"][0]["partitions_of_unknown_size"], 1);
    assert_eq!(json["moves"][0]["bytes"], Value::Null);
}

#[test]
fn a_plan_says_what_is_lost_with_whom() {
    let three = settled(commit(&joining()));
    let change = StagedChange::ForceReplace { by: node(4) };
    let state = stage(&join(&three, 4), 3, change);
    let (text, json) = planned(&state, &Sizes::new());
    assert_eq!(
        text,
        "\
=============================== Staged Changes ================================
Action         Details(s)
-------------------------------------------------------------------------------
join           'd@10.0.0.4'
force-replace  'c@10.0.0.3' with 'd@10.0.0.4'
-------------------------------------------------------------------------------

WARNING: All of 'c@10.0.0.3' replicas will be lost

NOTE: Applying these changes will result in 1 cluster transition

###############################################################################
                         After cluster transition 1/1
###############################################################################

================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
valid      37.5%     37.5%    'a@10.0.0.1'
valid      37.5%     37.5%    'b@10.0.0.2'
valid       0.0%     25.0%    'd@10.0.0.4'
-------------------------------------------------------------------------------
Valid:3 / Leaving:0 / Exiting:0 / Joining:0 / Down:0

Partitions reassigned from cluster changes: 2
  2 reassigned from 'c@10.0.0.3' to 'd@10.0.0.4'
They come without a transfer and are repaired from their other replicas; data that only the removed node had is lost

Transfers resulting from cluster changes: 0
"
    );
    assert_eq!(json["lost"], 2);
    assert_eq!(json["staged"][1]["action"], "force-replace");
}

#[test]
fn only_the_first_of_many_moves_are_shown() {
    let state = join(&founded_with(64), 2);
    let (text, json) = planned(&state, &sizes(&state, &[]));
    assert_eq!(json["moves"].as_array().map(Vec::len), Some(32));
    assert_eq!(text.matches("=>").count(), MOVES_SHOWN);
    assert!(text.ends_with("\n  and 16 more\n"), "{text}");
}
