//! Two nodes and the connections between them, on virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its input should fail"
)]

mod barrier;
mod encryption;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_peer::{
    Admission, Caller, Directory, Introduction, Lane, Message, PeerError, PeerService,
    PeerSettings, Peers, Refusal, Served,
};
use kvorum_ring::NodeId;
use kvorum_runtime::{ListenOptions, Moment, Room, Runtime, Stream, TaskGuard};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + u16::from(number)))
}

/// The name of a node in the cluster.
fn name(node: NodeId) -> String {
    format!("node{}@host", node.as_bytes()[0])
}

/// The cluster as one node sees it.
struct Known {
    introduction: Introduction,
    addresses: Mutex<BTreeMap<NodeId, SocketAddr>>,
    removed: Mutex<BTreeSet<NodeId>>,
}

impl Known {
    fn of(number: u8) -> Arc<Self> {
        let addresses = (1..4).map(|number| (node(number), address(number)));
        Arc::new(Self {
            introduction: Introduction {
                cluster: node(100),
                cluster_name: "test".into(),
                node: node(number),
            },
            addresses: Mutex::new(addresses.collect()),
            removed: Mutex::default(),
        })
    }
}

impl Directory for Known {
    fn introduction(&self) -> Introduction {
        self.introduction.clone()
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.lock().get(&node).copied()
    }

    fn name(&self, node: NodeId) -> Option<String> {
        self.addresses
            .lock()
            .contains_key(&node)
            .then(|| name(node))
    }

    fn admit(&self, caller: &Introduction) -> Admission {
        if caller.cluster_name != self.introduction.cluster_name {
            Admission::Refused(Refusal::OtherName)
        } else if caller.cluster == node(0) {
            Admission::Stranger
        } else if caller.cluster != self.introduction.cluster {
            Admission::Refused(Refusal::OtherCluster)
        } else if !self.is_still_member(caller.node) {
            Admission::Refused(Refusal::Removed)
        } else {
            Admission::Member
        }
    }

    fn is_still_member(&self, node: NodeId) -> bool {
        !self.removed.lock().contains(&node)
    }
}

/// Answers by the word in the head: `echo`, `wait MS`, `never`, `refuse`, `who`.
#[derive(Default)]
struct Echo {
    runtime: Mutex<Option<Runtime>>,
    in_progress: Arc<AtomicUsize>,
    begun: AtomicUsize,
}

struct CountedIn(Arc<AtomicUsize>);

impl Drop for CountedIn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PeerService for Echo {
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let runtime = self.runtime.lock().clone().unwrap();
        let head = String::from_utf8(message.head.to_vec()).unwrap();
        let wait = match head.split_once(' ') {
            Some(("wait", milliseconds)) => Duration::from_millis(milliseconds.parse().unwrap()),
            _ if head == "never" => Duration::from_secs(1_000_000),
            _ if head == "refuse" => return Served::Overload,
            _ if head == "who" => {
                let remaining = deadline.since(runtime.now()).as_millis();
                let who = format!("{} {} {remaining}", caller.lane.name(), caller.is_member);
                return Served::Now(Message::of_head(who));
            }
            _ => return Served::Now(message),
        };
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        let counted = CountedIn(self.in_progress.clone());
        Served::Later(Box::pin(async move {
            runtime.sleep(wait).await;
            drop(counted);
            message
        }))
    }
}

/// A node that answers at its address for as long as the guard lives.
fn answering(runtime: &Runtime, number: u8, settings: PeerSettings) -> (Arc<Echo>, TaskGuard<()>) {
    let peers = Peers::new(runtime.clone(), Known::of(number), settings);
    answering_over(runtime, number, peers)
}

fn answering_over(runtime: &Runtime, number: u8, peers: Peers) -> (Arc<Echo>, TaskGuard<()>) {
    let echo = Arc::new(Echo::default());
    *echo.runtime.lock() = Some(runtime.clone());
    let listener = runtime
        .listen(address(number), ListenOptions::default())
        .unwrap();
    let service = echo.clone();
    let serving = runtime.spawn(
        "serving",
        async move { peers.serve(listener, service).await },
    );
    (echo, serving.abort_on_drop())
}

fn asking(runtime: &Runtime, settings: PeerSettings) -> Peers {
    Peers::new(runtime.clone(), Known::of(1), settings)
}

fn in_ms(runtime: &Runtime, milliseconds: u64) -> Moment {
    runtime.now().plus(Duration::from_millis(milliseconds))
}

fn simulated<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    let executor = Runtime::simulated(1).unwrap();
    executor.block_on(test(executor.runtime()));
}

fn settings() -> PeerSettings {
    PeerSettings::default()
}

#[test]
fn a_message_of_any_size_comes_back() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        for size in [0, 1, 4_096, 65_535, 65_536, 65_537, 10_000_000] {
            let message = Message {
                head: Bytes::from_static(b"echo"),
                body: Bytes::from(vec![5; size]),
            };
            let deadline = in_ms(&runtime, 1_000);
            let answer = peers.request(node(2), Lane::Requests, message.clone(), deadline);
            assert_eq!(answer.await, Ok(message));
        }
    });
}

#[test]
fn requests_on_one_connection_do_not_wait_for_one_another() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let slow = {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 5_000));
            runtime.spawn("slow", async move {
                let wait = Message::of_head("wait 3000");
                peers.request(node(2), Lane::Requests, wait, deadline).await
            })
        };
        runtime.sleep(Duration::from_millis(10)).await;
        let before = runtime.now();
        let quick = Message::of_head("quick");
        let deadline = in_ms(&runtime, 5_000);
        let answer = peers.request(node(2), Lane::Requests, quick.clone(), deadline);
        assert_eq!(answer.await, Ok(quick));
        assert!(runtime.now().since(before) < Duration::from_millis(100));
        assert!(slow.await.unwrap().is_ok());
    });
}

#[test]
fn deadline_and_caller_arrive() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let deadline = in_ms(&runtime, 700);
        let who = peers.request(node(2), Lane::Bulk, Message::of_head("who"), deadline);
        assert_eq!(who.await.unwrap().head, "bulk true 700");
    });
}

#[test]
fn a_request_past_its_deadline_is_given_up_on_both_sides() {
    simulated(|runtime| async move {
        let (echo, _guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let never = || Message::of_head("never");
        let late = peers.request(node(2), Lane::Requests, never(), in_ms(&runtime, 50));
        assert_eq!(late.await, Err(PeerError::Timeout { node: node(2) }));
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_request_that_nobody_waits_for_is_cancelled() {
    simulated(|runtime| async move {
        let (echo, _guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let task = {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000_000));
            runtime.spawn("gone", async move {
                let never = Message::of_head("never");
                peers
                    .request(node(2), Lane::Requests, never, deadline)
                    .await
            })
        };
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 1);
        task.abort();
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn too_much_in_progress_is_refused_at_once() {
    simulated(|runtime| async move {
        let few = PeerSettings {
            in_progress_max: 2,
            ..settings()
        };
        let _answering = answering(&runtime, 2, few);
        let peers = asking(&runtime, settings());
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000));
            waiting.push(runtime.spawn("waiting", async move {
                let wait = Message::of_head("wait 500");
                peers.request(node(2), Lane::Requests, wait, deadline).await
            }));
        }
        runtime.sleep(Duration::from_millis(10)).await;
        let overload = Err(PeerError::Overload { node: node(2) });
        let wait = Message::of_head("wait 1");
        let third = peers.request(node(2), Lane::Requests, wait, in_ms(&runtime, 1_000));
        assert_eq!(third.await, overload);
        for task in waiting {
            assert!(task.await.unwrap().is_ok());
        }
        let refuse = Message::of_head("refuse");
        let refused = peers.request(node(2), Lane::Requests, refuse, in_ms(&runtime, 1_000));
        assert_eq!(refused.await, overload);
    });
}

#[test]
fn requests_in_progress_are_bounded_in_bytes() {
    simulated(|runtime| async move {
        let few = PeerSettings {
            in_progress_bytes_max: 100,
            ..settings()
        };
        let _answering = answering(&runtime, 2, few);
        let peers = asking(&runtime, settings());
        let ask = |bytes: usize| {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000));
            let message = Message {
                head: Bytes::from_static(b"wait 500"),
                body: Bytes::from(vec![1; bytes]),
            };
            async move {
                let asked = peers.request(node(2), Lane::Requests, message, deadline);
                asked.await.map(|answer| answer.body.len())
            }
        };
        // One request is always admitted.
        let large = runtime.spawn("large", ask(200));
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(ask(1).await, Err(PeerError::Overload { node: node(2) }));
        assert_eq!(large.await.unwrap(), Ok(200));
        let one = runtime.spawn("one", ask(40));
        let other = runtime.spawn("other", ask(40));
        assert_eq!((one.await.unwrap(), other.await.unwrap()), (Ok(40), Ok(40)));
    });
}

#[test]
fn large_requests_of_all_connections_share_one_room_and_those_of_the_control_lane_are_taken() {
    simulated(|runtime| async move {
        let room = Room::new(1 << 20);
        let shared = PeerSettings {
            room: room.clone(),
            ..settings()
        };
        let _answering = answering(&runtime, 2, shared);
        let peers = asking(&runtime, settings());
        let ask = |lane, bytes: usize| {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 2_000));
            let message = Message {
                head: Bytes::from_static(b"wait 500"),
                body: Bytes::from(vec![1; bytes]),
            };
            async move {
                let asked = peers.request(node(2), lane, message, deadline);
                asked.await.map(|answer| answer.body.len())
            }
        };
        let overload = Err(PeerError::Overload { node: node(2) });
        let large = runtime.spawn("large", ask(Lane::Requests, 700_000));
        runtime.sleep(Duration::from_millis(100)).await;
        assert_eq!(room.taken_bytes(), 700_008);
        // In fragments on two lanes, and in one fragment.
        assert_eq!(ask(Lane::Requests, 400_000).await, overload);
        assert_eq!(ask(Lane::Bulk, 400_000).await, overload);
        let other = room.take_anyway(300_000);
        assert_eq!(ask(Lane::Requests, 50_000).await, overload);
        drop(other);
        let small = runtime.spawn("small", ask(Lane::Requests, 1_000));
        let control = runtime.spawn("control", ask(Lane::Control, 400_000));
        assert_eq!(small.await.unwrap(), Ok(1_000));
        assert_eq!(control.await.unwrap(), Ok(400_000));
        assert_eq!(large.await.unwrap(), Ok(700_000));
        // The same connections carry the next requests.
        assert_eq!(ask(Lane::Requests, 400_000).await, Ok(400_000));
        assert_eq!(ask(Lane::Bulk, 400_000).await, Ok(400_000));
        assert_eq!(room.taken_bytes(), 0);
    });
}

/// After an overload error the caller asks another node, so the request must not have been carried
/// out.
#[test]
fn an_answer_that_finds_no_room_comes_later() {
    simulated(|runtime| async move {
        let narrow = PeerSettings {
            queued_bytes_max: 1_000,
            ..settings()
        };
        let _answering = answering(&runtime, 2, narrow);
        let peers = asking(&runtime, settings());
        let mut waiting = Vec::new();
        for head in ["echo", "wait 1", "echo", "wait 1", "echo"] {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000));
            let message = Message {
                head: Bytes::from_static(head.as_bytes()),
                body: Bytes::from(vec![1; 1_000_000]),
            };
            waiting.push(runtime.spawn("waiting", async move {
                let lane = Lane::Requests;
                peers.request(node(2), lane, message, deadline).await
            }));
        }
        for task in waiting {
            assert_eq!(task.await.unwrap().unwrap().body.len(), 1_000_000);
        }
    });
}

#[test]
fn callers_that_say_nothing_are_bounded_and_do_not_disturb_members() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let echo = || {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000));
            async move {
                let asked = Message::of_head("echo");
                peers
                    .request(node(2), Lane::Requests, asked, deadline)
                    .await
            }
        };
        assert!(echo().await.is_ok());
        let mut silent = Vec::new();
        for _ in 0..64 {
            silent.push(runtime.connect(address(2)).await.unwrap());
        }
        let is_closed = |mut stream: Stream| {
            let runtime = runtime.clone();
            async move {
                let wait = Duration::from_millis(100);
                let read = runtime.timeout(wait, stream.read_u8()).await;
                matches!(read, Ok(Err(_)))
            }
        };
        assert!(is_closed(runtime.connect(address(2)).await.unwrap()).await);
        assert!(echo().await.is_ok());
        assert!(!is_closed(silent.pop().unwrap()).await);
        // The silent callers are given up after a while.
        runtime.sleep(settings().connect_wait_max).await;
        let late = asking(&runtime, settings());
        let asked = Message::of_head("echo");
        let asked = late.request(node(2), Lane::Control, asked, in_ms(&runtime, 1_000));
        assert!(asked.await.is_ok());
    });
}

/// The newest connections are in use, as after links that broke without a close.
#[test]
fn a_member_with_too_many_connections_on_a_lane_loses_the_oldest() {
    simulated(|runtime| async move {
        let peers_of_2 = Peers::new(runtime.clone(), Known::of(2), settings());
        let (echo, _guard) = answering_over(&runtime, 2, peers_of_2.clone());
        let again: Vec<Peers> = (0..4).map(|_| asking(&runtime, settings())).collect();
        let ask = |peers: &Peers, lane, head: &'static str| {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000_000));
            async move {
                peers
                    .request(node(2), lane, Message::of_head(head), deadline)
                    .await
            }
        };
        assert!(ask(&again[0], Lane::Control, "echo").await.is_ok());
        let oldest = runtime.spawn("oldest", ask(&again[0], Lane::Requests, "never"));
        runtime.sleep(Duration::from_millis(10)).await;
        for peers in &again[1..3] {
            assert!(ask(peers, Lane::Requests, "echo").await.is_ok());
        }
        assert_eq!(peers_of_2.connections().len(), 4);
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 1);
        assert!(ask(&again[3], Lane::Requests, "echo").await.is_ok());
        assert!(matches!(
            oldest.await.unwrap(),
            Err(PeerError::Broken { .. })
        ));
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
        assert_eq!(peers_of_2.connections().len(), 4);
        // A connection that is in use is made again.
        assert!(ask(&again[0], Lane::Requests, "echo").await.is_ok());
        assert!(ask(&again[0], Lane::Control, "echo").await.is_ok());
    });
}

/// Regression: a node was removed without notice. Nodes that had given its partitions to others
/// still confirmed its writes over its open connections.
#[test]
fn who_is_removed_gets_no_answer_over_the_connections_that_it_had() {
    simulated(|runtime| async move {
        let known = Known::of(2);
        let peers_of_2 = Peers::new(runtime.clone(), known.clone(), settings());
        let (echo, _guard) = answering_over(&runtime, 2, peers_of_2.clone());
        let removed = asking(&runtime, settings());
        let other = Peers::new(runtime.clone(), Known::of(3), settings());
        let ask = |peers: &Peers, head: &'static str| {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 1_000_000));
            async move {
                let message = Message::of_head(head);
                let asked = peers.request(node(2), Lane::Requests, message, deadline);
                asked.await
            }
        };
        let refused = Err(PeerError::Refused {
            address: address(2),
            refusal: Refusal::Removed,
        });
        assert!(ask(&other, "echo").await.is_ok());

        // A request before the node's connections are ended.
        assert!(ask(&removed, "echo").await.is_ok());
        known.removed.lock().insert(node(1));
        let begun = echo.begun.load(Ordering::Relaxed);
        let answer = ask(&removed, "echo").await;
        assert!(
            matches!(answer, Err(PeerError::Broken { .. })),
            "{answer:?}"
        );
        assert_eq!(ask(&removed, "echo").await, refused);
        assert_eq!(echo.begun.load(Ordering::Relaxed), begun);

        // The connections are ended while a request of the node is in progress.
        known.removed.lock().clear();
        runtime.sleep(Duration::from_secs(1)).await;
        let waiting = runtime.spawn("waiting", ask(&removed, "never"));
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 1);
        known.removed.lock().insert(node(1));
        peers_of_2.forget(node(1));
        let answer = waiting.await.unwrap();
        assert!(
            matches!(answer, Err(PeerError::Broken { .. })),
            "{answer:?}"
        );
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
        assert_eq!(ask(&removed, "echo").await, refused);
        assert!(ask(&other, "echo").await.is_ok());
    });
}

#[test]
fn a_peer_that_comes_back_is_found_again() {
    simulated(|runtime| async move {
        let peers = asking(&runtime, settings());
        let ask = |peers: Peers, runtime: Runtime| async move {
            let echo = Message::of_head("echo");
            let deadline = in_ms(&runtime, 2_000);
            peers.request(node(2), Lane::Requests, echo, deadline).await
        };
        let absent = ask(peers.clone(), runtime.clone()).await;
        assert!(matches!(absent, Err(PeerError::Unreachable { .. })));
        let (_, guard) = answering(&runtime, 2, settings());
        let too_soon = ask(peers.clone(), runtime.clone()).await;
        assert_eq!(too_soon, absent);
        runtime.sleep(Duration::from_millis(150)).await;
        assert!(ask(peers.clone(), runtime.clone()).await.is_ok());
        drop(guard);
        runtime.sleep(Duration::from_millis(150)).await;
        assert!(ask(peers.clone(), runtime.clone()).await.is_err());
        let _answering = answering(&runtime, 2, settings());
        runtime.sleep(Duration::from_millis(150)).await;
        assert!(ask(peers, runtime).await.is_ok());
    });
}

#[test]
fn requests_under_way_fail_when_the_connection_breaks() {
    simulated(|runtime| async move {
        let (_, guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let deadline = in_ms(&runtime, 1_000_000);
        let task = runtime.spawn("waiting", async move {
            let never = Message::of_head("never");
            peers
                .request(node(2), Lane::Requests, never, deadline)
                .await
        });
        runtime.sleep(Duration::from_millis(10)).await;
        drop(guard);
        let answer = task.await.unwrap();
        assert!(
            matches!(answer, Err(PeerError::Broken { .. })),
            "{answer:?}"
        );
        assert!(runtime.now() < in_ms(&runtime, 1_000));
    });
}

/// Regression: a stopping node dropped its work for others. Each write that it coordinated for
/// another node's client ended in doubt, although the write could have gone elsewhere.
#[test]
fn a_node_that_takes_its_leave_leaves_nothing_in_doubt() {
    simulated(|runtime| async move {
        let serving = Peers::new(runtime.clone(), Known::of(2), settings());
        let (echo, guard) = answering_over(&runtime, 2, serving.clone());
        let peers = asking(&runtime, settings());
        let ask = |head: &'static str| {
            let (peers, deadline) = (peers.clone(), in_ms(&runtime, 60_000));
            runtime.spawn(head, async move {
                let message = Message::of_head(head);
                peers
                    .request(node(2), Lane::Requests, message, deadline)
                    .await
            })
        };
        let under_way = [ask("wait 500"), ask("wait 300")];
        runtime.sleep(Duration::from_millis(100)).await;
        let (leaving, started) = (serving.clone(), runtime.now());
        let leaving = runtime.spawn("leaving", async move {
            leaving.take_leave(Duration::from_secs(5)).await;
        });
        runtime.sleep(Duration::from_millis(100)).await;
        let late = ask("echo");
        for answer in under_way {
            assert!(answer.await.unwrap().is_ok());
        }
        let late = late.await.unwrap();
        assert!(
            matches!(late, Err(PeerError::Unreachable { .. })),
            "{late:?}"
        );
        leaving.await.unwrap();
        assert!(runtime.now().since(started) < Duration::from_secs(1));
        assert_eq!(echo.begun.load(Ordering::Relaxed), 2);
        // A node that connects meanwhile gets the error at once.
        runtime.sleep(Duration::from_secs(2)).await;
        let anew = ask("echo").await.unwrap();
        assert!(
            matches!(anew, Err(PeerError::Unreachable { .. })),
            "{anew:?}"
        );
        assert_eq!(echo.begun.load(Ordering::Relaxed), 2);
        drop(guard);
    });
}

/// A request without an answer at the stop may have been carried out, and is not reported as
/// refused.
#[test]
fn a_leave_that_is_cut_short_denies_nothing() {
    simulated(|runtime| async move {
        let serving = Peers::new(runtime.clone(), Known::of(2), settings());
        let (_, guard) = answering_over(&runtime, 2, serving.clone());
        let peers = asking(&runtime, settings());
        let deadline = in_ms(&runtime, 60_000);
        let never = runtime.spawn("never", async move {
            let message = Message::of_head("never");
            peers
                .request(node(2), Lane::Requests, message, deadline)
                .await
        });
        runtime.sleep(Duration::from_millis(100)).await;
        serving.take_leave(Duration::from_millis(200)).await;
        drop(guard);
        let answer = never.await.unwrap();
        assert!(
            matches!(answer, Err(PeerError::Broken { .. })),
            "{answer:?}"
        );
    });
}

#[test]
fn a_peer_that_says_nothing_more_is_given_up() {
    simulated(|runtime| async move {
        let listener = runtime
            .listen(address(2), ListenOptions::default())
            .unwrap();
        let _mute = runtime.spawn("mute", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 1024];
            let _hello = stream.read(&mut hello).await.unwrap();
            let mut verdict = vec![0, 1, 0];
            verdict.extend_from_slice(node(2).as_bytes());
            verdict.extend_from_slice(&crc32c::crc32c(&verdict).to_le_bytes());
            stream.write_all(&verdict).await.unwrap();
            std::future::pending::<()>().await;
        });
        let peers = asking(&runtime, settings());
        let started = runtime.now();
        let echo = Message::of_head("echo");
        let answer = peers.request(node(2), Lane::Control, echo, in_ms(&runtime, 1_000_000));
        let answer = answer.await;
        assert!(
            matches!(answer, Err(PeerError::Broken { .. })),
            "{answer:?}"
        );
        assert!(runtime.now().since(started) <= Duration::from_secs(11));
    });
}

#[test]
fn who_does_not_belong_learns_why() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let ask = |introduction: Introduction, expected: NodeId| {
            let known = Known::of(1);
            known.addresses.lock().insert(expected, address(2));
            let known = Arc::new(Known {
                introduction,
                addresses: Mutex::new(known.addresses.lock().clone()),
                removed: Mutex::default(),
            });
            let peers = Peers::new(runtime.clone(), known, settings());
            let deadline = in_ms(&runtime, 1_000);
            async move {
                let who = Message::of_head("who");
                peers.request(expected, Lane::Requests, who, deadline).await
            }
        };
        let member = Known::of(1).introduction.clone();
        let refused = |refusal| {
            Err(PeerError::Refused {
                address: address(2),
                refusal,
            })
        };
        let other_cluster = Introduction {
            cluster: node(99),
            ..member.clone()
        };
        let other_name = Introduction {
            cluster_name: "production".into(),
            ..member.clone()
        };
        let stranger = Introduction {
            cluster: node(0),
            ..member.clone()
        };
        assert_eq!(
            ask(other_cluster, node(2)).await,
            refused(Refusal::OtherCluster)
        );
        assert_eq!(ask(other_name, node(2)).await, refused(Refusal::OtherName));
        assert_eq!(ask(member, node(3)).await, refused(Refusal::OtherNode));
        let admitted = ask(stranger, node(2)).await.unwrap();
        assert_eq!(admitted.head, "requests false 1000");
    });
}

#[test]
fn hostile_bytes_end_their_connection_and_nothing_else() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let mut random = 1u64;
        for length in [0usize, 1, 9, 10, 70, 400, 5_000] {
            let mut stream = runtime.connect(address(2)).await.unwrap();
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    random.to_be_bytes()[0]
                })
                .collect();
            // The other side may have closed the connection already.
            let _sent_or_not = stream.write_all(&bytes).await;
            let echo = Message::of_head("echo");
            let answer = peers.request(node(2), Lane::Requests, echo, in_ms(&runtime, 1_000));
            assert!(answer.await.is_ok());
        }
    });
}

#[test]
fn an_unknown_node_and_an_oversized_message_are_reported_at_once() {
    simulated(|runtime| async move {
        let small = PeerSettings {
            message_bytes_max: 100,
            ..settings()
        };
        let peers = asking(&runtime, small);
        let echo = || Message::of_head("echo");
        let nobody = peers.request(node(9), Lane::Requests, echo(), in_ms(&runtime, 1_000));
        assert_eq!(nobody.await, Err(PeerError::NoAddress { node: node(9) }));
        let large = Message::of_head(vec![0; 101]);
        let large = peers.request(node(2), Lane::Requests, large, in_ms(&runtime, 1_000));
        assert!(matches!(large.await, Err(PeerError::TooLarge { .. })));
    });
}
