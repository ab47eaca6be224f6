//! Medians, spreads and ratios of the cells, as tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cell::Cell;

/// The cells of one workload and pace as a table; the first contender is the base.
pub fn table(title: &str, cells: &[Cell]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut by_contender: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        let name = cell.plan.contender.as_str();
        if !order.contains(&name) {
            order.push(name);
        }
        by_contender.entry(name).or_default().push(cell);
    }
    let mut text = format!(
        "### {title}\n\n| contender | operations/s (spread) | ratio | get p50 / p99 / p99.9 | put p50 / p99 / p99.9 / max | slowest 1 % of seconds | written per put byte | disk | memory | CPU/op |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    let base = order
        .first()
        .map(|name| median(&by_contender[name], |cell| cell.outcome.rate()));
    for name in order {
        let cells = &by_contender[name];
        let of = |value: fn(&Cell) -> f64| median(cells, value);
        let rate = of(|cell| cell.outcome.rate());
        let (least, most) = spread(cells, |cell| cell.outcome.rate());
        let _infallible = writeln!(
            text,
            "| {name} | {rate:.0} ({least:.0}-{most:.0}) | {:.2} | {} / {} / {} | {} / {} / {} / {} | {:.2} | {} | {:.0} MB | {:.0} MB | {:.1} us |",
            rate / base.unwrap_or(rate),
            time(of(|cell| cell.outcome.gets.p50 as f64)),
            time(of(|cell| cell.outcome.gets.p99 as f64)),
            time(of(|cell| cell.outcome.gets.p999 as f64)),
            time(of(|cell| cell.outcome.puts.p50 as f64)),
            time(of(|cell| cell.outcome.puts.p99 as f64)),
            time(of(|cell| cell.outcome.puts.p999 as f64)),
            time(of(|cell| cell.outcome.puts.max as f64)),
            of(slowest_seconds),
            written_per_put_byte(cells),
            of(|cell| cell.disk_bytes as f64 / 1e6),
            of(|cell| cell.resident_bytes as f64 / 1e6),
            of(|cell| cell.cpu_seconds * 1e6 / cell.outcome.operations.max(1) as f64),
        );
    }
    text
}

/// Bytes written for each byte put; empty without puts.
fn written_per_put_byte(cells: &[&Cell]) -> String {
    if cells.iter().all(|cell| cell.outcome.put_bytes == 0) {
        return "-".to_owned();
    }
    let share = |cell: &Cell| cell.written_bytes as f64 / cell.outcome.put_bytes.max(1) as f64;
    format!("{:.2}", median(cells, share))
}

/// The first percentile of the seconds' rates, as a share of the median second's rate.
fn slowest_seconds(cell: &Cell) -> f64 {
    let mut counts = cell.outcome.per_second.clone();
    counts.sort_unstable();
    let Some(middle) = counts.get(counts.len() / 2).filter(|count| **count > 0) else {
        return 0.0;
    };
    counts[counts.len() / 100] as f64 / *middle as f64
}

fn median(cells: &[&Cell], value: impl Fn(&Cell) -> f64) -> f64 {
    let mut values: Vec<f64> = cells.iter().map(|cell| value(cell)).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(cells: &[&Cell], value: impl Fn(&Cell) -> f64) -> (f64, f64) {
    let values = || cells.iter().map(|cell| value(cell));
    (
        values().fold(f64::INFINITY, f64::min),
        values().fold(0.0, f64::max),
    )
}

fn time(micros: f64) -> String {
    if micros >= 1e6 {
        format!("{:.1} s", micros / 1e6)
    } else if micros >= 1e3 {
        format!("{:.1} ms", micros / 1e3)
    } else {
        format!("{micros:.0} us")
    }
}
