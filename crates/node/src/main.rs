//! The binary `kvorum`.
fn main() {}
