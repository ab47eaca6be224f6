//! The operators' view agrees with the state.

use kvorum_arbiter::{Answer, Arbiter, Event, Looked, StepResult};
use kvorum_backend::{StepOutcome, Task, TaskKind};

use super::*;

fn at(millis: u64) -> Moment {
    Moment::from_start(Duration::from_millis(millis))
}

/// An arbiter with one step done, one in progress, and backlogs of two partitions.
fn busy_report() -> (Report, Budgets) {
    let mut arbiter = Arbiter::new(Budgets {
        memory_bytes_max: Some(8 << 30),
        open_files_max: Some(1024),
        ..Budgets::default()
    });
    let written = vec![(Owner::Store(3), 1), (Owner::Store(7), 1)];
    arbiter.step(
        Event::Looked(Looked {
            written,
            open_files: Some(77),
            ..Looked::default()
        }),
        at(0),
    );
    for (partition, kind) in [(3, TaskKind::Merge), (7, TaskKind::Hint)] {
        let task = Task {
            kind,
            subject: 12,
            urgency: Urgency::Normal,
            cost_bytes: 5 << 30,
        };
        let answer = Answer {
            tasks: vec![task],
            memory_bytes: 1 << 30,
            ..Answer::default()
        };
        let owner = Owner::Store(partition);
        arbiter.step(Event::Answered { owner, answer }, at(1));
    }
    let kvorum_arbiter::Decision::Step(order) = arbiter.decide(at(1)) else {
        panic!("a step is due");
    };
    let ended = kvorum_arbiter::Ended {
        result: StepResult::Done(StepOutcome::partial(3 << 20)),
        took: Duration::from_millis(2),
        cpu: Duration::from_millis(1),
    };
    arbiter.step(Event::Ended { order, ended }, at(3));
    let _begun = arbiter.decide(at(100));
    (arbiter.report(at(101)), arbiter.budgets().clone())
}

/// Stores of one engine.
const PLAIN: Labels<'_> = &|owner, task| TaskLabel::new(owner, task, None);

#[test]
fn a_task_of_a_store_of_several_backends_has_the_name_of_its_backend() {
    let (report, budgets) = busy_report();
    let labels: Labels<'_> = &|owner, task| TaskLabel {
        owner: format!("tables of {}", name_of(owner)),
        part: Some("tables".to_owned()),
        task: task.kind.name(),
        subject: task.subject + 1,
    };
    let text = text_of(&report, &budgets, &[], at(101), labels);
    assert!(
        text.contains("merge of tables of partition 3 for"),
        "{text}"
    );
    let data = json_of(&report, &budgets, &[], at(101), labels);
    assert_eq!(data["owed"][0]["backend"], "tables");
    assert_eq!(data["owed"][0]["subject"], 13);
    assert_eq!(data["tasks"], data["owed"]);
}

#[test]
fn text_has_the_step_the_backlog_and_the_time_until_it_is_done() {
    let (report, budgets) = busy_report();
    let text = text_of(&report, &budgets, &[], at(101), PLAIN);
    for expected in [
        "merge of partition 3 for 1000 us",
        "10.0 GB, of it pressing 0 B; done in ",
        "1 done, 1 of them cost more than twice what they declared, 0 failed",
        "8.0 GB",
        "1024",
        "partition 7",
        "hint",
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
}

#[test]
fn json_has_the_same_for_programs() {
    let (report, budgets) = busy_report();
    let data = json_of(&report, &budgets, &[], at(101), PLAIN);
    assert_eq!(data["running"][0]["owner"], "partition 3");
    assert_eq!(data["debt_bytes"], (10u64 << 30) - (3 << 20));
    assert_eq!(data["backlog_bytes"], data["debt_bytes"]);
    assert_eq!(data["kinds"]["hint"]["backlog_bytes"], 5u64 << 30);
    assert_eq!(data["kinds"]["hint"]["owed_bytes"], 5u64 << 30);
    assert_eq!(data["partitions"][1]["partition"], 7);
    assert_eq!(data["partitions"][1]["backlog_bytes"], 5u64 << 30);
    assert_eq!(data["budgets"]["memory_bytes_used"], 2u64 << 30);
    assert_eq!(data["budgets"]["open_files_used"], 77);
    assert_eq!(data["steps_beyond_twice_declared"], 1);
    assert!(data["paid_in_seconds"].as_f64().is_some_and(|it| it > 0.0));
}

#[test]
fn metrics_have_totals_and_labels() {
    let (report, _) = busy_report();
    let mut text = MetricsText::new();
    metrics_of(&report, &mut text);
    let text = text.finish();
    for expected in [
        "kvorum_maintenance_steps_total 1\n",
        "kvorum_maintenance_overruns_total 1\n",
        "kvorum_maintenance_owed_bytes{kind=\"hint\"} 5368709120\n",
        "kvorum_maintenance_partition_owed_bytes{partition=\"7\"} 5368709120\n",
        "kvorum_maintenance_put_delay_seconds 0\n",
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
}

#[test]
fn an_empty_backlog_is_printed_as_such() {
    let arbiter = Arbiter::new(Budgets::default());
    let text = text_of(&arbiter.report(at(0)), arbiter.budgets(), &[], at(0), PLAIN);
    assert!(
        text.contains("no work is due") && text.contains("all is done"),
        "{text}"
    );
}

#[test]
fn lines_fit_in_100_columns() {
    let (report, budgets) = busy_report();
    let text = text_of(&report, &budgets, &[], at(101), PLAIN);
    for line in text.lines() {
        assert!(line.trim_end().chars().count() <= 100, "{line}");
    }
    let parts = ["a".repeat(60), "b".repeat(20), "c".repeat(40)];
    assert_eq!(
        folded(&parts.join("; ")),
        [format!("{}; {};", parts[0], parts[1]), parts[2].clone()]
    );
}

#[test]
fn sizes_and_durations_are_short() {
    let texts = [0, 1023, 1024, 5 << 20, 3 << 40].map(bytes);
    assert_eq!(texts, ["0 B", "1023 B", "1.0 KB", "5.0 MB", "3.0 TB"]);
    let texts = [90, 7_320].map(|seconds| duration(Duration::from_secs(seconds)));
    assert_eq!(texts, ["1m30s", "2h2m"]);
}
