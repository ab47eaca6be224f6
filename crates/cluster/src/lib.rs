//! The agreed cluster state: name, members, ring, bucket types and properties, and where it is kept.
