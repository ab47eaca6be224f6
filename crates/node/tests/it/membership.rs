//! The verbs that change the members, from the command to the ring, by real servers.
//!
//! Each change is staged, seen, planned, committed and awaited, as in a runbook. After each, every
//! member has all keys.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use crate::cluster::{admin, cluster_of_three, finds, is_put, json, put_new, site, until};
use crate::server::{Server, Site, free_address};

const KEYS: usize = 40;

/// Servers by the numbers in their names.
struct Fleet {
    places: Vec<Place>,
}

struct Place {
    number: u8,
    site: Site,
    peer: SocketAddr,
    server: Option<Server>,
}

fn name(number: u8) -> String {
    format!("node{number}@127.0.0.1")
}

fn key(number: usize) -> String {
    format!("key{number}")
}

impl Fleet {
    /// One server, which founds the cluster.
    fn founded() -> Self {
        let mut fleet = Self { places: Vec::new() };
        fleet.start(1);
        fleet
    }

    /// Starts a single server.
    fn start(&mut self, number: u8) {
        let (site, peer) = site(number);
        let server = Some(site.start());
        self.places.push(Place {
            number,
            site,
            peer,
            server,
        });
    }

    /// Starts a server and makes it join.
    fn join(&mut self, number: u8) {
        self.start(number);
        self.ask_to_join(number);
    }

    fn ask_to_join(&self, number: u8) {
        let first = format!("{}:{}", name(1), self.place(1).peer.port());
        let said = admin(self.site(number), &["cluster", "join", &first]);
        let wanted = format!(
            "staged join request for '{}' to '{}'",
            name(number),
            name(1)
        );
        assert!(said.contains(&wanted), "{said}");
    }

    fn place(&self, number: u8) -> &Place {
        self.places.iter().find(|it| it.number == number).unwrap()
    }

    fn place_mut(&mut self, number: u8) -> &mut Place {
        let mut places = self.places.iter_mut();
        places.find(|it| it.number == number).unwrap()
    }

    fn site(&self, number: u8) -> &Site {
        &self.place(number).site
    }

    /// Stops a server, removes its data, and starts it as a single server.
    fn begin_anew(&mut self, number: u8) {
        let place = self.place_mut(number);
        place.server.take().unwrap().stop();
        std::fs::remove_dir_all(place.site.path().join("data")).unwrap();
        place.server = Some(place.site.start());
    }

    /// Kills a server. Returns when the others have detected that and have a leader.
    fn kill(&mut self, number: u8) {
        drop(self.place_mut(number).server.take().unwrap());
        let site = self.site(1);
        until("the kill is noticed", || {
            let unreachable = json(site, &["ring-status"])["unreachable"].clone();
            unreachable == Value::Array(vec![name(number).into()])
        });
        until("a node leads", || {
            json(site, &["cluster", "plan"])["behind"].is_null()
        });
    }

    /// Stages a change at the first node, which is always a member.
    fn stage(&self, words: &[&str]) {
        self.stage_at(1, words);
    }

    /// Stages a change, and tries again while there is no leader.
    fn stage_at(&self, number: u8, words: &[&str]) {
        let words = [&["admin", "cluster"], words].concat();
        until(&format!("it is staged: {words:?}"), || {
            let said = self.site(number).run(&words).stdout;
            said.starts_with(b"Success: staged ")
        });
    }

    /// The plan, once it is exactly this.
    fn plan(&self, staged: &[(&str, String)]) -> Value {
        let shown = RefCell::new(Value::Null);
        until("the plan has all that is staged", || {
            let plan = json(self.site(1), &["cluster", "plan"]);
            let is_expected = plan["behind"].is_null() && staged_in(&plan) == sorted(staged);
            shown.replace(plan);
            is_expected
        });
        shown.into_inner()
    }

    /// Checks that the plan is this, commits it, and waits until it is carried out and the members
    /// are these.
    fn carry_out(&self, staged: &[(&str, String)], members: &[u8]) -> Value {
        let site = self.site(1);
        let plan = self.plan(staged);
        let done = admin(site, &["cluster", "commit"]);
        assert_eq!(done.trim(), "Cluster changes committed");
        self.arbiters_are_asked(&plan);
        let names = sorted(members).into_iter().map(name).collect::<Vec<_>>();
        until("the plan is carried out", || {
            let ring = json(site, &["ring-status"]);
            let is_settled = ring["settled"] == true && ring["exiting"] == Value::Array(vec![]);
            is_settled && self.members() == names
        });
        until("nothing is repaired any more", || self.repairs() == 0);
        for number in members {
            self.check(*number);
        }
        plan
    }

    /// The arbiters of both nodes of a move count its bytes.
    fn arbiters_are_asked(&self, plan: &Value) {
        let ends = plan["moves"].as_array().unwrap().iter();
        let ends = ends.flat_map(|it| [text(&it["from"]), text(&it["to"])]);
        let ends: BTreeSet<String> = ends.collect();
        let places = self.places.iter();
        for place in places.filter(|it| ends.contains(&name(it.number))) {
            let what = format!("node{} spends on transfers", place.number);
            until(&what, || {
                let report = json(&place.site, &["maintenance"]);
                report["transfer_bytes_per_second"].as_u64() > Some(0)
            });
        }
    }

    /// The names of all members; empty if one is not a full member.
    fn members(&self) -> Vec<String> {
        let members = json(self.site(1), &["member-status"]);
        let is_valid = |it: &&Value| it["status"] == "valid";
        let valid = members.as_array().unwrap().iter().filter(is_valid);
        let mut names: Vec<String> = valid.map(|it| text(&it["node"])).collect();
        names.sort_unstable();
        let is_each = names.len() == members.as_array().unwrap().len();
        if is_each { names } else { Vec::new() }
    }

    /// The row of a member.
    fn member(&self, number: u8) -> Value {
        let rows = json(self.site(1), &["member-status"]);
        let mut rows = rows.as_array().unwrap().clone().into_iter();
        rows.find(|it| it["node"] == name(number)).unwrap()
    }

    fn voters(&self) -> Vec<String> {
        let ring = json(self.site(1), &["ring-status"]);
        let mut voters: Vec<String> = ring["voters"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect();
        voters.sort_unstable();
        voters
    }

    fn repairs(&self) -> u64 {
        let summary = json(self.site(1), &["handoff", "summary"]);
        let known = |it: &Value| it["repair"]["known"].as_u64().unwrap();
        summary["nodes"].as_array().unwrap().iter().map(known).sum()
    }

    fn write(&self) {
        for number in 0..KEYS {
            assert!(is_put(self.site(1), &key(number), "value"), "{number}");
        }
    }

    fn check(&self, number: u8) {
        for each in 0..KEYS {
            finds(self.site(number), &key(each));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn sorted<T: Ord + Clone>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort_unstable();
    all
}

fn staged_in(plan: &Value) -> Vec<(&str, String)> {
    let staged = plan["staged"].as_array().unwrap().iter();
    let staged = staged.map(|it| (it["action"].as_str().unwrap(), text(&it["details"])));
    sorted(&staged.collect::<Vec<_>>())
}

fn of(number: u8) -> String {
    format!("'{}'", name(number))
}

fn by(number: u8, by: u8) -> String {
    format!("'{}' with '{}'", name(number), name(by))
}

#[test]
fn a_voter_that_is_gone_is_marked_as_down_and_replaced() {
    let mut fleet = Fleet::founded();
    for number in 2..=4 {
        fleet.join(number);
    }
    let joins: Vec<(&str, String)> = (2..=4).map(|number| ("join", of(number))).collect();
    fleet.write();
    fleet.carry_out(&joins, &[1, 2, 3, 4]);

    what_is_cleared_is_not_staged(&mut fleet);

    // Three of four nodes vote. One voter that is not asked here is killed, and the fourth node
    // takes its place.
    let mark = |fleet: &Fleet, number: u8| {
        let output = fleet.site(1).run(&["admin", "down", &name(number)]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    until("a node that is up is not marked as down", || {
        mark(&fleet, 2) == format!("Failed: {} is up", name(2))
    });
    until("all are full members, and three of them vote", || {
        fleet.members().len() == 4 && fleet.voters().len() == 3
    });
    let before = fleet.voters();
    let gone = (2..=4).find(|it| before.contains(&name(*it))).unwrap();
    let listens = (1..=4).find(|it| !before.contains(&name(*it))).unwrap();
    fleet.kill(gone);
    let marked = format!("Success: \"{}\" marked as down", name(gone));
    until("it is marked as down", || mark(&fleet, gone) == marked);
    let mut after: Vec<String> = before.into_iter().filter(|it| *it != name(gone)).collect();
    after.push(name(listens));
    after.sort_unstable();
    until("another votes in its place", || fleet.voters() == after);
    assert_eq!(fleet.member(gone)["status"], "down");
    let status = json(fleet.site(1), &["cluster", "status"]);
    let mut rows = status["nodes"].as_array().unwrap().iter();
    let row = rows.find(|it| it["node"] == name(gone)).unwrap();
    assert_eq!(
        (&row["status"], &row["up"]),
        (&"down".into(), &false.into())
    );

    // It is also replaced as a member, by a node that repairs its partitions.
    fleet.ask_to_join(5);
    fleet.stage(&["force-replace", &name(gone), &name(5)]);
    let left: Vec<u8> = (1..=5).filter(|it| *it != gone).collect();
    let staged = [("join", of(5)), ("force-replace", by(gone, 5))];
    let plan = fleet.carry_out(&staged, &left);
    assert!(plan["lost"].as_u64() > Some(0), "{plan}");
    assert_eq!(plan["moves"], Value::Array(vec![]));
}

/// Changes that are staged, seen, and taken back, the join of the fifth node among them.
fn what_is_cleared_is_not_staged(fleet: &mut Fleet) {
    fleet.join(5);
    let site = fleet.site(1);
    fleet.stage(&["leave", &name(4)]);
    fleet.stage(&["location", "rack 1", "--node", &name(2)]);
    let location = format!("{} to rack 1", of(2));
    fleet.plan(&[("join", of(5)), ("leave", of(4)), ("location", location)]);
    assert_eq!(fleet.member(4)["staged"], "leave");
    let shown = admin(site, &["member-status"]);
    assert!(shown.contains("(leaving)"), "{shown}");
    until("a node is marked as the claimant", || {
        admin(site, &["cluster", "status"]).contains("(C) node")
    });

    let cleared = admin(site, &["cluster", "clear"]);
    assert_eq!(cleared.trim(), "Cleared staged cluster changes");
    fleet.plan(&[]);
    assert!(fleet.member(4)["staged"].is_null());
    assert_eq!(fleet.members().len(), 4);
    // The plan that was shown before is no longer valid.
    let refused = site.run(&["admin", "cluster", "commit"]);
    assert!(!refused.status.success());
    // The joining node has already given up its own log, so it starts anew before it joins again.
    fleet.begin_anew(5);
}

#[test]
fn nodes_are_replaced_leave_and_are_removed() {
    let mut fleet = Fleet::founded();
    for number in 2..=4 {
        fleet.join(number);
    }
    fleet.write();
    for number in 1..=4 {
        let rack = format!("rack {}", number % 2);
        fleet.stage(&["location", &rack, "--node", &name(number)]);
    }
    let mut staged: Vec<(&str, String)> = (2..=4).map(|number| ("join", of(number))).collect();
    for number in 1..=4 {
        staged.push(("location", format!("{} to rack {}", of(number), number % 2)));
    }
    fleet.carry_out(&staged, &[1, 2, 3, 4]);
    assert_eq!(fleet.member(3)["location"], "rack 1");

    // Its partitions go to its replacement, and nowhere else.
    fleet.join(5);
    fleet.stage(&["replace", &name(4), &name(5)]);
    let staged = [("join", of(5)), ("replace", by(4, 5))];
    let plan = fleet.carry_out(&staged, &[1, 2, 3, 5]);
    let moves = plan["moves"].as_array().unwrap();
    let is_expected = |it: &Value| it["from"] == name(4) && it["to"] == name(5);
    assert!(!moves.is_empty() && moves.iter().all(is_expected), "{plan}");

    // Without a name, the asked node leaves.
    fleet.stage_at(2, &["leave"]);
    fleet.carry_out(&[("leave", of(2))], &[1, 3, 5]);
    until("all that are left vote", || {
        fleet.voters() == [name(1), name(3), name(5)]
    });

    // Gone for good: its partitions are repaired from the two that are left.
    fleet.kill(3);
    fleet.stage(&["force-remove", &name(3)]);
    let plan = fleet.carry_out(&[("force-remove", of(3))], &[1, 5]);
    assert!(plan["lost"].as_u64() > Some(0), "{plan}");
}

#[test]
fn a_node_comes_back_under_another_name_and_other_addresses() {
    let (mut sites, mut servers) = cluster_of_three();
    assert!(is_put(&sites[0], "before", "value"));
    let (second, peer) = ("renamed@127.0.0.1", free_address());
    servers.remove(1).stop();
    // Only these lines of its configuration change. No other node is reconfigured.
    sites[1].protobuf = free_address();
    sites[1].http = free_address();
    sites[1].settings = vec![
        format!("nodename={second}"),
        format!("listener.peer.internal={peer}"),
    ];
    servers.insert(1, sites[1].start());

    for site in &sites {
        until("all nodes know its name and address", || {
            let rows = json(site, &["member-status"]);
            let mut rows = rows.as_array().unwrap().iter();
            let row = rows.find(|it| it["node"] == second);
            row.is_some_and(|it| it["addresses"]["peer"] == peer.to_string())
        });
        until("all nodes reach it", || {
            let services = site.run(&["admin", "services", second]).stdout;
            services.trim_ascii() == b"[riak_kv]"
        });
    }
    let old = sites[0].run(&["admin", "services", &name(2)]);
    assert!(!old.status.success(), "the name of before is nobody's");
    assert_eq!(
        json(&sites[0], &["member-status"])
            .as_array()
            .unwrap()
            .len(),
        3
    );
    finds(&sites[1], "before");
    let after = put_new(&sites[1], "after");
    for site in &sites {
        finds(site, &after);
    }

    // With one node stopped, every quorum needs the other two: the first node has to reach the
    // moved one at its new address.
    drop(servers.remove(2));
    for number in 0..KEYS {
        let key = put_new(&sites[0], &format!("late{number}"));
        finds(&sites[1], &key);
    }
}
