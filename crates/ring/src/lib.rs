//! Placement, pure: hashing, partitions, claim, preference lists and coverage plans.
