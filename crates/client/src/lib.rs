//! The Rust client over Riak's protocol buffers.
