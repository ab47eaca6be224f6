//! Objects: dotted version vector sets, siblings, metadata, tombstones, and their head and body encodings.
