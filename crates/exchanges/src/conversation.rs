//! Drives one exchange: executes the machine's effects and feeds the answers back.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kvorum_anti_entropy::{
    BranchesAnswer, EntrySummary, Exchange, ExchangeEffect, ExchangeEvent, ExchangeRequest,
    KeysAnswer, Order, Outcome, Pace, RangeHint, RootAnswer,
};
use kvorum_coordinator::Coordinator;
use kvorum_encoding::StorageKey;
use kvorum_ring::{PreferenceList, Replica};
use kvorum_runtime::{Runtime, Watcher};
use kvorum_tictac::TreeSize;
use kvorum_vnode::{LeafKeys, SeenEntry, TreeAnswer, TreeName, TreeQuestion, TreeRequest};
use parking_lot::Mutex;

use crate::settings::ExchangeSettings;

/// The means of an exchange.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) runtime: Runtime,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) settings: ExchangeSettings,
    /// Shared by all exchanges of the node.
    pub(crate) pace: Arc<Mutex<Pace>>,
}

type Pending = Pin<Box<dyn Future<Output = ExchangeEvent> + Send>>;

/// One exchange in progress.
struct Conversation {
    means: Means,
    replicas: PreferenceList,
    tree: TreeName,
    pending: FuturesUnordered<Pending>,
}

/// Carries out an exchange of these replicas. It ends early when `stop` is set or dropped.
pub(crate) async fn converse(
    means: Means,
    order: &Order,
    replicas: PreferenceList,
    tree: TreeName,
    mut stop: Watcher<bool>,
) -> Outcome {
    let request = ExchangeRequest {
        replicas: replicas.len(),
        limits: means.settings.limits,
        hint: order.hint.clone(),
        after: order.after.clone(),
        turn: order.turn,
    };
    let mut conversation = Conversation {
        means,
        replicas,
        tree,
        pending: FuturesUnordered::new(),
    };
    let mut effects = Vec::new();
    let mut exchange = Exchange::start(request, &mut effects);
    loop {
        for effect in std::mem::take(&mut effects) {
            if let Some(outcome) = conversation.execute(effect) {
                return outcome;
            }
        }
        let event = conversation.next_event(&mut stop).await;
        exchange.step(event, &mut effects);
    }
}

impl Conversation {
    /// The next event: a stop comes before any answer of the same time.
    async fn next_event(&mut self, stop: &mut Watcher<bool>) -> ExchangeEvent {
        let mut stopped = pin!(stop.until(|is_stopped| *is_stopped));
        let pending = &mut self.pending;
        poll_fn(|context| {
            // Stopped, or the sender of stops has gone.
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(ExchangeEvent::Stop);
            }
            let event = pending.poll_next_unpin(context);
            event.map(|event| event.unwrap_or(ExchangeEvent::Stop))
        })
        .await
    }

    /// Executes an effect; returns the outcome at the end.
    fn execute(&mut self, effect: ExchangeEffect) -> Option<Outcome> {
        let pending: Pending = match effect {
            ExchangeEffect::End(outcome) => return Some(outcome),
            ExchangeEffect::AskRoot { replica } => {
                let asked = self.ask(replica, TreeQuestion::Root);
                Box::pin(async move {
                    let answer = root_of(asked.await);
                    ExchangeEvent::Root { replica, answer }
                })
            }
            ExchangeEffect::AskBranches {
                replica,
                size,
                branches,
            } => {
                let asked = self.ask(replica, TreeQuestion::Branches { size, branches });
                Box::pin(async move {
                    let answer = branches_of(asked.await);
                    ExchangeEvent::Branches { replica, answer }
                })
            }
            ExchangeEffect::AskKeys {
                replica,
                size,
                leaves,
                hint,
                after,
                keys_max,
            } => {
                let keys = leaf_keys(size, leaves, hint, after, keys_max);
                let asked = self.ask(replica, TreeQuestion::Keys(keys));
                Box::pin(async move {
                    let answer = keys_of(asked.await);
                    ExchangeEvent::Keys { replica, answer }
                })
            }
            ExchangeEffect::Pause => {
                let (runtime, pause) = (self.means.runtime.clone(), self.means.settings.pause);
                Box::pin(async move {
                    runtime.sleep(pause).await;
                    ExchangeEvent::PauseOver
                })
            }
            ExchangeEffect::Repair { key } => Box::pin(repair(self.means.clone(), key)),
            ExchangeEffect::Recount {
                replica,
                size,
                leaves,
            } => {
                let asked = self.ask(replica, TreeQuestion::Recount { size, leaves });
                self.means.runtime.spawn("recount", async move {
                    // The next exchange requests a failed recount again.
                    let _recounted_or_not = asked.await;
                });
                return None;
            }
        };
        self.pending.push(pending);
        None
    }

    /// Asks a replica; `None` when no answer comes in time.
    fn ask(
        &self,
        replica: usize,
        question: TreeQuestion,
    ) -> impl Future<Output = Option<TreeAnswer>> + Send + 'static {
        let replica: Option<Replica> = self.replicas.get(replica).copied();
        let (coordinator, tree) = (self.means.coordinator.clone(), self.tree);
        let (runtime, wait) = (
            self.means.runtime.clone(),
            self.means.settings.answer_wait_max,
        );
        async move {
            let replica = replica?;
            let request = TreeRequest {
                partition: replica.partition,
                epoch: replica.epoch,
                tree,
                question,
            };
            let asked = coordinator.ask_about_tree(replica.node, request, wait);
            match runtime.timeout(wait, asked).await {
                Ok(Ok(answer)) => Some(answer),
                Ok(Err(_)) | Err(_) => None,
            }
        }
    }
}

async fn repair(means: Means, key: StorageKey) -> ExchangeEvent {
    let is_mended = mend(&means, &key).await;
    ExchangeEvent::Repaired { key, is_mended }
}

/// Brings all replicas of a key up to date when the pace admits it; true if all replicas are up to
/// date.
pub(crate) async fn mend(means: &Means, key: &StorageKey) -> bool {
    loop {
        let now = micros(means.runtime.now().elapsed());
        let wait = means.pace.lock().let_through(now);
        match wait {
            Ok(()) => break,
            Err(micros) => means.runtime.sleep(Duration::from_micros(micros)).await,
        }
    }
    let wait = means.settings.answer_wait_max;
    means.coordinator.mend_replicas(key, wait).await
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn leaf_keys(
    size: TreeSize,
    leaves: Arc<[u32]>,
    hint: Option<RangeHint>,
    after: Option<StorageKey>,
    keys_max: usize,
) -> LeafKeys {
    let modified = hint.as_ref().map(|it| (it.modified_from, it.modified_to));
    let prefix = hint.and_then(|it| it.bucket_prefix);
    LeafKeys {
        size,
        leaves,
        bucket_prefix: prefix.map(Into::into),
        modified,
        after,
        keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX),
    }
}

fn root_of(answer: Option<TreeAnswer>) -> RootAnswer {
    match answer {
        Some(TreeAnswer::Root {
            size,
            hash_version,
            root,
            is_building,
        }) => RootAnswer::Root {
            size,
            hash_version,
            root,
            is_building,
        },
        _ => RootAnswer::Failed,
    }
}

fn branches_of(answer: Option<TreeAnswer>) -> BranchesAnswer {
    match answer {
        Some(TreeAnswer::Branches {
            branches,
            is_building,
        }) => BranchesAnswer::Branches {
            branches,
            is_building,
        },
        _ => BranchesAnswer::Failed,
    }
}

fn keys_of(answer: Option<TreeAnswer>) -> KeysAnswer {
    match answer {
        Some(TreeAnswer::Keys {
            entries,
            is_cut,
            now,
        }) => KeysAnswer::Keys {
            seen: entries.into_iter().map(seen_of).collect(),
            is_cut,
            now,
        },
        _ => KeysAnswer::Failed,
    }
}

fn seen_of(entry: SeenEntry) -> EntrySummary {
    EntrySummary {
        key: entry.key,
        segment: entry.segment,
        version: entry.version,
        modified: entry.modified,
        expiry: entry.expiry,
    }
}
