//! Tables with frames, as Riak's newer commands print them and operators' scripts parse them.
//!
//! Cells are centred in their columns, with the odd blank behind. A column is as wide as its widest cell.

/// A table under a header, with frames.
pub fn framed(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let frame = frame(&widths);
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = format!("{frame}{}{frame}", line(&header, &widths));
    for row in rows {
        text.push_str(&line(row, &widths));
    }
    text + &frame
}

fn frame(widths: &[usize]) -> String {
    let columns: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    format!("+{}+\n", columns.join("+"))
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:^width$}"))
        .collect();
    format!("|{}|\n", cells.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_as_riak_draws_it() {
        let rows = [
            vec!["primary".to_owned(), "0".to_owned(), "0".to_owned()],
            vec!["secondary".to_owned(), "--".to_owned(), "--".to_owned()],
        ];
        assert_eq!(
            framed(&["type", "index", "id"], &rows),
            "\
+---------+-----+--+
|  type   |index|id|
+---------+-----+--+
| primary |  0  |0 |
|secondary| --  |--|
+---------+-----+--+
"
        );
    }
}
