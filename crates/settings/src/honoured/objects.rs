//! Keys of the limits that objects have.

use crate::key::{Key, key};
use crate::kind::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "object.size.warning_threshold",
        Kind::Bytes(1.., |settings, value| {
            settings.objects.size_warning_bytes = value;
        }),
        "5MB",
        "Reading or writing a larger object is logged. \
         Large objects make every other request on their connection wait.",
    ),
    key(
        "object.size.maximum",
        Kind::Bytes(1.., |settings, value| {
            settings.objects.size_max_bytes = value;
        }),
        "50MB",
        "Writing a larger object is refused.",
    ),
    key(
        "object.siblings.warning_threshold",
        Kind::Integer(1..=u64::MAX, |settings, value| {
            settings.objects.siblings_warning = value;
        }),
        "25",
        "An object with more siblings is logged: some client writes without the vclock of its \
         last read.",
    ),
    key(
        "object.siblings.maximum",
        Kind::Integer(1..=u64::MAX, |settings, value| {
            settings.objects.siblings_max = value;
        }),
        "100",
        "A write that would leave an object with more siblings is refused.",
    ),
];
