//! An event as a line.

use std::fmt::{self, Debug, Write as _};

use kvorum_settings::LogFormat;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::node_names::NodeNames;

/// The length of a node's identity as text.
const IDENTITY_LEN: usize = 36;

/// Writes events as lines.
pub(super) struct Lines {
    pub(super) format: LogFormat,
    pub(super) names: NodeNames,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        let fields = fields.with_names(&self.names);
        let level = event.metadata().level();
        let line = match self.format {
            LogFormat::Logfmt => logfmt(&time, *level, &fields),
            LogFormat::Json => json(&time, *level, fields),
        };
        writeln!(writer, "{line}")
    }
}

/// The fields of an event, in their order.
struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Adds the name of each node behind its identity.
    fn with_names(self, names: &NodeNames) -> Vec<(String, Value)> {
        let mut all: Vec<(String, Value)> = Vec::with_capacity(self.0.len());
        let fields: Vec<String> = self.0.iter().map(|(field, _)| field.clone()).collect();
        for (field, value) in self.0 {
            let beside = format!("{field}_name");
            let identity = value.as_str().filter(|text| text.len() == IDENTITY_LEN);
            let is_unnamed = !fields.contains(&beside);
            let name = identity
                .filter(|_| is_unnamed)
                .and_then(|identity| names.of(identity));
            all.push((field, value));
            all.extend(name.map(|name| (beside, name.into())));
        }
        all
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.0.push((field.name().to_owned(), value));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        match i64::try_from(value) {
            Ok(value) => self.put(field, value.into()),
            Err(_) => self.put(field, value.to_string().into()),
        }
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        match u64::try_from(value) {
            Ok(value) => self.put(field, value.into()),
            Err(_) => self.put(field, value.to_string().into()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

fn logfmt(time: &str, level: Level, fields: &[(String, Value)]) -> String {
    let mut line = format!("time={time} level={level}");
    for (field, value) in fields {
        line.push(' ');
        line.push_str(field);
        line.push('=');
        match value {
            Value::String(text) => quote(text, &mut line),
            value => {
                // Writing to a String cannot fail.
                let _ = write!(line, "{value}");
            }
        }
    }
    line
}

/// Appends the text in quotes; characters that would end them or the line are escaped.
fn quote(text: &str, line: &mut String) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            character if character.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            character => line.push(character),
        }
    }
    line.push('"');
}

fn json(time: &str, level: Level, fields: Vec<(String, Value)>) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), time.into());
    object.insert("level".to_owned(), level.to_string().into());
    object.extend(fields);
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Vec<(String, Value)> {
        let identity = "0190a1b2-0000-7000-8000-000000000001".to_owned();
        let names = NodeNames::default();
        names.learn([(identity.clone(), "node2@10.0.0.2".to_owned())]);
        let field = |name: &str, value: Value| (name.to_owned(), value);
        let fields = Fields(vec![
            field("event", "request_failed".into()),
            field("error", "two\nlines, a \"quote\" and event=forged".into()),
            field("took_us", 17.into()),
            field("node", identity.into()),
        ]);
        fields.with_names(&names)
    }

    #[test]
    fn an_event_is_one_line_that_no_field_can_forge() {
        let line = logfmt("T", Level::WARN, &fields());
        assert_eq!(
            line,
            "time=T level=WARN event=\"request_failed\" \
             error=\"two\\nlines, a \\\"quote\\\" and event=forged\" took_us=17 \
             node=\"0190a1b2-0000-7000-8000-000000000001\" node_name=\"node2@10.0.0.2\""
        );
    }

    #[test]
    fn the_same_event_as_json_is_an_object_in_one_line() {
        let line = json("T", Level::ERROR, fields());
        assert!(!line.contains('\n'));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["level"], "ERROR");
        assert_eq!(read["error"], "two\nlines, a \"quote\" and event=forged");
        assert_eq!(
            (&read["took_us"], &read["node_name"]),
            (&17.into(), &"node2@10.0.0.2".into())
        );
    }
}
