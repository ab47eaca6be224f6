//! In no interleaving with late nodes does a read miss an acknowledged write while a partition
//! moves.
//!
//! A search over every state of a small cluster: the source A, the receiver B and the replicas that
//! do not move. One writer and one reader are each at any agreed step, messages arrive at any time
//! or never, and nodes apply steps at any time. The lists to ask come from the crate ([`Phase`]).
//! The gates are the search's own. Each can be left out: then the search has to find a read that
//! misses the write.

use std::collections::HashSet;

use kvorum_ring::{List, Phase};

/// The steps that the cluster agrees on, one after the other. A step's place in the list is its
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    SettledOnA,
    Moving(Phase),
    SettledOnB,
}

const MOVED: &[Step] = &[
    Step::SettledOnA,
    Step::Moving(Phase::Filling),
    Step::Moving(Phase::Closing),
    Step::SettledOnB,
];

/// A move that is abandoned and tried again.
const MOVED_AT_LAST: &[Step] = &[
    Step::SettledOnA,
    Step::Moving(Phase::Filling),
    Step::SettledOnA,
    Step::Moving(Phase::Filling),
    Step::Moving(Phase::Closing),
    Step::SettledOnB,
];

const A: usize = 0;
const B: usize = 1;
/// The replicas from here on do not move.
const FIRST_OTHER: usize = 2;

/// A rule that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A vnode that moves refuses epochs below its own.
    LowerEpochsAreRefused,
    /// Writes ask both lists while the receiver fills.
    FillingWritesAskBoth,
    /// Writes ask both lists while the source closes.
    ClosingWritesAskBoth,
    /// The source takes its snapshot after it has applied the beginning of the move.
    SnapshotBehindTheEpoch,
    /// Closing waits for the receiver to have everything.
    ClosingWaitsForTheReceiver,
    /// Settling waits until the source has applied the closing.
    SettlingWaitsForTheSource,
}

/// A cluster, its agreed steps, and the quorums that are asked.
#[derive(Clone, Copy)]
struct Search {
    steps: &'static [Step],
    others: usize,
    w: usize,
    r: usize,
    left_out: Option<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Request {
    /// The epoch of its coordinator; none before the request was sent.
    epoch: Option<u8>,
    /// Replicas that it may still reach.
    under_way: u8,
    /// Replicas that have answered.
    answered: u8,
    /// True for a read if an answer held the write.
    found: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    agreed: u8,
    known: [u8; 2],
    /// Replicas that hold the write.
    holds: u8,
    /// A has taken its snapshot, and the snapshot held the write.
    snapshot: Option<bool>,
    /// B has stored the snapshot.
    is_filled: bool,
    write: Request,
    read: Request,
}

fn bit(replica: usize) -> u8 {
    1 << replica
}

impl Search {
    fn has(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    fn step(&self, epoch: u8) -> Step {
        self.steps[usize::from(epoch)]
    }

    fn write_lists(&self, epoch: u8) -> Vec<List> {
        let left_out = match self.step(epoch) {
            Step::SettledOnA => return vec![List::Old],
            Step::SettledOnB => return vec![List::New],
            Step::Moving(Phase::Filling) => Rule::FillingWritesAskBoth,
            Step::Moving(Phase::Closing) => Rule::ClosingWritesAskBoth,
        };
        let Step::Moving(phase) = self.step(epoch) else {
            return Vec::new();
        };
        if self.has(left_out) {
            phase.write_lists().to_vec()
        } else {
            vec![phase.read_list()]
        }
    }

    fn read_lists(&self, epoch: u8) -> Vec<List> {
        match self.step(epoch) {
            Step::SettledOnA => vec![List::Old],
            Step::SettledOnB => vec![List::New],
            Step::Moving(phase) => vec![phase.read_list()],
        }
    }

    fn replicas(&self) -> usize {
        FIRST_OTHER + self.others
    }

    fn members(&self, list: List) -> u8 {
        let others = (FIRST_OTHER..self.replicas()).map(bit).sum::<u8>();
        match list {
            List::Old => others | bit(A),
            List::New => others | bit(B),
        }
    }

    fn asked(&self, lists: &[List]) -> u8 {
        lists
            .iter()
            .fold(0, |asked, list| asked | self.members(*list))
    }

    /// True if answers satisfy a quorum in each list that has to be asked.
    fn is_satisfied(&self, lists: &[List], answered: u8, quorum: usize) -> bool {
        let counts = |list: &List| {
            let count = (answered & self.members(*list)).count_ones();
            usize::try_from(count).unwrap() >= quorum
        };
        lists.iter().all(counts)
    }

    fn is_acknowledged(&self, state: &State) -> bool {
        let write = &state.write;
        write.epoch.is_some_and(|epoch| {
            self.is_satisfied(&self.write_lists(epoch), write.answered, self.w)
        })
    }

    /// True for a read whose quorum has answered without the acknowledged write.
    fn is_stale(&self, state: &State) -> bool {
        let read = &state.read;
        let is_answered = |epoch| self.is_satisfied(&self.read_lists(epoch), read.answered, self.r);
        !read.found && read.epoch.is_some_and(is_answered)
    }

    fn refuses(&self, state: &State, replica: usize, epoch: u8) -> bool {
        replica < FIRST_OTHER
            && epoch < state.known[replica]
            && self.has(Rule::LowerEpochsAreRefused)
    }

    fn successors(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        self.agree(state, &mut next);
        self.learn(state, &mut next);
        self.fill(state, &mut next);
        self.send(state, &mut next);
        self.deliver(state, &mut next);
        next
    }

    fn agree(&self, state: &State, next: &mut Vec<State>) {
        let Some(following) = self.steps.get(usize::from(state.agreed) + 1) else {
            return;
        };
        let may = match following {
            Step::Moving(Phase::Closing) => {
                state.is_filled || !self.has(Rule::ClosingWaitsForTheReceiver)
            }
            Step::SettledOnB => {
                state.known[A] >= state.agreed || !self.has(Rule::SettlingWaitsForTheSource)
            }
            Step::SettledOnA | Step::Moving(Phase::Filling) => true,
        };
        if may {
            let mut agreed = *state;
            agreed.agreed += 1;
            if *following == Step::SettledOnA {
                agreed.snapshot = None;
                agreed.is_filled = false;
            }
            next.push(agreed);
        }
    }

    /// A node applies the next step.
    fn learn(&self, state: &State, next: &mut Vec<State>) {
        for replica in [A, B] {
            if state.known[replica] < state.agreed {
                let mut learnt = *state;
                learnt.known[replica] += 1;
                next.push(learnt);
            }
        }
    }

    fn fill(&self, state: &State, next: &mut Vec<State>) {
        let is_filling = self.step(state.agreed) == Step::Moving(Phase::Filling);
        let knows = state.known[A] >= state.agreed || !self.has(Rule::SnapshotBehindTheEpoch);
        if state.snapshot.is_none() && knows && is_filling {
            let snapshot = Some(state.holds & bit(A) != 0);
            next.push(State { snapshot, ..*state });
        }
        if let Some(held) = state.snapshot.filter(|_| !state.is_filled) {
            let held = if held { bit(B) } else { 0 };
            next.push(State {
                holds: state.holds | held,
                is_filled: true,
                ..*state
            });
        }
    }

    /// A coordinator sends its request, by any agreed step. The read begins once the write is
    /// acknowledged.
    fn send(&self, state: &State, next: &mut Vec<State>) {
        for epoch in 0..=state.agreed {
            if state.write.epoch.is_none() {
                let mut sent = *state;
                sent.write.epoch = Some(epoch);
                sent.write.under_way = self.asked(&self.write_lists(epoch));
                next.push(sent);
            }
            if state.read.epoch.is_none() && self.is_acknowledged(state) {
                let mut sent = *state;
                sent.read.epoch = Some(epoch);
                sent.read.under_way = self.asked(&self.read_lists(epoch));
                next.push(sent);
            }
        }
    }

    /// A message arrives. A lost message stays under way for ever.
    fn deliver(&self, state: &State, next: &mut Vec<State>) {
        for replica in 0..self.replicas() {
            if let Some(epoch) = state.write.epoch
                && state.write.under_way & bit(replica) != 0
            {
                let mut arrived = *state;
                arrived.write.under_way &= !bit(replica);
                if !self.refuses(state, replica, epoch) {
                    arrived.holds |= bit(replica);
                    arrived.write.answered |= bit(replica);
                }
                next.push(arrived);
            }
            if let Some(epoch) = state.read.epoch
                && state.read.under_way & bit(replica) != 0
            {
                let mut arrived = *state;
                arrived.read.under_way &= !bit(replica);
                if !self.refuses(state, replica, epoch) {
                    arrived.read.answered |= bit(replica);
                    arrived.read.found |= state.holds & bit(replica) != 0;
                }
                next.push(arrived);
            }
        }
    }

    /// The first state found in which a read missed the write, and the number of states visited.
    fn run(&self) -> (Option<State>, usize) {
        let mut seen = HashSet::from([State::default()]);
        let mut open = vec![State::default()];
        while let Some(state) = open.pop() {
            if self.is_stale(&state) {
                return (Some(state), seen.len());
            }
            for next in self.successors(&state) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        (None, seen.len())
    }
}

/// Every n up to 3 with every pair of quorums that just overlap; larger quorums overlap more.
fn meeting_quorums(steps: &'static [Step]) -> impl Iterator<Item = Search> {
    (0..3).flat_map(move |others| {
        let n = others + 1;
        (1..=n).map(move |w| Search {
            steps,
            others,
            w,
            r: n + 1 - w,
            left_out: None,
        })
    })
}

fn check(search: &Search) {
    let (stale, states) = search.run();
    let Search { others, w, r, .. } = search;
    assert_eq!(stale, None, "n {}, w {w}, r {r}", others + 1);
    assert!(states > 100, "the search went nowhere");
}

#[test]
fn a_read_never_misses_an_acknowledged_write() {
    meeting_quorums(MOVED).for_each(|search| check(&search));
}

#[test]
fn nor_when_a_move_is_given_up_and_tried_again() {
    let small = meeting_quorums(MOVED_AT_LAST).filter(|search| search.others < 2);
    small.for_each(|search| check(&search));
}

#[test]
fn every_rule_is_needed() {
    for rule in [
        Rule::LowerEpochsAreRefused,
        Rule::FillingWritesAskBoth,
        Rule::ClosingWritesAskBoth,
        Rule::SnapshotBehindTheEpoch,
        Rule::ClosingWaitsForTheReceiver,
        Rule::SettlingWaitsForTheSource,
    ] {
        let mut without = meeting_quorums(MOVED).map(|search| Search {
            left_out: Some(rule),
            ..search
        });
        let found = without.any(|search| search.run().0.is_some());
        assert!(found, "nothing goes wrong without {rule:?}");
    }
}

#[test]
fn quorums_that_do_not_meet_are_found_out() {
    let search = Search {
        steps: MOVED,
        others: 2,
        w: 1,
        r: 2,
        left_out: None,
    };
    assert!(search.run().0.is_some());
}
