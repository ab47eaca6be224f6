//! The limit of garbage while space is scarce.

use kvorum_disk::Headroom;

/// Limits of garbage in a file, in percent, that override the settings: while space is scarce, and
/// while puts are refused for want of it.
const SCARCE_GARBAGE_PERCENT: u8 = 30;
const EXHAUSTED_GARBAGE_PERCENT: u8 = 5;

/// The limit of garbage in a file while space is scarce; `None` while it is not. While puts are
/// refused for want of space, copying much for little is better than refusing.
pub(crate) fn garbage_percent_where_scarce(headroom: &Headroom) -> Option<u8> {
    match (headroom.is_exhausted(), headroom.is_scarce()) {
        (true, _) => Some(EXHAUSTED_GARBAGE_PERCENT),
        (false, true) => Some(SCARCE_GARBAGE_PERCENT),
        (false, false) => None,
    }
}
