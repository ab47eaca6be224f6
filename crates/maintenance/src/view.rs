//! Background work for operators: `kvorum admin maintenance` and `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::{Table, TableStyle};
use kvorum_arbiter::{Budgets, DueTask, Order, Owner, Report, Steps};
use kvorum_backend::{Task, TaskKind, Urgency};
use kvorum_runtime::Moment;
use kvorum_stats::{MetricKind, MetricsText};
use serde_json::{Map, Value, json};

use crate::driver::{Maintenance, TaskLabel, name_of};
use crate::step_log::DoneStep;

/// The widest line of text, and the column of values.
const TEXT_WIDTH: usize = 100;
const NAME_WIDTH: usize = 12;
/// Steps that are shown.
const STEPS_SHOWN: usize = 20;
/// Partitions and tasks shown as text; JSON has them all.
const ROWS_SHOWN: usize = 16;

/// Names of tasks for operators.
type Labels<'a> = &'a dyn Fn(Owner, &Task) -> TaskLabel;

impl Maintenance {
    /// The text for operators, and the JSON for programs.
    pub fn show(&self) -> (String, Value) {
        let now = self.parts.runtime.now();
        let (report, budgets) = {
            let arbiter = self.parts.arbiter.lock();
            (arbiter.report(now), arbiter.budgets().clone())
        };
        let done = self.parts.log.recent(STEPS_SHOWN);
        let labels: Labels<'_> = &|owner, task| self.label_of(owner, task);
        let text = text_of(&report, &budgets, &done, now, labels);
        (text, json_of(&report, &budgets, &done, now, labels))
    }

    /// Figures for monitoring.
    pub fn metrics(&self, text: &mut MetricsText) {
        let report = self.parts.arbiter.lock().report(self.parts.runtime.now());
        metrics_of(&report, text);
    }
}

fn text_of(
    report: &Report,
    budgets: &Budgets,
    done: &[DoneStep],
    now: Moment,
    labels: Labels<'_>,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let mut name = name;
        for part in folded(&value) {
            let _infallible = writeln!(text, "{name:<NAME_WIDTH$}{part}");
            name = "";
        }
    };
    line("Now", running_text(report, labels));
    line("Backlog", backlog_text(report));
    line("Rate", rate_text(report));
    line("Transfers", transfers_text(report));
    line("Clients", clients_text(report));
    line("Put delay", put_delay_text(report));
    line("Steps", steps_text(report));
    let _infallible = write!(text, "\nBudgets\n{}\n", budgets_table(report, budgets));
    let _infallible = write!(text, "\nBy kind\n{}\n", kinds_table(report));
    if report.due.is_empty() && report.backlog_bytes == 0 {
        text.push_str("\nno work is due\n");
    } else {
        let _infallible = write!(text, "\nBy partition\n{}\n", owners_table(report));
        let _infallible = write!(text, "\nTasks\n{}\n", tasks_table(report, labels));
    }
    let _infallible = write!(
        text,
        "\nSteps of a millisecond or more done last\n{}\n",
        done_table(done, now)
    );
    text
}

/// The text behind a name, in as many lines as necessary. It is broken only at semicolons.
fn folded(value: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in value.split("; ") {
        match lines.last_mut() {
            Some(line) if NAME_WIDTH + line.len() + "; ".len() + part.len() <= TEXT_WIDTH => {
                line.push_str("; ");
                line.push_str(part);
                continue;
            }
            Some(line) => line.push(';'),
            None => {}
        }
        lines.push(part.to_owned());
    }
    lines
}

fn running_text(report: &Report, labels: Labels<'_>) -> String {
    let text = |(order, since): &(Order, Duration)| {
        let label = labels(order.owner, &order.task);
        format!(
            "{} of {} for {} us",
            label.task,
            label.owner,
            since.as_micros()
        )
    };
    match report.running.as_slice() {
        [] => "at rest".to_owned(),
        [first] => text(first),
        [first, others @ ..] => format!("{} and {} more", text(first), others.len()),
    }
}

fn backlog_text(report: &Report) -> String {
    let backlog = bytes(report.backlog_bytes);
    let pressing = bytes(report.pressing_bytes);
    let paid = match report.paid_in {
        Some(Duration::ZERO) => "all is done".to_owned(),
        Some(paid_in) => format!("done in {}", duration(paid_in)),
        None => "not shrinking at the present rates".to_owned(),
    };
    format!("{backlog}, of it pressing {pressing}; {paid}")
}

fn rate_text(report: &Report) -> String {
    let (done, needed) = (bytes(report.done_rate), bytes(report.needed_rate));
    let allowed = match report.allowed_rate {
        Some(rate) => format!("{}/s", bytes(rate)),
        None => "as much as the budgets".to_owned(),
    };
    let speed = bytes(report.speed);
    format!("{done}/s done, {needed}/s needed, {allowed} allowed, {speed}/s possible")
}

fn transfers_text(report: &Report) -> String {
    let allowed = match report.transfer_allowed_rate {
        Some(rate) => format!("{}/s", bytes(rate)),
        None => "as much as the I/O budget".to_owned(),
    };
    format!("{}/s done, {allowed} allowed", bytes(report.transfer_rate))
}

fn clients_text(report: &Report) -> String {
    let (reads, writes) = report.foreground;
    format!(
        "{}/s put, {:.2} background bytes for each; reads take {} us, p99 {} us, writes {} us, \
         p99 {} us; {:.0}% of the free capacity is for maintenance",
        bytes(report.ingest_rate),
        report.amplification,
        reads.mean.as_micros(),
        reads.p99.as_micros(),
        writes.mean.as_micros(),
        writes.p99.as_micros(),
        report.free_share * 100.0,
    )
}

fn put_delay_text(report: &Report) -> String {
    if report.refuses_puts {
        return "puts are refused: memory or open files are used up, see Budgets".to_owned();
    }
    format!("{} us", report.put_delay.as_micros())
}

fn steps_text(report: &Report) -> String {
    let all = report.all_steps();
    format!(
        "{} done, {} of them cost more than twice what they declared, {} failed; the longest took \
         {} us",
        all.count,
        all.overruns,
        all.failures,
        report.longest_step.as_micros(),
    )
}

fn budgets_table(report: &Report, budgets: &Budgets) -> Table {
    let mut table = table(&["budget", "used", "of"]);
    let mut row = |name: &str, used: String, of: String| {
        table.add_row([name.to_owned(), used, of]);
    };
    let most = |most: Option<u64>| most.map_or("no limit".to_owned(), bytes);
    let (used, allowed) = (&report.memory, &report.memory_orders);
    let rate = bytes(report.done_rate);
    row(
        "I/O per second",
        rate,
        most(budgets.io_bytes_per_second_max),
    );
    let cores = f64::from(budgets.cores) * f64::from(budgets.cpu_share_max_percent) / 100.0;
    let busy = format!("{:.2}", report.cpu_cores);
    row("cores", busy, format!("{cores:.2}"));
    let memory = bytes(report.memory_bytes);
    row("memory", memory, most(budgets.memory_bytes_max));
    row("  caches", bytes(used.caches), bytes(allowed.caches_max));
    let buffers = bytes(used.write_buffers);
    row("  write buffers", buffers, bytes(allowed.write_buffers_max));
    row("  requests", bytes(used.requests), String::new());
    row("  hash trees", bytes(used.hash_trees), String::new());
    let count = |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    let open = count(report.open_files);
    row("open files", open, count(budgets.open_files_max));
    if let Some(disk) = report.disk {
        row("disk, free", bytes(disk.available_bytes), String::new());
        let held_back = bytes(disk.reserve_bytes.min(disk.available_bytes));
        row("  held back", held_back, bytes(disk.reserve_bytes));
    }
    let micros = |time: Duration| format!("{} us", time.as_micros());
    let longest = micros(report.longest_step);
    row("time of a step", longest, micros(budgets.step_time));
    table
}

fn kinds_table(report: &Report) -> Table {
    let mut table = table(&[
        "kind",
        "backlog",
        "steps",
        "bytes",
        "beyond twice",
        "failed",
    ]);
    for kind in kinds(report) {
        let backlog = report.backlog_by_kind.get(&kind).copied().unwrap_or(0);
        let steps = report.steps.get(&kind).copied().unwrap_or_default();
        table.add_row([
            kind.word().to_owned(),
            bytes(backlog),
            steps.count.to_string(),
            bytes(steps.bytes),
            steps.overruns.to_string(),
            steps.failures.to_string(),
        ]);
    }
    table
}

/// Kinds with due or finished tasks.
fn kinds(report: &Report) -> BTreeSet<TaskKind> {
    let with_backlog = report.backlog_by_kind.keys();
    with_backlog.chain(report.steps.keys()).copied().collect()
}

/// The backlog and the steps by the name of the kind. Some kinds share a name.
fn by_name(report: &Report) -> BTreeMap<&'static str, (u64, Steps)> {
    let mut by_name: BTreeMap<&'static str, (u64, Steps)> = BTreeMap::new();
    for kind in kinds(report) {
        let (backlog, steps) = by_name.entry(kind.name()).or_default();
        *backlog += report.backlog_by_kind.get(&kind).copied().unwrap_or(0);
        *steps = steps.and(report.steps.get(&kind).copied().unwrap_or_default());
    }
    by_name
}

fn owners_table(report: &Report) -> Table {
    let mut table = table(&["owner", "backlog", "put per second"]);
    let mut backlogs: Vec<(Owner, u64)> = report
        .backlog_by_owner
        .iter()
        .map(|(owner, bytes)| (*owner, *bytes))
        .collect();
    backlogs.sort_by_key(|(owner, bytes)| (std::cmp::Reverse(*bytes), *owner));
    for (owner, backlog) in backlogs.iter().take(ROWS_SHOWN) {
        let ingest = report.ingest_by_owner.get(owner).copied().unwrap_or(0);
        table.add_row([name_of(*owner), bytes(*backlog), bytes(ingest)]);
    }
    if backlogs.len() > ROWS_SHOWN {
        let rest = backlogs
            .iter()
            .skip(ROWS_SHOWN)
            .map(|(_, bytes)| bytes)
            .sum();
        let others = format!("{} others", backlogs.len() - ROWS_SHOWN);
        table.add_row([others, bytes(rest), String::new()]);
    }
    table
}

fn tasks_table(report: &Report, labels: Labels<'_>) -> Table {
    let mut table = table(&["owner", "task", "subject", "urgency", "left", "held for"]);
    let mut due: Vec<&DueTask> = report.due.iter().collect();
    due.sort_by_key(|it| {
        (
            std::cmp::Reverse(it.task.urgency),
            std::cmp::Reverse(it.task.cost_bytes),
        )
    });
    for it in due.iter().take(ROWS_SHOWN) {
        let label = labels(it.owner, &it.task);
        table.add_row([
            label.owner,
            label.task.to_owned(),
            label.subject.to_string(),
            urgency_name(it.task.urgency).to_owned(),
            bytes(it.task.cost_bytes),
            it.held_for.map_or(String::new(), duration),
        ]);
    }
    if due.len() > ROWS_SHOWN {
        table.add_row([format!("{} others", due.len() - ROWS_SHOWN)]);
    }
    table
}

fn done_table(done: &[DoneStep], now: Moment) -> Table {
    let mut table = table(&["step", "took us", "bytes", "seconds ago"]);
    for step in done {
        table.add_row([
            step.what.clone(),
            step.to.since(step.from).as_micros().to_string(),
            step.cost_bytes.to_string(),
            now.since(step.to).as_secs().to_string(),
        ]);
    }
    table
}

fn json_of(
    report: &Report,
    budgets: &Budgets,
    done: &[DoneStep],
    now: Moment,
    labels: Labels<'_>,
) -> Value {
    let all = report.all_steps();
    let tasks: Vec<Value> = report.due.iter().map(|it| task_json(it, labels)).collect();
    json!({
        "running": report.running.iter().map(|it| running_json(it, labels)).collect::<Vec<_>>(),
        "backlog_bytes": report.backlog_bytes,
        "debt_bytes": report.backlog_bytes,
        "pressing_bytes": report.pressing_bytes,
        "paid_in_seconds": report.paid_in.map(|it| it.as_secs_f64()),
        "done_bytes_per_second": report.done_rate,
        "needed_bytes_per_second": report.needed_rate,
        "allowed_bytes_per_second": report.allowed_rate,
        "transfer_bytes_per_second": report.transfer_rate,
        "transfer_allowed_bytes_per_second": report.transfer_allowed_rate,
        "possible_bytes_per_second": report.speed,
        "put_bytes_per_second": report.ingest_rate,
        "amplification": report.amplification,
        "free_share": report.free_share,
        "read_mean_us": micros(report.foreground.0.mean),
        "read_p99_us": micros(report.foreground.0.p99),
        "write_mean_us": micros(report.foreground.1.mean),
        "write_p99_us": micros(report.foreground.1.p99),
        "put_delay_us": micros(report.put_delay),
        "refuses_puts": report.refuses_puts,
        "steps": all.count,
        "steps_beyond_twice_declared": all.overruns,
        "steps_failed": all.failures,
        "longest_step_us": micros(report.longest_step),
        "budgets": budgets_json(report, budgets),
        "kinds": kinds_json(report),
        "partitions": owners_json(report),
        "tasks": tasks,
        "owed": tasks,
        "done": done.iter().map(|step| done_json(step, now)).collect::<Vec<_>>(),
    })
}

fn running_json((order, since): &(Order, Duration), labels: Labels<'_>) -> Value {
    let label = labels(order.owner, &order.task);
    json!({
        "owner": label.owner,
        "task": order.task.kind.name(),
        "subject": label.subject,
        "declared_bytes": order.declared_bytes,
        "since_us": micros(*since),
    })
}

fn budgets_json(report: &Report, budgets: &Budgets) -> Value {
    json!({
        "io_bytes_per_second_max": budgets.io_bytes_per_second_max,
        "cpu_share_max_percent": budgets.cpu_share_max_percent,
        "cores": budgets.cores,
        "cpu_cores_used": report.cpu_cores,
        "memory_bytes_max": budgets.memory_bytes_max,
        "memory_bytes_used": report.memory_bytes,
        "cache_bytes_max": report.memory_orders.caches_max,
        "cache_bytes_used": report.memory.caches,
        "write_buffer_bytes_max": report.memory_orders.write_buffers_max,
        "write_buffer_bytes_used": report.memory.write_buffers,
        "request_bytes_used": report.memory.requests,
        "hash_tree_bytes_used": report.memory.hash_trees,
        "open_files_max": budgets.open_files_max,
        "open_files_used": report.open_files,
        "disk_bytes_available": report.disk.map(|disk| disk.available_bytes),
        "disk_bytes_held_back": report.disk.map(|disk| disk.reserve_bytes),
        "step_time_us": micros(budgets.step_time),
    })
}

fn kinds_json(report: &Report) -> Value {
    let mut all = Map::new();
    for (name, (backlog, steps)) in by_name(report) {
        let value = json!({
            "backlog_bytes": backlog,
            "owed_bytes": backlog,
            "steps": steps.count,
            "bytes": steps.bytes,
            "steps_beyond_twice_declared": steps.overruns,
            "steps_failed": steps.failures,
        });
        all.insert(name.to_owned(), value);
    }
    Value::Object(all)
}

fn owners_json(report: &Report) -> Value {
    let backlogs = report.backlog_by_owner.iter();
    let one = |(owner, backlog): (&Owner, &u64)| {
        let put = report.ingest_by_owner.get(owner).copied().unwrap_or(0);
        json!({
            "partition": partition(*owner),
            "backlog_bytes": backlog,
            "owed_bytes": backlog,
            "put_bytes_per_second": put,
        })
    };
    backlogs.map(one).collect()
}

fn task_json(due: &DueTask, labels: Labels<'_>) -> Value {
    let label = labels(due.owner, &due.task);
    json!({
        "partition": partition(due.owner),
        "backend": label.part,
        "task": due.task.kind.name(),
        "subject": label.subject,
        "urgency": urgency_name(due.task.urgency),
        "bytes_left": due.task.cost_bytes,
        "held_for_seconds": due.held_for.map(|it| it.as_secs_f64()),
    })
}

fn done_json(step: &DoneStep, now: Moment) -> Value {
    json!({
        "step": step.what,
        "took_us": micros(step.to.since(step.from)),
        "bytes": step.cost_bytes,
        "seconds_ago": now.since(step.to).as_secs(),
    })
}

fn metrics_of(report: &Report, text: &mut MetricsText) {
    let all = report.all_steps();
    let (used, allowed) = (&report.memory, &report.memory_orders);
    let (needed, running) = (report.needed_rate, report.running.len());
    let refuses = u8::from(report.refuses_puts);
    let open_files = report.open_files.unwrap_or(0);
    let available = report.disk.map_or(0, |disk| disk.available_bytes);
    let reserve = report.disk.map_or(0, |disk| disk.reserve_bytes);
    let put_delay = report.put_delay.as_secs_f64();
    let longest = report.longest_step.as_secs_f64();
    let help = "Pending background work";
    text.gauge("maintenance_debt_bytes", help, report.backlog_bytes);
    let help = "The urgent part of the backlog";
    text.gauge("maintenance_pressing_bytes", help, report.pressing_bytes);
    let help = "Background bytes done";
    text.gauge("maintenance_bytes_per_second", help, report.done_rate);
    let help = "Background bytes that have to be done";
    text.gauge("maintenance_needed_bytes_per_second", help, needed);
    let help = "Bytes per second that one worker can do";
    text.gauge("maintenance_possible_bytes_per_second", help, report.speed);
    let help = "Steps under way";
    text.gauge("maintenance_running_steps", help, running);
    let help = "Memory of stores, of the caches that they share, of requests and of hash trees";
    text.gauge("maintenance_memory_bytes", help, report.memory_bytes);
    let help = "Memory in caches of read data";
    text.gauge("maintenance_cache_bytes", help, used.caches);
    let help = "Present limit of caches";
    text.gauge("maintenance_cache_bytes_allowed", help, allowed.caches_max);
    let help = "Memory in write buffers";
    text.gauge("maintenance_write_buffer_bytes", help, used.write_buffers);
    let help = "Present limit of write buffers";
    let value = allowed.write_buffers_max;
    text.gauge("maintenance_write_buffer_bytes_allowed", help, value);
    let help = "Memory in large requests in progress and in the queue of the value log";
    text.gauge("maintenance_request_bytes", help, used.requests);
    let help = "Memory in the hash trees that anti-entropy compares";
    text.gauge("maintenance_hash_tree_bytes", help, used.hash_trees);
    let help = "1 while puts are refused because memory or open files are used up";
    text.gauge("maintenance_refuses_puts", help, refuses);
    let help = "Open files of the process";
    text.gauge("maintenance_open_files", help, open_files);
    let help = "Free space where the stores and the value log are, on the fullest file system";
    text.gauge("maintenance_disk_available_bytes", help, available);
    let help = "The part of it that is reserved for merges and collections";
    text.gauge("maintenance_disk_reserve_bytes", help, reserve);
    let help = "Present delay of every put";
    text.gauge("maintenance_put_delay_seconds", help, put_delay);
    let help = "The longest step";
    text.gauge("maintenance_longest_step_seconds", help, longest);
    let help = "Cores that background work keeps busy";
    text.gauge("maintenance_cpu_cores", help, report.cpu_cores);
    let help = "Background bytes for each byte put";
    text.gauge("maintenance_amplification", help, report.amplification);
    let help = "Part of the free capacity that background work takes";
    text.gauge("maintenance_free_share", help, report.free_share);
    if let Some(paid_in) = report.paid_in {
        let help = "Time until the backlog is done; missing while it does not shrink";
        text.gauge("maintenance_paid_in_seconds", help, paid_in.as_secs_f64());
    }
    text.counter("maintenance_steps", "Steps done", all.count);
    let help = "Bytes read and written by steps";
    text.counter("maintenance_bytes", help, all.bytes);
    let help = "Steps that cost more than twice what they declared";
    text.counter("maintenance_overruns", help, all.overruns);
    text.counter("maintenance_failures", "Steps that failed", all.failures);
    labelled_metrics(report, text);
}

fn labelled_metrics(report: &Report, text: &mut MetricsText) {
    let labels: Vec<_> = by_name(report)
        .into_iter()
        .map(|(name, (backlog, _))| ([("kind", name)], backlog))
        .collect();
    let samples = labels
        .iter()
        .map(|(labels, backlog)| (&labels[..], *backlog));
    let help = "Pending background work, by kind";
    text.family(MetricKind::Gauge, "maintenance_owed_bytes", help, samples);

    let backlogs: Vec<(String, u64)> = report
        .backlog_by_owner
        .iter()
        .filter_map(|(owner, backlog)| Some((partition(*owner)?.to_string(), *backlog)))
        .collect();
    let labels: Vec<_> = backlogs
        .iter()
        .map(|(partition, backlog)| ([("partition", partition.as_str())], *backlog))
        .collect();
    let samples = labels
        .iter()
        .map(|(labels, backlog)| (&labels[..], *backlog));
    let help = "Pending background work, by partition; partitions without any are missing";
    text.family(
        MetricKind::Gauge,
        "maintenance_partition_owed_bytes",
        help,
        samples,
    );
}

fn partition(owner: Owner) -> Option<u16> {
    match owner {
        Owner::ValueLog => None,
        Owner::Store(partition) => Some(partition),
    }
}

fn urgency_name(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::Idle => "idle",
        Urgency::Normal => "normal",
        Urgency::Pressing => "pressing",
    }
}

/// A size in the unit that leaves at most four digits before the point.
pub fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if amount < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{amount:.digits$} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TB")
}

fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", duration.as_secs_f64()),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new())
        .set_header(header.iter().copied());
    table
}

#[cfg(test)]
#[path = "view_test.rs"]
mod tests;
