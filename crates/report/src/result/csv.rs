//! Tables in basho_bench's form: a line of heads, then lines of numbers, with comma and space
//! between fields.

use std::path::Path;

use super::read_error::ReadError;

/// Columns of numbers under their heads. A field may be empty, which means "unknown".
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    heads: Vec<String>,
    columns: Vec<Vec<Option<f64>>>,
}

impl Table {
    /// Reads a table. An interrupted run may leave an incomplete last line, which is left out if
    /// fields are missing.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, ReadError> {
        let refusal = |line: usize, reason: String| ReadError::Table {
            path: path.to_owned(),
            line: line + 1,
            reason,
        };
        let mut lines = text.lines().enumerate().peekable();
        let (_, head) = lines
            .next()
            .ok_or_else(|| refusal(0, "the file is empty".to_owned()))?;
        let heads: Vec<String> = fields(head).map(str::to_owned).collect();
        let mut columns = vec![Vec::new(); heads.len()];
        while let Some((number, line)) = lines.next() {
            let row: Vec<&str> = fields(line).collect();
            let is_cut_short = lines.peek().is_none() && !text.ends_with('\n');
            if row.len() != heads.len() {
                if is_cut_short {
                    break;
                }
                let reason = format!("{} fields, expected {}", row.len(), heads.len());
                return Err(refusal(number, reason));
            }
            for (column, field) in columns.iter_mut().zip(row) {
                column.push(number_of(field).map_err(|reason| refusal(number, reason))?);
            }
        }
        Ok(Self { heads, columns })
    }

    /// Refuses a table that lacks a column.
    pub(super) fn require(&self, heads: &[&str], path: &Path) -> Result<(), ReadError> {
        for head in heads {
            if self.column(head).is_none() {
                return Err(ReadError::Table {
                    path: path.to_owned(),
                    line: 1,
                    reason: format!("there is no column {head}"),
                });
            }
        }
        Ok(())
    }

    /// The heads, in order.
    pub fn heads(&self) -> &[String] {
        &self.heads
    }

    /// A column by its head.
    pub fn column(&self, head: &str) -> Option<&[Option<f64>]> {
        let index = self.heads.iter().position(|found| found == head)?;
        self.columns.get(index).map(Vec::as_slice)
    }

    /// A column by its head, with zero in empty fields; empty if there is no such column.
    pub fn numbers(&self, head: &str) -> Vec<f64> {
        let column = self.column(head).unwrap_or_default();
        column.iter().map(|value| value.unwrap_or(0.0)).collect()
    }

    /// The last known value of a column.
    pub fn last(&self, head: &str) -> Option<f64> {
        self.column(head)?.iter().rev().find_map(|value| *value)
    }

    /// The first known value of a column.
    pub fn first(&self, head: &str) -> Option<f64> {
        self.column(head)?.iter().find_map(|value| *value)
    }

    /// The largest known value of a column.
    pub fn largest(&self, head: &str) -> Option<f64> {
        self.column(head)?
            .iter()
            .flatten()
            .copied()
            .reduce(f64::max)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(str::trim)
}

fn number_of(field: &str) -> Result<Option<f64>, String> {
    if field.is_empty() {
        return Ok(None);
    }
    match field.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(format!("{field:?} is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Table, ReadError> {
        Table::parse(text, Path::new("x.csv"))
    }

    #[test]
    fn fields_are_read_under_their_heads() {
        let table = parse("elapsed, n\n1.5, 7\n2.5, \n").unwrap();
        assert_eq!(table.heads(), ["elapsed", "n"]);
        assert_eq!(table.column("n").unwrap(), [Some(7.0), None]);
        assert_eq!(table.numbers("n"), [7.0, 0.0]);
        assert_eq!(table.last("n"), Some(7.0));
        assert_eq!(table.first("elapsed"), Some(1.5));
        assert_eq!(table.largest("elapsed"), Some(2.5));
        assert_eq!(table.rows(), 2);
        assert!(table.column("m").is_none());
    }

    #[test]
    fn a_row_cut_short_at_the_end_is_left_out() {
        assert_eq!(parse("a, b\n1, 2\n3").unwrap().rows(), 1);
        let error = parse("a, b\n1\n3, 4\n").unwrap_err();
        assert_eq!(error.to_string(), "x.csv, line 2: 1 fields, expected 2");
    }

    #[test]
    fn what_is_no_number_is_refused_with_its_line() {
        for bad in ["x", "inf", "NaN", "1e999"] {
            let error = parse(&format!("a\n1\n{bad}\n")).unwrap_err();
            assert!(error.to_string().contains("line 3"), "{error}");
        }
        assert!(parse("").is_err());
    }
}
