//! The output about transfers, line by line.

use super::*;

fn transfer(kind: &str, is_active: bool) -> TransferView {
    TransferView {
        kind: kind.to_owned(),
        partition: 3,
        from: None,
        is_active,
        keys: 250,
        bytes: 3 << 20,
        keys_about: 1_000,
        begun_ms_ago: Some(2_000),
        updated_ms_ago: Some(20),
        bytes_per_second: 3 << 19,
        remaining_ms: Some(6_000),
        hindrance: None,
    }
}

fn row(kind: &str, is_active: bool) -> Row {
    Row {
        from: "a@10.0.0.1".to_owned(),
        index: "548063113999088594326381812268606132370974703616".to_owned(),
        transfer: transfer(kind, is_active),
    }
}

fn all() -> AllTransfers {
    let node = |name: &str, rows, hints| NodeTransfers {
        node: name.to_owned(),
        view: TransfersView {
            hints,
            limit: 2,
            is_inbound_enabled: true,
            ..TransfersView::default()
        },
        rows,
    };
    let mut waiting = row("repair", false);
    waiting.transfer.hindrance = Some("no more may be sent at present".to_owned());
    AllTransfers {
        nodes: vec![
            node("a@10.0.0.1", Vec::new(), 17),
            node("b@10.0.0.2", vec![row("ownership", true), waiting], 0),
        ],
        planned: Vec::new(),
        down: vec!["c@10.0.0.3".to_owned()],
        now: 784_111_779,
    }
}

#[test]
fn transfers_have_riaks_lines() {
    assert_eq!(
        all().text(),
        "\
Nodes ['c@10.0.0.3'] are currently down.
'b@10.0.0.2' waiting to receive 1 partition
'a@10.0.0.1' waiting to handoff 17 hinted objects
    partition 3: no more may be sent at present

Active Transfers:

transfer type: ownership_transfer
vnode type: riak_kv_vnode
partition: 3
started: Sun, 06 Nov 1994 08:49:37 GMT [2.00 s ago]
last update: Sun, 06 Nov 1994 08:49:39 GMT [0.02 s ago]
total size: 1000 objects
objects transferred: 250
remaining: 6.00 s

                              125 Objs/s
               a@10.0.0.1 =======> b@10.0.0.2
        |###########                                 |  25%
                          1.50 MB/s

"
    );
    let json = all().json();
    assert_eq!(json["active"][0]["percent"], 25);
    assert_eq!(json["waiting"][0]["type"], "repair");
}

/// Regression: right after a commit of five moves, `transfers` reported none, since no node had
/// begun any.
#[test]
fn moves_that_nobody_has_begun_wait_at_both_ends() {
    let planned = |partition, to: &str| Planned {
        from: "a@10.0.0.1".to_owned(),
        to: to.to_owned(),
        partition,
        index: "0".to_owned(),
    };
    let all = AllTransfers {
        nodes: Vec::new(),
        planned: vec![
            planned(0, "b@10.0.0.2"),
            planned(1, "c@10.0.0.3"),
            planned(2, "c@10.0.0.3"),
        ],
        down: Vec::new(),
        now: 0,
    };
    assert_eq!(
        all.text(),
        "\
'b@10.0.0.2' waiting to receive 1 partition
'c@10.0.0.3' waiting to receive 2 partitions
No transfers active
"
    );
    assert_eq!(
        all.riak_text(),
        "'a@10.0.0.1' waiting to handoff 3 partitions\n\nActive Transfers:\n\n\n"
    );
    assert_eq!(all.json()["waiting"][2]["to"], "c@10.0.0.3");
}

#[test]
fn under_riaks_name_transfers_have_its_lines() {
    let idle = AllTransfers {
        nodes: Vec::new(),
        planned: Vec::new(),
        down: vec!["c@10.0.0.3".to_owned()],
        now: 0,
    };
    assert_eq!(
        idle.riak_text(),
        "\
Nodes ['c@10.0.0.3'] are currently down.
No transfers active

Active Transfers:


Node 'c@10.0.0.3' could not be contacted
"
    );
    let busy = all().riak_text();
    let index = "partition: 548063113999088594326381812268606132370974703616\n";
    assert!(busy.contains(index), "{busy}");
}

#[test]
fn the_summary_counts_active_and_known_transfers() {
    let text = all().summary_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[4..8],
        [
            "Node                         Total   Ownership      Growth      Hinted      Repair",
            RULER,
            "a@10.0.0.1                       0                                  17",
            "b@10.0.0.2                       1       1 (1)                               0 (1)",
        ]
    );
    assert_eq!(
        lines[9],
        "The following nodes did not answer: ['c@10.0.0.3']"
    );
    let idle = AllTransfers {
        nodes: Vec::new(),
        planned: Vec::new(),
        down: Vec::new(),
        now: 0,
    };
    assert_eq!(idle.summary_text(), "No ongoing transfers.\n");
    assert_eq!(idle.details_text(), "No ongoing transfers.\n");
    assert!(idle.text().ends_with("No transfers active\n"));
}

#[test]
fn details_have_a_line_for_each_transfer() {
    let text = all().details_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[4].split_whitespace().collect::<Vec<_>>(),
        [
            "O",
            "3",
            "a@10.0.0.1",
            "b@10.0.0.2",
            "1000",
            "250",
            "1.50",
            "MB/s",
            "25",
            "6.00",
            "s"
        ]
    );
    assert!(lines[5].starts_with("Rp "), "{}", lines[5]);
    assert!(lines[5].contains("waiting"), "{}", lines[5]);
}

#[test]
fn limits_stand_under_riaks_banner() {
    let text = all().limits_text();
    assert!(text.contains("\nLimit        Node\n"), "{text}");
    assert!(text.contains("\n    2        'b@10.0.0.2'\n"), "{text}");
    assert!(all().config_text().contains("disabled"));
}

#[test]
fn durations_and_sizes_read_as_riaks_do() {
    assert_eq!(duration(11_470), "11.47 s");
    assert_eq!(duration(68_400), "1.14 min");
    assert_eq!(duration(9_000_000), "2.50 hr");
    assert_eq!(bytes(1_023), "1023 B");
    assert_eq!(bytes(5 << 30), "5.00 GB");
}
