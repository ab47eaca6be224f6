//! Every quorum value counts alike, from the request, the bucket or the bucket type.

use kvorum_backend::ErrorKind;
use kvorum_cluster::{AgreedState, Command, Member};
use kvorum_coordinator::{Condition, DeleteOptions, GetOptions, PutOptions, RequestError};
use kvorum_encoding::BucketType;
use kvorum_object::Clock;
use kvorum_properties::{PropertyOverlay, Quorum};
use kvorum_ring::{NodeId, Ring};

use crate::world::{Setup, World, colocated, request};

const SETTINGS: [&str; 8] = [
    "r",
    "pr",
    "read nodes",
    "w",
    "dw",
    "pw",
    "write nodes",
    "rw",
];

fn values() -> Vec<Quorum> {
    let words = [Quorum::One, Quorum::Quorum, Quorum::All];
    words
        .into_iter()
        .chain((0..=4).map(Quorum::Number))
        .collect()
}

/// Properties that are easy to satisfy.
fn lenient() -> PropertyOverlay {
    let one = Some(Quorum::One);
    PropertyOverlay {
        n_val: Some(3),
        r: one,
        w: one,
        dw: one,
        rw: one,
        // Absence must not stand in for an answer.
        notfound_ok: Some(false),
        ..PropertyOverlay::default()
    }
}

fn with(setting: &str, value: Quorum) -> PropertyOverlay {
    let mut properties = lenient();
    let place = match setting {
        "r" => &mut properties.r,
        "pr" => &mut properties.pr,
        "w" => &mut properties.w,
        "dw" => &mut properties.dw,
        "pw" => &mut properties.pw,
        "rw" => &mut properties.rw,
        _ => &mut properties.node_confirms,
    };
    *place = Some(value);
    properties
}

/// The outcome of a request with this setting, given by the request or not.
fn outcome(world: &World, key: &str, setting: &str, value: Option<Quorum>) -> String {
    let given = |name: &str| value.filter(|_| name == setting);
    match setting {
        "r" | "pr" | "read nodes" => {
            let options = GetOptions {
                r: given("r"),
                pr: given("pr"),
                node_confirms: given("read nodes"),
                ..GetOptions::default()
            };
            outcome_text(world.try_get(key, &options).map(drop))
        }
        "rw" => {
            let options = DeleteOptions {
                rw: given("rw"),
                ..DeleteOptions::default()
            };
            outcome_text(world.try_delete(key, None, &options).map(drop))
        }
        _ => {
            let options = PutOptions {
                w: given("w"),
                dw: given("dw"),
                pw: given("pw"),
                node_confirms: given("write nodes"),
                ..PutOptions::default()
            };
            let put = request("b", &Clock::new(), Condition::Always);
            outcome_text(world.try_put(key, put, &options).map(drop))
        }
    }
}

fn outcome_text(outcome: Result<(), RequestError>) -> String {
    outcome.map_or_else(|error| error.to_string(), |()| "ok".into())
}

fn is_read(setting: &str) -> bool {
    ["r", "pr", "read nodes"].contains(&setting)
}

/// The expected result with `broken` of three colocated replicas failing.
fn expected(setting: &str, value: Quorum, broken: usize) -> String {
    let (n, left) = (3_usize, 3 - broken);
    let number = value.resolve(3) as usize;
    if number > n {
        return "{n_val_violation,3}".into();
    }
    // The replicas that fail: any of a read's; of a write's, those after the first, which coordinates.
    let unmet = |name: &str, wanted: usize, got: usize| match wanted > left {
        true => format!("{{{name},{wanted},{got}}}"),
        false => "ok".into(),
    };
    match setting {
        "read nodes" | "write nodes" if number > 1 => {
            format!("{{insufficient_nodes,1,need,{number}}}")
        }
        "r" | "rw" => unmet("r_val_unsatisfied", number, 0),
        "pr" => unmet("pr_val_unsatisfied", number, 0),
        "w" => unmet("w_val_unsatisfied", number, 0),
        "dw" => unmet("dw_val_unsatisfied", number.max(1), 0),
        "pw" => unmet("pw_val_unsatisfied", number, 0),
        _ => "ok".into(),
    }
}

/// The name and the wanted number of an outcome; the reached number depends on the moment of giving up.
fn without_got(outcome: &str) -> &str {
    match outcome.rsplit_once(',') {
        Some((rest, _)) if outcome.contains("_unsatisfied") => rest,
        _ => outcome,
    }
}

#[test]
fn r10_request_bucket_and_type_are_honoured_alike() {
    let world = World::new(&colocated());
    for (at, setting) in SETTINGS.into_iter().enumerate() {
        for (number, value) in values().into_iter().enumerate() {
            if value == Quorum::Number(0) && ["r", "w", "rw"].contains(&setting) {
                // No property can have this value, so there is nothing to compare.
                continue;
            }
            let name = format!("{at}-{number}");
            world.set_bucket(&format!("request-{name}"), lenient());
            world.set_bucket(&format!("bucket-{name}"), with(setting, value));
            let bucket_type = BucketType::new(format!("type-{name}").into_bytes());
            world.propose(Command::CreateType {
                bucket_type: bucket_type.clone(),
                properties: with(setting, value),
            });
            world.propose(Command::ActivateType { bucket_type });
            for broken in 0..3 {
                let keys = [
                    format!("request-{name}/{broken}"),
                    format!("bucket-{name}/{broken}"),
                    format!("type-{name}/b/{broken}"),
                ];
                let outcomes = keys.map(|key| {
                    let put = request("a", &Clock::new(), Condition::Always);
                    let easily = PutOptions {
                        w: Some(Quorum::One),
                        dw: Some(Quorum::One),
                        pw: Some(Quorum::Number(0)),
                        node_confirms: Some(Quorum::Number(0)),
                        ..PutOptions::default()
                    };
                    world.try_put(&key, put, &easily).unwrap();
                    let given = key.starts_with("request").then_some(value);
                    let fail = |kind| {
                        for backend in world.replicas(&key).into_iter().rev().take(broken) {
                            match is_read(setting) || setting == "rw" {
                                true => backend.refuse_reads(kind),
                                false => backend.refuse_puts(kind),
                            }
                        }
                    };
                    // A store whose write failed would take no more writes.
                    fail(Some(ErrorKind::Full));
                    let outcome = outcome(&world, &key, setting, given);
                    fail(None);
                    outcome
                });
                let case = format!("{setting}={value:?} with {broken} broken");
                assert_eq!(outcomes[0], outcomes[1], "request and bucket, {case}");
                assert_eq!(outcomes[1], outcomes[2], "bucket and type, {case}");
                let expected = expected(setting, value, broken);
                assert_eq!(without_got(&outcomes[0]), without_got(&expected), "{case}");
            }
        }
    }
}

#[test]
fn one_node_has_one_copy_and_its_quorum_is_one() {
    let world = World::new(&Setup::default());
    let put = || request("a", &Clock::new(), Condition::Always);
    for value in values() {
        let options = PutOptions {
            w: Some(value),
            dw: Some(value),
            pw: Some(value),
            ..PutOptions::default()
        };
        let outcome = world.try_put("k", put(), &options).map(drop);
        let n_val = 3;
        let expected = match value {
            Quorum::Number(4) => Err(RequestError::QuorumAboveN { n_val }),
            _ => Ok(()),
        };
        assert_eq!(outcome, expected, "{value:?}");
    }
    // The number of distinct machines is never reduced.
    let options = PutOptions {
        node_confirms: Some(Quorum::Number(2)),
        ..PutOptions::default()
    };
    let (wanted, got) = (2, 1);
    let refused = world.try_put("k", put(), &options);
    assert_eq!(
        refused,
        Err(RequestError::InsufficientNodes { wanted, got })
    );
}

#[test]
fn a_request_may_have_fewer_replicas_and_not_more() {
    let world = World::new(&colocated());
    let n_val = |n| PutOptions {
        n_val: Some(n),
        ..PutOptions::default()
    };
    let put = || request("a", &Clock::new(), Condition::Always);
    let refused = world.try_put("k", put(), &n_val(4));
    assert_eq!(
        refused,
        Err(RequestError::RequestNAboveBucketN {
            requested: 4,
            n_val: 3
        })
    );
    world.try_put("k", put(), &n_val(1)).unwrap();
    let copies = world
        .backends
        .values()
        .filter(|it| crate::world::holds(it, "k"));
    assert_eq!(copies.count(), 1);
    // A quorum of the request is checked against its own n_val; a quorum of the bucket, against
    // the bucket's.
    let options = PutOptions {
        w: Some(Quorum::Number(2)),
        ..n_val(1)
    };
    let refused = world.try_put("k", put(), &options);
    assert_eq!(refused, Err(RequestError::QuorumAboveN { n_val: 1 }));
    let two = PropertyOverlay {
        w: Some(Quorum::Number(2)),
        ..PropertyOverlay::default()
    };
    world.set_bucket("two", two);
    assert!(world.try_put("two/k", put(), &n_val(1)).is_ok());
}

/// A ring of three members, of which only the first, this node, is up; the members own partitions in turn.
fn with_two_down(members_in_turn: &[usize]) -> World {
    let world = World::new(&Setup::default());
    let nodes = [1, 2, 3].map(|number| NodeId::from_bytes([number; 16]));
    assert_eq!(nodes[0], world.node);
    for (number, node) in nodes.into_iter().enumerate().skip(1) {
        let member = Member::new(&format!("node{number}@127.0.0.1"));
        world.propose(Command::AddMember { node, member });
    }
    let state = world.cluster.current();
    let size = state.ring().size();
    let owners = members_in_turn.iter().cycle().map(|member| nodes[*member]);
    let owners = owners.take(size.get().into()).collect();
    let epochs = state
        .ring()
        .partitions()
        .map(|(.., epoch)| epoch.next())
        .collect();
    let ring = Ring::new(size, owners, epochs).unwrap();
    world.propose(Command::SetRing(ring));
    world
}

/// A key for which this node has this place among the primaries; `None` if it is not among them.
fn key_with_place(world: &World, place: Option<usize>) -> String {
    let state = world.cluster.current();
    let is_it = |key: &String| {
        let address = crate::world::address(key);
        let hash = kvorum_ring::KeyHash::Standard;
        let at = kvorum_ring::position(&address.bucket_type, &address.bucket, &address.key, hash);
        let primaries = state.ring().primaries(at, 3, false);
        primaries
            .iter()
            .position(|replica| replica.node == world.node)
            == place
    };
    (0..1_000)
        .map(|number| number.to_string())
        .find(is_it)
        .unwrap()
}

#[test]
fn a_failure_of_other_nodes_does_not_lower_a_quorum() {
    let world = with_two_down(&[0, 1, 2]);
    let key = key_with_place(&world, Some(1));
    let put = || request("a", &Clock::new(), Condition::Always);
    let (wanted, got) = (2, 1);
    let refused = world.try_put(&key, put(), &PutOptions::default());
    assert_eq!(
        refused,
        Err(RequestError::InsufficientVnodes { wanted, got })
    );
    let refused = world.try_get(&key, &GetOptions::default());
    assert_eq!(
        refused,
        Err(RequestError::InsufficientVnodes { wanted, got })
    );

    let one = PutOptions {
        w: Some(Quorum::One),
        dw: Some(Quorum::One),
        ..PutOptions::default()
    };
    let primaries = PutOptions {
        pw: Some(Quorum::Number(2)),
        ..one.clone()
    };
    let refused = world.try_put(&key, put(), &primaries);
    assert_eq!(
        refused,
        Err(RequestError::PrimaryWritesUnsatisfied { wanted, got })
    );
    let nodes = PutOptions {
        node_confirms: Some(Quorum::Number(2)),
        ..one.clone()
    };
    let refused = world.try_put(&key, put(), &nodes);
    assert_eq!(
        refused,
        Err(RequestError::InsufficientNodes { wanted, got })
    );
    world.try_put(&key, put(), &one).unwrap();

    let one = GetOptions {
        r: Some(Quorum::One),
        ..GetOptions::default()
    };
    assert!(world.try_get(&key, &one).unwrap().is_some());
    let primaries = GetOptions {
        pr: Some(Quorum::Quorum),
        ..one
    };
    let refused = world.try_get(&key, &primaries);
    assert_eq!(
        refused,
        Err(RequestError::PrimaryReadsUnsatisfied { wanted, got })
    );
}

#[test]
fn a_key_whose_primaries_are_all_down_needs_stand_ins() {
    let world = with_two_down(&[1, 2, 1, 2, 1, 2, 1, 0]);
    let key = key_with_place(&world, None);
    let strict = GetOptions {
        r: Some(Quorum::One),
        sloppy_quorum: Some(false),
        ..GetOptions::default()
    };
    assert_eq!(
        world.try_get(&key, &strict),
        Err(RequestError::AllNodesDown)
    );
    let sloppy = GetOptions {
        sloppy_quorum: Some(true),
        ..strict
    };
    assert_eq!(world.try_get(&key, &sloppy), Ok(None));
}
