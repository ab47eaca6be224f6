//! Callers that a node admits although they are not members in its state.

use std::time::Duration;

use kvorum_cluster::AgreedState as _;
use kvorum_member::{Operation, Outcome};
use kvorum_test_cluster::link_all;

use crate::machines::{Machine, at, cluster, cut, name, simulated};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn who_joined_while_a_node_was_cut_off_is_let_in_there_without_the_leader() {
    simulated(1, |world| async move {
        let mut machines = cluster(&world, 3).await;
        let away = machines[2].member();
        let known = away.state().current().version();
        link_all(&world, 4);
        cut(&world, &[3], &[1, 2, 4], true);
        machines.push(Machine::new(4));
        machines[3].start(&world).await;
        let new = machines[3].member();
        new.join(at(1), Some(&name(1))).await.unwrap();
        // The leader could send the whole state; another node has to suffice.
        let leader = machines[0].member().state().agreement().status().leader;
        let is_first = leader == Some(machines[0].member().node());
        let other = if is_first { 2 } else { 1 };
        cut(&world, &[3], &[other, 4], false);

        let begun = world.runtime().now();
        let answer = loop {
            match new.operate(away.node(), Operation::Version).await {
                Ok(answer) => break answer,
                Err(error) => {
                    let waited = world.runtime().now().since(begun);
                    assert!(waited < PATIENCE, "{error}");
                    world.runtime().sleep(Duration::from_millis(200)).await;
                }
            }
        };
        assert_eq!(
            answer,
            Outcome::Version(known),
            "it learned of it elsewhere"
        );
    });
}
