//! Riak's protocol-buffer frames and messages and HTTP field shapes: a pure codec.
