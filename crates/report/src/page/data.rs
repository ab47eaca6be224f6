//! Data for the page's script: the numbers of the charts, each column once.

use serde_json::{Number, Value, json};

use crate::draw::{Chart, Scale, ScaleKind};

/// Columns of numbers that charts share, and the charts that refer to them.
#[derive(Debug, Default)]
pub(super) struct PageData {
    columns: Vec<Vec<Option<f64>>>,
    charts: Vec<Value>,
}

impl PageData {
    /// Adds a chart and its numbers.
    pub(super) fn add(&mut self, chart: &Chart) {
        let lines: Vec<Value> = chart
            .lines
            .iter()
            .map(|line| {
                let x = self.column(&line.x.iter().copied().map(Some).collect::<Vec<_>>());
                let y = self.column(&line.y);
                json!({ "name": line.name, "ink": line.ink.class(), "x": x, "y": y })
            })
            .collect();
        let table: Vec<Value> = chart
            .table
            .iter()
            .map(|column| json!({ "head": column.head, "values": self.column(&column.values) }))
            .collect();
        self.charts.push(json!({
            "id": chart.id,
            "title": chart.title,
            "x": axis(&chart.x),
            "y": axis(&chart.y),
            "lines": lines,
            "table": table,
        }));
    }

    /// All data, for the script.
    pub(super) fn into_json(self) -> Value {
        let column = |column: Vec<Option<f64>>| -> Value {
            column.into_iter().map(number).collect::<Vec<_>>().into()
        };
        let columns: Vec<Value> = self.columns.into_iter().map(column).collect();
        json!({ "columns": columns, "charts": self.charts })
    }

    /// The number of a column; equal columns are kept once.
    fn column(&mut self, values: &[Option<f64>]) -> usize {
        let found = self.columns.iter().position(|column| column == values);
        found.unwrap_or_else(|| {
            self.columns.push(values.to_vec());
            self.columns.len() - 1
        })
    }
}

fn axis(scale: &Scale) -> Value {
    json!({
        "unit": scale.unit.name(),
        "log": scale.kind == ScaleKind::Logarithmic,
        "min": scale.min,
        "max": scale.max,
    })
}

/// Whole numbers are written without a point, to save space: most are whole, and a long run has
/// many.
fn number(value: Option<f64>) -> Value {
    let Some(value) = value else {
        return Value::Null;
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole and within the range of exact integers"
    )]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!(number(Some(12.0)).to_string(), "12");
        assert_eq!(number(Some(0.1)).to_string(), "0.1");
        assert_eq!(number(Some(1e18)).to_string(), "1e+18");
        assert_eq!(number(None).to_string(), "null");
    }

    #[test]
    fn equal_columns_are_kept_once() {
        let mut data = PageData::default();
        assert_eq!(data.column(&[Some(1.0)]), 0);
        assert_eq!(data.column(&[Some(2.0)]), 1);
        assert_eq!(data.column(&[Some(1.0)]), 0);
    }
}
