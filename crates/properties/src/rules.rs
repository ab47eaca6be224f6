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
        if updated.datatype != self.datatype {
            errors.push("datatype", Reason::Immutable);
        }
        if updated.is_consistent() != self.is_consistent() {
            errors.push("consistent", Reason::Immutable);
        }
        if updated.is_write_once() != self.is_write_once() {
            errors.push("write_once", Reason::Immutable);
        }
        if self.is_consistent() && updated.n_val != self.n_val {
            errors.push("n_val", Reason::ImmutableWhenConsistent);
        }
        if updated.hll_precision() > self.hll_precision() {
            errors.push("hll_precision", Reason::PrecisionRaised);
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
            errors.push("datatype", Reason::ExclusiveWithWriteOnce);
        }
        if self.is_write_once() && self.is_consistent() {
            errors.push("consistent", Reason::ExclusiveWithWriteOnce);
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
        for (existing, change, property) in [
            (&set, r#"{"datatype":"map"}"#, "datatype"),
            (&plain, r#"{"datatype":"map"}"#, "datatype"),
            (&plain, r#"{"consistent":true}"#, "consistent"),
            (&plain, r#"{"write_once":true}"#, "write_once"),
        ] {
            let refused = existing.updated_with(&overlay(change));
            assert_eq!(
                refused,
                Err(PropertyErrors::one(property, Reason::Immutable)),
                "{change}"
            );
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
                Reason::PrecisionRaised
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
