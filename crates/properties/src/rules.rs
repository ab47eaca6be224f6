//! Properties that exclude each other, and properties that never change.

use crate::errors::{PropertyErrors, Reason};
use crate::table::{BucketProperties, PropertyOverlay};

impl BucketProperties {
    /// The properties of a new bucket type with `overlay`, over these defaults.
    ///
    /// A type may be created again until it is active, so no property is immutable yet.
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
            errors.push("datatype", self.datatype_kept(datatype.word()));
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
        // A bucket keeps such properties, so the other changes are checked against them alone.
        let unchanged = Self {
            datatype: self.datatype,
            consistent: self.consistent,
            write_once: self.write_once,
            ..updated.clone()
        };
        unchanged.contradictions(&mut errors);
        errors.or_else_ok(updated)
    }

    /// The same for an active type. It keeps its kind of objects, since a search for existing
    /// objects would have to read all of its buckets.
    pub fn type_updated_with(&self, change: &PropertyOverlay) -> Result<Self, PropertyErrors> {
        let updated = self.updated_with(change);
        if self.with(change).object_tag() == self.object_tag() {
            return updated;
        }
        let mut errors = updated.err().unwrap_or_default();
        errors.push("object_tag", Reason::TagAtCreation);
        Err(errors)
    }

    /// The reasons why a change of these properties could not be read, as Riak gives them: Riak
    /// checks the bucket before the value.
    #[must_use]
    pub fn reasons_of_change(&self, errors: PropertyErrors) -> PropertyErrors {
        let reason = |(property, reason): (String, Reason)| {
            let reason = match (property.as_str(), reason) {
                ("datatype", Reason::OtherDatatype(word)) => self.datatype_kept(&word),
                ("consistent", Reason::NotBoolean) => Reason::ConsistentImmutable,
                ("write_once", Reason::NotBoolean) if self.is_write_once() => Reason::WriteOnceKept,
                ("write_once", Reason::NotBoolean) => Reason::WriteOnceImmutable,
                (_, other) => other,
            };
            (property, reason)
        };
        PropertyErrors {
            pairs: errors.pairs.into_iter().map(reason).collect(),
        }
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
        if self.datatype.is_some() && self.expiry_secs().is_some() {
            errors.push("expiry_secs", Reason::DatatypeExpiry);
        }
    }

    /// The reason why `datatype` cannot become `wanted`.
    fn datatype_kept(&self, wanted: &str) -> Reason {
        match self.datatype {
            Some(_) => Reason::OtherDatatype(wanted.to_owned()),
            None if self.is_write_once() => Reason::DatatypeWriteOnce,
            None => Reason::DatatypeUndefined,
        }
    }

    /// The reason why `write_once` cannot change, in Riak's words for each kind of bucket.
    fn write_once_kept(&self) -> Reason {
        // Buckets without a type have `write_once` from the start, new types do not.
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
    fn an_active_type_keeps_its_kind_of_objects() {
        let documents = created(r#"{"object_tag":"document"}"#).unwrap();
        let again = overlay(r#"{"object_tag":"document","n_val":2}"#);
        assert_eq!(documents.type_updated_with(&again).unwrap().n_val, 2);
        let plain = created("{}").unwrap();
        let by_name = overlay(r#"{"object_tag":"o_rkv"}"#);
        assert!(plain.type_updated_with(&by_name).is_ok());
        let refused = Err(PropertyErrors::one("object_tag", Reason::TagAtCreation));
        assert_eq!(documents.type_updated_with(&by_name), refused);
        assert_eq!(plain.type_updated_with(&again), refused);
        let both = overlay(r#"{"object_tag":"h","datatype":"set"}"#);
        let errors = plain.type_updated_with(&both).unwrap_err();
        let names: Vec<_> = errors.pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["datatype", "object_tag"]);
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

    /// A value of a data type is merged while it has replicas: if it expired on some of them, it
    /// would come back from the others with half of its history.
    #[test]
    fn data_types_do_not_expire() {
        let refused = Err(PropertyErrors::one("expiry_secs", Reason::DatatypeExpiry));
        assert_eq!(created(r#"{"datatype":"set","expiry_secs":60}"#), refused);
        let sets = created(r#"{"datatype":"set","expiry_secs":0}"#).unwrap();
        assert_eq!(
            sets.updated_with(&overlay(r#"{"expiry_secs":60}"#)),
            refused
        );
        let plain = created(r#"{"expiry_secs":60}"#).unwrap();
        assert!(plain.updated_with(&overlay(r#"{"expiry_secs":0}"#)).is_ok());
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

    /// Regression: the change of a plain type without siblings to a type of sets was refused with a
    /// second reason, that sets need siblings. The change of a type of sets to write-once was
    /// refused with a second reason too, its sets.
    #[test]
    fn a_change_of_what_a_type_is_has_one_reason() {
        let sets = created(r#"{"datatype":"set"}"#).unwrap();
        let single = created(r#"{"allow_mult":false}"#).unwrap();
        let once = created(r#"{"write_once":true}"#).unwrap();
        for (existing, change, expected) in [
            (&single, r#"{"datatype":"set"}"#, vec!["datatype"]),
            (&sets, r#"{"write_once":true}"#, vec!["write_once"]),
            (&once, r#"{"datatype":"set"}"#, vec!["datatype"]),
            (
                &sets,
                r#"{"datatype":"map","allow_mult":false}"#,
                vec!["datatype", "allow_mult"],
            ),
            (
                &single,
                r#"{"write_once":true,"last_write_wins":true}"#,
                vec!["write_once", "dvv_enabled"],
            ),
        ] {
            let refused = existing.updated_with(&overlay(change)).unwrap_err();
            let names: Vec<_> = refused
                .pairs
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            assert_eq!(names, expected, "{change}");
        }
        let refused = once.updated_with(&overlay(r#"{"datatype":"set"}"#));
        let reason = Reason::DatatypeWriteOnce;
        assert_eq!(refused, Err(PropertyErrors::one("datatype", reason)));
    }

    #[test]
    fn values_that_cannot_be_read_are_refused_for_what_the_bucket_is() {
        let unread = |text: &str| {
            PropertyOverlay::from_json(&serde_json::from_str(text).unwrap()).unwrap_err()
        };
        let plain = created("{}").unwrap();
        let sets = created(r#"{"datatype":"set"}"#).unwrap();
        let once = created(r#"{"write_once":true}"#).unwrap();
        let list = || Reason::OtherDatatype("list".to_owned());
        for (existing, change, property, reason) in [
            (
                &plain,
                r#"{"datatype":"list"}"#,
                "datatype",
                Reason::DatatypeUndefined,
            ),
            (
                &once,
                r#"{"datatype":"list"}"#,
                "datatype",
                Reason::DatatypeWriteOnce,
            ),
            (&sets, r#"{"datatype":"list"}"#, "datatype", list()),
            (
                &plain,
                r#"{"write_once":"x"}"#,
                "write_once",
                Reason::WriteOnceImmutable,
            ),
            (
                &once,
                r#"{"write_once":"x"}"#,
                "write_once",
                Reason::WriteOnceKept,
            ),
            (
                &plain,
                r#"{"consistent":"x"}"#,
                "consistent",
                Reason::ConsistentImmutable,
            ),
            (
                &plain,
                r#"{"allow_mult":"x"}"#,
                "allow_mult",
                Reason::NotBoolean,
            ),
        ] {
            let given = existing.reasons_of_change(unread(change));
            assert_eq!(given, PropertyErrors::one(property, reason), "{change}");
        }
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
