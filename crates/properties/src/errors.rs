//! The reasons why properties are refused: pairs of property and reason, all of them at once.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

/// The reason for refusing one property. The first ones are literally Riak's atoms; then come
/// Riak's sentences, and last the refusals that only this server has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Neither true nor false.
    NotBoolean,
    /// Not an integer, or one out of range.
    NotInteger,
    /// Neither a number that fits nor one, quorum or all.
    NotValidQuorum,
    /// A value other than one, all and backend.
    NotValidSyncParam,
    /// Not a text.
    NotString,
    /// Not a function or a list of functions in one of their forms.
    NotFunction,
    /// A value that this property cannot have.
    NotSupported,
    /// There is no property of this name.
    UnknownProperty,
    /// A data type where none was chosen when the bucket type was created.
    DatatypeUndefined,
    /// A data type other than that of the bucket type at its creation.
    OtherDatatype(String),
    /// `consistent` would change.
    ConsistentImmutable,
    /// `n_val` would change where consistency rests on it.
    ImmutableWhenConsistent,
    /// `write_once` would change.
    WriteOnceImmutable,
    /// `write_once` is set in a change of a bucket type.
    WriteOnceAtCreation,
    /// `write_once` would be reset.
    WriteOnceKept,
    /// `hll_precision` is out of range, or would rise: registers can be folded, not split.
    Precision(String),
    /// `allow_mult` is off, but data types need siblings.
    DatatypeNeedsSiblings,
    /// `dvv_enabled` is on together with `last_write_wins`.
    DottedLastWriteWins,
    /// `consistent` together with `write_once`.
    ConsistentWriteOnce,
    /// `datatype` together with `write_once`.
    DatatypeWriteOnce,
    /// `expiry_secs` is set, but values are of a data type.
    DatatypeExpiry,
    /// `claimant` of a typed bucket.
    ClaimantImmutable,
    /// `active` of a typed bucket.
    ActiveImmutable,
    /// `consistent` is requested, but this server has no strong consistency.
    NoStrongConsistency,
    /// A hook after a commit is named, but this server runs none.
    NoCommitHooks,
    /// A hook before a commit is named that is not a validator.
    ForeignHook,
    /// A link function is named that is not Riak's own.
    ForeignLinkFunction,
    /// A validator is named that this server does not have, or whose argument cannot be read.
    NoSuchValidator {
        /// The fault.
        detail: String,
    },
    /// A validator is named, but values are of a data type.
    DatatypeValidator,
    /// A backend is named that the node does not have.
    NoSuchBackend {
        /// The valid names.
        known: String,
    },
    /// Another backend is set for a bucket with data.
    BackendHoldsData,
    /// A kind of objects is named that this server does not have.
    NoSuchTag {
        /// The valid names.
        known: String,
    },
    /// `object_tag` would change for an active bucket type.
    TagAtCreation,
    /// A reset names a property that a bucket type keeps from its creation.
    KeptByReset,
    /// `object_tag` would change for a bucket with objects.
    TagKept,
    /// `object_tag` would change, and the bucket may have objects.
    TagInDoubt {
        /// The reason.
        detail: String,
    },
}

/// The forms that Riak gives to a reason in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// An atom: a JSON text.
    Atom,
    /// An Erlang string: a JSON array of its characters' codes.
    CharacterCodes,
    /// A reason that Riak does not have: a JSON text.
    Text,
}

impl Reason {
    /// The reason as a client reads it: an atom, or a sentence if an atom does not suffice.
    pub fn text(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::NotBoolean => "not_boolean",
            Self::NotInteger => "not_integer",
            Self::NotValidQuorum => "not_valid_quorum",
            Self::NotValidSyncParam => "not_valid_sync_param",
            Self::NotString => "not_string",
            Self::NotFunction => "not_function",
            Self::NotSupported => "not_supported",
            Self::UnknownProperty => "unknown_property",
            Self::DatatypeUndefined => "`datatype` must not be defined.",
            Self::OtherDatatype(datatype) => {
                return format!("{datatype} not supported for bucket datatype property").into();
            }
            Self::ConsistentImmutable => "cannot update consistent property",
            Self::ImmutableWhenConsistent => {
                "n_val cannot be modified for existing consistent type"
            }
            Self::WriteOnceImmutable => "cannot update write_once property",
            Self::WriteOnceAtCreation => "Cannot set existing bucket type to `write_once`",
            Self::WriteOnceKept => "Cannot modify write_once property once set to true",
            Self::Precision(precision) => {
                return format!(
                    "{precision} not supported for Hyperloglog precision property for bucket type. \
                     Precision must be an integer between 4 and 16, inclusive (3 < p < 17) and \
                     precision can be reduced but never increased after initial setting"
                )
                .into();
            }
            Self::DatatypeNeedsSiblings => "Data Type buckets must be allow_mult=true",
            Self::DottedLastWriteWins => "If last_write_wins is true, dvv_enabled must be false",
            Self::ConsistentWriteOnce => "Write once buckets must not be consistent=true",
            Self::DatatypeWriteOnce => "Write once buckets must not have datatype defined",
            Self::DatatypeExpiry => {
                "values of data types do not expire; leave expiry_secs out, or set it to 0"
            }
            Self::ClaimantImmutable => "Cannot update claimant property",
            Self::ActiveImmutable => "Cannot modify active property",
            Self::NoStrongConsistency => {
                "strong consistency is not supported by this server; leave consistent out, and \
                 use conditional writes against concurrent writers"
            }
            Self::NoCommitHooks => {
                "commit hooks are not supported by this server and would not run; set an empty list, \
                 and check or react in the client"
            }
            Self::ForeignHook => {
                "commit hooks in Erlang and JavaScript are not run by this server; name validators of its \
                 module kvorum (json, json_schema:SCHEMA, max_bytes:N), or set an empty list"
            }
            Self::ForeignLinkFunction => {
                "link functions in Erlang and JavaScript are not run by this server; leave linkfun out, or \
                 name mapreduce_linkfun of riak_kv_wm_link_walker"
            }
            Self::NoSuchValidator { detail } => {
                return format!(
                    "this validator cannot run, since {detail}; name json, json_schema:SCHEMA or \
                     max_bytes:N"
                )
                .into();
            }
            Self::DatatypeValidator => {
                "values of data types are not validated, and an operation would pass; set an empty list"
            }
            Self::BackendHoldsData => {
                "there is data in the present backend; `kvorum admin backend migrate` moves it and changes \
                 the property"
            }
            Self::NoSuchBackend { known } => {
                return format!(
                    "this node has no backend of this name; leave backend out, or name {known}"
                )
                .into();
            }
            Self::NoSuchTag { known } => {
                return format!(
                    "this server has no kind of objects of this name; leave object_tag out, or name \
                     {known}"
                )
                .into();
            }
            Self::TagAtCreation => {
                "object_tag is chosen when a bucket type is created and does not change once it is \
                 active; create another type"
            }
            Self::KeptByReset => {
                "it is chosen when a bucket type is created, or belongs to its data, and a reset keeps it; \
                 create another type"
            }
            Self::TagKept => {
                "object_tag does not change while a bucket has objects; store them in another bucket"
            }
            Self::TagInDoubt { detail } => {
                return format!(
                    "object_tag does not change unless the bucket is known to be empty; try again \
                     later: {detail}"
                )
                .into();
            }
        })
    }

    /// The reason with the value, if Riak's text has the value, as Erlang prints it.
    pub(crate) fn with_value(self, value: &Value) -> Self {
        let shown = |is_atom: bool| match value.as_str() {
            Some(word) if is_atom => word.to_owned(),
            Some(word) => format!("<<{word:?}>>"),
            None => value.to_string(),
        };
        match self {
            Self::OtherDatatype(_) => Self::OtherDatatype(shown(true)),
            Self::Precision(_) => Self::Precision(shown(false)),
            other => other,
        }
    }

    fn form(&self) -> Form {
        match self {
            Self::NotBoolean
            | Self::NotInteger
            | Self::NotValidQuorum
            | Self::NotValidSyncParam
            | Self::NotString
            | Self::NotFunction
            | Self::NotSupported
            | Self::UnknownProperty => Form::Atom,
            Self::DatatypeExpiry
            | Self::NoStrongConsistency
            | Self::NoCommitHooks
            | Self::ForeignHook
            | Self::ForeignLinkFunction
            | Self::NoSuchValidator { .. }
            | Self::DatatypeValidator
            | Self::BackendHoldsData
            | Self::NoSuchBackend { .. }
            | Self::NoSuchTag { .. }
            | Self::TagAtCreation
            | Self::KeptByReset
            | Self::TagKept
            | Self::TagInDoubt { .. } => Form::Text,
            _ => Form::CharacterCodes,
        }
    }

    fn to_json(&self) -> Value {
        match self.form() {
            Form::Atom | Form::Text => self.text().into(),
            Form::CharacterCodes => self.text().chars().map(u32::from).collect(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Every property that was refused, with the reason; nothing was changed.
///
/// Displayed in the form of Riak's PB errors: `[{n_val,not_integer},{r,not_valid_quorum}]`.
#[derive(Clone, Debug, PartialEq, Eq, Default, thiserror::Error)]
pub struct PropertyErrors {
    /// Property and reason, in the order in which they were met; never empty in an error.
    pub pairs: Vec<(String, Reason)>,
}

impl PropertyErrors {
    /// A single refusal.
    pub fn one(property: &str, reason: Reason) -> Self {
        Self {
            pairs: vec![(property.to_owned(), reason)],
        }
    }

    /// The body of Riak's HTTP 400: an object of property to reason. Riak's sentences are arrays of
    /// character codes there, as Riak's encoder makes them of Erlang strings.
    pub fn to_json(&self) -> Map<String, Value> {
        let pair = |(property, reason): &(String, Reason)| (property.clone(), reason.to_json());
        self.pairs.iter().map(pair).collect()
    }

    /// The lines that Riak's console prints for them, without a last line break.
    pub fn console_text(&self) -> String {
        let lines = self.pairs.iter().map(|(property, reason)| match reason {
            Reason::NotInteger => format!("{property} must be an integer"),
            Reason::NotBoolean => format!("{property} should be \"true\" or \"false\""),
            Reason::NotValidQuorum => {
                format!("{property} must be an integer or (one|quorum|all)")
            }
            reason if reason.form() == Form::Atom => format!("{property}: {reason}"),
            reason => reason.to_string(),
        });
        let lines: Vec<String> = lines.collect();
        lines.join("\n")
    }

    pub(crate) fn push(&mut self, property: &str, reason: Reason) {
        self.pairs.push((property.to_owned(), reason));
    }

    pub(crate) fn or_else_ok<T>(self, ok: T) -> Result<T, Self> {
        if self.pairs.is_empty() {
            Ok(ok)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for PropertyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, (property, reason)) in self.pairs.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let quote = if reason.form() == Form::Atom {
                ""
            } else {
                "\""
            };
            write!(
                f,
                "{comma}{{{},{quote}{reason}{quote}}}",
                property.escape_debug()
            )?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_riak_prints_them() {
        let mut errors = PropertyErrors::one("n_val", Reason::NotInteger);
        assert_eq!(errors.to_string(), "[{n_val,not_integer}]");
        errors.push("consistent", Reason::ConsistentImmutable);
        errors.push("precommit", Reason::NoCommitHooks);
        let text = errors.to_string();
        let expected =
            "[{n_val,not_integer},{consistent,\"cannot update consistent property\"},{precommit,\"";
        assert!(text.starts_with(expected), "{text}");
        errors.push("allow_mult", Reason::NotBoolean);
        errors.push("r", Reason::NotValidQuorum);
        errors.push("repl", Reason::NotSupported);
        let console = errors.console_text();
        let lines: Vec<&str> = console.lines().collect();
        let sentences = [
            "n_val must be an integer",
            "cannot update consistent property",
        ];
        assert_eq!(lines[..2], sentences);
        assert!(lines[2].starts_with("commit hooks are not supported"));
        let others = [
            "allow_mult should be \"true\" or \"false\"",
            "r must be an integer or (one|quorum|all)",
            "repl: not_supported",
        ];
        assert_eq!(lines[3..], others);
        let json = errors.to_json();
        assert_eq!(json["n_val"], "not_integer");
        let codes: String = json["consistent"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|code| char::from_u32(u32::try_from(code.as_u64()?).ok()?))
            .collect();
        assert_eq!(codes, "cannot update consistent property");
        assert!(json["precommit"].as_str().unwrap().contains("commit hooks"));
    }
}
