//! The reset of a bucket type: of one property, or of all resettable ones.
//!
//! A reset keeps the properties that are chosen at a type's creation or belong to its data: values
//! keep their data type, and stored objects keep their backend and their kind.

use serde_json::{Map, Value};

use crate::errors::{PropertyErrors, Reason};
use crate::table::PropertyOverlay;

/// Properties that a reset keeps.
const KEPT: [&str; 6] = [
    "datatype",
    "hll_precision",
    "consistent",
    "write_once",
    "backend",
    "object_tag",
];

impl PropertyOverlay {
    /// This layer of a type after a reset of one property, or of all.
    ///
    /// # Errors
    /// The named property is unknown, or is set and kept by a reset.
    pub fn reset(&self, property: Option<&str>) -> Result<Self, PropertyErrors> {
        let mut set = self.to_json();
        match property {
            None => set.retain(|name, _| KEPT.contains(&name.as_str())),
            Some(property) => take_out(&mut set, property)?,
        }
        Self::from_json(&set)
    }
}

fn take_out(set: &mut Map<String, Value>, property: &str) -> Result<(), PropertyErrors> {
    if !PropertyOverlay::NAMES.contains(&property) {
        return Err(PropertyErrors::one(property, Reason::UnknownProperty));
    }
    if KEPT.contains(&property) && set.contains_key(property) {
        return Err(PropertyErrors::one(property, Reason::KeptByReset));
    }
    set.retain(|name, _| name != property);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(text: &str) -> PropertyOverlay {
        PropertyOverlay::from_json(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_reset_of_all_keeps_what_the_data_depends_on() {
        let before = overlay(
            r#"{"datatype":"hll","hll_precision":9,"backend":"b","object_tag":"h","n_val":5,"r":1}"#,
        );
        let kept = r#"{"datatype":"hll","hll_precision":9,"backend":"b","object_tag":"h"}"#;
        assert_eq!(before.reset(None), Ok(overlay(kept)));
        assert_eq!(overlay("{}").reset(None), Ok(PropertyOverlay::default()));
    }

    #[test]
    fn a_reset_of_all_takes_back_ends_and_validators_and_keeps_what_is_written_once() {
        let before = overlay(
            r#"{"write_once":true,"expiry_secs":60,"precommit":[{"mod":"kvorum","fun":"json"}]}"#,
        );
        let kept = overlay(r#"{"write_once":true}"#);
        assert_eq!(before.reset(None), Ok(kept));
        let without_end =
            overlay(r#"{"write_once":true,"precommit":[{"mod":"kvorum","fun":"json"}]}"#);
        assert_eq!(before.reset(Some("expiry_secs")), Ok(without_end));
    }

    #[test]
    fn one_property_is_taken_back_and_the_others_stay() {
        let before = overlay(r#"{"n_val":5,"r":1,"write_once":true}"#);
        let without_r = overlay(r#"{"n_val":5,"write_once":true}"#);
        assert_eq!(before.reset(Some("r")), Ok(without_r));
        assert_eq!(before.reset(Some("w")), Ok(before.clone()));
        assert_eq!(before.reset(Some("datatype")), Ok(before.clone()));
        for (property, reason) in [
            ("write_once", Reason::KeptByReset),
            ("colour", Reason::UnknownProperty),
            ("name", Reason::UnknownProperty),
        ] {
            let refused = Err(PropertyErrors::one(property, reason));
            assert_eq!(before.reset(Some(property)), refused);
        }
    }
}
