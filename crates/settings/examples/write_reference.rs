//! Writes the reference page and the sample file from the tables of keys.
//!
//! `cargo run -p kvorum-settings --example write_reference`; a test compares both with the tables.

use std::path::Path;

#[expect(
    clippy::disallowed_methods,
    reason = "a tool for developers; it runs in no server"
)]
fn main() -> std::io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::write(
        docs.join("configuration.md"),
        kvorum_settings::reference_page(),
    )?;
    std::fs::write(
        docs.join("kvorum.conf.sample"),
        kvorum_settings::sample_file(),
    )
}
