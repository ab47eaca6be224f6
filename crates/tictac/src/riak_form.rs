//! The forms of trees in Riak's interfaces.
//!
//! ```text
//! level        = number* u32, big-endian                         a root, or the leaves of a branch
//! branch in PB = number u32, big-endian; level in zlib
//! level in HTTP = list of the character codes of its base64
//! tree in HTTP = {"level1": level of the root,
//!                 "level2": {"0": list of the codes of the base64 of a branch in zlib, ...}}
//! ```

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::size::LEAVES_A_BRANCH;
use crate::tree::Tree;

/// A branch of zeros in zlib, as Riak writes it. Most branches of small trees are zeros.
const ZEROS_IN_ZLIB: [u8; 17] = [
    0x78, 0x9c, 0x63, 0x60, 0x18, 0x05, 0xa3, 0x60, 0x14, 0x8c, 0x54, 0x00, 0x00, 0x04, 0x00, 0x00,
    0x01,
];

/// A root, or the leaves of a branch, as bytes.
pub fn level_bytes(level: &[u32]) -> Vec<u8> {
    level.iter().flat_map(|it| it.to_be_bytes()).collect()
}

/// A branch in the form of messages.
pub fn compressed_branch(number: u32, leaves: &[u32]) -> Vec<u8> {
    let mut out = number.to_be_bytes().to_vec();
    out.extend(in_zlib(leaves));
    out
}

/// A root, or the leaves of a branch, as JSON.
pub fn level_json(level: &[u32]) -> String {
    codes(&level_bytes(level))
}

/// A whole tree as JSON: an object with `level1` and `level2`.
pub fn tree_json(tree: &Tree) -> String {
    let branches = (0..tree.size().branches()).map(|number| {
        let leaves = codes(&in_zlib(tree.branch(number)));
        format!("\"{number}\":{leaves}")
    });
    let branches: Vec<String> = branches.collect();
    let root = level_json(tree.root());
    format!(
        "{{\"level1\":{root},\"level2\":{{{}}}}}",
        branches.join(",")
    )
}

fn in_zlib(leaves: &[u32]) -> Vec<u8> {
    if leaves == [0; LEAVES_A_BRANCH] {
        return ZEROS_IN_ZLIB.to_vec();
    }
    let bytes = level_bytes(leaves);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    // Writing to a vector cannot fail.
    written.unwrap_or_default()
}

/// The character codes of the base64 of bytes.
fn codes(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let codes: Vec<String> = text.bytes().map(|code| code.to_string()).collect();
    format!("[{}]", codes.join(","))
}
