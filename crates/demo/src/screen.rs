//! The demo on a terminal: members, ring, load, transfers and events. Pure: a picture becomes cells of
//! a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use crate::keys::HELP;
use crate::observation::TransferView;
use crate::picture::{Cell, NodeRow, Phase, Picture, milliseconds};
use crate::script::NodeNumber;

/// Partitions in a row of the ring, and columns of each.
const CELLS_OF_A_ROW: usize = 8;
const CELL_COLUMNS: usize = 4;

/// The ring's columns, with a border.
const RING_COLUMNS: u16 = 35;

/// Colours of nodes 1 to 9.
const COLORS: [Color; 9] = [
    Color::LightBlue,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightMagenta,
    Color::LightCyan,
    Color::LightRed,
    Color::Gray,
    Color::Green,
    Color::Magenta,
];

/// Draws a picture.
pub(crate) fn draw(frame: &mut Frame<'_>, picture: &Picture) {
    let rows = u16::try_from(picture.nodes.len()).unwrap_or(u16::MAX);
    let [title, top, load, bottom, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows.saturating_add(3).max(8)),
        Constraint::Length(7),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [members, ring] =
        Layout::horizontal([Constraint::Min(45), Constraint::Length(RING_COLUMNS)]).areas(top);
    let [transfers, notes] =
        Layout::horizontal([Constraint::Length(38), Constraint::Min(20)]).areas(bottom);
    frame.render_widget(title_line(picture), title);
    draw_members(frame, members, picture);
    draw_ring(frame, ring, picture);
    draw_load(frame, load, picture);
    draw_transfers(frame, transfers, picture);
    draw_notes(frame, notes, picture);
    frame.render_widget(key_line(), keys);
}

fn title_line(picture: &Picture) -> Line<'static> {
    let time = match picture.phase {
        Phase::Forming => "the nodes become one cluster".to_owned(),
        Phase::Running => {
            let left = picture.left.unwrap_or_default();
            format!("load {}, {} left", clock(picture.elapsed), clock(left))
        }
        Phase::Settling => "the load has ended; all heals".to_owned(),
        Phase::Reading => "every key is read back".to_owned(),
    };
    let state = if picture.is_whole {
        Span::from("whole").green()
    } else {
        Span::from(picture.hindrance.clone()).yellow()
    };
    Line::from(vec![
        " Kvorum demo ".bold().reversed(),
        format!(" {time}: ").into(),
        state,
    ])
}

fn key_line() -> Line<'static> {
    let keys = HELP.iter().flat_map(|(key, does)| {
        [
            format!(" {key} ").reversed(),
            Span::from(format!(" {does} ")),
        ]
    });
    Line::from_iter(keys)
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let is_cut = picture.nodes.iter().any(|node| node.side.is_some());
    let title = if is_cut {
        " nodes, cut into halves A and B "
    } else {
        " nodes "
    };
    let header = ["node", "state", "sees", "parts", "hints", "ops/s", "HTTP"];
    let rows = picture.nodes.iter().map(member_row);
    let widths = [4, 8, 4, 5, 6, 5, 5].map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().dim()))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn member_row(node: &NodeRow) -> Row<'static> {
    let side = node.side.map_or(String::new(), |side| format!(" {side}"));
    let mark = if node.is_selected { ">" } else { " " };
    let sees = node.sees.filter(|_| node.state != "killed");
    let sees = sees.map_or(String::new(), |(sees, all)| format!("{sees}/{all}"));
    let state = match node.state {
        "up" => Span::from("up").green(),
        "killed" => Span::from("killed").red().bold(),
        other => Span::from(other).yellow(),
    };
    let row = Row::new(vec![
        Line::from(vec![
            mark.into(),
            Span::styled(node.number.to_string(), color(node.number)),
            side.bold(),
        ]),
        Line::from(state),
        Line::from(sees),
        Line::from(node.partitions.to_string()),
        Line::from(node.hints.to_string()),
        Line::from(node.operations.to_string()),
        Line::from(node.http.to_string()).dim(),
    ]);
    if node.is_selected { row.bold() } else { row }
}

fn draw_ring(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let moving = picture.ring.iter().filter(|cell| is_moving(cell)).count();
    let title = match (picture.ring.len(), moving) {
        (size, 0) => format!(" ring of {size} partitions "),
        (size, moving) => format!(" ring of {size}, {moving} to move "),
    };
    let rows = picture.ring.chunks(CELLS_OF_A_ROW);
    let mut lines: Vec<Line<'_>> = rows
        .map(|row| Line::from_iter(row.iter().flat_map(cell_spans)))
        .collect();
    lines.push(Line::from(""));
    lines.push(Line::from("who owns each; 1>6 moves").dim());
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn is_moving(cell: &Cell) -> bool {
    cell.next.is_some() && cell.next != cell.owner
}

fn cell_spans(cell: &Cell) -> Vec<Span<'static>> {
    let digit = |node: Option<NodeNumber>| match node {
        Some(node) => Span::styled(node.to_string(), color(node)),
        None => Span::from("-").dim(),
    };
    let mut spans = vec![digit(cell.owner)];
    if is_moving(cell) {
        spans.push(">".yellow());
        spans.push(digit(cell.next));
    }
    let columns = spans.len();
    spans.push(" ".repeat(CELL_COLUMNS.saturating_sub(columns)).into());
    spans
}

fn draw_load(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block = Block::bordered().title(" load, every write at a quorum ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [figures, chart, verdict] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(inner);
    let rates = &picture.rates;
    let failures = format!("{} failed/s", rates.failures);
    let failures = match rates.failures {
        0 => Span::from(failures),
        _ => Span::from(failures).yellow(),
    };
    let lines = vec![
        Line::from(vec![
            format!("{} writes/s   {} reads/s   ", rates.writes, rates.reads).into(),
            failures,
            format!("   {} siblings replaced", picture.siblings).dim(),
        ]),
        Line::from(format!(
            "latency: median {}   p99 {}   longest {}",
            milliseconds(rates.median),
            milliseconds(rates.p99),
            milliseconds(rates.longest)
        )),
    ];
    frame.render_widget(Paragraph::new(lines), figures);
    let columns = usize::from(chart.width);
    let from = rates.history.len().saturating_sub(columns);
    let history = rates.history.iter().skip(from);
    let sparkline = Sparkline::default().data(history).style(Color::Blue);
    frame.render_widget(sparkline, chart);
    frame.render_widget(verdict_line(picture), verdict);
}

fn verdict_line(picture: &Picture) -> Line<'static> {
    let is_good = picture.lost == 0 && picture.findings == 0;
    let style = if is_good {
        Style::new().green()
    } else {
        Style::new().red()
    };
    let checked = format!("   {} reads checked", picture.judged);
    let mut spans = vec![
        Span::styled(picture.verdict(), style.add_modifier(Modifier::BOLD)),
        checked.dim(),
    ];
    if picture.findings > 0 {
        spans.push(format!("   {} things wrong", picture.findings).red());
    }
    Line::from(spans)
}

fn draw_transfers(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let hints: u64 = picture.nodes.iter().map(|node| node.hints).sum();
    let title = format!(" transfers: {} waiting ", picture.transfers_waiting);
    let mut lines: Vec<Line<'_>> = picture.transfers.iter().map(transfer_line).collect();
    if hints > 0 {
        lines.insert(0, Line::from(format!("{hints} hinted objects are kept")));
    }
    if lines.is_empty() {
        lines.push(Line::from("nothing is on its way").dim());
    }
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn transfer_line(transfer: &TransferView) -> Line<'static> {
    let digit = |node: Option<NodeNumber>| node.map_or("-".to_owned(), |node| node.to_string());
    let (from, to) = (digit(transfer.from), digit(transfer.to));
    let share = transfer
        .percent
        .map_or(String::new(), |percent| format!(" {percent} %"));
    Line::from(format!(
        "{:>2}: {from} > {to} {}, {} keys{share}",
        transfer.partition, transfer.kind, transfer.keys
    ))
}

fn draw_notes(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block = Block::bordered().title(" what happened ");
    let inner = block.inner(area);
    let lines = picture.notes.iter().flat_map(|(at, note)| {
        let text = format!("{} {note}", clock(*at));
        wrapped(&text, usize::from(inner.width))
    });
    let mut lines: Vec<Line<'_>> = lines.map(Line::from).collect();
    let old = lines.len().saturating_sub(usize::from(inner.height));
    lines.drain(..old);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// A text in lines of this many columns, with lines after the first indented.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("     {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn color(node: NodeNumber) -> Style {
    let at = node.saturating_sub(1) as usize;
    Style::new()
        .fg(COLORS.get(at).copied().unwrap_or(Color::White))
        .bold()
}

/// `1:05`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::picture::Rates;

    fn drawn(picture: &Picture, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, picture)).unwrap();
        terminal.backend().to_string()
    }

    fn picture() -> Picture {
        let node = |number| NodeRow {
            number,
            state: if number == 2 { "killed" } else { "up" },
            sees: Some((4, 5)),
            partitions: 7,
            hints: u64::from(number),
            operations: 240,
            http: 20_001,
            ..NodeRow::default()
        };
        let mut ring = vec![
            Cell {
                owner: Some(3),
                next: None
            };
            32
        ];
        ring[9].next = Some(6);
        Picture {
            phase: Phase::Running,
            elapsed: Duration::from_secs(65),
            left: Some(Duration::from_secs(55)),
            hindrance: "node 1 does not see 1 others".to_owned(),
            nodes: (1..=5).map(node).collect(),
            ring,
            rates: Rates {
                writes: 612,
                ..Rates::default()
            },
            acknowledged: 46_645,
            transfers: vec![TransferView {
                kind: "ownership".to_owned(),
                partition: 9,
                from: Some(3),
                to: Some(6),
                keys: 12,
                percent: Some(45),
            }],
            notes: vec![(Duration::from_secs(60), "node 2 is killed".to_owned())],
            ..Picture::default()
        }
    }

    #[test]
    fn a_usual_terminal_has_room_for_everything() {
        let screen = drawn(&picture(), 80, 24);
        for text in [
            "load 1:05, 0:55 left: node 1 does not see 1 others",
            "killed",
            "20001",
            "3>6",
            "ring of 32, 1 to move",
            "612 writes/s",
            "acknowledged 46645, lost 0",
            "9: 3 > 6 ownership, 12 keys 45 %",
            "15 hinted objects",
            "1:00 node 2 is killed",
            " k  kill",
            " q  end",
        ] {
            assert!(screen.contains(text), "{text}\n{screen}");
        }
    }

    #[test]
    fn any_terminal_is_drawn_on() {
        for (columns, rows) in [(1, 1), (20, 5), (40, 12), (300, 100)] {
            let _screen = drawn(&picture(), columns, rows);
            let _empty = drawn(&Picture::default(), columns, rows);
        }
    }
}
