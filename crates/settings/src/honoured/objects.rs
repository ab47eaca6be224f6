//! Keys of the limits that objects have.

use crate::key::{Category, Key};
use crate::kind::Kind;

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(name, kind, Some(default), Category::Objects, help)
}

pub(super) const KEYS: &[Key] = &[
    key(
        "object.size.warning_threshold",
        Kind::Bytes {
            least: 1,
            set: |settings, value| settings.objects.size_warning_bytes = value,
        },
        "5MB",
        "Reading or writing a larger object is logged. \
         Large objects make every other request on their connection wait.",
    ),
    key(
        "object.size.maximum",
        Kind::Bytes {
            least: 1,
            set: |settings, value| settings.objects.size_max_bytes = value,
        },
        "50MB",
        "Writing a larger object is refused.",
    ),
    key(
        "object.siblings.warning_threshold",
        Kind::Integer {
            least: 1,
            most: u64::MAX,
            set: |settings, value| settings.objects.siblings_warning = value,
        },
        "25",
        "An object with more siblings is logged: \
         some client writes without the context of what it read.",
    ),
    key(
        "object.siblings.maximum",
        Kind::Integer {
            least: 1,
            most: u64::MAX,
            set: |settings, value| settings.objects.siblings_max = value,
        },
        "100",
        "A write that would leave an object with more siblings is refused.",
    ),
];
