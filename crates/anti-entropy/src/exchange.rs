//! The exchange machine: it finds the entries that some replicas of a preference list lack.
//!
//! Roots are compared first, then the branches that differ, then keys and versions of the leaves
//! that differ. Each comparison that finds differences is repeated after a pause, and only
//! differences found both times count: writes under way are no differences. If there is nothing to
//! mend, an exchange is one question to each replica.
//!
//! ```text
//! roots --- differ --> pause, roots --- differ --> branches --> pause, branches
//!   | equal              | equal                                    | leaves differ
//!  End                  End                                        keys --> pause, keys --> repairs
//!                                                                   | equal                   |
//!                                                                  End                       End
//! ```
//!
//! Leaves that differ only in the trees are counted again from the store.
//!
//! A replica that fails or whose tree is being built is left out of the following steps, and the
//! exchange is not complete.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_tictac::{LEAVES_A_BRANCH, TreeSize, folded_root};

use crate::differences::{KeyTable, differing_of_all};
use crate::entry_summary::EntrySummary;
use crate::exchange_event::{
    BranchesAnswer, ExchangeEffect, ExchangeEvent, KeysAnswer, RootAnswer,
};
use crate::outcome::{EndedBy, Outcome};
use crate::range_hint::RangeHint;

/// Limits on the cost of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeLimits {
    /// The most branches that are fetched. Each is 1 KB from each replica.
    pub branches_max: usize,
    /// The most leaves whose keys are listed (Riak's `tictacaae_maxresults`).
    pub leaves_max: usize,
    /// The most entries that a replica lists.
    pub keys_max: usize,
    /// The most repairs under way at once.
    pub repairs_at_once: usize,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            branches_max: 64,
            leaves_max: 64,
            keys_max: 16_384,
            repairs_at_once: 4,
        }
    }
}

/// The scope of a comparison.
#[derive(Clone, Debug)]
pub struct ExchangeRequest {
    /// The number of replicas in the preference list.
    pub replicas: usize,
    /// Its limits.
    pub limits: ExchangeLimits,
    /// The range to compare; differences elsewhere are left to the next exchange.
    pub hint: Option<RangeHint>,
    /// The last key that the previous exchange listed before it was cut.
    pub after: Option<StorageKey>,
    /// Counts the exchanges of these replicas: when bounds cut, each exchange begins elsewhere.
    pub turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Roots,
    Branches,
    Keys,
    Repairs,
    Ended,
}

#[derive(Debug)]
enum Answer {
    Root(TreeSize, u8, Vec<u32>),
    Branches(Vec<Vec<u32>>),
    Keys(Vec<EntrySummary>, bool, u64),
}

/// The keys that all replicas listed.
#[derive(Default)]
struct Lists {
    lists: Vec<Vec<EntrySummary>>,
    /// The key up to which all lists reach, if one was cut.
    to: Option<StorageKey>,
    /// The latest of the replicas' clocks. A replica does not list entries that have expired by its
    /// own clock.
    now: u64,
}

/// One exchange in progress.
#[derive(Debug)]
pub struct Exchange {
    request: ExchangeRequest,
    step: Step,
    /// True for the second comparison of a step.
    is_second: bool,
    is_paused: bool,
    /// Answers of this step by replica; `None` while the answer of a participating replica is
    /// missing.
    answers: Vec<Option<Answer>>,
    takes_part: Vec<bool>,
    size: TreeSize,
    /// Branches or leaves that differed in the first comparison of this step.
    differed: BTreeSet<u32>,
    /// The branches or leaves that this step asks for.
    asked: Arc<[u32]>,
    keys_differed: KeyTable,
    repairs: VecDeque<StorageKey>,
    under_way: BTreeSet<StorageKey>,
    outcome: Outcome,
}

impl Exchange {
    /// Starts an exchange; effects are appended to those that the driver has yet to execute.
    pub fn start(request: ExchangeRequest, effects: &mut Vec<ExchangeEffect>) -> Self {
        let replicas = request.replicas;
        let mut exchange = Self {
            request,
            step: Step::Roots,
            is_second: false,
            is_paused: false,
            answers: Vec::new(),
            takes_part: vec![true; replicas],
            size: TreeSize::XLarge,
            differed: BTreeSet::new(),
            asked: Arc::default(),
            keys_differed: KeyTable::default(),
            repairs: VecDeque::new(),
            under_way: BTreeSet::new(),
            outcome: Outcome::new(replicas),
        };
        match replicas {
            0 | 1 => exchange.end(EndedBy::TooFewReplicas, effects),
            _ => exchange.ask(effects),
        }
        exchange
    }

    /// Handles an event and appends its effects. An event that the step does not wait for is
    /// ignored.
    pub fn step(&mut self, event: ExchangeEvent, effects: &mut Vec<ExchangeEffect>) {
        if self.step == Step::Ended {
            return;
        }
        match event {
            ExchangeEvent::Stop => self.end(EndedBy::Stopped, effects),
            ExchangeEvent::PauseOver => self.resume(effects),
            ExchangeEvent::Root { replica, answer } => {
                self.take(Step::Roots, replica, of_root(answer), effects);
            }
            ExchangeEvent::Branches { replica, answer } => {
                let answer = self.of_branches(answer);
                self.take(Step::Branches, replica, answer, effects);
            }
            ExchangeEvent::Keys { replica, answer } => {
                let answer = match answer {
                    KeysAnswer::Keys { seen, is_cut, now } => Some(Answer::Keys(seen, is_cut, now)),
                    KeysAnswer::Failed => None,
                };
                self.take(Step::Keys, replica, answer, effects);
            }
            ExchangeEvent::Repaired { key, is_mended } => self.repaired(&key, is_mended, effects),
        }
    }

    fn of_branches(&self, answer: BranchesAnswer) -> Option<Answer> {
        let BranchesAnswer::Branches {
            branches,
            is_building,
        } = answer
        else {
            return None;
        };
        let mut lengths = branches.iter().map(Vec::len);
        let has_form =
            branches.len() == self.asked.len() && lengths.all(|it| it == LEAVES_A_BRANCH);
        (is_usable(is_building) && has_form).then_some(Answer::Branches(branches))
    }

    fn participants(&self) -> impl Iterator<Item = usize> {
        let numbered = self.takes_part.iter().enumerate();
        numbered.filter(|(_, takes)| **takes).map(|(at, _)| at)
    }

    /// Sends the question of this step to every participating replica.
    fn ask(&mut self, effects: &mut Vec<ExchangeEffect>) {
        self.answers = self.takes_part.iter().map(|_| None).collect();
        for replica in self.participants() {
            effects.push(self.question(replica));
        }
        let questions = self.participants().count();
        self.outcome.questions += u32::try_from(questions).unwrap_or(u32::MAX);
    }

    fn question(&self, replica: usize) -> ExchangeEffect {
        let (size, asked) = (self.size, self.asked.clone());
        match self.step {
            Step::Branches => ExchangeEffect::AskBranches {
                replica,
                size,
                branches: asked,
            },
            Step::Keys => ExchangeEffect::AskKeys {
                replica,
                size,
                leaves: asked,
                hint: self.request.hint.clone(),
                after: self.request.after.clone(),
                keys_max: self.request.limits.keys_max,
            },
            Step::Roots | Step::Repairs | Step::Ended => ExchangeEffect::AskRoot { replica },
        }
    }

    /// Handles an answer; a replica that failed to answer is left out.
    fn take(
        &mut self,
        step: Step,
        replica: usize,
        answer: Option<Answer>,
        effects: &mut Vec<ExchangeEffect>,
    ) {
        let is_awaited = self.step == step
            && !self.is_paused
            && self.takes_part.get(replica) == Some(&true)
            && self.answers[replica].is_none();
        if !is_awaited {
            return;
        }
        match answer {
            Some(answer) => self.answers[replica] = Some(answer),
            None => self.takes_part[replica] = false,
        }
        if self.participants().all(|it| self.answers[it].is_some()) {
            self.compare(effects);
        }
    }

    fn compare(&mut self, effects: &mut Vec<ExchangeEffect>) {
        if self.step == Step::Roots {
            self.leave_out_other_versions();
        }
        if self.participants().count() < 2 {
            return self.end(EndedBy::TooFewReplicas, effects);
        }
        match self.step {
            Step::Roots => self.compare_roots(effects),
            Step::Branches => self.compare_branches(effects),
            Step::Keys => self.compare_keys(effects),
            Step::Repairs | Step::Ended => {}
        }
    }

    /// Trees of two hash versions differ everywhere and cannot be compared: the version of most
    /// replicas is used.
    fn leave_out_other_versions(&mut self) {
        let version = |answer: &Option<Answer>| match answer {
            Some(Answer::Root(_, version, _)) => Some(*version),
            _ => None,
        };
        let versions: Vec<Option<u8>> = self.answers.iter().map(version).collect();
        let votes = |of: u8| versions.iter().filter(|it| **it == Some(of)).count();
        let common = versions
            .iter()
            .flatten()
            .max_by_key(|it| (votes(**it), **it));
        let common = common.copied();
        for (takes_part, version) in self.takes_part.iter_mut().zip(&versions) {
            *takes_part &= *version == common;
        }
    }

    fn compare_roots(&mut self, effects: &mut Vec<ExchangeEffect>) {
        let roots = self
            .participants()
            .filter_map(|it| match &self.answers[it] {
                Some(Answer::Root(size, _, root)) => Some((*size, root)),
                _ => None,
            });
        let roots: Vec<(TreeSize, &Vec<u32>)> = roots.collect();
        let size = roots.iter().map(|it| it.0).min().unwrap_or(self.size);
        let folded: Vec<Vec<u32>> = roots.iter().map(|it| folded_root(it.1, size)).collect();
        let differ = differing_of_all(folded.iter().map(Vec::as_slice));
        if self.is_second && size != self.size {
            return self.end(EndedBy::TreeChanged, effects);
        }
        self.size = size;
        let Some(branches) = self.confirmed(differ, effects) else {
            return;
        };
        self.outcome.branches = count(branches.len());
        self.next_step(Step::Branches, branches, effects);
    }

    fn compare_branches(&mut self, effects: &mut Vec<ExchangeEffect>) {
        let mut differ = BTreeSet::new();
        for (at, branch) in self.asked.iter().enumerate() {
            let branches = self
                .participants()
                .filter_map(|it| match &self.answers[it] {
                    Some(Answer::Branches(branches)) => Some(branches[at].as_slice()),
                    _ => None,
                });
            let first = branch * count(LEAVES_A_BRANCH);
            differ.extend(
                differing_of_all(branches)
                    .into_iter()
                    .map(|leaf| first + leaf),
            );
        }
        let Some(leaves) = self.confirmed(differ, effects) else {
            return;
        };
        self.next_step(Step::Keys, leaves, effects);
        self.outcome.leaves = count(self.asked.len());
    }

    /// Differences in both comparisons of a step; `None` when the exchange ends or pauses first.
    fn confirmed(
        &mut self,
        differ: BTreeSet<u32>,
        effects: &mut Vec<ExchangeEffect>,
    ) -> Option<Vec<u32>> {
        if differ.is_empty() {
            let is_first_look = self.step == Step::Roots && !self.is_second;
            let ended_by = match is_first_look {
                true => EndedBy::Equal,
                false => EndedBy::InFlight,
            };
            self.end(ended_by, effects);
            return None;
        }
        if !self.is_second && !is_planted!(InFlightTakenForDifference) {
            self.differed = differ;
            self.pause(effects);
            return None;
        }
        let both = match is_planted!(InFlightTakenForDifference) {
            true => differ,
            false => differ.intersection(&self.differed).copied().collect(),
        };
        if both.is_empty() {
            self.end(EndedBy::InFlight, effects);
            return None;
        }
        Some(both.into_iter().collect())
    }

    /// Continues with the differences found, or with a part of them, which differs in each turn.
    fn next_step(&mut self, step: Step, found: Vec<u32>, effects: &mut Vec<ExchangeEffect>) {
        let limits = &self.request.limits;
        let max = match step {
            Step::Branches => limits.branches_max,
            _ => limits.leaves_max,
        };
        self.outcome.is_cut |= found.len() > max;
        self.asked = part_of(found, max, self.request.turn).into();
        self.step = step;
        self.is_second = false;
        self.ask(effects);
    }

    fn compare_keys(&mut self, effects: &mut Vec<ExchangeEffect>) {
        let Lists { lists, to, now } = self.take_lists();
        let read: usize = lists.iter().map(Vec::len).sum();
        self.outcome.keys_read += read as u64;
        self.note_cut(to.as_ref());
        let differ = KeyTable::new(&lists, to.as_ref(), now).differing();
        if !self.is_second {
            return self.look_again(differ, effects);
        }
        let (settled, moving) = differ.settled_since(&self.keys_differed);
        self.outcome.keys_in_flight = count(moving.len());
        if settled.is_empty() {
            return self.end(EndedBy::InFlight, effects);
        }
        self.outcome.hint = RangeHint::over(settled.seen());
        self.outcome.keys_repaired = count(settled.len());
        self.repairs = settled.into_keys().collect();
        self.step = Step::Repairs;
        self.start_repairs(effects);
    }

    fn note_cut(&mut self, to: Option<&StorageKey>) {
        self.outcome.is_cut |= to.is_some();
        let former = self.outcome.resume_after.take();
        self.outcome.resume_after = former.into_iter().chain(to.cloned()).min();
    }

    fn take_lists(&mut self) -> Lists {
        let mut all = Lists::default();
        for answer in self.answers.iter_mut().filter_map(Option::take) {
            let Answer::Keys(seen, is_cut, now) = answer else {
                continue;
            };
            if let Some(last) = seen.last().filter(|_| is_cut) {
                all.to = Some(match all.to {
                    Some(to) => to.min(last.key.clone()),
                    None => last.key.clone(),
                });
            }
            all.now = all.now.max(now);
            all.lists.push(seen);
        }
        all
    }

    fn look_again(&mut self, differ: KeyTable, effects: &mut Vec<ExchangeEffect>) {
        let has_all_keys = self.lists_all_keys();
        if has_all_keys {
            self.recount(&differ, effects);
        }
        if !differ.is_empty() {
            self.keys_differed = differ;
            return self.pause(effects);
        }
        let ended_by = match has_all_keys {
            true => EndedBy::Recounted,
            false => EndedBy::NothingInRange,
        };
        self.end(ended_by, effects);
    }

    /// True when the replicas listed all keys of the requested leaves.
    fn lists_all_keys(&self) -> bool {
        let request = &self.request;
        let is_cut = self.outcome.resume_after.is_some();
        request.hint.is_none() && request.after.is_none() && !is_cut
    }

    /// Corrects the leaves without a differing key.
    fn recount(&mut self, differ: &KeyTable, effects: &mut Vec<ExchangeEffect>) {
        let with_differences = differ.seen().map(|it| self.size.leaf_of(it.segment));
        let with_differences: BTreeSet<u32> = with_differences.collect();
        let leaves = self.asked.iter().copied();
        let leaves: Arc<[u32]> = leaves.filter(|it| !with_differences.contains(it)).collect();
        if leaves.is_empty() {
            return;
        }
        self.outcome.leaves_recounted = count(leaves.len());
        for replica in self.participants() {
            effects.push(ExchangeEffect::Recount {
                replica,
                size: self.size,
                leaves: leaves.clone(),
            });
        }
    }

    fn pause(&mut self, effects: &mut Vec<ExchangeEffect>) {
        self.is_paused = true;
        effects.push(ExchangeEffect::Pause);
    }

    fn resume(&mut self, effects: &mut Vec<ExchangeEffect>) {
        if !self.is_paused {
            return;
        }
        self.is_paused = false;
        self.is_second = true;
        self.ask(effects);
    }

    fn start_repairs(&mut self, effects: &mut Vec<ExchangeEffect>) {
        while self.under_way.len() < self.request.limits.repairs_at_once.max(1) {
            let Some(key) = self.repairs.pop_front() else {
                break;
            };
            self.under_way.insert(key.clone());
            effects.push(ExchangeEffect::Repair { key });
        }
        if self.under_way.is_empty() {
            self.end(EndedBy::Repaired, effects);
        }
    }

    fn repaired(&mut self, key: &StorageKey, is_mended: bool, effects: &mut Vec<ExchangeEffect>) {
        if !self.under_way.remove(key) {
            return;
        }
        self.outcome.repairs_failed += u32::from(!is_mended);
        self.start_repairs(effects);
    }

    fn end(&mut self, ended_by: EndedBy, effects: &mut Vec<ExchangeEffect>) {
        self.step = Step::Ended;
        self.outcome.ended_by = ended_by;
        self.outcome.took_part.clone_from(&self.takes_part);
        self.outcome.is_complete = self.is_complete(ended_by);
        effects.push(ExchangeEffect::End(self.outcome.clone()));
    }

    /// True when each branch was equal at some time since the exchange began, or its differences
    /// have been mended.
    fn is_complete(&self, ended_by: EndedBy) -> bool {
        let has_compared_all = match ended_by {
            EndedBy::Equal | EndedBy::InFlight | EndedBy::Repaired | EndedBy::Recounted => true,
            EndedBy::NothingInRange
            | EndedBy::TooFewReplicas
            | EndedBy::TreeChanged
            | EndedBy::Stopped => false,
        };
        let are_all_there = self.takes_part.iter().all(|it| *it);
        has_compared_all
            && (are_all_there || is_planted!(ExchangeShortOfReplicaComplete))
            && self.request.hint.is_none()
            && self.request.after.is_none()
            && !self.outcome.is_cut
            && self.outcome.repairs_failed == 0
            && self.outcome.keys_in_flight == 0
    }
}

fn of_root(answer: RootAnswer) -> Option<Answer> {
    match answer {
        RootAnswer::Root {
            size,
            hash_version,
            root,
            is_building,
        } => {
            let has_form = root.len() == size.branches();
            (is_usable(is_building) && has_form).then_some(Answer::Root(size, hash_version, root))
        }
        RootAnswer::Failed => None,
    }
}

/// False for a tree that is being built: it lacks entries, and may agree where entries differ.
fn is_usable(is_building: bool) -> bool {
    !is_building || is_planted!(TreeTrustedWhileBuilt)
}

/// At most `max` of the differences found, ascending; each turn takes another part.
fn part_of(mut found: Vec<u32>, max: usize, turn: usize) -> Vec<u32> {
    let max = max.max(1);
    if found.len() <= max {
        return found;
    }
    let start = turn.wrapping_mul(max) % found.len();
    found.rotate_left(start);
    found.truncate(max);
    found.sort_unstable();
    found
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
