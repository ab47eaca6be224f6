//! What properties forbid each other, and which of them never change.

use crate::errors::{PropertyErrors, Reason};
use crate::table::{BucketProperties, PropertyOverlay};

impl BucketProperties {
    /// The properties of a bucket type that is being created with `overlay`, over these defaults.
    ///
    /// A type may be created again until it is active, so nothing is immutable yet.
    pub fn created_with(&self, overlay: &PropertyOverlay) -> Result<Self, PropertyErrors> {
        overlay.check_values()?;
        let created = self.with(overlay);
        let mut errors = PropertyErrors::default();
        created.contradictions(&mut errors);
        errors.or_else_ok(created)
    }

    /// These properties, of a bucket or an existing type, with `change` applied.
    ///
    /// `change` may repeat an immutable property, but not alter it.
    pub fn updated_with(&self, change: &PropertyOverlay) -> Result<Self, PropertyErrors> {
        change.check_values()?;
        let updated = self.with(change);
        let mut errors = PropertyErrors::default();
        if let Some(datatype) = updated.datatype.filter(|new| self.datatype != Some(*new)) {
            let reason = match self.datatype {
                Some(_) => Reason::OtherDatatype(datatype.word().to_owned()),
                None => Reason::DatatypeUndefined,
            };
            errors.push("datatype", reason);
        }
        if updated.is_consistent() != self.is_consistent() {
            errors.push("consistent", Reason::ConsistentImmutable);
        }
        if updated.is_write_once() != self.is_write_once() {
            errors.push("write_once", self.write_once_kept());
        }
        if self.is_consistent() && updated.n_val != self.n_val {
            errors.push("n_val", Reason::ImmutableWhenConsistent);
        }
        if updated.hll_precision() > self.hll_precision() {
            let raised = updated.hll_precision().to_string();
            errors.push("hll_precision", Reason::Precision(raised));
        }
        updated.contradictions(&mut errors);
        errors.or_else_ok(updated)
    }

    fn contradictions(&self, errors: &mut PropertyErrors) {
        if self.datatype.is_some() && !self.allow_mult {
            errors.push("allow_mult", Reason::DatatypeNeedsSiblings);
        }
        if self.last_write_wins && self.dvv_enabled {
            errors.push("dvv_enabled", Reason::DottedLastWriteWins);
        }
        if self.is_write_once() && self.datatype.is_some() {
            errors.push("datatype", Reason::DatatypeWriteOnce);
        }
        if self.is_write_once() && self.is_consistent() {
            errors.push("consistent", Reason::ConsistentWriteOnce);
        }
    }

    /// Why `write_once` does not change, in Riak's words for each kind of bucket.
    fn write_once_kept(&self) -> Reason {
        // Buckets without a type have it from the start, and typed ones have none of it.
        let is_plain_type = self.write_once.is_none() && self.datatype.is_none();
        match (self.is_write_once(), is_plain_type) {
            (true, _) => Reason::WriteOnceKept,
            (false, true) => Reason::WriteOnceAtCreation,
            (false, false) => Reason::WriteOnceImmutable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datatype;

    fn overlay(text: &str) -> PropertyOverlay {
        PropertyOverlay::from_json(&serde_json::from_str(text).unwrap()).unwrap()
    }

    fn created(text: &str) -> Result<BucketProperties, PropertyErrors> {
        BucketProperties::typed_defaults().created_with(&overlay(text))
    }

    #[test]
    fn data_types_need_siblings() {
        assert_eq!(
            created(r#"{"datatype":"map"}"#).unwrap().datatype,
            Some(Datatype::Map)
        );
        let refused = created(r#"{"datatype":"map","allow_mult":false}"#);
        assert_eq!(
            refused,
            Err(PropertyErrors::one(
                "allow_mult",
                Reason::DatatypeNeedsSiblings
            ))
        );
    }

    #[test]
    fn last_write_wins_excludes_dots() {
        let refused = Err(PropertyErrors::one(
            "dvv_enabled",
            Reason::DottedLastWriteWins,
        ));
        assert_eq!(created(r#"{"last_write_wins":true}"#), refused);
        assert!(created(r#"{"last_write_wins":true,"dvv_enabled":false}"#).is_ok());
        let untyped = BucketProperties::untyped_defaults();
        assert!(
            untyped
                .updated_with(&overlay(r#"{"last_write_wins":true}"#))
                .is_ok()
        );
        let both = overlay(r#"{"last_write_wins":true,"dvv_enabled":true}"#);
        assert_eq!(untyped.updated_with(&both), refused);
    }

    #[test]
    fn write_once_stands_alone() {
        let errors =
            created(r#"{"write_once":true,"datatype":"set","consistent":true}"#).unwrap_err();
        let names: Vec<_> = errors.pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["datatype", "consistent"]);
    }

    #[test]
    fn what_a_type_is_does_not_change() {
        let set = created(r#"{"datatype":"set"}"#).unwrap();
        let plain = created("{}").unwrap();
        assert!(
            set.updated_with(&overlay(r#"{"datatype":"set","n_val":2}"#))
                .is_ok()
        );
        let once = created(r#"{"write_once":true}"#).unwrap();
        let untyped = BucketProperties::untyped_defaults();
        for (existing, change, property, reason) in [
            (
                &set,
                r#"{"datatype":"map"}"#,
                "datatype",
                Reason::OtherDatatype("map".to_owned()),
            ),
            (
                &plain,
                r#"{"datatype":"map"}"#,
                "datatype",
                Reason::DatatypeUndefined,
            ),
            (
                &plain,
                r#"{"consistent":true}"#,
                "consistent",
                Reason::ConsistentImmutable,
            ),
            (
                &plain,
                r#"{"write_once":true}"#,
                "write_once",
                Reason::WriteOnceAtCreation,
            ),
            (
                &untyped,
                r#"{"write_once":true}"#,
                "write_once",
                Reason::WriteOnceImmutable,
            ),
            (
                &set,
                r#"{"write_once":true,"datatype":"set"}"#,
                "write_once",
                Reason::WriteOnceImmutable,
            ),
            (
                &once,
                r#"{"write_once":false}"#,
                "write_once",
                Reason::WriteOnceKept,
            ),
        ] {
            let refused = existing.updated_with(&overlay(change)).unwrap_err();
            let first = refused.pairs.first().cloned();
            assert_eq!(first, Some((property.to_owned(), reason)), "{change}");
        }
        assert!(
            plain
                .updated_with(&overlay(r#"{"consistent":false,"write_once":false}"#))
                .is_ok()
        );
    }

    #[test]
    fn consistent_types_keep_their_n_val() {
        let consistent = created(r#"{"consistent":true,"n_val":5}"#).unwrap();
        let refused = consistent.updated_with(&overlay(r#"{"n_val":3}"#));
        assert_eq!(
            refused,
            Err(PropertyErrors::one(
                "n_val",
                Reason::ImmutableWhenConsistent
            ))
        );
        assert!(
            consistent
                .updated_with(&overlay(r#"{"n_val":5,"r":1}"#))
                .is_ok()
        );
    }

    #[test]
    fn precision_only_falls() {
        let hll = created(r#"{"datatype":"hll","hll_precision":12}"#).unwrap();
        assert!(
            hll.updated_with(&overlay(r#"{"hll_precision":10}"#))
                .is_ok()
        );
        let refused = hll.updated_with(&overlay(r#"{"hll_precision":13}"#));
        assert_eq!(
            refused,
            Err(PropertyErrors::one(
                "hll_precision",
                Reason::Precision("13".to_owned())
            ))
        );
        let unset = created(r#"{"datatype":"hll"}"#).unwrap();
        assert!(
            unset
                .updated_with(&overlay(r#"{"hll_precision":15}"#))
                .is_err()
        );
    }
}
