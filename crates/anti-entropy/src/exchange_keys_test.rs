//! The last steps of an exchange, answered by hand: the effects of cut lists, failed repairs and
//! parts of leaves on the next exchange.

use kvorum_encoding::StorageKey;
use kvorum_tictac::{HASH_VERSION, LEAVES_A_BRANCH, TreeSize};

use crate::entry_summary::EntrySummary;
use crate::exchange::{Exchange, ExchangeLimits, ExchangeRequest};
use crate::exchange_event::{
    BranchesAnswer, ExchangeEffect, ExchangeEvent, KeysAnswer, RootAnswer,
};
use crate::outcome::{EndedBy, Outcome};
use crate::test_world::{key, segment};

const SIZE: TreeSize = TreeSize::XxSmall;

fn request() -> ExchangeRequest {
    ExchangeRequest {
        replicas: 2,
        limits: ExchangeLimits::default(),
        hint: None,
        after: None,
        turn: 0,
    }
}

/// Entries of these numbers, each in the version beside it.
fn listed(entries: &[(u64, u64)]) -> Vec<EntrySummary> {
    let seen = |(number, version): &(u64, u64)| EntrySummary {
        key: key(*number),
        segment: segment(&key(*number)),
        version: *version,
        modified: 1,
        expiry: None,
    };
    entries.iter().map(seen).collect()
}

/// An exchange of two replicas whose trees differ in one leaf, at the step in which keys are listed.
struct AtKeys {
    exchange: Exchange,
    effects: Vec<ExchangeEffect>,
}

impl AtKeys {
    fn new(request: ExchangeRequest) -> Self {
        let mut effects = Vec::new();
        let exchange = Exchange::start(request, &mut effects);
        let mut it = Self { exchange, effects };
        for _ in 0..2 {
            for replica in 0..2 {
                let mut root = vec![0; SIZE.branches()];
                root[0] = u32::try_from(replica).unwrap();
                let answer = RootAnswer::Root {
                    size: SIZE,
                    hash_version: HASH_VERSION,
                    root,
                    is_building: false,
                };
                it.step(ExchangeEvent::Root { replica, answer });
            }
            it.step(ExchangeEvent::PauseOver);
        }
        for _ in 0..2 {
            for replica in 0..2 {
                let mut leaves = vec![0; LEAVES_A_BRANCH];
                leaves[7] = u32::try_from(replica).unwrap();
                let answer = BranchesAnswer::Branches {
                    branches: vec![leaves],
                    is_building: false,
                };
                it.step(ExchangeEvent::Branches { replica, answer });
            }
            it.step(ExchangeEvent::PauseOver);
        }
        let asked = it
            .effects
            .iter()
            .filter(|it| matches!(it, ExchangeEffect::AskKeys { .. }));
        assert_eq!(asked.count(), 2);
        it.effects.clear();
        it
    }

    fn step(&mut self, event: ExchangeEvent) {
        self.exchange.step(event, &mut self.effects);
    }

    /// Both replicas list their entries; each list is cut or not.
    fn list(&mut self, lists: [(&[(u64, u64)], bool); 2]) {
        for (replica, (entries, is_cut)) in lists.into_iter().enumerate() {
            let seen = listed(entries);
            let answer = KeysAnswer::Keys {
                seen,
                is_cut,
                now: 0,
            };
            self.step(ExchangeEvent::Keys { replica, answer });
        }
        self.step(ExchangeEvent::PauseOver);
    }

    fn list_twice(&mut self, lists: [(&[(u64, u64)], bool); 2]) {
        self.list(lists);
        self.list(lists);
    }

    fn repairs(&self) -> Vec<StorageKey> {
        let key = |effect: &ExchangeEffect| match effect {
            ExchangeEffect::Repair { key } => Some(key.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(key).collect()
    }

    fn mend_all(&mut self, is_mended: bool) -> Outcome {
        for key in self.repairs() {
            self.step(ExchangeEvent::Repaired { key, is_mended });
        }
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        match self.effects.last() {
            Some(ExchangeEffect::End(outcome)) => outcome.clone(),
            other => panic!("no end: {other:?}"),
        }
    }
}

#[test]
fn an_exchange_with_a_repair_that_failed_is_not_complete() {
    for is_mended in [true, false] {
        let mut exchange = AtKeys::new(request());
        exchange.list_twice([(&[(3, 1)], false), (&[(3, 2)], false)]);
        let outcome = exchange.mend_all(is_mended);
        assert_eq!(outcome.ended_by, EndedBy::Repaired);
        assert_eq!(outcome.repairs_failed, u32::from(!is_mended));
        assert_eq!(outcome.is_complete, is_mended);
    }
}

/// The replica may have keys after the end of its cut list.
#[test]
fn keys_behind_the_end_of_a_cut_list_are_no_differences() {
    let mut exchange = AtKeys::new(request());
    let whole: &[(u64, u64)] = &[(3, 2), (6, 1), (9, 1), (12, 1)];
    exchange.list_twice([(&[(3, 1), (6, 1)], true), (whole, false)]);
    assert_eq!(exchange.repairs(), [key(3)]);
    let outcome = exchange.mend_all(true);
    assert!(outcome.is_cut && !outcome.is_complete);
    assert_eq!(outcome.resume_after, Some(key(6)));
}

/// The next exchange continues after the last key that both comparisons have covered.
#[test]
fn what_was_cut_at_two_keys_is_resumed_behind_the_smaller_one() {
    for (first, second) in [(9, 6), (6, 9)] {
        let mut exchange = AtKeys::new(request());
        let up_to = |last: u64| {
            [(3, 1), (6, 1), (9, 1)]
                .into_iter()
                .filter(move |it| it.0 <= last)
        };
        let whole: &[(u64, u64)] = &[(3, 2), (6, 1), (9, 1)];
        let (first, second): (Vec<_>, Vec<_>) = (up_to(first).collect(), up_to(second).collect());
        exchange.list([(&first, true), (whole, false)]);
        exchange.list([(&second, true), (whole, false)]);
        assert_eq!(exchange.mend_all(true).resume_after, Some(key(6)));
    }
}

/// Keys before that key were not listed, so equal entries after it do not justify a recount of the
/// leaf.
#[test]
fn leaves_are_not_put_right_by_an_exchange_that_goes_on_behind_a_key() {
    for (after, ended_by) in [
        (None, EndedBy::Recounted),
        (Some(key(3)), EndedBy::NothingInRange),
    ] {
        let is_whole = after.is_none();
        let mut exchange = AtKeys::new(ExchangeRequest { after, ..request() });
        exchange.list([(&[(6, 1)], false), (&[(6, 1)], false)]);
        let recounts = exchange.effects.iter();
        let recounts = recounts.filter(|it| matches!(it, ExchangeEffect::Recount { .. }));
        assert_eq!(recounts.count(), if is_whole { 2 } else { 0 });
        let outcome = exchange.outcome();
        assert_eq!(
            (outcome.ended_by, outcome.is_complete),
            (ended_by, is_whole)
        );
    }
}
