//! `tictacaae tombstones`: how many tombstones wait, how many have gone by rounds, and why they stay.

use std::fmt::Write as _;

use kvorum_cluster::{ClusterState, RoundRefusal};
use kvorum_member::{ExchangesReport, ListTombstones, Stay};
use serde_json::{Value, json};

use crate::cluster::name_of;

/// The reason for which tombstones stay.
struct Reason {
    /// A word for programs.
    code: Value,
    text: String,
    /// Names of the members that have to do with it.
    members: Vec<String>,
}

impl Reason {
    fn of(stay: &Stay, state: &ClusterState) -> Self {
        let alone = |code: &str, text: String| Self {
            code: code.into(),
            text,
            members: Vec::new(),
        };
        match stay {
            Stay::NotLed => alone(
                "not_led",
                "delete_mode = keep in the configuration of this node".to_owned(),
            ),
            Stay::Unordered => alone(
                "several_backends",
                "storage_backend = multi or prefix_multi on this node".to_owned(),
            ),
            Stay::Colocated => alone(
                "colocated_replicas",
                "colocated_replicas = on: replicas share nodes".to_owned(),
            ),
            Stay::Refused(refusal) => alone(code_of(refusal), refusal.to_string()),
            Stay::MembersDown(nodes) => {
                let members: Vec<String> = nodes.iter().map(|it| name_of(state, *it)).collect();
                let verb = if members.len() == 1 { "is" } else { "are" };
                Self {
                    code: "member_down".into(),
                    text: format!("{} {verb} down", members.join(", ")),
                    members,
                }
            }
            Stay::Kept { because, by } => {
                let member = by.map(|it| name_of(state, it));
                let at = member.as_ref().map(|it| format!(" ({it})"));
                Self {
                    code: json!(because),
                    text: format!("{because}{}", at.unwrap_or_default()),
                    members: member.into_iter().collect(),
                }
            }
        }
    }
}

fn code_of(refusal: &RoundRefusal) -> &'static str {
    match refusal {
        RoundRefusal::NotFollowed => "earlier_version",
        RoundRefusal::NoSuchList(_) => "no_such_list",
        RoundRefusal::NoReplicas => "one_replica",
        RoundRefusal::InMotion => "in_motion",
        RoundRefusal::OldCopies(_) => "old_copies",
        RoundRefusal::Refused(_) => "other_round",
    }
}

/// Everything that is known, for programs; `None` where anti-entropy is off.
pub(crate) fn data(report: Option<&ExchangesReport>, state: &ClusterState) -> Value {
    let Some(report) = report else {
        return json!({"active": false, "lists": []});
    };
    let rounds = &report.rounds;
    let lists = rounds.lists.iter().map(|it| list_data(it, state));
    json!({
        "active": true,
        "enabled": report.is_enabled,
        "rounds_led": rounds.are_led,
        "rounds_raised_total": rounds.raised,
        "rounds_ended_early_total": rounds.ended_early,
        "tombstones_reaped_total": rounds.reaped,
        "tombstones_waiting": rounds.waiting,
        "lists": lists.collect::<Vec<_>>(),
    })
}

fn list_data(list: &ListTombstones, state: &ClusterState) -> Value {
    let size = state.ring().size();
    let partition = size.partition(list.target.partition);
    let reason = list.stay.as_ref().map(|stay| Reason::of(stay, state));
    json!({
        "partition": list.target.partition,
        "index": partition.map(|it| it.index_decimal(size)),
        "n_val": list.target.n,
        "waiting": list.waiting,
        "are_all_counted": list.are_counted,
        "last_round": list.watermark,
        "stay_because": reason.as_ref().map(|it| &it.code),
        "reason": reason.as_ref().map(|it| &it.text),
        "members": reason.as_ref().map_or(&[][..], |it| it.members.as_slice()),
    })
}

/// The tombstones of this node, for operators.
pub(crate) fn text(node: &str, data: &Value) -> String {
    let mut text = headline(node, data);
    if data["active"] == json!(false) {
        return text;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:>9} {:>5} {:>12} {:>10}  stay because",
        "partition", "n_val", "waiting", "last round"
    );
    for it in data["lists"].as_array().into_iter().flatten() {
        let waiting = match it["are_all_counted"].as_bool() {
            Some(true) => it["waiting"].to_string(),
            _ => format!("{}+", it["waiting"]),
        };
        let last_round = it["last_round"].as_u64().map(|it| it.to_string());
        let _ = writeln!(
            text,
            "{:>9} {:>5} {waiting:>12} {:>10}  {}",
            it["partition"].to_string(),
            it["n_val"].to_string(),
            last_round.as_deref().unwrap_or("--"),
            it["reason"].as_str().unwrap_or("--"),
        );
    }
    text.push_str(
        "This node leads the rounds of these lists: those whose first available replica it has.\n\
         Waiting are those of its vnode, of all lists of the vnode; N+ is N or more: no round has\n\
         gone through its store since the start.\n",
    );
    text
}

fn headline(node: &str, data: &Value) -> String {
    if data["active"] == json!(false) {
        return format!(
            "Anti-entropy of '{node}' is off: tictacaae_active = passive in its configuration.\n\
             Tombstones of a cluster of several nodes stay.\n"
        );
    }
    let state = match (data["rounds_led"].as_bool(), data["enabled"].as_bool()) {
        (Some(true), Some(true)) => "on",
        (Some(true), _) => "disabled until `kvorum admin tictacaae enable` or the next start",
        _ => "off: delete_mode = keep in its configuration",
    };
    format!(
        "Rounds of '{node}', by which tombstones go, are {state}\n\
         Since the start: {} went through, {} ended early, {} tombstones removed over all replicas\n\
         Tombstones that wait in stores of this node: {}\n",
        data["rounds_raised_total"],
        data["rounds_ended_early_total"],
        data["tombstones_reaped_total"],
        data["tombstones_waiting"]
    )
}

#[cfg(test)]
mod tests {
    use kvorum_anti_entropy::Target;
    use kvorum_cluster::{ClusterId, Member};
    use kvorum_member::RoundsReport;
    use kvorum_reaping::KeptBecause;
    use kvorum_ring::{NodeId, Ring, RingSize};

    use super::*;

    const NODE: NodeId = NodeId::from_bytes([1; 16]);

    fn state() -> ClusterState {
        let ring = Ring::single(RingSize::new(8).unwrap(), NODE);
        let id = ClusterId::from_random([9; 16]);
        ClusterState::found(id, "test", NODE, Member::new("a@10.0.0.1"), ring)
    }

    fn report(stays: Vec<Option<Stay>>) -> ExchangesReport {
        let lists = (0..).zip(stays).map(|(partition, stay)| ListTombstones {
            target: Target { partition, n: 3 },
            waiting: 14,
            are_counted: partition > 0,
            watermark: (partition > 0).then_some(7),
            stay,
        });
        ExchangesReport {
            is_enabled: true,
            rounds: RoundsReport {
                are_led: true,
                raised: 5,
                ended_early: 2,
                reaped: 120,
                waiting: 28,
                lists: lists.collect(),
            },
            ..ExchangesReport::default()
        }
    }

    fn kept(because: KeptBecause, by: Option<NodeId>) -> Option<Stay> {
        Some(Stay::Kept { because, by })
    }

    #[test]
    fn each_list_has_what_waits_its_last_round_and_the_member_that_keeps_it() {
        let stays = vec![
            Some(Stay::MembersDown(vec![NODE])),
            kept(KeptBecause::HintsOutstanding, Some(NODE)),
            None,
        ];
        let data = data(Some(&report(stays)), &state());
        let text = text("a@10.0.0.1", &data);
        let rows = text.lines().filter(|it| it.contains("    3  "));
        let expected = [
            "        0     3          14+         --  a@10.0.0.1 is down",
            "        1     3           14          7  a member has hints for a replica (a@10.0.0.1)",
            "        2     3           14          7  --",
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{text}");
        assert!(text.contains("are on\n"), "{text}");
        let sums = "5 went through, 2 ended early, 120 tombstones removed";
        assert!(text.contains(sums), "{text}");
        assert!(text.contains("this node: 28\n"), "{text}");
        assert_eq!(data["lists"][0]["stay_because"], "member_down");
        assert_eq!(data["lists"][0]["members"], json!(["a@10.0.0.1"]));
        assert_eq!(data["lists"][1]["stay_because"], "hints_outstanding");
        assert_eq!(data["lists"][2]["reason"], Value::Null);
    }

    #[test]
    fn every_reason_has_a_word_of_its_own_and_a_text() {
        let stays = vec![
            Some(Stay::NotLed),
            Some(Stay::Unordered),
            Some(Stay::Colocated),
            Some(Stay::Refused(RoundRefusal::NotFollowed)),
            Some(Stay::Refused(RoundRefusal::InMotion)),
            Some(Stay::Refused(RoundRefusal::NoReplicas)),
            Some(Stay::MembersDown(vec![NODE, NODE])),
            kept(KeptBecause::NotCompared, None),
            kept(KeptBecause::TreesInDoubt, Some(NODE)),
        ];
        let count = stays.len();
        let data = data(Some(&report(stays)), &state());
        let lists = data["lists"].as_array().unwrap();
        let words: std::collections::BTreeSet<&str> = lists
            .iter()
            .filter_map(|it| it["stay_because"].as_str())
            .collect();
        assert_eq!(words.len(), count, "{words:?}");
        let texts = lists.iter().map(|it| it["reason"].as_str().unwrap());
        assert!(texts.clone().all(|it| !it.is_empty()));
        assert!(texts.clone().any(|it| it.ends_with("are down")));
    }

    #[test]
    fn a_node_without_rounds_says_why() {
        let off = data(None, &state());
        let said = text("a@10.0.0.1", &off);
        assert!(said.contains("tictacaae_active = passive"), "{said}");
        let mut report = report(Vec::new());
        report.rounds.are_led = false;
        let said = text("a@10.0.0.1", &data(Some(&report), &state()));
        assert!(said.contains("are off: delete_mode = keep"), "{said}");
        report.rounds.are_led = true;
        report.is_enabled = false;
        let said = text("a@10.0.0.1", &data(Some(&report), &state()));
        assert!(said.contains("tictacaae enable"), "{said}");
    }
}
