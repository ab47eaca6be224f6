//! Reads the entries of a store that has reported damage, and mends entries with unreadable bodies.
//! Exchanges compare heads, so they do not find these.
//!
//! One vnode is read at a time, a page at a time, as trees are built. A store that had damage in an earlier
//! run is read once after each start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Lease, StoreId, Timestamp};
use kvorum_coordinator::LocalVnodes;
use kvorum_encoding::StorageKey;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Moment;
use kvorum_vnode::{BodyCheck, PageFailure, Vnode, fold_clock};

use crate::conversation::{Means, mend};
use crate::settings::StepBudget;

/// The period at which stores are asked for damage.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// A store whose entries could not all be mended is read again after the first of these pauses. The
/// pause doubles each time, up to the second.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(60);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(86_400);
/// A page may hold a snapshot for this long.
const PAGE_LEASE: Duration = Duration::from_secs(10);
/// The most entries of a page, and the assumed bytes of an entry.
const PAGE_ENTRIES_MAX: usize = 64;
const ENTRY_BYTES: u64 = 2_000;
/// The shortest and the longest pause after a page.
const PAGE_REST_MIN: Duration = Duration::from_millis(1);
const PAGE_REST_MAX: Duration = Duration::from_secs(1);

/// See the module's description.
pub(crate) struct BodyChecks {
    pub(crate) means: Means,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) budget: Arc<dyn StepBudget>,
}

/// The stores whose entries have been read.
pub(crate) type CheckedStores = BTreeMap<(Partition, StoreId), Checked>;

/// The last reading of a store.
#[derive(Clone, Copy, Default)]
pub(crate) struct Checked {
    /// The store's losses at that time.
    losses: u64,
    /// The time of the next reading, and the pause before it, if some entries could not be mended.
    retry: Option<(Moment, Duration)>,
}

impl Checked {
    fn is_due(&self, losses: u64, now: Moment) -> bool {
        losses > self.losses || self.retry.is_some_and(|(at, _)| at <= now)
    }

    fn failed(self, now: Moment) -> Self {
        let pause = self.retry.map_or(RETRY_PAUSE_MIN, |(_, pause)| 2 * pause);
        let pause = pause.min(RETRY_PAUSE_MAX);
        Self {
            retry: Some((now.plus(pause), pause)),
            ..self
        }
    }
}

impl BodyChecks {
    /// Reads the next store that has reported damage since its last reading, or waits a while.
    pub(crate) async fn check_next(&self, size: RingSize, checked: &mut CheckedStores) {
        let vnodes = size.partitions().filter_map(|it| self.vnodes.vnode(it));
        let vnodes: Vec<Arc<Vnode>> = vnodes.filter(|it| it.is_complete()).collect();
        let here: Vec<(Partition, StoreId)> = vnodes.iter().map(|it| name_of(it)).collect();
        checked.retain(|name, _| here.contains(name));
        let (known, now) = (checked.clone(), self.means.runtime.now());
        let due = self.means.runtime.blocking(move || {
            vnodes.into_iter().find(|vnode| {
                let before = known.get(&name_of(vnode)).copied().unwrap_or_default();
                before.is_due(vnode.losses(), now)
            })
        });
        let Some(vnode) = due.await else {
            return self.means.runtime.sleep(LOOK_PERIOD).await;
        };
        let is_mended = self.check(&vnode).await;
        let of_vnode = vnode.clone();
        // The check itself has counted the damage once more.
        let losses = self.means.runtime.blocking(move || of_vnode.losses()).await;
        let entry = checked.entry(name_of(&vnode)).or_default();
        entry.losses = losses;
        *entry = match is_mended {
            true => Checked {
                retry: None,
                ..*entry
            },
            false => entry.failed(self.means.runtime.now()),
        };
    }

    /// Reads all entries of a vnode; true if all damaged entries were mended.
    async fn check(&self, vnode: &Arc<Vnode>) -> bool {
        let (mut damaged, mut mended) = (0_u64, 0_u64);
        let mut from = None;
        loop {
            let page = match self.page(vnode, from.clone()).await {
                Ok(page) => page,
                Err(error) => {
                    let partition = vnode.partition().number();
                    tracing::warn!(event = "body_check_failed", partition, error = ?error);
                    return false;
                }
            };
            for key in page.damaged {
                damaged += 1;
                mended += u64::from(mend(&self.means, &key).await);
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let partition = vnode.partition().number();
        tracing::info!(event = "bodies_checked", partition, damaged, mended);
        mended == damaged
    }

    /// Reads a page, and pauses as long as it took.
    async fn page(
        &self,
        vnode: &Arc<Vnode>,
        from: Option<StorageKey>,
    ) -> Result<BodyCheck, PageFailure> {
        let runtime = &self.means.runtime;
        loop {
            let wait = self.budget.ask(PAGE_ENTRIES_MAX as u64 * ENTRY_BYTES);
            if wait.is_zero() {
                break;
            }
            runtime.sleep(wait).await;
        }
        let began = runtime.now();
        let lease = Lease::Until(Timestamp(runtime.wall_time().plus(PAGE_LEASE).micros()));
        let (clock, vnode) = (runtime.clock(), vnode.clone());
        let page = runtime.blocking(move || {
            let clock = fold_clock(clock);
            vnode.check_bodies(from.as_ref(), &clock, lease, PAGE_ENTRIES_MAX)
        });
        let page = page.await;
        let took = runtime.now().since(began);
        runtime
            .sleep(took.clamp(PAGE_REST_MIN, PAGE_REST_MAX))
            .await;
        page
    }
}

fn name_of(vnode: &Vnode) -> (Partition, StoreId) {
    (vnode.partition(), vnode.store_id())
}
