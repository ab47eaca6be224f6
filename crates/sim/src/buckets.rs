//! The buckets that clients write, and that stores of several backends have routes for.

/// The bucket that clients write.
pub(crate) const BUCKET: &[u8] = b"busy";
/// The bucket that is written before any fault, and never afterwards: listings must show all of it.
pub(crate) const STEADY_BUCKET: &[u8] = b"steady";
/// The bucket of objects that expire during the run.
pub(crate) const PASSING_BUCKET: &[u8] = b"passing";
