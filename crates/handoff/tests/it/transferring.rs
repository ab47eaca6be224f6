//! One transfer at a time: crashes of either side, answers that are damaged or old, large objects,
//! repairs, and the switches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_cluster::{Command, StagedChange};
use kvorum_coordinator::GetOptions;
use kvorum_disk::Disk;
use kvorum_handoff::{
    Activity, Budget, Direction, RepairRefused, TransferKind, TransferSettings, Unbounded,
};
use kvorum_object::{Clock, IndexEntry};
use kvorum_peer::{Caller, Lane, Message, PeerSettings, Served};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_ring::{Epoch, Partition, Phase, Ring};
use kvorum_runtime::Moment;
use kvorum_test_cluster::node_id;

use crate::cluster::{Cluster, Setup, address, content, part, simulated, size};

/// Lets one question in three wait.
#[derive(Default)]
struct Slow(AtomicU64);

impl Budget for Slow {
    fn ask(&self, _bytes: u64) -> Duration {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(if asked.is_multiple_of(3) { 5 } else { 0 })
    }
}

/// Lets this many questions pass, and the others wait.
struct Allowance(AtomicU64);

impl Budget for Allowance {
    fn ask(&self, bytes: u64) -> Duration {
        assert!(bytes > 0);
        let less = |left: u64| left.checked_sub(1);
        let (order, none_left) = (Ordering::Relaxed, Duration::from_millis(250));
        let spent = self.0.fetch_update(order, order, less);
        spent.map_or(none_left, |_| Duration::ZERO)
    }
}

fn two_nodes(seed: u64) -> Setup {
    Setup {
        seed,
        nodes: 2,
        budget: Arc::new(|_| Arc::new(Slow::default())),
        ..Setup::default()
    }
}

/// Nodes 1 to 3 take turns.
fn three_nodes(seed: u64) -> Setup {
    let owner = |number: u16| node_id(u8::try_from(number % 3).unwrap() + 1);
    let owners = (0..size().get()).map(owner).collect();
    let epochs = vec![Epoch::FIRST; usize::from(size().get())];
    Setup {
        seed,
        ring: Ring::new(size(), owners, epochs).unwrap(),
        ..Setup::default()
    }
}

async fn write_keys(cluster: &Cluster, count: u64) {
    let first = cluster.node(1).running();
    for key in 0..count {
        let address = address("bucket", &format!("key{key}"));
        let value = format!("value{key}");
        first.put_blindly(&address, &value).await;
    }
    cluster.sleep_ms(100).await;
}

/// Commits the joining of node 2 and begins to move one partition to it.
async fn begin(cluster: &Arc<Cluster>) -> Partition {
    write_keys(cluster, 400).await;
    cluster.commit();
    let (partition, _) = cluster.agreed().next_moves(1)[0];
    cluster.begin_move(partition);
    partition
}

fn phase(cluster: &Cluster, partition: Partition) -> Option<Phase> {
    let state = cluster.agreed();
    state.ring().moves().get(&partition).map(|it| it.phase)
}

fn is_settled(cluster: &Cluster, partition: Partition) -> bool {
    cluster.agreed().ring().owner(partition) == node_id(2)
}

#[test]
fn a_source_has_to_learn_of_each_step_before_the_next() {
    simulated(two_nodes(1), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        // The source has heard nothing.
        *cluster.node(1).known().is_deaf.lock() = true;
        cluster.sleep_ms(500).await;
        assert_eq!(cluster.node(2).keys(partition), 0);
        assert!(
            cluster
                .node(1)
                .running()
                .transfers
                .status()
                .outbound
                .is_empty()
        );
        let waiting = &cluster.node(2).running().transfers.status().inbound[0];
        assert!(waiting.hindrance.as_ref().unwrap().contains("ring"));
        // It receives the beginning, and nothing later.
        let state = cluster.agreed();
        cluster.node(1).known().learn(&state);
        let closes = || phase(&cluster, partition) == Some(Phase::Closing);
        cluster.until("it closes", closes).await;
        let keys = cluster.node(1).keys(partition);
        assert!(keys > 10);
        assert_eq!(cluster.node(2).keys(partition), keys);
        cluster.sleep_ms(500).await;
        assert_eq!(phase(&cluster, partition), Some(Phase::Closing));
        let status = cluster.node(2).running().transfers.status();
        assert_eq!(status.settling, [partition]);
        *cluster.node(1).known().is_deaf.lock() = false;
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        // A finished transfer leaves no files behind.
        cluster.sleep_ms(500).await;
        let files = cluster.node(2).disk().list(Path::new("transfers")).unwrap();
        assert_eq!(files, []);
    });
}

#[test]
fn a_page_waits_until_the_budgets_of_both_sides_let_it_pass() {
    const PAGES: u64 = 4;
    for bounded in [1, 2] {
        let allowance = Arc::new(Allowance(AtomicU64::new(PAGES)));
        let of_bounded = allowance.clone();
        let budget = move |number: u8| -> Arc<dyn Budget> {
            if number == bounded {
                of_bounded.clone()
            } else {
                Arc::new(Unbounded)
            }
        };
        let mut setup = Setup {
            budget: Arc::new(budget),
            ..two_nodes(1)
        };
        // A receiver waits long enough for the reason of a delay.
        setup.settings.answer_wait_max = Duration::from_secs(30);
        let page = u64::from(setup.settings.page_entries_max);
        simulated(setup, async |cluster| {
            let partition = begin(&cluster).await;
            let _spreading = cluster
                .runtime
                .spawn("spread", cluster.clone().spread_state());
            // The pages of the budget arrive, and no more while it has no more.
            let came = || cluster.node(2).keys(partition) == PAGES * page;
            cluster.until("what may pass is there", came).await;
            cluster.sleep_ms(20_000).await;
            assert!(came());
            assert_eq!(phase(&cluster, partition), Some(Phase::Filling));
            if bounded == 1 {
                // A receiver that waits for another's budget has the reason in its status.
                let waiting = &cluster.node(2).running().transfers.status().inbound[0];
                let hindrance = waiting.hindrance.clone().unwrap();
                assert_eq!(hindrance, "there is more urgent work");
            }
            allowance.0.store(1_000_000, Ordering::Relaxed);
            let settles = || is_settled(&cluster, partition);
            cluster.until("it settles", settles).await;
        });
    }
}

#[test]
fn a_source_that_sends_before_it_has_learned_is_found_out() {
    let _planted = plant(PlantedDefect::SentBeforeLearned);
    simulated(two_nodes(1), async |cluster| {
        begin(&cluster).await;
        *cluster.node(1).known().is_deaf.lock() = true;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        cluster.sleep_ms(500).await;
        let sent = cluster.node(1).running().transfers.status().outbound;
        assert!(!sent.is_empty());
    });
}

/// Counts the answers of a node to transfers.
fn count_answers(cluster: &Cluster, number: u8) -> Arc<AtomicU64> {
    let answers = Arc::new(AtomicU64::new(0));
    let counted = answers.clone();
    cluster.node(number).tamper(Some(Box::new(move |answer| {
        counted.fetch_add(1, Ordering::Relaxed);
        answer
    })));
    answers
}

#[test]
fn a_receiver_that_was_killed_goes_on_behind_what_it_had_made_durable() {
    simulated(two_nodes(2), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let keys = cluster.node(1).keys(partition);
        let most = || cluster.node(2).keys(partition) * 4 > keys * 3;
        cluster.until("most is there", most).await;
        cluster.kill(2).await;
        let answers = count_answers(&cluster, 1);
        cluster.start(2);
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        assert_eq!(cluster.node(2).keys(partition), keys);
        // Half of the pages, and the questions besides, at most.
        let answers = answers.load(Ordering::Relaxed);
        assert!(answers < keys / 3 + 2, "{answers} of {keys} keys");
    });
}

#[test]
fn a_cursor_of_other_contents_is_not_believed() {
    simulated(two_nodes(3), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let keys = cluster.node(1).keys(partition);
        let most = || cluster.node(2).keys(partition) * 4 > keys * 3;
        cluster.until("most is there", most).await;
        cluster.kill(2).await;
        cluster.node(2).vnodes().wipe(partition);
        cluster.start(2);
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        assert_eq!(cluster.node(2).keys(partition), keys);
    });
}

#[test]
fn a_source_that_was_killed_is_asked_again() {
    simulated(two_nodes(4), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let keys = cluster.node(1).keys(partition);
        let half = || cluster.node(2).keys(partition) * 2 > keys;
        cluster.until("half is there", half).await;
        cluster.kill(1).await;
        cluster.sleep_ms(300).await;
        assert_eq!(phase(&cluster, partition), Some(Phase::Filling));
        cluster.start(1);
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        assert_eq!(cluster.node(2).keys(partition), keys);
    });
}

#[test]
fn damaged_repeated_and_lost_answers_do_no_harm() {
    for seed in 5..12 {
        simulated(two_nodes(seed), async |cluster| {
            let partition = begin(&cluster).await;
            let (runtime, mut last) = (cluster.runtime.clone(), Message::default());
            cluster
                .node(1)
                .tamper(Some(Box::new(move |mut answer: Message| {
                    let drawn = runtime.random_u64();
                    let before = std::mem::replace(&mut last, answer.clone());
                    match drawn % 8 {
                        0 => return before,
                        1 => answer.head = answer.head.slice(..answer.head.len() / 2),
                        2 => {
                            let mut head = answer.head.to_vec();
                            let at = usize::try_from(drawn >> 8).unwrap() % head.len();
                            head[at] ^= 1 << (drawn >> 4 & 7);
                            answer.head = head.into();
                        }
                        3 if !answer.body.is_empty() => {
                            let mut body = answer.body.to_vec();
                            let at = usize::try_from(drawn >> 8).unwrap() % body.len();
                            body[at] ^= 1;
                            answer.body = body.into();
                        }
                        _ => {}
                    }
                    answer
                })));
            let _spreading = cluster
                .runtime
                .spawn("spread", cluster.clone().spread_state());
            let closes = || phase(&cluster, partition) != Some(Phase::Filling);
            cluster.until("it closes", closes).await;
            let (source, receiver) = (cluster.node(1), cluster.node(2));
            assert_eq!(receiver.keys(partition), source.keys(partition));
            for key in 0..400 {
                let address = address("bucket", &format!("key{key}"));
                let there = receiver.stored(partition, &address);
                assert_eq!(there, source.stored(partition, &address));
            }
        });
    }
}

#[test]
fn an_object_larger_than_a_message_goes_through_in_pieces() {
    let setup = two_nodes(9);
    let setup = Setup {
        settings: TransferSettings {
            page_bytes_max: 4 << 10,
            piece_bytes_max: 8 << 10,
            ..setup.settings
        },
        peer: PeerSettings {
            message_bytes_max: 16 << 10,
            ..setup.peer
        },
        ..setup
    };
    simulated(setup, async |cluster| {
        let first = cluster.node(1).running();
        let mut large = Vec::new();
        for key in 0..80 {
            let address = address("bucket", &format!("large{key}"));
            let len = 9_000 + 801 * key;
            first.put_blindly(&address, &"x".repeat(len)).await;
            large.push(address);
        }
        let partition = begin(&cluster).await;
        let (source, receiver) = (cluster.node(1), cluster.node(2));
        let there = |address| source.stored(partition, address);
        let expected: Vec<_> = large.iter().map(there).collect();
        assert!(expected.iter().flatten().count() > 1);
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        let there = |address| receiver.stored(partition, address);
        let received: Vec<_> = large.iter().map(there).collect();
        assert_eq!(received, expected);
    });
}

#[test]
fn what_indexes_find_moves_with_its_partition() {
    simulated(two_nodes(12), async |cluster| {
        let first = cluster.node(1).running();
        let named = |term: &'static str| {
            let mut content = content("value");
            content.metadata.indexes = vec![IndexEntry {
                field: "w_bin".into(),
                value: term.into(),
            }];
            content
        };
        for key in 0..120 {
            let address = address("bucket", &format!("named{key}"));
            let term = ["early", "late"][key % 2];
            let object = first.put(&address, named(term), &Clock::new()).await;
            // Some move to another term before they move to another node.
            if key % 3 == 0 {
                let context = object.unwrap().clock().clone();
                let moved = first.put(&address, named("moved"), &context).await;
                moved.unwrap();
            }
        }
        let partition = begin(&cluster).await;
        let there = cluster.node(1).indexed(partition);
        let terms: BTreeSet<&[u8]> = there.iter().map(|it| &it.0[..]).collect();
        assert_eq!(terms, BTreeSet::from([&b"early"[..], b"late", b"moved"]));
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        assert_eq!(cluster.node(2).indexed(partition), there);
    });
}

fn counts(cluster: &Cluster, number: u8) -> BTreeMap<Partition, u64> {
    let (state, node) = (cluster.agreed(), cluster.node(number));
    let own = state.ring().owned_by(node_id(number));
    own.map(|partition| (partition, node.keys(partition)))
        .collect()
}

fn is_idle(cluster: &Cluster, number: u8) -> bool {
    let status = cluster.node(number).running().transfers.status();
    status.inbound.is_empty()
}

#[test]
fn what_a_vnode_has_lost_is_repaired_from_the_other_replicas() {
    let setup = Setup {
        budget: Arc::new(|_| Arc::new(Slow::default())),
        ..three_nodes(10)
    };
    simulated(setup, async |cluster| {
        write_keys(&cluster, 200).await;
        let before = counts(&cluster, 2);
        assert!(before.values().all(|keys| *keys > 5));
        for partition in before.keys() {
            cluster.node(2).vnodes().wipe(*partition);
        }
        let transfers = cluster.node(2).running().transfers.clone();
        assert_eq!(transfers.repair_node().len(), before.len());
        cluster.sleep_ms(200).await;
        let status = transfers.status();
        assert_eq!(status.inbound.len(), before.len());
        let activities = status.inbound.iter().map(|it| it.activity);
        let fetching = activities.filter(|it| *it == Activity::Fetching);
        assert_eq!(fetching.count(), 2);
        assert!(
            status
                .inbound
                .iter()
                .all(|it| it.id.kind == TransferKind::Repair)
        );
        // A repair that was asked for is not forgotten with the process.
        cluster.kill(2).await;
        cluster.start(2);
        cluster.sleep_ms(50).await;
        let idle = || is_idle(&cluster, 2);
        cluster.until("all is repaired", idle).await;
        assert_eq!(counts(&cluster, 2), before);
        let refused = cluster.node(2).running().transfers.repair(part(0));
        let partition = part(0);
        assert_eq!(refused, Err(RepairRefused::NotOwned { partition }));
    });
}

#[test]
fn partitions_of_an_owner_that_is_gone_for_good_are_repaired_by_their_new_ones() {
    simulated(three_nodes(11), async |cluster| {
        write_keys(&cluster, 200).await;
        cluster.sleep_ms(100).await;
        let lost = counts(&cluster, 3);
        cluster.kill(3).await;
        cluster.agree(Command::Stage {
            node: node_id(3),
            change: StagedChange::ForceRemove,
        });
        cluster.commit();
        *cluster.node(3).known().is_deaf.lock() = true;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        cluster.sleep_ms(100).await;
        let idle = || is_idle(&cluster, 1) && is_idle(&cluster, 2);
        cluster.until("all is repaired", idle).await;
        let ring = cluster.agreed().ring().clone();
        for (partition, keys) in lost {
            let node = cluster.node(ring.owner(partition).as_bytes()[0]);
            assert_eq!(node.keys(partition), keys, "{partition:?}");
        }
    });
}

/// Regression: two of three nodes were lost for good and removed. The growth transfers of the survivor had
/// never had a turn and went first; each held a slot for seconds while it waited for partitions whose repair
/// waited behind it. Quorum reads failed for minutes though the survivor had every key.
#[test]
fn a_lone_survivor_repairs_its_partitions_before_it_lowers_the_number_of_replicas() {
    for defect in [None, Some(PlantedDefect::WaitingTransferKeepsTurn)] {
        let _planted = defect.map(plant);
        let took = simulated(three_nodes(18), async |cluster| {
            write_keys(&cluster, 200).await;
            for number in [2, 3] {
                cluster.kill(number).await;
                *cluster.node(number).known().is_deaf.lock() = true;
                cluster.agree(Command::Stage {
                    node: node_id(number),
                    change: StagedChange::ForceRemove,
                });
            }
            cluster.commit();
            let removed_at = cluster.runtime.now();
            let _leading = cluster.runtime.spawn("lead", cluster.clone().lead());
            // A new vnode is empty before the loss of its owner is known.
            let is_whole = |number| {
                let vnode = cluster.node(1).vnodes().vnode(part(number));
                let is_complete = vnode.is_some_and(|vnode| vnode.is_complete());
                is_complete && cluster.node(1).keys(part(number)) > 0
            };
            let all_are = || (0..size().get()).all(is_whole);
            assert!(!all_are());
            cluster.until("all partitions are repaired", all_are).await;
            let took = cluster.runtime.now().since(removed_at);
            let survivor = cluster.node(1).running();
            let read_all = async || {
                for key in 0..200 {
                    let address = address("bucket", &format!("key{key}"));
                    let read = survivor.get(&address, &GetOptions::default()).await;
                    assert!(read.unwrap().is_some(), "key{key}");
                }
            };
            read_all().await;
            cluster
                .until("all is carried out", || cluster.is_carried_out())
                .await;
            assert_eq!(cluster.agreed().ring().replicas_max(), 1);
            read_all().await;
            took
        });
        let is_soon = took < Duration::from_secs(2);
        assert_eq!(is_soon, defect.is_none(), "{took:?} with {defect:?}");
    }
}

#[test]
fn a_move_whose_receiver_or_source_is_gone_for_good_is_not_waited_for() {
    for (seed, gone) in [(16, 4), (17, 0)] {
        let setup = Setup {
            nodes: 4,
            budget: Arc::new(|_| Arc::new(Slow::default())),
            ..three_nodes(seed)
        };
        simulated(setup, async |cluster| {
            write_keys(&cluster, 200).await;
            cluster.commit();
            let (partition, _) = cluster.agreed().next_moves(1)[0];
            let source = cluster.agreed().ring().owner(partition).as_bytes()[0];
            let keys = cluster.node(source).keys(partition);
            cluster.begin_move(partition);
            let _spreading = cluster
                .runtime
                .spawn("spread", cluster.clone().spread_state());
            let some = || cluster.node(4).keys(partition) > 3;
            cluster.until("some is there", some).await;
            // Node 0 stands for the source.
            let gone = if gone == 0 { source } else { gone };
            cluster.kill(gone).await;
            *cluster.node(gone).known().is_deaf.lock() = true;
            cluster.agree(Command::Stage {
                node: node_id(gone),
                change: StagedChange::ForceRemove,
            });
            cluster.commit();
            let _leading = cluster.runtime.spawn("lead", cluster.clone().lead());
            let idle = || {
                let rest = (1..=4).filter(|number| *number != gone);
                cluster.is_carried_out() && rest.into_iter().all(|it| is_idle(&cluster, it))
            };
            cluster.until("all is carried out", idle).await;
            cluster.sleep_ms(500).await;
            cluster.until("all is still carried out", idle).await;
            let owner = cluster.agreed().ring().owner(partition);
            let has = cluster.node(owner.as_bytes()[0]).keys(partition);
            assert!(has >= keys, "{has} of {keys}");
        });
    }
}

#[test]
fn switches_hold_transfers_back_until_they_are_set_again() {
    simulated(two_nodes(12), async |cluster| {
        let partition = begin(&cluster).await;
        let transfers = |number| cluster.node(number).running().transfers.clone();
        transfers(2).set_transfers_max(0);
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let holds = async |what: &str| {
            cluster.sleep_ms(300).await;
            assert_eq!(cluster.node(2).keys(partition), 0, "{what}");
            assert_eq!(transfers(2).status().inbound.len(), 1);
        };
        holds("a limit of 0").await;
        transfers(2).enable(Direction::Inbound, false);
        transfers(2).set_transfers_max(1);
        holds("inbound is disabled").await;
        transfers(1).enable(Direction::Outbound, false);
        transfers(2).enable(Direction::Inbound, true);
        holds("outbound is disabled").await;
        let is_rejected = || transfers(1).counts().rejected > 0;
        cluster.until("a question is rejected", is_rejected).await;
        assert_eq!(transfers(2).counts().rejected, 0);
        transfers(1).enable(Direction::Outbound, true);
        let some = || cluster.node(2).keys(partition) > 5;
        cluster.until("it goes on", some).await;
        let outbound = transfers(1).status().outbound;
        assert_eq!((outbound.len(), outbound[0].to), (1, node_id(2)));
        let inbound = &transfers(2).status().inbound[0];
        assert_eq!((inbound.from, inbound.to), (Some(node_id(1)), node_id(2)));
        assert_eq!(inbound.keys_about, cluster.node(1).keys(partition));
        assert!(inbound.keys > 0 && inbound.bytes > 0 && inbound.bytes_per_second > 0);
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
    });
}

#[test]
fn an_answer_that_does_not_come_in_time_is_counted() {
    simulated(two_nodes(15), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let some = || cluster.node(2).keys(partition) > 5;
        cluster.until("it goes on", some).await;
        cluster.set_links(1, true);
        let timed_out = || cluster.node(2).running().transfers.counts().timed_out > 0;
        cluster.until("an answer is late", timed_out).await;
        cluster.set_links(1, false);
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
    });
}

#[test]
fn strangers_are_not_answered() {
    simulated(two_nodes(13), async |cluster| {
        let mut head = vec![b'T', 1, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        head.extend(kvorum_encoding::checksum(&head).to_le_bytes());
        let question = Message::of_head(head);
        let ask = |node, is_member| {
            let caller = Caller {
                node,
                lane: Lane::Bulk,
                is_member,
                connection: 1,
            };
            let transfers = &cluster.node(1).running().transfers;
            transfers.handle(caller, &question, Moment::default())
        };
        assert!(matches!(ask(node_id(2), true), Served::Later(_)));
        for served in [ask(node_id(2), false), ask(node_id(9), true)] {
            let Served::Now(refused) = served else {
                panic!("a stranger is served");
            };
            assert_eq!(refused.head[2], 6);
        }
    });
}

#[test]
fn what_changes_and_what_is_deleted_meanwhile_arrives_as_it_is_at_the_end() {
    simulated(two_nodes(14), async |cluster| {
        let partition = begin(&cluster).await;
        let _spreading = cluster
            .runtime
            .spawn("spread", cluster.clone().spread_state());
        let (source, receiver) = (cluster.node(1), cluster.node(2));
        let some = || receiver.keys(partition) > 3;
        cluster.until("some is there", some).await;
        // Keys behind the fetched ones and before them.
        let mut written = Vec::new();
        for key in 0..400 {
            let address = address("bucket", &format!("key{key}"));
            let Some(stored) = source.stored(partition, &address) else {
                continue;
            };
            let what = match key % 2 {
                0 => content("changed"),
                _ => kvorum_object::Content::tombstone(),
            };
            let put = source.running();
            let object = put.put(&address, what, stored.clock()).await.unwrap();
            written.push((address, object));
        }
        let settles = || is_settled(&cluster, partition);
        cluster.until("it settles", settles).await;
        assert!(written.len() > 10);
        for (address, object) in written {
            let stored = receiver.stored(partition, &address).unwrap();
            assert_eq!(stored.clock(), object.clock());
            assert_eq!(stored.is_tombstone(), object.is_tombstone());
        }
    });
}
