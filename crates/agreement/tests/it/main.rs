//! Nodes that agree, on virtual time, over links that can be cut and disks that lose unsynced bytes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot make its input should fail"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_agreement::{
    Agreement, AgreementError, AgreementSettings, Founding, Machine, OpenError, Parts,
};
use kvorum_disk::{
    CrashOptions, Disk as _, ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule, read_file,
    replace_file,
};
use kvorum_peer::{
    Admission, Caller, Directory, Introduction, Message, PeerService, PeerSettings, Peers, Served,
};
use kvorum_ring::NodeId;
use kvorum_runtime::{Link, ListenOptions, Moment, Runtime, SimulatedProcess, World};
use parking_lot::Mutex;

const PORT: u16 = 8099;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

/// A machine that collects its commands. Each command is a word; its outcome is its place.
#[derive(Default)]
struct Words(Mutex<Vec<String>>);

impl Machine for Words {
    fn apply(&self, command: &str) -> String {
        let mut words = self.0.lock();
        words.push(command.to_owned());
        words.len().to_string()
    }

    fn state(&self) -> Vec<u8> {
        self.0.lock().join(" ").into_bytes()
    }

    fn restore(&self, state: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(state).map_err(|error| error.to_string())?;
        *self.0.lock() = text.split_whitespace().map(str::to_owned).collect();
        Ok(())
    }
}

/// The machine of each node that has moved, by node number, as one node has them.
type Moved = Arc<Mutex<BTreeMap<u8, u8>>>;

struct Everybody(u8, Moved);

impl Directory for Everybody {
    fn introduction(&self) -> Introduction {
        Introduction {
            cluster: node(200),
            cluster_name: "test".into(),
            node: node(self.0),
        }
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let number = node.as_bytes()[0];
        let at = self.1.lock().get(&number).copied().unwrap_or(number);
        Some(SocketAddr::new(address(at), PORT))
    }

    fn admit(&self, _: &Introduction) -> Admission {
        Admission::Member
    }
}

struct Answers(Agreement);

impl PeerService for Answers {
    fn handle(&self, _: Caller, message: Message, _: Moment) -> Served {
        let agreement = self.0.clone();
        Served::Later(Box::pin(async move { agreement.answer(message).await }))
    }
}

/// A node: its disk outlives its process.
struct Node {
    number: u8,
    disk: MemoryDisk,
    /// The same disk, with a switch for failures.
    faulty: FaultyDisk,
    running: Option<Running>,
    /// The machine that its process runs on.
    machine: u8,
    moved: Moved,
}

struct Running {
    process: SimulatedProcess,
    agreement: Agreement,
    words: Arc<Words>,
}

fn settings() -> AgreementSettings {
    AgreementSettings {
        commands_between_snapshots: 10,
        ..AgreementSettings::default()
    }
}

impl Node {
    fn new(number: u8) -> Self {
        let disk = MemoryDisk::new();
        Self {
            number,
            faulty: FaultyDisk::over_memory(&disk),
            disk,
            running: None,
            machine: number,
            moved: Moved::default(),
        }
    }

    async fn start(&mut self, world: &World, founding: Founding) {
        self.try_start(world, founding).await.unwrap();
    }

    async fn try_start(&mut self, world: &World, founding: Founding) -> Result<(), OpenError> {
        let process = world.start_process(address(self.machine));
        let runtime = process.runtime();
        let directory = Arc::new(Everybody(self.number, self.moved.clone()));
        let peers = Peers::new(runtime.clone(), directory, PeerSettings::default());
        let words = Arc::new(Words::default());
        let parts = Parts {
            runtime: runtime.clone(),
            disk: Arc::new(self.faulty.clone()),
            directory: PathBuf::from("agreement"),
            second_mark: PathBuf::from("agreement.end"),
            node: node(self.number),
            peers: peers.clone(),
            machine: words.clone(),
        };
        let agreement = Agreement::open(parts, founding, settings()).await?;
        let at = SocketAddr::new(address(self.machine), PORT);
        let listener = runtime.listen(at, ListenOptions::default()).unwrap();
        let answers = Arc::new(Answers(agreement.clone()));
        runtime.spawn("serve", async move { peers.serve(listener, answers).await });
        self.running = Some(Running {
            process,
            agreement,
            words,
        });
        Ok(())
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn words(&self) -> Vec<String> {
        self.running().words.0.lock().clone()
    }

    /// The process dies and the disk loses its unsynced bytes.
    async fn lose_power(&mut self, world: &World) {
        let running = self.running.take().unwrap();
        running.process.kill();
        world.runtime().sleep(Duration::from_millis(1)).await;
        drop(running);
        let drawn = CrashOptions::drawn(world.runtime().random_u64());
        self.disk.crash(drawn);
    }

    async fn propose(&self, runtime: &Runtime, word: &str) -> Result<String, AgreementError> {
        let deadline = runtime.now().plus(Duration::from_secs(20));
        self.running()
            .agreement
            .propose(word.to_owned(), deadline)
            .await
    }
}

/// Nodes 1 to `count` that share a log; node 1 founded it.
async fn cluster(world: &World, count: u8) -> Vec<Node> {
    let mut nodes: Vec<Node> = (1..=count).map(Node::new).collect();
    nodes[0].start(world, Founding::Alone).await;
    for joining in &mut nodes[1..] {
        joining.start(world, Founding::Joining).await;
    }
    let members = (1..=count).map(node).collect();
    settle(world, &nodes, &members, &BTreeSet::new()).await;
    nodes
}

/// Lets the leader bring the log's membership to the cluster's.
async fn settle(
    world: &World,
    nodes: &[Node],
    members: &BTreeSet<NodeId>,
    unfit: &BTreeSet<NodeId>,
) {
    let mut idle = 0;
    for _ in 0..500 {
        let mut did = false;
        for running in nodes.iter().filter_map(|node| node.running.as_ref()) {
            did |= running
                .agreement
                .follow_members(members, unfit)
                .await
                .unwrap();
        }
        idle = if did { 0 } else { idle + 1 };
        if idle > 50 {
            return;
        }
        world.runtime().sleep(Duration::from_millis(100)).await;
    }
    panic!("the membership never settles");
}

fn cut(world: &World, one: u8, other: u8, is_cut: bool) {
    let link = Link {
        is_cut,
        ..Link::default()
    };
    world.set_link(address(one), address(other), link);
    world.set_link(address(other), address(one), link);
}

fn simulated<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let (executor, world) = World::new(seed).unwrap();
    executor.block_on(test(world));
}

#[test]
fn a_node_alone_agrees_with_itself_at_once_and_remembers() {
    simulated(1, |world| async move {
        let runtime = world.runtime();
        let mut alone = Node::new(1);
        let started = runtime.now();
        alone.start(&world, Founding::Alone).await;
        assert_eq!(alone.propose(&runtime, "one").await.unwrap(), "1");
        assert_eq!(alone.propose(&runtime, "two").await.unwrap(), "2");
        assert!(runtime.now().since(started) < Duration::from_millis(500));
        for round in 0..30 {
            alone
                .propose(&runtime, &format!("word{round}"))
                .await
                .unwrap();
        }
        let words = alone.words();
        alone.lose_power(&world).await;
        alone.start(&world, Founding::Opened).await;
        alone.propose(&runtime, "last").await.unwrap();
        assert_eq!(alone.words()[..words.len()], words);
        assert_eq!(alone.words().last().unwrap(), "last");
    });
}

#[test]
fn what_one_node_proposes_all_apply() {
    simulated(2, |world| async move {
        let runtime = world.runtime();
        let nodes = cluster(&world, 5).await;
        for (place, node) in nodes.iter().enumerate() {
            let outcome = node
                .propose(&runtime, &format!("from{place}"))
                .await
                .unwrap();
            assert_eq!(outcome, (place + 1).to_string());
            assert_eq!(
                node.words().len(),
                place + 1,
                "applied where it was proposed"
            );
        }
        runtime.sleep(Duration::from_secs(1)).await;
        for node in &nodes {
            assert_eq!(node.words(), nodes[0].words());
            assert_eq!(node.running().agreement.status().voters.len(), 5);
        }
    });
}

#[test]
fn a_majority_goes_on_without_the_rest_and_a_minority_keeps_what_was_agreed() {
    simulated(3, |world| async move {
        let runtime = world.runtime();
        let nodes = cluster(&world, 3).await;
        nodes[0].propose(&runtime, "before").await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        for other in [2, 3] {
            cut(&world, 1, other, true);
        }
        nodes[1].propose(&runtime, "during").await.unwrap();
        let minority = nodes[0].propose(&runtime, "alone").await;
        assert!(
            matches!(minority, Err(AgreementError::NoMajority { .. })),
            "{minority:?}"
        );
        assert_eq!(nodes[0].words(), ["before"]);
        for other in [2, 3] {
            cut(&world, 1, other, false);
        }
        runtime.sleep(Duration::from_secs(30)).await;
        nodes[0].propose(&runtime, "after").await.unwrap();
        let words = nodes[0].words();
        assert_eq!(words[..2], ["before", "during"]);
        runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(nodes[1].words(), nodes[0].words());
    });
}

/// Regression: the node could not announce its address, since it asked only its last leader and
/// itself.
#[test]
fn a_node_that_comes_back_under_another_address_finds_the_present_leader() {
    simulated(31, |world| async move {
        let runtime = world.runtime();
        let mut nodes = cluster(&world, 5).await;
        nodes[0].propose(&runtime, "before").await.unwrap();
        let leader = nodes[0].running().agreement.status().leader.unwrap();
        let leader = usize::from(leader.as_bytes()[0]) - 1;
        let (moving, other) = ((leader + 1) % 5, (leader + 2) % 5);
        nodes[moving].lose_power(&world).await;
        nodes[leader].lose_power(&world).await;
        nodes[other].propose(&runtime, "without").await.unwrap();

        nodes[moving].machine = 33;
        nodes[moving].start(&world, Founding::Opened).await;
        let agreement = nodes[moving].running().agreement.clone();
        let deadline = runtime.now().plus(Duration::from_secs(20));
        let read = agreement.catch_up(deadline).await.unwrap_err().to_string();
        assert!(read.contains("not applied here yet"), "{read}");
        let asked = agreement.clone();
        let deadline = runtime.now().plus(Duration::from_secs(60));
        let proposed = runtime.spawn("introduction", async move {
            asked.propose("moved".to_owned(), deadline).await
        });
        while !nodes[other].words().contains(&"moved".to_owned()) {
            assert!(runtime.now() < deadline, "nobody hears of it");
            runtime.sleep(Duration::from_millis(100)).await;
        }
        for node in &nodes {
            node.moved.lock().insert(nodes[moving].number, 33);
        }
        proposed.await.unwrap().unwrap();
        assert_eq!(nodes[moving].words(), ["before", "without", "moved"]);
    });
}

#[test]
fn a_node_that_catches_up_has_the_agreed_state_and_another_learns_its_age() {
    simulated(30, |world| async move {
        let runtime = world.runtime();
        let nodes = cluster(&world, 3).await;
        let catch_up = async |node: &Node| {
            let deadline = runtime.now().plus(Duration::from_secs(5));
            node.running().agreement.catch_up(deadline).await
        };
        // One of them is far from the others, and receives agreed entries late.
        for other in [1, 2] {
            let far = Link {
                delay_min: Duration::from_millis(100),
                delay_max: Duration::from_millis(100),
                is_cut: false,
            };
            world.set_link(address(other), address(3), far);
            world.set_link(address(3), address(other), far);
        }
        for round in 0..6 {
            let word = format!("word{round}");
            nodes[round % 3].propose(&runtime, &word).await.unwrap();
            let reader = &nodes[(round + 1 + round / 3) % 3];
            catch_up(reader).await.unwrap();
            assert_eq!(reader.words().last(), Some(&word));
        }
        for other in [1, 2] {
            cut(&world, other, 3, false);
        }
        let heard_ago = |node: &Node| node.running().agreement.behind_at_most().unwrap();
        assert!(
            nodes
                .iter()
                .all(|it| heard_ago(it) < Duration::from_secs(1))
        );

        // The node that is cut off may have been the leader, and may still act as leader.
        for alone in 0..3 {
            let others: Vec<u8> = (1..=3).filter(|it| *it != nodes[alone].number).collect();
            for other in &others {
                cut(&world, nodes[alone].number, *other, true);
            }
            runtime.sleep(Duration::from_secs(10)).await;
            let begun = runtime.now();
            let refused = catch_up(&nodes[alone]).await;
            assert!(
                matches!(refused, Err(AgreementError::NoMajority { .. })),
                "{refused:?}"
            );
            assert!(runtime.now().since(begun) <= Duration::from_secs(5));
            let ago = heard_ago(&nodes[alone]).as_secs();
            assert!((14..=16).contains(&ago), "{ago}");
            // The lone node comes back with a later term. The election that follows may take longer
            // than a `catch_up` waits.
            for other in &others {
                catch_up(&nodes[usize::from(*other) - 1]).await.unwrap();
            }
            for other in others {
                cut(&world, nodes[alone].number, other, false);
            }
            runtime.sleep(Duration::from_secs(30)).await;
            catch_up(&nodes[alone]).await.unwrap();
        }
    });
}

#[test]
fn a_voter_that_is_gone_is_replaced() {
    simulated(4, |world| async move {
        let runtime = world.runtime();
        let mut nodes = cluster(&world, 4).await;
        let voters = nodes[0].running().agreement.status().voters;
        assert_eq!(voters.len(), 3);
        let gone = *voters.iter().next_back().unwrap();
        let place = usize::from(gone.as_bytes()[0]) - 1;
        nodes[place].lose_power(&world).await;
        let members = (1..=4).map(node).collect();
        settle(&world, &nodes, &members, &BTreeSet::from([gone])).await;
        let after = nodes[0].running().agreement.status().voters;
        assert_eq!(after.len(), 3);
        assert!(!after.contains(&gone));
        nodes[0].propose(&runtime, "on").await.unwrap();
    });
}

#[test]
fn a_node_that_was_away_for_long_gets_a_snapshot() {
    simulated(5, |world| async move {
        let runtime = world.runtime();
        let mut nodes = cluster(&world, 3).await;
        nodes[2].lose_power(&world).await;
        for round in 0..80 {
            nodes[0]
                .propose(&runtime, &format!("word{round}"))
                .await
                .unwrap();
        }
        nodes[2].start(&world, Founding::Opened).await;
        runtime.sleep(Duration::from_secs(10)).await;
        assert_eq!(nodes[2].words(), nodes[0].words());
    });
}

/// Regression: the log began at the end of the snapshot, and the snapshot's contents were lost.
#[test]
fn r21_a_snapshot_that_is_gone_or_older_is_refused_where_the_log_does_not_reach_back_to_it() {
    simulated(6, |world| async move {
        let runtime = world.runtime();
        let mut alone = Node::new(1);
        alone.start(&world, Founding::Alone).await;
        let disk = alone.disk.clone();
        let (newest, previous) = (
            Path::new("agreement/snapshot"),
            Path::new("agreement/snapshot.previous"),
        );
        let mut early = None;
        for round in 0..60 {
            let word = format!("word{round}");
            alone.propose(&runtime, &word).await.unwrap();
            if early.is_none() && disk.info(newest).unwrap().is_some() {
                early = Some(read_file(&disk, newest, 1 << 20).unwrap());
            }
        }
        let words = alone.words();
        runtime.sleep(Duration::from_secs(1)).await;
        alone.running().agreement.stop().await;
        alone.lose_power(&world).await;
        let whole = [newest, previous].map(|path| read_file(&disk, path, 1 << 20).unwrap());
        let found = || {
            let mark = Path::new("agreement.end");
            kvorum_agreement::check::check_directory(&disk, Path::new("agreement"), Some(mark))
        };
        assert_eq!(found(), []);

        // With one generation only, the log reaches back to the older one.
        disk.remove_file(newest).unwrap();
        assert_eq!(found().len(), 1);
        alone.start(&world, Founding::Opened).await;
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(alone.words(), words);
        let status = alone.running().agreement.status();
        assert_eq!(status.unreadable_snapshot.as_deref(), Some(newest));
        alone.lose_power(&world).await;

        for (newest_bytes, previous_bytes) in [(None, None), (early.clone(), early.clone())] {
            for (path, bytes) in [(newest, newest_bytes), (previous, previous_bytes)] {
                match bytes {
                    Some(bytes) => replace_file(&disk, path, &bytes).unwrap(),
                    None => disk.remove_file(path).unwrap_or_default(),
                }
            }
            assert!(!found().is_empty());
            let refused = alone.try_start(&world, Founding::Opened).await.unwrap_err();
            assert!(
                matches!(refused, OpenError::SnapshotBehind { .. }),
                "{refused}"
            );
            assert!(
                refused.to_string().contains("agreement/snapshot"),
                "{refused}"
            );
        }
        for (path, bytes) in [newest, previous].into_iter().zip(whole) {
            replace_file(&disk, path, &bytes).unwrap();
        }
        alone.start(&world, Founding::Opened).await;
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(alone.words(), words);
    });
}

#[test]
fn an_empty_directory_is_no_log_and_a_used_one_is_no_place_for_another() {
    simulated(6, |world| async move {
        let process = world.start_process(address(1));
        let peers = Peers::new(
            process.runtime(),
            Arc::new(Everybody(1, Moved::default())),
            PeerSettings::default(),
        );
        let disk = MemoryDisk::new();
        let open = async |founding| {
            let parts = Parts {
                runtime: process.runtime(),
                disk: Arc::new(disk.clone()),
                directory: PathBuf::from("agreement"),
                second_mark: PathBuf::from("agreement.end"),
                node: node(1),
                peers: peers.clone(),
                machine: Arc::new(Words::default()),
            };
            Agreement::open(parts, founding, settings())
                .await
                .map(|_| ())
        };
        let missing = open(Founding::Opened).await;
        assert!(matches!(missing, Err(OpenError::Missing { .. })));
        open(Founding::Alone).await.unwrap();
        let again = open(Founding::Alone).await;
        assert!(matches!(again, Err(OpenError::AlreadyExists { .. })));
    });
}

/// Crashes with loss of unsynced bytes, cuts and proposals, in an order drawn from the seed. Agreed
/// commands stay, in one order, on every node; the same seed gives the same words.
fn storm(seed: u64) -> Vec<String> {
    let result = Arc::new(Mutex::new(Vec::new()));
    let words = result.clone();
    simulated(seed, |world| async move {
        let runtime = world.runtime();
        let mut nodes = cluster(&world, 3).await;
        let draw = |bound: u64| runtime.random_u64() % bound;
        let mut agreed = BTreeMap::new();
        for round in 0..40 {
            let place = usize::try_from(draw(3)).unwrap();
            match draw(6) {
                0 => {
                    nodes[place].lose_power(&world).await;
                    runtime.sleep(Duration::from_millis(draw(3_000))).await;
                    nodes[place].start(&world, Founding::Opened).await;
                }
                1 => {
                    let other = (place + 1) % 3;
                    let (one, other) = (nodes[place].number, nodes[other].number);
                    cut(&world, one, other, true);
                    runtime.sleep(Duration::from_millis(draw(4_000))).await;
                    cut(&world, one, other, false);
                }
                _ => {
                    let word = format!("word{round}");
                    if let Ok(outcome) = nodes[place].propose(&runtime, &word).await {
                        agreed.insert(word, outcome);
                    }
                }
            }
        }
        runtime.sleep(Duration::from_secs(60)).await;
        nodes[0].propose(&runtime, "end").await.unwrap();
        runtime.sleep(Duration::from_secs(5)).await;
        for node in &nodes {
            assert_eq!(node.words(), nodes[0].words());
        }
        for (word, outcome) in &agreed {
            let place: usize = outcome.parse().unwrap();
            assert_eq!(&nodes[0].words()[place - 1], word);
        }
        *words.lock() = nodes[0].words();
    });
    Arc::into_inner(result).map(Mutex::into_inner).unwrap()
}

#[test]
fn what_was_agreed_survives_crashes_and_cuts() {
    for seed in 100..110 {
        let words = storm(seed);
        assert!(
            words.len() > 5,
            "hardly anything was agreed under seed {seed}"
        );
    }
}

#[test]
fn one_seed_gives_one_course() {
    assert_eq!(storm(7), storm(7));
}

/// Regression: the log ended for good at the first failed write, and its file could not be read
/// afterwards.
#[test]
fn a_node_whose_disk_takes_nothing_for_a_while_has_its_say_again_afterwards() {
    let rules = [
        Rule::new(Fault::Error(ErrorKind::NoSpace)).on(Operation::Write),
        Rule::new(Fault::Error(ErrorKind::Device)).on(Operation::Sync),
        Rule::new(Fault::TornWrite { bytes: 70 }).on(Operation::Write),
    ];
    for (seed, rule) in (20..).zip(rules) {
        simulated(seed, |world| async move {
            let runtime = world.runtime();
            let mut nodes = cluster(&world, 3).await;
            nodes[0].propose(&runtime, "before").await.unwrap();
            for ill in 0..3 {
                nodes[ill].faulty.add_rule(rule.clone());
                let others = (ill + 1) % 3;
                nodes[others].propose(&runtime, "during").await.unwrap();
                let status = nodes[ill].running().agreement.status();
                assert!(status.hindrance.is_some(), "{status:?}");
                nodes[ill].faulty.heal();
                runtime.sleep(Duration::from_secs(10)).await;
                assert_eq!(nodes[ill].words(), nodes[others].words());
                nodes[ill].propose(&runtime, "after").await.unwrap();
                assert_eq!(nodes[ill].running().agreement.status().hindrance, None);
                nodes[ill].lose_power(&world).await;
                nodes[ill].start(&world, Founding::Opened).await;
            }
            runtime.sleep(Duration::from_secs(10)).await;
            for node in &nodes {
                assert_eq!(node.words(), nodes[0].words());
                assert_eq!(node.words().len(), 7);
            }
        });
    }
}
