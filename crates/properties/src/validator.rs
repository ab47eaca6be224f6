//! Validators: the commit hooks of this server. They are named like Erlang functions, so that every
//! client of Riak can set one and read it back.
//!
//! ```text
//! {"mod": "kvorum", "fun": "json"}                  the value is JSON
//! {"mod": "kvorum", "fun": "json_schema:SCHEMA"}    the value is JSON that fits the schema, a JSON text
//! {"mod": "kvorum", "fun": "max_bytes:N"}           the value has at most N bytes
//! ```
//!
//! An argument is part of the function's name, as Riak's messages have no other place for it. A
//! validator is parsed together with its property, and not by each put.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::function::ModuleFunction;
use crate::json_schema::Schema;

/// The module of all validators.
pub(crate) const MODULE: &str = "kvorum";

/// The longest schema, in bytes: it is part of the agreed state.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// The longest value that is compared with a schema, in bytes: it is parsed into memory, where a
/// small number takes sixteen times the memory of its text.
const CHECKED_BYTES_MAX: usize = 1 << 20;

/// A parsed validator.
#[derive(Clone, Debug, PartialEq)]
pub struct Validator {
    /// Its name and argument, as they were set.
    function: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Json,
    JsonSchema(Box<Schema>),
    BytesMax(u64),
}

/// A value that a validator refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{validator}: {detail}")]
pub struct Rejected {
    /// The validator's name.
    pub validator: &'static str,
    /// The defect of the value.
    pub detail: String,
}

impl Validator {
    /// The validator that a hook names. `None` for a hook of another module; an error describes the
    /// defect of a hook of this one.
    pub(crate) fn of(hook: &ModuleFunction) -> Option<Result<Self, String>> {
        (hook.module == MODULE).then(|| Self::named(&hook.function))
    }

    fn named(function: &str) -> Result<Self, String> {
        let (name, argument) = match function.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (function, None),
        };
        let rule = match (name, argument) {
            ("json", None) => Rule::Json,
            ("json_schema", Some(schema)) if schema.len() > SCHEMA_BYTES_MAX => {
                return Err(format!("a schema has at most {SCHEMA_BYTES_MAX} bytes"));
            }
            ("json_schema", Some(schema)) => Rule::JsonSchema(Box::new(Schema::read(schema)?)),
            ("max_bytes", Some(number)) => {
                let bytes_max = number.parse();
                let unread = |_| "max_bytes is not followed by a number of bytes".to_owned();
                Rule::BytesMax(bytes_max.map_err(unread)?)
            }
            ("json_schema" | "max_bytes", None) => {
                return Err(format!("{name} needs an argument behind a colon"));
            }
            _ => return Err("there is no validator of this name".to_owned()),
        };
        Ok(Self {
            function: function.to_owned(),
            rule,
        })
    }

    /// The hook's form for clients.
    pub fn function(&self) -> ModuleFunction {
        ModuleFunction::new(MODULE, &self.function)
    }

    /// Accepts a value or refuses it. `content_encoding` is empty where there is none.
    pub fn check(&self, value: &[u8], content_encoding: &[u8]) -> Result<(), Rejected> {
        let validator = self.rule.name();
        let rejected = |detail| Rejected { validator, detail };
        match &self.rule {
            Rule::BytesMax(bytes_max) if value.len() as u64 > *bytes_max => {
                let got = value.len();
                let detail = format!("the value has {got} bytes, and at most {bytes_max} may be");
                Err(rejected(detail))
            }
            Rule::BytesMax(_) => Ok(()),
            Rule::Json => {
                let text = json_text(value, content_encoding).map_err(rejected)?;
                let read = serde_json::from_str::<IgnoredAny>(text);
                read.map_err(|error| rejected(error.to_string()))?;
                Ok(())
            }
            Rule::JsonSchema(schema) => {
                let text = json_text(value, content_encoding).map_err(rejected)?;
                if text.len() > CHECKED_BYTES_MAX {
                    let detail = format!(
                        "a value that is compared with a schema has at most {CHECKED_BYTES_MAX} bytes"
                    );
                    return Err(rejected(detail));
                }
                let read = serde_json::from_str::<Value>(text);
                let read = read.map_err(|error| rejected(error.to_string()))?;
                let checked = schema.check(&read);
                checked.map_err(|misfit| rejected(misfit.to_string()))
            }
        }
    }
}

impl Rule {
    fn name(&self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::JsonSchema(_) => "json_schema",
            Self::BytesMax(_) => "max_bytes",
        }
    }
}

/// The text of a value that is stored without encoding.
fn json_text<'a>(value: &'a [u8], content_encoding: &[u8]) -> Result<&'a str, String> {
    let is_plain =
        content_encoding.is_empty() || content_encoding.eq_ignore_ascii_case(b"identity");
    if !is_plain {
        let encoding = String::from_utf8_lossy(content_encoding);
        return Err(format!("the value is encoded ({encoding})"));
    }
    str::from_utf8(value).map_err(|error| format!("the value is not UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validator(function: &str) -> Validator {
        Validator::of(&ModuleFunction::new(MODULE, function))
            .unwrap()
            .unwrap()
    }

    fn rejection(function: &str, value: &[u8]) -> Option<String> {
        let checked = validator(function).check(value, b"");
        checked.err().map(|rejected| rejected.to_string())
    }

    #[test]
    fn values_pass_or_are_rejected_with_the_validators_name() {
        for (function, value, rejected) in [
            ("json", &b"{\"a\": [1, 2.5, null]}"[..], None),
            ("json", b" 7 ", None),
            ("json", b"{\"a\": }", Some("json: expected value")),
            ("json", b"{} {}", Some("json: trailing characters")),
            ("json", b"", Some("json: EOF")),
            ("json", b"\"\xff\"", Some("json: the value is not UTF-8")),
            ("max_bytes:3", b"abc", None),
            (
                "max_bytes:3",
                b"abcd",
                Some("max_bytes: the value has 4 bytes"),
            ),
            ("max_bytes:0", b"", None),
            ("json_schema:{\"type\":\"array\"}", b"[]", None),
            (
                "json_schema:{\"type\":\"array\"}",
                b"{}",
                Some("json_schema: the value is not of the type array"),
            ),
            (
                "json_schema:true",
                b"nothing",
                Some("json_schema: expected"),
            ),
        ] {
            let got = rejection(function, value);
            match rejected {
                None => assert_eq!(got, None, "{function}"),
                Some(start) => {
                    let got = got.unwrap();
                    assert!(got.starts_with(start), "{function}: {got}");
                }
            }
        }
    }

    #[test]
    fn an_encoded_value_is_no_json_and_has_a_size() {
        let json = validator("json");
        let gzip = json.check(b"{}", b"gzip").unwrap_err();
        assert_eq!(gzip.to_string(), "json: the value is encoded (gzip)");
        assert_eq!(json.check(b"{}", b"Identity"), Ok(()));
        assert_eq!(validator("max_bytes:2").check(b"{}", b"gzip"), Ok(()));
    }

    /// A value nested deeper than any stack has to be read or rejected all the same.
    #[test]
    fn deep_and_long_values_are_read_within_bounds() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(rejection("json", deep.as_bytes()), None);
        let too_deep = rejection("json_schema:true", deep.as_bytes()).unwrap();
        assert!(too_deep.contains("recursion limit"), "{too_deep}");
        let long = format!("\"{}\"", "x".repeat(CHECKED_BYTES_MAX));
        let too_long = rejection("json_schema:true", long.as_bytes()).unwrap();
        assert!(too_long.contains("at most 1048576 bytes"), "{too_long}");
    }

    #[test]
    fn a_hook_that_names_no_validator_says_why() {
        assert_eq!(Validator::of(&ModuleFunction::new("m", "json")), None);
        let long = format!("json_schema:\"{}\"", "x".repeat(SCHEMA_BYTES_MAX));
        for (function, reason) in [
            ("xml", "no validator of this name"),
            ("json:1", "no validator of this name"),
            ("json_schema", "json_schema needs an argument"),
            ("max_bytes", "max_bytes needs an argument"),
            ("max_bytes:many", "not followed by a number"),
            ("max_bytes:-1", "not followed by a number"),
            ("json_schema:{\"pattern\":\"a\"}", "keyword pattern"),
            (long.as_str(), "at most 65536 bytes"),
        ] {
            let read = Validator::of(&ModuleFunction::new(MODULE, function)).unwrap();
            let refused = read.unwrap_err();
            assert!(refused.contains(reason), "{function}: {refused}");
        }
    }

    #[test]
    fn a_validator_keeps_the_form_in_which_it_was_set() {
        let function = "json_schema:{ \"type\": \"array\" }";
        let form = ModuleFunction::new(MODULE, function);
        assert_eq!(validator(function).function(), form);
    }
}
