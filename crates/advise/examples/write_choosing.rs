//! Writes the guide to choosing a backend from the tables of rules and engines.
//!
//! `cargo run -p kvorum-advise --example write_choosing`; a test compares the page with the tables.

use std::error::Error;
use std::path::Path;

#[expect(
    clippy::disallowed_methods,
    reason = "a tool for developers; it runs in no server"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = kvorum_advise::guide_page()?;
    Ok(std::fs::write(docs.join("choosing-a-backend.md"), page)?)
}
