//! The backend trait: entries, batches, snapshots, folds, facets, maintenance steps, and the contract as sentences.
