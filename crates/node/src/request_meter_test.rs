//! Every report to the meter moves its own names, and no others.

use std::collections::BTreeSet;

use kvorum_object::{Clock, Content, Metadata, Timestamp};

use super::*;

const TOOK: Duration = Duration::from_millis(5);

/// A reported event, and its names.
pub(crate) struct Case {
    pub(crate) report: Box<dyn Fn(&RequestMeter)>,
    moves: BTreeSet<String>,
}

pub(crate) fn now() -> Moment {
    Moment::from_start(Duration::from_secs(100))
}

/// The endings of a histogram's names.
const FIVE: &[&str] = &["_mean", "_median", "_95", "_99", "_100"];
/// The endings of a counter's names.
const BOTH: &[&str] = &["", "_total"];

/// Names in short: `name*` for the five of a histogram, `name+` for the last minute and the total.
fn names(short: &[&str]) -> BTreeSet<String> {
    let endings = |short: &str| match short.chars().last() {
        Some('*') => FIVE,
        Some('+') => BOTH,
        _ => &[""],
    };
    let all = short.iter().flat_map(|short| {
        let name = short.trim_end_matches(['*', '+']);
        let endings = endings(short).iter();
        endings.map(move |ending| format!("{name}{ending}"))
    });
    all.collect()
}

fn case(report: impl Fn(&RequestMeter) + 'static, short: &[&str]) -> Case {
    Case {
        report: Box::new(report),
        moves: names(short),
    }
}

/// The name of a type in the names of its figures.
fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::GrowSet => "set",
        kind => kind.name(),
    }
}

/// A case whose names have the name of a type in place of `TYPE`.
fn case_of_type(kind: Kind, report: impl Fn(&RequestMeter) + 'static, short: &[&str]) -> Case {
    let short = short.iter().map(|it| it.replace("TYPE", name_of(kind)));
    let short: Vec<String> = short.collect();
    let short: Vec<&str> = short.iter().map(String::as_str).collect();
    case(report, &short)
}

fn object() -> Object {
    let content = Content {
        metadata: Metadata::default(),
        value: "value".into(),
    };
    Object::as_is(Clock::new(), content, Timestamp::ZERO)
}

/// A report of a request that succeeded.
fn succeeded(kind: RequestKind) -> impl Fn(&RequestMeter) + 'static {
    move |meter: &RequestMeter| meter.finished(kind, None, TOOK, Some(&object()), now())
}

/// A report of a request that failed.
fn failed(kind: RequestKind, error: RequestError) -> impl Fn(&RequestMeter) + 'static {
    move |meter: &RequestMeter| meter.finished(kind, Some(&error), TOOK, None, now())
}

fn cases_of_requests() -> Vec<Case> {
    let (overload, timeout) = (RequestError::Overload, RequestError::Timeout);
    let rejected = RequestError::Rejected("json: EOF".to_owned());
    vec![
        case(
            succeeded(RequestKind::Get),
            &[
                "node_gets+",
                "node_get_fsm_time*",
                "node_get_fsm_objsize*",
                "node_get_fsm_siblings*",
            ],
        ),
        case(
            failed(RequestKind::Get, timeout.clone()),
            &["node_gets+", "node_get_fsm_time*", "node_get_fsm_errors+"],
        ),
        case(
            failed(RequestKind::Get, overload.clone()),
            &[
                "node_gets+",
                "node_get_fsm_time*",
                "node_get_fsm_errors+",
                "node_get_fsm_rejected_60s",
                "node_get_fsm_rejected_total",
            ],
        ),
        case(
            succeeded(RequestKind::Put),
            &["node_puts+", "node_put_fsm_time*"],
        ),
        case(
            succeeded(RequestKind::Delete),
            &["node_puts+", "node_put_fsm_time*"],
        ),
        case(
            failed(RequestKind::Put, overload),
            &[
                "node_puts+",
                "node_put_fsm_time*",
                "node_put_fsm_rejected_60s",
                "node_put_fsm_rejected_total",
            ],
        ),
        case(
            failed(RequestKind::Put, rejected),
            &["node_puts+", "node_put_fsm_time*", "precommit_fail"],
        ),
        case(
            succeeded(RequestKind::WriteOncePut),
            &[
                "write_once_puts+",
                "write_once_put_time*",
                "write_once_put_objsize*",
            ],
        ),
        case(
            succeeded(RequestKind::IndexQuery),
            &[
                "index_fsm_create+",
                "index_fsm_complete+",
                "index_fsm_time*",
            ],
        ),
        case(
            failed(RequestKind::IndexQuery, timeout.clone()),
            &["index_fsm_create+", "index_fsm_create_error+"],
        ),
        case(succeeded(RequestKind::ListKeys), &["list_fsm_create+"]),
        case(
            failed(RequestKind::ListBuckets, timeout.clone()),
            &["list_fsm_create+", "list_fsm_create_error+"],
        ),
        case(succeeded(RequestKind::KeyFold), &["clusteraae_fsm_create+"]),
        case(
            failed(RequestKind::KeyFold, timeout),
            &["clusteraae_fsm_create+", "clusteraae_fsm_create_error+"],
        ),
    ]
}

fn cases_of_a_type(kind: Kind) -> Vec<Case> {
    let repaired = Repaired {
        is_fallback: false,
        had_nothing: true,
        kind: Some(kind),
    };
    let merge = VnodeWork::MergeOfType(kind);
    vec![
        case_of_type(
            kind,
            succeeded(RequestKind::Fetch(kind)),
            &[
                "node_gets_TYPE+",
                "node_get_fsm_TYPE_time*",
                "node_get_fsm_TYPE_objsize*",
                "node_get_fsm_TYPE_siblings*",
            ],
        ),
        case_of_type(
            kind,
            failed(RequestKind::Fetch(kind), RequestError::Timeout),
            &[
                "node_gets_TYPE+",
                "node_get_fsm_TYPE_time*",
                "node_get_fsm_errors+",
            ],
        ),
        case_of_type(
            kind,
            succeeded(RequestKind::Update(kind)),
            &["node_puts_TYPE+", "node_put_fsm_TYPE_time*"],
        ),
        case_of_type(
            kind,
            move |meter| meter.replica_repaired(repaired, now()),
            &[
                "read_repairs_TYPE+",
                "read_repairs_primary_notfound_one",
                "read_repairs_primary_notfound_count",
            ],
        ),
        case_of_type(
            kind,
            move |meter| meter.vnode_worked(merge, TOOK, now()),
            &["object_TYPE_merge+", "object_TYPE_merge_time*"],
        ),
        case_of_a_changed_value(kind),
    ]
}

fn case_of_a_changed_value(kind: Kind) -> Case {
    let value = ValueFacts {
        kind,
        actors: 3,
        bytes: 16_000,
    };
    let more: &[&str] = match kind {
        Kind::Counter | Kind::Set | Kind::Map => &["TYPE_actor_counts*"],
        Kind::HyperLogLog => &["hll_bytes+", "hll_bytes*"],
        Kind::GrowSet => &[],
    };
    let short = [&["vnode_TYPE_update+", "vnode_TYPE_update_time*"][..], more].concat();
    case_of_type(
        kind,
        move |meter| meter.value_changed(value, TOOK, now()),
        &short,
    )
}

fn case_of_a_repair(is_fallback: bool, had_nothing: bool, short: &[&str]) -> Case {
    let repaired = Repaired {
        is_fallback,
        had_nothing,
        kind: None,
    };
    case(move |meter| meter.replica_repaired(repaired, now()), short)
}

fn cases_of_repairs() -> Vec<Case> {
    vec![
        case(|meter| meter.read_repaired(now()), &["read_repairs+"]),
        case(
            |meter| meter.repair_skipped(now()),
            &["skipped_read_repairs+"],
        ),
        case_of_a_repair(
            false,
            false,
            &[
                "read_repairs_primary_outofdate_one",
                "read_repairs_primary_outofdate_count",
            ],
        ),
        case_of_a_repair(
            false,
            true,
            &[
                "read_repairs_primary_notfound_one",
                "read_repairs_primary_notfound_count",
            ],
        ),
        case_of_a_repair(
            true,
            false,
            &[
                "read_repairs_fallback_outofdate_one",
                "read_repairs_fallback_outofdate_count",
            ],
        ),
    ]
}

fn cases_of_the_rest() -> Vec<Case> {
    let part = PartReading {
        queued: TOOK,
        worked: TOOK,
    };
    let worked = |work| move |meter: &RequestMeter| meter.vnode_worked(work, TOOK, now());
    vec![
        case(RequestMeter::redirected, &["coord_redirs_total"]),
        case(
            RequestMeter::coordinated_here,
            &["coord_local_unloaded_total"],
        ),
        case(
            |meter| meter.index_query_complete(12, now()),
            &["index_fsm_results*"],
        ),
        case(
            move |meter| meter.part_read(part, now()),
            &[
                "worker_vnode_pool_total",
                "worker_vnode_pool_queuetime*",
                "worker_vnode_pool_worktime*",
            ],
        ),
        case(
            |meter| meter.job_begun(now()),
            &[
                "pipeline_active",
                "pipeline_create_one",
                "pipeline_create_count",
            ],
        ),
        case(
            |meter| meter.job_refused(now()),
            &["pipeline_create_error_one", "pipeline_create_error_count"],
        ),
        case(worked(VnodeWork::Get), &["vnode_get_fsm_time*"]),
        case(worked(VnodeWork::Head), &["vnode_head_fsm_time*"]),
        case(worked(VnodeWork::Put), &["vnode_put_fsm_time*"]),
        case(worked(VnodeWork::Merge), &["object_merge_time*"]),
    ]
}

/// Everything that is reported to the meter of requests.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases_of_requests();
    cases.extend(Kind::ALL.into_iter().flat_map(cases_of_a_type));
    cases.extend(cases_of_repairs());
    cases.extend(cases_of_the_rest());
    cases
}

fn check(cases: Vec<Case>) {
    for Case { report, moves } in cases {
        let stats = Arc::new(Stats::default());
        report(&RequestMeter {
            stats: stats.clone(),
            tracked: Arc::default(),
        });
        let values = stats.riak_values(now().elapsed()).into_iter();
        let moved: BTreeSet<String> = values
            .filter(|(_, value)| *value != 0)
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(moved, moves);
    }
}

#[test]
fn requests_move_the_names_of_their_kind() {
    check(cases_of_requests());
}

#[test]
fn data_types_move_the_names_of_their_type_and_none_of_plain_objects() {
    Kind::ALL
        .into_iter()
        .for_each(|kind| check(cases_of_a_type(kind)));
}

#[test]
fn repairs_move_the_names_of_the_replica_that_was_behind() {
    check(cases_of_repairs());
}

#[test]
fn coordination_parts_jobs_and_vnodes_move_their_names() {
    check(cases_of_the_rest());
}

#[test]
fn a_job_that_has_ended_is_not_active() {
    let meter = RequestMeter {
        stats: Arc::new(Stats::default()),
        tracked: Arc::default(),
    };
    meter.job_begun(now());
    meter.job_begun(now());
    meter.job_ended();
    assert_eq!(meter.stats.pipeline_active.get(), 1);
    assert_eq!(meter.stats.pipeline_create.total(), 2);
}
