//! Objects as their users see them: histories against a model, writes, encodings.

mod causal_history;
mod encoding;
mod replica;
mod siblings;
mod writes;
