//! Bounds on lost values and on the number of siblings, under clients that behave well.

use std::collections::BTreeSet;

use kvorum_object::{Clock, Object, Resolution, merge};
use proptest::prelude::*;

use crate::replica::{Replica, content};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Regression: interleaved writers made siblings without end. Each write came with a context
    /// older than the others' writes, and clocks by node could not separate them.
    #[test]
    fn siblings_are_no_more_than_concurrent_writers(
        turns in proptest::collection::vec((0..4usize, 0..2usize, any::<bool>()), 1..60),
    ) {
        let mut replicas = [Replica::new(1), Replica::new(2)];
        let mut contexts = vec![Clock::new(); 4];
        for (index, (writer, at, exchange)) in turns.into_iter().enumerate() {
            let value = vec![u8::try_from(writer).unwrap(); 2];
            let now = index as u64;
            let keep = Resolution::KeepSiblings;
            let object = replicas[at].write(&contexts[writer], content(value), now, keep);
            if exchange {
                replicas[1 - at].take_in(object.clone(), keep);
            }
            contexts[writer].merge(object.clock());
            let authors: BTreeSet<_> =
                object.siblings().iter().map(|sibling| sibling.value[0]).collect();
            prop_assert_eq!(authors.len(), object.siblings().len());
        }
    }

    /// Regression: timestamps alone lost a third of the acknowledged writes of strictly ordered clients.
    #[test]
    fn the_last_write_of_a_sequential_writer_wins_whatever_the_clocks_say(
        writes in proptest::collection::vec((0..3usize, 0..1000u64), 1..20),
        order in Just([0usize, 1, 2]).prop_shuffle(),
    ) {
        let mut replicas = [Replica::new(1), Replica::new(2), Replica::new(3)];
        let newest = Resolution::NewestWins;
        let mut context = Clock::new();
        for (index, (at, now)) in writes.iter().enumerate() {
            let value = index.to_string();
            let object = replicas[*at].write(&context, content(value), *now, newest);
            context = Clock::decode(&object.clock().encode()).unwrap();
        }
        let merged: Object = order
            .iter()
            .filter_map(|index| replicas[*index].read())
            .reduce(|a, b| merge(a, b, newest))
            .unwrap();
        prop_assert_eq!(&merged.siblings()[0].value, &(writes.len() - 1).to_string());
    }
}
