//! Requests over several nodes: quorums with nodes down, stand-ins, repair, forwards, overload.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_coordinator::{
    Coordinator, DeleteOptions, GetOptions, HintPageLimits, HintStore as _, PutOptions, Repaired,
    RequestError,
};
use kvorum_object::{Clock, Object, Resolution};
use kvorum_peer::PeerSettings;
use kvorum_properties::Quorum;
use kvorum_vnode::Condition;

use crate::cluster::{Cluster, ClusterNode, Setup};
use crate::world::{address, request, storage_key, values};

pub(crate) async fn put(
    node: &ClusterNode,
    key: &str,
    value: &str,
    context: &Clock,
    options: &PutOptions,
) -> Result<Arc<Object>, RequestError> {
    let request = request(value, context, Condition::Always);
    let coordinator: &Coordinator = &node.coordinator;
    let now = coordinator.runtime().now();
    coordinator.put(&address(key), request, options, now).await
}

pub(crate) async fn get(
    node: &ClusterNode,
    key: &str,
    options: &GetOptions,
) -> Result<Option<Arc<Object>>, RequestError> {
    let coordinator: &Coordinator = &node.coordinator;
    let now = coordinator.runtime().now();
    coordinator.get(&address(key), options, now).await
}

impl Cluster {
    fn put(&self, at: u8, key: &str, value: &str) -> Result<Arc<Object>, RequestError> {
        let options = PutOptions::default();
        self.run(put(self.node(at), key, value, &Clock::new(), &options))
    }

    fn get(&self, at: u8, key: &str) -> Result<Option<Arc<Object>>, RequestError> {
        self.run(get(self.node(at), key, &GetOptions::default()))
    }

    fn replicas_with(&self, key: &str) -> usize {
        let owners = self.owners(key);
        let places = owners.into_iter().zip(self.partitions(key));
        places
            .filter(|(node, partition)| self.node(*node).stored(*partition, key).is_some())
            .count()
    }
}

fn number(quorum: u32) -> Option<Quorum> {
    Some(Quorum::Number(quorum))
}

#[test]
fn any_node_writes_and_reads_any_key() {
    for heads_first in [false, true] {
        let cluster = Cluster::new(&Setup {
            heads_first,
            nodes: 5,
            owners: 5,
            ..Setup::default()
        });
        for key in ["a", "b", "c", "d"] {
            for at in 1..=5 {
                let read = cluster.get(at, key).unwrap();
                let context = read.map_or_else(Clock::new, |it| it.clock().clone());
                let options = PutOptions::default();
                let value = format!("{key}{at}");
                let written = put(cluster.node(at), key, &value, &context, &options);
                let written = cluster.run(written).unwrap();
                assert_eq!(values(&written), std::slice::from_ref(&value));
                let reader = at % 5 + 1;
                assert_eq!(values(&cluster.get(reader, key).unwrap().unwrap()), [value]);
            }
        }
        cluster.settle();
        assert_eq!(cluster.replicas_with("a"), 3);
        // Each key has three replicas among the five nodes, and was put at all of them.
        let redirects = (1..=5).map(|at| *cluster.node(at).meter.redirects.lock());
        assert_eq!(redirects.sum::<usize>(), 4 * 2);
        let here = (1..=5).map(|at| *cluster.node(at).meter.coordinated_here.lock());
        assert_eq!(here.sum::<usize>(), 4 * 3);
    }
}

#[test]
fn all_three_replicas_get_a_write_that_waits_for_two() {
    let cluster = Cluster::new(&Setup::default());
    let owner = cluster.owners("key")[0];
    cluster.put(owner, "key", "value").unwrap();
    cluster.settle();
    assert_eq!(cluster.replicas_with("key"), 3);
}

#[test]
fn quorums_with_nodes_down_are_met_or_refused_at_once() {
    // Quorums w and pw that the primaries that are up and the only stand-in meet or miss.
    for (down, w, pw, is_met) in [
        (0, 3, 3, true),
        (1, 3, 2, true),
        (1, 2, 3, false),
        (2, 2, 1, true),
        (2, 2, 2, false),
        (2, 3, 0, false),
    ] {
        let cluster = Cluster::new(&Setup::default());
        let owners = cluster.owners("key");
        for number in &owners[..down] {
            cluster.cut_off(*number, true);
        }
        let at = owners[2];
        let options = PutOptions {
            w: number(w),
            pw: number(pw),
            ..PutOptions::default()
        };
        let before = cluster.runtime.now();
        let written = cluster.run(put(
            cluster.node(at),
            "key",
            "value",
            &Clock::new(),
            &options,
        ));
        assert_eq!(written.is_ok(), is_met, "{down} {w} {pw} {written:?}");
        let took = cluster.runtime.now().since(before);
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn one_node_down_and_not_yet_noticed_costs_no_error_at_quorum() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.put(owners[0], "key", "one").unwrap();
    cluster.settle();
    cluster.cut_off(owners[1], false);
    assert_eq!(
        values(&cluster.get(owners[0], "key").unwrap().unwrap()),
        ["one"]
    );
    cluster.put(owners[0], "key", "two").unwrap();
    let read = cluster.get(owners[2], "key").unwrap().unwrap();
    assert_eq!(values(&read), ["one", "two"]);
}

#[test]
fn a_get_waits_for_no_replica_that_has_gone_silent() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    cluster.cut_off(owners[1], false);
    let runtime = &cluster.runtime;
    for _ in 0..32 {
        let begun = runtime.now();
        assert!(cluster.get(owners[0], "key").unwrap().is_some());
        let waited = runtime.now().since(begun);
        assert!(waited < Duration::from_millis(100), "{waited:?}");
    }
}

#[test]
fn each_get_finds_a_replica_that_is_behind_though_no_quorum_needs_it() {
    let cluster = Cluster::new(&Setup::default());
    for (number, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let owners = cluster.owners(key);
        let behind = owners[number % 3];
        cluster.cut_off(behind, true);
        cluster.put(owners[(number + 1) % 3], key, "value").unwrap();
        cluster.settle();
        cluster.heal(behind);
        assert_eq!(cluster.replicas_with(key), 2);
        assert!(
            cluster
                .get(owners[(number + 2) % 3], key)
                .unwrap()
                .is_some()
        );
        cluster.settle();
        assert_eq!(cluster.replicas_with(key), 3, "{key}");
    }
}

/// The newest version is on one replica alone, which no quorum needs.
#[test]
fn a_get_brings_what_only_the_last_replica_has_to_the_others() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.put(owners[0], "key", "old").unwrap();
    cluster.settle();
    let read = cluster.get(owners[0], "key").unwrap().unwrap();
    cluster.cut_off(owners[0], true);
    cluster.cut_off(owners[1], true);
    let options = PutOptions {
        w: number(1),
        dw: number(1),
        sloppy_quorum: Some(false),
        ..PutOptions::default()
    };
    let written = put(
        cluster.node(owners[2]),
        "key",
        "new",
        read.clock(),
        &options,
    );
    cluster.run(written).unwrap();
    cluster.settle();
    cluster.heal(owners[0]);
    cluster.heal(owners[1]);
    for _ in 0..2 {
        assert!(cluster.get(owners[0], "key").unwrap().is_some());
        cluster.settle();
    }
    let one = GetOptions {
        r: number(1),
        ..GetOptions::default()
    };
    for owner in owners {
        let read = cluster.run(get(cluster.node(owner), "key", &one)).unwrap();
        assert_eq!(values(&read.unwrap()), ["new"]);
    }
}

#[test]
fn one_get_in_sixteen_finds_a_replica_that_is_behind_where_not_all_compare() {
    let cluster = Cluster::new(&Setup {
        compares_all: false,
        ..Setup::default()
    });
    let owners = cluster.owners("key");
    // The first get of all compares every replica.
    assert!(cluster.get(owners[0], "other").unwrap().is_none());
    cluster.cut_off(owners[2], true);
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    cluster.heal(owners[2]);
    let mut reads = 0;
    while cluster.replicas_with("key") < 3 {
        assert!(reads < 16, "nobody has looked");
        assert!(cluster.get(owners[0], "key").unwrap().is_some());
        cluster.settle();
        reads += 1;
    }
}

#[test]
fn a_replica_that_has_gone_silent_holds_up_no_repair_of_another() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.cut_off(owners[2], true);
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    cluster.heal(owners[2]);
    assert_eq!(cluster.replicas_with("key"), 2);
    cluster.cut_off(owners[1], false);
    let runtime = &cluster.runtime;
    let begun = runtime.now();
    while cluster.replicas_with("key") < 3 {
        let waited = runtime.now().since(begun);
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        assert!(cluster.get(owners[0], "key").unwrap().is_some());
        cluster.run(runtime.sleep(Duration::from_millis(100)));
    }
}

#[test]
fn hints_come_home_and_are_forgotten() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    let partition = cluster.partitions("key")[1];
    let stranger = cluster.stranger("key");
    cluster.cut_off(owners[1], true);
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    let keeper = cluster.node(stranger).clone();
    assert_eq!(keeper.hint_count(), 1);
    let soon = || cluster.runtime.now().plus(Duration::from_secs(5));
    let kept = cluster.run(keeper.coordinator.hand_off_hints(soon()));
    assert_eq!((kept.handed, kept.kept), (0, 1));
    cluster.heal(owners[1]);
    assert!(cluster.node(owners[1]).stored(partition, "key").is_none());
    let handed = cluster.run(keeper.coordinator.hand_off_hints(soon()));
    assert_eq!((handed.handed, handed.kept), (1, 0));
    assert_eq!(keeper.hint_count(), 0);
    let home = cluster.node(owners[1]).stored(partition, "key").unwrap();
    assert_eq!(values(&home), ["value"]);
}

/// Regression: such hints were read every half minute while their node was down, and delayed the
/// hints of a node that was back.
#[test]
fn hints_of_a_node_that_is_down_are_not_read() {
    let cluster = Cluster::new(&Setup::default());
    let (owners, partitions) = (cluster.owners("key"), cluster.partitions("key"));
    let keeper = cluster.node(cluster.stranger("key")).clone();
    cluster.cut_off(owners[0], true);
    for number in 0..50 {
        let key = format!("key {number}");
        keeper.stand_in(partitions[0], &key, "of one that is down");
    }
    keeper.stand_in(partitions[1], "key", "of one that is up");
    let soon = cluster.runtime.now().plus(Duration::from_secs(5));
    let handed = cluster.run(keeper.coordinator.hand_off_hints(soon));
    assert_eq!((handed.handed, handed.kept), (1, 50));
    assert_eq!(keeper.hints_read.load(Ordering::Relaxed), 1);
    assert_eq!(keeper.hint_count(), 50);
    let home = cluster.node(owners[1]).stored(partitions[1], "key");
    assert_eq!(values(&home.unwrap()), ["of one that is up"]);
}

#[test]
fn few_large_hints_are_read_at_a_time() {
    let cluster = Cluster::new(&Setup::default());
    let (partitions, keeper) = (cluster.partitions("key"), cluster.node(1));
    let large = "v".repeat(1 << 20);
    for number in 0..9 {
        let key = format!("key {number}");
        keeper.stand_in(partitions[0], &key, &large);
        keeper.stand_in(partitions[1], &key, "of one that is down");
    }
    let limits = HintPageLimits {
        bytes_max: 4 << 20,
        passed_over: BTreeSet::from([partitions[1]]),
        ..HintPageLimits::default()
    };
    let (mut from, mut pages, mut passed_over) = (None, Vec::new(), 0);
    loop {
        let page = keeper.hints.page(from.as_ref(), &limits, Timestamp(0));
        let page = page.unwrap();
        pages.push(page.hints.len());
        passed_over += page.passed_over;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((pages, passed_over), (vec![4, 4, 1], 9));
}

/// A stand-in that has handed over its writes keeps no record of them.
#[test]
fn what_a_stand_in_writes_next_does_not_supersede_what_it_has_handed_over() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        owners: 5,
        ..Setup::default()
    });
    let (owners, stranger) = (cluster.owners("key"), cluster.stranger("key"));
    for value in ["one", "two"] {
        (owners.iter()).for_each(|number| cluster.cut_off(*number, true));
        cluster.put(stranger, "key", value).unwrap();
        (owners.iter()).for_each(|number| cluster.heal(*number));
        for node in &cluster.nodes {
            let soon = cluster.runtime.now().plus(Duration::from_secs(5));
            cluster.run(node.coordinator.hand_off_hints(soon));
            assert_eq!(node.hint_count(), 0);
        }
    }
    let read = cluster.get(owners[0], "key").unwrap().unwrap();
    assert_eq!(values(&read), ["one", "two"]);
}

/// The lists of one key differ while nodes come and go, and so does the place that a stand-in takes.
#[test]
fn what_a_stand_in_writes_in_two_places_are_two_writes() {
    let cluster = Cluster::new(&Setup::default());
    let partitions = cluster.partitions("key");
    let write = |place: usize, value| cluster.node(1).stand_in(partitions[place], "key", value);
    let (one, two) = (write(0, "one"), write(1, "two"));
    let merged = kvorum_object::merge(one, two, Resolution::KeepSiblings);
    assert_eq!(values(&merged), ["one", "two"]);
}

#[test]
fn a_stand_in_that_has_nothing_does_not_say_that_there_is_nothing() {
    let cluster = Cluster::new(&Setup::default());
    let (owners, stranger) = (cluster.owners("key"), cluster.stranger("key"));
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    cluster.cut_off(owners[0], true);
    cluster.cut_off(owners[1], true);
    // One replica and a stand-in: no quorum, but no wrong answer either.
    let read = cluster.get(stranger, "key");
    assert!(read.is_err(), "{read:?}");
    let one = GetOptions {
        r: number(1),
        ..GetOptions::default()
    };
    let read = cluster.run(get(cluster.node(owners[2]), "key", &one));
    assert_eq!(values(&read.unwrap().unwrap()), ["value"]);
}

#[test]
fn all_replicas_down_and_a_stand_in_still_takes_writes_and_gives_them_back() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        owners: 5,
        ..Setup::default()
    });
    let (owners, stranger) = (cluster.owners("key"), cluster.stranger("key"));
    for number in &owners {
        cluster.cut_off(*number, true);
    }
    cluster.put(stranger, "key", "value").unwrap();
    let read = cluster.get(stranger, "key").unwrap().unwrap();
    assert_eq!(values(&read), ["value"]);
}

/// A quorum of two is two machines, however many are down. A client that wants to write to the last
/// one has to request it.
#[test]
fn a_node_that_reaches_no_other_takes_what_one_machine_can_promise() {
    for (is_primary, colocated) in [(true, false), (false, false), (true, true), (false, true)] {
        let cluster = Cluster::new(&Setup {
            nodes: 5,
            owners: 5,
            colocated,
            ..Setup::default()
        });
        let owners = cluster.owners("key");
        let alone = match is_primary {
            true => owners[1],
            false => cluster.stranger("key"),
        };
        for other in (1..=5).filter(|it| *it != alone) {
            cluster.cut_off(other, true);
        }
        let by_default = cluster.put(alone, "key", "quorum").map(drop);
        let (wanted, got) = (2, 1);
        let refused = Err(RequestError::InsufficientVnodes { wanted, got });
        let expected = if colocated { Ok(()) } else { refused };
        assert_eq!(by_default, expected, "{is_primary} {colocated}");
        let one = PutOptions {
            w: number(1),
            dw: number(1),
            ..PutOptions::default()
        };
        let written = |options| {
            let (node, blind) = (cluster.node(alone), Clock::new());
            let put = put(node, "key", "one", &blind, options);
            cluster.run(put).map(drop)
        };
        assert_eq!(written(&one), Ok(()), "{is_primary} {colocated}");
        let two_machines = PutOptions {
            node_confirms: number(2),
            ..one.clone()
        };
        let refused = Err(RequestError::InsufficientNodes { wanted, got });
        assert_eq!(written(&two_machines), refused, "{is_primary} {colocated}");
        let primaries = PutOptions {
            pw: number(2),
            ..one
        };
        let got = usize::from(is_primary);
        let refused = Err(RequestError::PrimaryWritesUnsatisfied { wanted, got });
        assert_eq!(written(&primaries), refused, "{is_primary} {colocated}");
        let read = GetOptions {
            r: number(1),
            ..GetOptions::default()
        };
        let read = cluster.run(get(cluster.node(alone), "key", &read));
        let read = values(&read.unwrap().unwrap());
        assert!(read.contains(&"one".to_owned()), "{read:?}");
        // The objects that it accepted reach their owners.
        (1..=5).for_each(|other| cluster.set_links(other, false));
        (1..=5).for_each(|other| cluster.heal(other));
        let soon = cluster.runtime.now().plus(Duration::from_secs(5));
        cluster.run(cluster.node(alone).coordinator.hand_off_hints(soon));
        assert_eq!(cluster.node(alone).hint_count(), 0);
        let all = GetOptions {
            r: number(3),
            ..GetOptions::default()
        };
        let home = cluster.run(get(cluster.node(alone), "key", &all));
        assert_eq!(values(&home.unwrap().unwrap()), read);
    }
}

#[test]
fn a_read_repairs_replicas_on_other_nodes() {
    for heads_first in [false, true] {
        let cluster = Cluster::new(&Setup {
            heads_first,
            ..Setup::default()
        });
        let owners = cluster.owners("key");
        cluster.cut_off(owners[1], true);
        cluster.put(owners[0], "key", "value").unwrap();
        cluster.settle();
        cluster.heal(owners[1]);
        assert_eq!(cluster.replicas_with("key"), 2);
        assert!(cluster.get(owners[0], "key").unwrap().is_some());
        cluster.settle();
        assert_eq!(cluster.replicas_with("key"), 3);
        let meter = &cluster.node(owners[0]).meter;
        assert_eq!(*meter.repairs.lock(), 1);
        let repaired = Repaired {
            is_fallback: false,
            had_nothing: true,
            kind: None,
        };
        assert_eq!(*meter.repaired.lock(), [repaired]);
    }
}

#[test]
fn the_values_behind_a_head_that_is_ahead_are_fetched() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.cut_off(owners[0], true);
    cluster.put(owners[1], "key", "value").unwrap();
    cluster.settle();
    cluster.heal(owners[0]);
    // The reader's own replica has nothing, so the others are asked for heads.
    let read = cluster.get(owners[0], "key").unwrap().unwrap();
    assert_eq!(values(&read), ["value"]);
}

#[test]
fn an_overloaded_node_refuses_and_another_coordinates() {
    let few = PeerSettings {
        in_progress_max: 0,
        ..PeerSettings::default()
    };
    let cluster = Cluster::new(&Setup {
        peer: few,
        ..Setup::default()
    });
    let owner = cluster.owners("key")[0];
    let before = cluster.runtime.now();
    let read = cluster.get(owner, "key");
    assert_eq!(read.map(|_| ()), Err(RequestError::Overload));
    let refused = cluster.put(cluster.stranger("key"), "key", "value");
    assert_eq!(refused.map(|_| ()), Err(RequestError::Overload));
    let one = PutOptions {
        w: number(1),
        dw: number(1),
        ..PutOptions::default()
    };
    let clock = Clock::new();
    let written = put(cluster.node(owner), "key", "value", &clock, &one);
    assert!(cluster.run(written).is_ok());
    assert!(cluster.runtime.now().since(before) < Duration::from_secs(1));
}

#[test]
fn a_forward_that_nobody_answers_is_an_error_and_not_a_second_write() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    let stranger = cluster.stranger("key");
    // Connected before, so that the request is sent and may have arrived.
    cluster.put(stranger, "key", "one").unwrap();
    cluster.settle();
    cluster.cut_off(owners[0], false);
    let written = cluster.put(stranger, "key", "two");
    assert_eq!(written.map(|_| ()), Err(RequestError::Timeout));
    cluster.heal(owners[0]);
    cluster.settle();
    let all = GetOptions {
        r: number(3),
        ..GetOptions::default()
    };
    let read = cluster.run(get(cluster.node(stranger), "key", &all));
    let read = values(&read.unwrap().unwrap());
    assert!(
        read == ["one"] || read == ["one", "two"],
        "written twice: {read:?}"
    );
}

/// The next coordinating replicas are up, but are not asked: the error must not be that all nodes are down.
#[test]
fn a_write_whose_coordinating_replica_goes_away_over_it_is_in_doubt_and_not_made_again() {
    let mut outcomes = Vec::new();
    for seed in 1..=40 {
        let cluster = Cluster::new(&Setup {
            seed,
            ..Setup::default()
        });
        let (owners, stranger) = (cluster.owners("key"), cluster.stranger("key"));
        // Connected before, so that the write is sent at once.
        cluster.put(stranger, "key", "one").unwrap();
        cluster.settle();
        let node = cluster.node(stranger).clone();
        let client = cluster.runtime.spawn("client", async move {
            put(&node, "key", "two", &Clock::new(), &PutOptions::default()).await
        });
        let after = Duration::from_micros(100 * seed);
        cluster.run(cluster.runtime.sleep(after));
        cluster.break_connections(stranger, owners[0]);
        let written = cluster.run(client).unwrap().map(drop);
        assert!(
            matches!(written, Ok(()) | Err(RequestError::OutcomeUnknown)),
            "{written:?}"
        );
        cluster.settle();
        let all = GetOptions {
            r: number(3),
            ..GetOptions::default()
        };
        let read = cluster.run(get(cluster.node(stranger), "key", &all));
        let read = values(&read.unwrap().unwrap());
        let is_there = read == ["one", "two"];
        assert!(is_there || read == ["one"], "seed {seed}: {read:?}");
        assert!(is_there || written.is_err(), "seed {seed}");
        outcomes.push((written.is_ok(), is_there));
    }
    // All possible outcomes have occurred.
    for outcome in [(true, true), (false, true), (false, false)] {
        assert!(outcomes.contains(&outcome), "{outcome:?} of {outcomes:?}");
    }
    assert_eq!(RequestError::OutcomeUnknown.to_string(), "timeout");
}

#[test]
fn a_forward_to_a_node_that_is_not_there_goes_to_another() {
    let cluster = Cluster::new(&Setup::default());
    let stranger = cluster.stranger("key");
    let owners = cluster.owners("key");
    // The partition has no vnode there yet: nothing can have been done.
    let partition = cluster.partitions("key")[0];
    let vnodes = &cluster.node(owners[0]).vnodes;
    vnodes.remove(partition);
    let written = cluster.put(stranger, "key", "value").unwrap();
    assert_eq!(values(&written), ["value"]);
}

#[test]
fn a_client_that_leaves_leaves_nothing_behind() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.cut_off(owners[1], false);
    cluster.cut_off(owners[2], false);
    let node = cluster.node(owners[0]).clone();
    let task = cluster.runtime.spawn("client", async move {
        get(&node, "key", &GetOptions::default()).await
    });
    cluster.run(cluster.runtime.sleep(Duration::from_millis(50)));
    let coordinator = &cluster.node(owners[0]).coordinator;
    assert_eq!(coordinator.requests_in_progress(), 1);
    task.abort();
    cluster.run(cluster.runtime.sleep(Duration::from_millis(50)));
    assert_eq!(coordinator.requests_in_progress(), 0);
}

#[test]
fn another_replica_coordinates_for_one_whose_store_has_failed() {
    let cluster = Cluster::new(&Setup::default());
    let (owners, partitions) = (cluster.owners("key"), cluster.partitions("key"));
    cluster.node(owners[0]).break_store(partitions[0]);
    // A write that was under way when it failed may have been carried out.
    assert!(cluster.put(owners[0], "key", "first").is_err());
    for at in [owners[0], owners[1], cluster.stranger("key")] {
        let written = cluster.put(at, "key", "later");
        assert!(written.is_ok(), "at {at}: {written:?}");
    }
}

#[test]
fn a_node_without_room_refuses_what_is_put_and_nothing_else() {
    let cluster = Cluster::new(&Setup::default());
    let owner = cluster.owners("key")[0];
    assert!(cluster.put(owner, "key", "value").is_ok());
    let is_full = &cluster.node(owner).maintenance.is_full;
    is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = cluster.put(owner, "key", "other");
    assert_eq!(refused.map(|_| ()), Err(RequestError::Overload));
    // It refuses as a replica, too: pw of three cannot be met.
    let all = PutOptions {
        pw: number(3),
        ..PutOptions::default()
    };
    let stranger = cluster.stranger("key");
    let clock = Clock::new();
    let written = put(cluster.node(stranger), "key", "other", &clock, &all);
    assert!(cluster.run(written).is_err());
    // Stand-ins take the write, and the node still serves reads and deletes.
    assert!(cluster.put(stranger, "key", "third").is_ok());
    let read = cluster.get(owner, "key").unwrap().unwrap();
    let now = cluster.runtime.now();
    let (options, clock) = (DeleteOptions::default(), Some(read.clock().clone()));
    let coordinator = &cluster.node(owner).coordinator;
    let deleted = cluster.run(coordinator.delete(&address("key"), clock, &options, now));
    assert!(deleted.is_ok(), "{:?}", deleted.err());
}

const MEND_WAIT: Duration = Duration::from_secs(5);

/// A key is mended when all of its replicas are equal in the end.
#[test]
fn replicas_are_mended_on_request_and_it_is_said_when_one_was_not_reached() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.cut_off(owners[2], true);
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    let mend = |at: u8| {
        let coordinator = &cluster.node(at).coordinator;
        cluster.run(coordinator.mend_replicas(&storage_key("key"), MEND_WAIT))
    };
    assert!(!mend(owners[0]), "a replica is down");
    cluster.heal(owners[2]);
    assert_eq!(cluster.replicas_with("key"), 2);
    assert!(mend(owners[1]));
    assert_eq!(cluster.replicas_with("key"), 3);
    assert!(mend(cluster.stranger("key")), "nothing is to be done");
    let absent = storage_key("none");
    let coordinator = &cluster.node(owners[0]).coordinator;
    assert!(cluster.run(coordinator.mend_replicas(&absent, MEND_WAIT)));
}

#[test]
fn a_key_is_not_mended_while_a_replica_takes_no_writes() {
    let cluster = Cluster::new(&Setup::default());
    let owners = cluster.owners("key");
    cluster.put(owners[0], "key", "value").unwrap();
    cluster.settle();
    let partition = cluster.partitions("key")[1];
    cluster.node(owners[1]).break_store(partition);
    for at in owners {
        let coordinator = &cluster.node(at).coordinator;
        let key = storage_key("key");
        assert!(!cluster.run(coordinator.mend_replicas(&key, MEND_WAIT)));
    }
}
