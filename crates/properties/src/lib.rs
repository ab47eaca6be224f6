//! Bucket and bucket-type properties: defaults, validation, precedence and quorum values.
