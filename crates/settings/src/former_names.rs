//! Names of keys in earlier versions, which stand for the present ones.

use crate::name::Name;

/// The former names with the present ones, in the order of the reference page.
pub(crate) const FORMER_NAMES: [(&str, &str); 3] = [
    (
        "bitcask.merge.dead_share_max",
        "bitcask.merge.garbage_share_max",
    ),
    ("commit_log.segment_bytes", "value_log.segment_bytes"),
    ("commit_log.bytes_max", "value_log.bytes_max"),
];

/// The present name of a key, for its former one.
pub(crate) fn present_name(name: &Name) -> Option<&'static str> {
    let mut names = FORMER_NAMES.into_iter();
    let (_, present) = names.find(|(former, _)| name.matches(former).is_some())?;
    Some(present)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::honoured::SECTIONS;

    #[test]
    fn present_names_are_those_of_keys_and_former_ones_are_not() {
        let is_key = |name: &str| {
            let mut keys = SECTIONS.iter().flat_map(|section| section.keys);
            keys.any(|key| key.name == name)
        };
        for (former, present) in FORMER_NAMES {
            assert!(is_key(present) && !is_key(former), "{former}, {present}");
        }
    }
}
