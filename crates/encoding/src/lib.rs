//! Bucket and key newtypes, the order-preserving storage key, varints and checksums.
