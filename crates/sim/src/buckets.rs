//! The buckets that clients write, and that stores of several backends have routes for.

/// The bucket that clients write.
pub(crate) const BUCKET: &[u8] = b"busy";
/// The bucket that is written before anything goes wrong, and never after: listings must show it all.
pub(crate) const STEADY_BUCKET: &[u8] = b"steady";
/// The bucket of objects that expire while the run goes on.
pub(crate) const PASSING_BUCKET: &[u8] = b"passing";
