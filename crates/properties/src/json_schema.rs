//! A subset of JSON Schema, enough for the members of objects and their types.
//!
//! ```text
//! type                                     null, boolean, object, array, number, string, integer, or a list
//! enum, const                              the permitted values
//! properties, required, additionalProperties, of objects; items, minItems, maxItems, of arrays
//! minLength, maxLength                     of texts, in characters
//! minimum, maximum                         of numbers
//! $schema, $id, $comment, title, description, default, examples    ignored
//! ```
//!
//! A schema with another keyword is refused when it is set, since the check would permit values
//! that the keyword forbids. Without references, a check is as deep as the text of its schema.
//! Patterns are missing because the schema shows no bound of their cost.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// The most levels of nested schemas.
const DEPTH_MAX: usize = 32;

/// The conditions on a value. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Schema {
    /// The schema `false`: no value fits.
    is_never: bool,
    kinds: Option<Vec<Kind>>,
    /// The value has to be in each list.
    lists: Vec<Vec<Value>>,
    properties: BTreeMap<String, Schema>,
    required: Vec<String>,
    /// The condition on members that `properties` does not name.
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    item_count: Bounds<u64>,
    length: Bounds<u64>,
    number: Bounds<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bounds<T> {
    least: Option<T>,
    most: Option<T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Object,
    Array,
    Number,
    String,
    Integer,
}

/// The first position at which a value does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// A JSON pointer; empty for the value as a whole.
    path: String,
    what: String,
}

impl Misfit {
    fn here(what: String) -> Self {
        let path = String::new();
        Self { path, what }
    }

    fn below(mut self, step: &str) -> Self {
        let step = step.replace('~', "~0").replace('/', "~1");
        self.path = format!("/{step}{}", self.path);
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the value {}", self.what),
            path => write!(f, "{path} {}", self.what),
        }
    }
}

impl Schema {
    /// Reads a schema; the error names the part that cannot be read.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let schema = serde_json::from_str(text);
        let schema = schema.map_err(|error| format!("the schema is no JSON: {error}"))?;
        Self::of(&schema, 0)
    }

    fn of(schema: &Value, depth: usize) -> Result<Self, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} schemas within each other"));
        }
        match schema {
            Value::Bool(is_any) => Ok(Self {
                is_never: !is_any,
                ..Self::default()
            }),
            Value::Object(keywords) => {
                let mut schema = Self::default();
                for (keyword, value) in keywords {
                    schema.add(keyword, value, depth)?;
                }
                Ok(schema)
            }
            _ => Err("a schema is an object, true or false".to_owned()),
        }
    }

    fn add(&mut self, keyword: &str, value: &Value, depth: usize) -> Result<(), String> {
        let unfit = |expected: &str| format!("{keyword} is not {expected}");
        match keyword {
            "type" => self.kinds = Some(kinds(value).ok_or_else(|| unfit("a known kind"))?),
            "enum" => {
                let list = value.as_array().ok_or_else(|| unfit("a list"))?;
                self.lists.push(list.clone());
            }
            "const" => self.lists.push(vec![value.clone()]),
            "properties" => {
                let members = value.as_object().ok_or_else(|| unfit("an object"))?;
                for (name, schema) in members {
                    let schema = Self::of(schema, depth + 1)?;
                    self.properties.insert(name.clone(), schema);
                }
            }
            "required" => {
                self.required = texts(value).ok_or_else(|| unfit("a list of texts"))?;
            }
            "additionalProperties" => {
                self.additional = Some(Box::new(Self::of(value, depth + 1)?));
            }
            "items" => self.items = Some(Box::new(Self::of(value, depth + 1)?)),
            "minItems" => self.item_count.least = Some(count(value).ok_or_else(|| unfit(COUNT))?),
            "maxItems" => self.item_count.most = Some(count(value).ok_or_else(|| unfit(COUNT))?),
            "minLength" => self.length.least = Some(count(value).ok_or_else(|| unfit(COUNT))?),
            "maxLength" => self.length.most = Some(count(value).ok_or_else(|| unfit(COUNT))?),
            "minimum" => {
                self.number.least = Some(value.as_f64().ok_or_else(|| unfit("a number"))?);
            }
            "maximum" => {
                self.number.most = Some(value.as_f64().ok_or_else(|| unfit("a number"))?);
            }
            "$schema" | "$id" | "$comment" | "title" | "description" | "default" | "examples" => {}
            unknown => return Err(format!("the keyword {unknown} is not supported")),
        }
        Ok(())
    }

    /// Compares a value with the schema.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Misfit> {
        let misfit = |what: &str| Err(Misfit::here(what.to_owned()));
        if self.is_never {
            return misfit("may not be there");
        }
        if let Some(kinds) = &self.kinds
            && !kinds.iter().any(|kind| kind.is_of(value))
        {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            return misfit(&format!("is not of the type {}", names.join(" or ")));
        }
        if !self.lists.iter().all(|list| list.contains(value)) {
            return misfit("is none of the permitted values");
        }
        match value {
            Value::Object(members) => self.check_members(members),
            Value::Array(items) => self.check_items(items),
            Value::String(text) => {
                let characters = text.chars().count() as u64;
                self.length.check(characters, "characters")
            }
            Value::Number(number) => match number.as_f64() {
                Some(number) => self.number.check(number, "as its value"),
                None => Ok(()),
            },
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn check_members(&self, members: &Map<String, Value>) -> Result<(), Misfit> {
        if let Some(missing) = self.required.iter().find(|it| !members.contains_key(*it)) {
            return Err(Misfit::here(format!("lacks the member {missing}")));
        }
        for (name, value) in members {
            let schema = self.properties.get(name).or(self.additional.as_deref());
            if let Some(schema) = schema {
                schema.check(value).map_err(|misfit| misfit.below(name))?;
            }
        }
        Ok(())
    }

    fn check_items(&self, items: &[Value]) -> Result<(), Misfit> {
        self.item_count.check(items.len() as u64, "items")?;
        let Some(schema) = &self.items else {
            return Ok(());
        };
        for (at, item) in items.iter().enumerate() {
            let below = |misfit: Misfit| misfit.below(&at.to_string());
            schema.check(item).map_err(below)?;
        }
        Ok(())
    }
}

impl<T: PartialOrd + fmt::Display + Copy> Bounds<T> {
    fn check(&self, got: T, of_what: &str) -> Result<(), Misfit> {
        let wrong = match (self.least, self.most) {
            (Some(least), _) if got < least => format!("at least {least}"),
            (_, Some(most)) if got > most => format!("at most {most}"),
            _ => return Ok(()),
        };
        let what = format!("has {got} {of_what}, and {wrong} may be");
        Err(Misfit::here(what))
    }
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Null,
        Self::Boolean,
        Self::Object,
        Self::Array,
        Self::Number,
        Self::String,
        Self::Integer,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
            Self::Number => "number",
            Self::String => "string",
            Self::Integer => "integer",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            // 1.0 is one.
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        }
    }
}

const COUNT: &str = "a whole number from 0";

fn count(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn kinds(value: &Value) -> Option<Vec<Kind>> {
    match value {
        Value::String(name) => Some(vec![Kind::named(name)?]),
        _ => texts(value)?.iter().map(|name| Kind::named(name)).collect(),
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    value.as_array()?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(schema: &Value) -> Schema {
        Schema::read(&schema.to_string()).unwrap()
    }

    /// The misfit of a value as text; empty if it fits.
    fn misfit(of: &Value, value: &Value) -> String {
        let checked = schema(of).check(value);
        checked.err().map_or_else(String::new, |it| it.to_string())
    }

    #[test]
    fn a_value_is_compared_with_each_keyword() {
        let person = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "a person",
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 5},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
                "of": {"const": 1},
                "gone": false,
                "any": true,
                "a/b": {"type": ["null", "boolean"]},
            },
            "additionalProperties": {"type": "number"},
        });
        for (value, expected) in [
            (
                json!({"name": "Ann", "age": 7, "tags": ["a"], "of": 1, "any": []}),
                "",
            ),
            (
                json!({"name": "Ann", "age": 7.0, "a/b": null, "more": 1.5}),
                "",
            ),
            // A character may have several bytes.
            (json!({"name": "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}"}), ""),
            (json!([]), "the value is not of the type object"),
            (json!({}), "the value lacks the member name"),
            (
                json!({"name": ""}),
                "/name has 0 characters, and at least 1 may be",
            ),
            (
                json!({"name": "Ulrike"}),
                "/name has 6 characters, and at most 5 may be",
            ),
            (
                json!({"name": "A", "age": 7.5}),
                "/age is not of the type integer",
            ),
            (
                json!({"name": "A", "age": -1}),
                "/age has -1 as its value, and at least 0 may be",
            ),
            (
                json!({"name": "A", "age": 151}),
                "/age has 151 as its value, and at most 150 may be",
            ),
            (
                json!({"name": "A", "tags": []}),
                "/tags has 0 items, and at least 1 may be",
            ),
            (
                json!({"name": "A", "tags": ["a", "c"]}),
                "/tags/1 is none of the permitted values",
            ),
            (
                json!({"name": "A", "of": 2}),
                "/of is none of the permitted values",
            ),
            (json!({"name": "A", "gone": 1}), "/gone may not be there"),
            (
                json!({"name": "A", "a/b": 1}),
                "/a~1b is not of the type null or boolean",
            ),
            (
                json!({"name": "A", "more": "1"}),
                "/more is not of the type number",
            ),
        ] {
            assert_eq!(misfit(&person, &value), expected, "{value}");
        }
        assert_eq!(misfit(&json!(true), &json!(null)), "");
        assert_eq!(misfit(&json!({}), &json!([1])), "");
    }

    #[test]
    fn a_schema_that_would_be_checked_in_part_is_refused() {
        for (schema, reason) in [
            ("{", "is no JSON"),
            ("1", "a schema is an object"),
            (
                r#"{"pattern":"^a"}"#,
                "the keyword pattern is not supported",
            ),
            (
                r##"{"items":{"$ref":"#"}}"##,
                "the keyword $ref is not supported",
            ),
            (r#"{"type":"text"}"#, "type is not a known kind"),
            (r#"{"type":["string",1]}"#, "type is not a known kind"),
            (r#"{"enum":1}"#, "enum is not a list"),
            (r#"{"properties":[]}"#, "properties is not an object"),
            (r#"{"properties":{"a":1}}"#, "a schema is an object"),
            (r#"{"required":"a"}"#, "required is not a list of texts"),
            (r#"{"minLength":-1}"#, "minLength is not a whole number"),
            (r#"{"maximum":"1"}"#, "maximum is not a number"),
        ] {
            let refused = Schema::read(schema).unwrap_err();
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
        let nested = |depth| format!("{}true{}", "{\"items\":".repeat(depth), "}".repeat(depth));
        assert!(Schema::read(&nested(DEPTH_MAX)).is_ok());
        let refused = Schema::read(&nested(DEPTH_MAX + 1)).unwrap_err();
        assert!(refused.contains("within each other"), "{refused}");
    }
}
