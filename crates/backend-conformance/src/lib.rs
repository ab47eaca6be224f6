//! One suite for every engine: a model, random scripts, reopen, and crashes at every sync point.
