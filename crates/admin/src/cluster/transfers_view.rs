//! Transfers as operators see them: `transfers`, `transfer-limit`, `handoff summary|details`.
//!
//! Pure: the nodes' answers come in, texts and JSON come out. Columns are Riak's, except for two
//! that Riak does not have, the growth of the number of replicas and the remaining time;
//! docs/cluster.md has the list.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_maintenance::counted;
use kvorum_member::{TransferView, TransfersView};
use kvorum_protocol::http_fields::format_http_date;
use serde_json::{Value, json};

use super::members_view::quoted;
use super::words::{RULER, banner};
use crate::framed_table::framed;

/// The width of a progress bar.
const BAR: u64 = 44;

/// The answers of all nodes.
pub(super) struct AllTransfers {
    /// In the order of the nodes' names.
    pub(super) nodes: Vec<NodeTransfers>,
    /// Committed moves that no node has begun.
    pub(super) planned: Vec<Planned>,
    /// Members that cannot be reached, or did not answer.
    pub(super) down: Vec<String>,
    /// Seconds since the epoch.
    pub(super) now: u64,
}

/// The answer of one node.
pub(super) struct NodeTransfers {
    pub(super) node: String,
    pub(super) view: TransfersView,
    /// The transfers, with the names of the sending nodes and the indexes of the partitions.
    pub(super) rows: Vec<Row>,
}

/// A partition that will move.
pub(super) struct Planned {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) partition: u16,
    pub(super) index: String,
}

pub(super) struct Row {
    pub(super) from: String,
    pub(super) index: String,
    pub(super) transfer: TransferView,
}

impl AllTransfers {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if !self.down.is_empty() {
            let down = quoted(&self.down);
            let _infallible = writeln!(text, "Nodes {down} are currently down.");
        }
        for (node, count) in self.waiting_by_receiver() {
            let partitions = counted(count, "partition");
            let _infallible = writeln!(text, "'{node}' waiting to receive {partitions}");
        }
        for node in &self.nodes {
            for row in node.rows.iter().filter(|row| !row.transfer.is_active) {
                if let Some(hindrance) = &row.transfer.hindrance {
                    let number = row.transfer.partition;
                    let _infallible = writeln!(text, "    partition {number}: {hindrance}");
                }
            }
            if node.view.hints > 0 {
                let (name, hints) = (&node.node, counted(node.view.hints, "hinted object"));
                let _infallible = writeln!(text, "'{name}' waiting to handoff {hints}");
            }
        }
        let active = self.active_texts(|row| row.transfer.partition.to_string());
        match active.is_empty() {
            true => text.push_str("No transfers active\n"),
            false => {
                let _infallible = write!(text, "\nActive Transfers:\n\n{active}");
            }
        }
        text
    }

    /// The transfers under way, each with its partition as `shown`.
    fn active_texts(&self, shown: impl Fn(&Row) -> String) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            for row in node.rows.iter().filter(|row| row.transfer.is_active) {
                text.push_str(&self.active_text(&node.node, row, &shown(row)));
            }
        }
        text
    }

    /// The number of partitions that wait for their transfer, by receiving node.
    fn waiting_by_receiver(&self) -> BTreeMap<&str, usize> {
        let mut waiting = BTreeMap::new();
        for node in &self.nodes {
            let count = node.rows.iter().filter(|row| !row.transfer.is_active);
            *waiting.entry(node.node.as_str()).or_default() += count.count();
        }
        for planned in &self.planned {
            *waiting.entry(planned.to.as_str()).or_default() += 1;
        }
        waiting.retain(|_, count| *count > 0);
        waiting
    }

    /// The same by sending node: a node that fills a copy from several others counts itself.
    fn waiting_by_sender(&self) -> BTreeMap<&str, usize> {
        let mut waiting = BTreeMap::new();
        for node in &self.nodes {
            for row in node.rows.iter().filter(|row| !row.transfer.is_active) {
                let from = match row.from.as_str() {
                    "-" => &node.node,
                    from => from,
                };
                *waiting.entry(from).or_default() += 1;
            }
        }
        for planned in &self.planned {
            *waiting.entry(planned.from.as_str()).or_default() += 1;
        }
        waiting
    }

    /// `transfers` as Riak prints it: partitions wait at the sending nodes.
    pub(super) fn riak_text(&self) -> String {
        let mut text = String::new();
        if !self.down.is_empty() {
            let _infallible = writeln!(text, "Nodes {} are currently down.", quoted(&self.down));
        }
        let waiting = self.waiting_by_sender();
        let active = self.active_texts(|row| row.index.clone());
        for (node, count) in &waiting {
            let _infallible = writeln!(text, "'{node}' waiting to handoff {count} partitions");
        }
        if waiting.is_empty() && active.is_empty() {
            text.push_str("No transfers active\n");
        }
        let _infallible = writeln!(text, "\nActive Transfers:\n\n{active}");
        for name in &self.down {
            let _infallible = writeln!(text, "Node '{name}' could not be contacted");
        }
        text
    }

    fn active_text(&self, to: &str, row: &Row, partition: &str) -> String {
        let it = &row.transfer;
        let moment = |ms_ago: Option<u64>| match ms_ago {
            Some(ms) => {
                let at = format_http_date(self.now.saturating_sub(ms / 1_000));
                format!("{at} [{} ago]", duration(ms))
            }
            None => "unknown".to_owned(),
        };
        let size = match it.keys_about {
            0 => "total size: unknown".to_owned(),
            about => format!("total size: {}", counted(about, "object")),
        };
        let keys_per_second = match it.begun_ms_ago {
            Some(ms) if ms > 0 => it.keys.saturating_mul(1_000) / ms,
            _ => 0,
        };
        let percent = percent(it);
        let marks = percent.unwrap_or(0) * BAR / 100;
        let bar: String = (0..BAR)
            .map(|at| if at < marks { '#' } else { ' ' })
            .collect();
        let shown = percent.map_or("?".to_owned(), |percent| percent.to_string());
        let mut text = format!(
            "transfer type: {}\nvnode type: riak_kv_vnode\npartition: {}\nstarted: {}\n\
             last update: {}\n{size}\nobjects transferred: {}\n",
            type_name(&it.kind),
            partition,
            moment(it.begun_ms_ago),
            moment(it.updated_ms_ago),
            it.keys,
        );
        let _infallible = writeln!(
            text,
            "remaining: {}\n\n{:>33} Objs/s\n{:>25} =======> {}\n        |{bar}| {shown:>3}%\n\
             {:>33}/s\n",
            it.remaining_ms.map_or("unknown".to_owned(), duration),
            keys_per_second,
            row.from,
            to,
            bytes(it.bytes_per_second),
        );
        if let Some(hindrance) = &it.hindrance {
            let _infallible = writeln!(text, "held up: {hindrance}\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let mut active = Vec::new();
        let mut waiting = Vec::new();
        for node in &self.nodes {
            for row in &node.rows {
                let shown = row_json(&node.node, row);
                if row.transfer.is_active {
                    active.push(shown);
                } else {
                    waiting.push(shown);
                }
            }
        }
        waiting.extend(self.planned.iter().map(Planned::json));
        let hints = self
            .nodes
            .iter()
            .map(|node| json!({"node": node.node, "objects": node.view.hints}));
        json!({
            "active": active, "waiting": waiting, "nodes_down": self.down,
            "hinted": hints.collect::<Vec<_>>(),
        })
    }

    /// `handoff summary`.
    pub(super) fn summary_text(&self) -> String {
        let is_any = |node: &NodeTransfers| !node.rows.is_empty() || node.view.hints > 0;
        if !self.nodes.iter().any(is_any) {
            return format!("No ongoing transfers.\n{}", self.down_text());
        }
        let mut text = String::from(
            "Each cell indicates active transfers and, in parenthesis, the number of all known \
             transfers.\nThe 'Total' column is the sum of the active transfers.\nThe 'Hinted' \
             column is the number of objects that are kept for other nodes.\n\n",
        );
        let _infallible = writeln!(
            text,
            "{:<28} {:>5} {:>11} {:>11} {:>11} {:>11}\n{RULER}",
            "Node", "Total", "Ownership", "Growth", "Hinted", "Repair"
        );
        for node in &self.nodes {
            let [total, ownership, growth, hinted, repair] = node.summary_cells();
            let row = format!(
                "{:<28} {total:>5} {ownership:>11} {growth:>11} {hinted:>11} {repair:>11}",
                node.node
            );
            let _infallible = writeln!(text, "{}", row.trim_end());
        }
        text + &self.down_text()
    }

    /// `handoff summary` as Riak prints it.
    pub(super) fn summary_riak_text(&self) -> String {
        let row = |node: &NodeTransfers| {
            let name = format!("  {}  ", node.node);
            std::iter::once(name).chain(node.summary_cells()).collect()
        };
        let rows: Vec<Vec<String>> = self.nodes.iter().map(row).collect();
        let header = ["Node", "Total", "Ownership", "Resize", "Hinted", "Repair"];
        format!(
            "Each cell indicates active transfers and, in parenthesis, the number of all known transfers.\n\
             The 'Total' column is the sum of the active transfers.\n{}\n{}",
            framed(&header, &rows),
            self.down_text()
        )
    }

    /// `handoff config` as Riak prints it.
    pub(super) fn config_riak_text(&self, port_of: impl Fn(&str) -> String) -> String {
        let word = |is_enabled: bool| if is_enabled { "on" } else { "off" };
        let row = |node: &NodeTransfers| {
            vec![
                node.node.clone(),
                node.view.limit.to_string(),
                word(node.view.is_outbound_enabled).to_owned(),
                word(node.view.is_inbound_enabled).to_owned(),
                port_of(&node.node),
            ]
        };
        let rows: Vec<Vec<String>> = self.nodes.iter().map(row).collect();
        let header = [
            "node",
            "transfer_limit",
            "handoff.outbound",
            "handoff.inbound",
            "handoff.port",
        ];
        format!("{}\n{}", framed(&header, &rows), self.down_text())
    }

    /// `transfer-limit` as Riak prints it.
    pub(super) fn limits_riak_text(&self) -> String {
        self.limits_text().replace(
            "kvorum admin transfer-limit <",
            "riak-admin transfer_limit <",
        )
    }

    fn down_text(&self) -> String {
        if self.down.is_empty() {
            String::new()
        } else {
            format!(
                "\nThe following nodes did not answer: {}\n",
                quoted(&self.down)
            )
        }
    }

    pub(super) fn summary_json(&self) -> Value {
        let row = |node: &NodeTransfers| {
            let count = |kind: &str| {
                let (active, known) = node.counts(kind);
                json!({"active": active, "known": known})
            };
            json!({
                "node": node.node, "ownership": count("ownership"), "growth": count("growth"),
                "repair": count("repair"), "hinted_objects": node.view.hints,
                "outbound": node.view.outbound_active, "settling": node.view.settling.len(),
                "limit": node.view.limit, "inbound_enabled": node.view.is_inbound_enabled,
                "outbound_enabled": node.view.is_outbound_enabled,
            })
        };
        let rows: Vec<Value> = self.nodes.iter().map(row).collect();
        json!({"nodes": rows, "nodes_down": self.down})
    }

    /// `handoff details`.
    pub(super) fn details_text(&self) -> String {
        if self.nodes.iter().all(|node| node.rows.is_empty()) {
            return format!("No ongoing transfers.\n{}", self.down_text());
        }
        let mut text =
            String::from("Type Key: O = Ownership, G = Growth of replicas, Rp = Repair\n\n");
        let _infallible = writeln!(
            text,
            "{:<4} {:>9} {:<20} {:<20} {:>8} {:>8} {:>10} {:>3} {:>9}\n{RULER}",
            "Type",
            "Partition",
            "Source",
            "Destination",
            "Objects",
            "Sent",
            "Rate",
            "%",
            "Remaining"
        );
        for node in &self.nodes {
            for row in &node.rows {
                let it = &row.transfer;
                let key = match it.kind.as_str() {
                    "ownership" => "O",
                    "growth" => "G",
                    _ => "Rp",
                };
                let (rate, remaining) = if it.is_active {
                    let rate = format!("{}/s", bytes(it.bytes_per_second));
                    (rate, it.remaining_ms.map_or("?".to_owned(), duration))
                } else {
                    ("waiting".to_owned(), String::new())
                };
                let shown = percent(it).map_or("?".to_owned(), |it| it.to_string());
                let line = format!(
                    "{key:<4} {:>9} {:<20} {:<20} {:>8} {:>8} {rate:>10} {shown:>3} \
                     {remaining:>9}",
                    it.partition, row.from, node.node, it.keys_about, it.keys,
                );
                let _infallible = writeln!(text, "{}", line.trim_end());
            }
        }
        text + &self.down_text()
    }

    /// `transfer-limit`.
    pub(super) fn limits_text(&self) -> String {
        let mut text = banner("Transfer Limit");
        let _infallible = writeln!(text, "Limit        Node\n{RULER}");
        for node in &self.nodes {
            let _infallible = writeln!(text, "{:>5}        '{}'", node.view.limit, node.node);
        }
        text.push_str(RULER);
        text.push_str(
            "\nNote: You can change transfer limits with 'kvorum admin transfer-limit <limit>'\n      \
             and 'kvorum admin transfer-limit <node> <limit>'\n",
        );
        text + &self.down_text()
    }

    pub(super) fn limits_json(&self) -> Value {
        let rows = self
            .nodes
            .iter()
            .map(|node| json!({"node": node.node, "limit": node.view.limit}));
        json!({"limits": rows.collect::<Vec<_>>(), "nodes_down": self.down})
    }

    /// `handoff config`.
    pub(super) fn config_text(&self) -> String {
        let mut text = format!(
            "{:<28} {:>8} {:>9} {:>14}\n{RULER}\n",
            "Node", "Inbound", "Outbound", "Transfer Limit"
        );
        let word = |is_enabled: bool| if is_enabled { "enabled" } else { "disabled" };
        for node in &self.nodes {
            let _infallible = writeln!(
                text,
                "{:<28} {:>8} {:>9} {:>14}",
                node.node,
                word(node.view.is_inbound_enabled),
                word(node.view.is_outbound_enabled),
                node.view.limit
            );
        }
        text + &self.down_text()
    }
}

impl Planned {
    fn json(&self) -> Value {
        json!({
            "type": "ownership", "partition": self.partition, "index": self.index, "from": self.from,
            "to": self.to, "begun": false,
        })
    }
}

impl NodeTransfers {
    /// Its row of `handoff summary` behind the name: all active transfers, ownership, growth,
    /// hints, repair.
    fn summary_cells(&self) -> [String; 5] {
        let cell = |kind: &str| match self.counts(kind) {
            (_, 0) => String::new(),
            (active, known) => format!("{active} ({known})"),
        };
        let total: usize = ["ownership", "growth", "repair"]
            .iter()
            .map(|kind| self.counts(kind).0)
            .sum();
        let hinted = match self.view.hints {
            0 => String::new(),
            hints => hints.to_string(),
        };
        [
            total.to_string(),
            cell("ownership"),
            cell("growth"),
            hinted,
            cell("repair"),
        ]
    }

    /// Active transfers of a kind, and all.
    fn counts(&self, kind: &str) -> (usize, usize) {
        let of_kind = || self.rows.iter().filter(|row| row.transfer.kind == kind);
        let active = of_kind().filter(|row| row.transfer.is_active).count();
        (active, of_kind().count())
    }
}

fn row_json(to: &str, row: &Row) -> Value {
    let it = &row.transfer;
    json!({
        "type": it.kind, "partition": it.partition, "index": row.index, "from": row.from, "to": to,
        "keys": it.keys, "keys_about": it.keys_about, "bytes": it.bytes,
        "bytes_per_second": it.bytes_per_second, "percent": percent(it),
        "begun_ms_ago": it.begun_ms_ago, "updated_ms_ago": it.updated_ms_ago,
        "remaining_ms": it.remaining_ms, "hindrance": it.hindrance,
    })
}

fn type_name(kind: &str) -> &str {
    match kind {
        "ownership" => "ownership_transfer",
        other => other,
    }
}

fn percent(transfer: &TransferView) -> Option<u64> {
    let done = transfer.keys.saturating_mul(100);
    Some(done.checked_div(transfer.keys_about)?.min(100))
}

/// As Riak prints them: `11.47 s`, `1.14 min`, `2.50 hr`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms as f64 / 1_000.0;
    if seconds < 60.0 {
        format!("{seconds:.2} s")
    } else if seconds < 3_600.0 {
        format!("{:.2} min", seconds / 60.0)
    } else {
        format!("{:.2} hr", seconds / 3_600.0)
    }
}

pub(super) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if value < 1_024.0 {
            return if unit == "B" {
                format!("{count} B")
            } else {
                format!("{value:.2} {unit}")
            };
        }
        value /= 1_024.0;
    }
    format!("{value:.2} TB")
}

#[cfg(test)]
#[path = "transfers_view_test.rs"]
mod tests;
