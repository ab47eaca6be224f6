//! Objects in each packing of leveled.

use std::io::Write as _;

/// Packing of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Zlib,
    Lz4,
    Zstd,
    Plain,
}

pub(crate) const PACKINGS: [Packing; 4] =
    [Packing::Zlib, Packing::Lz4, Packing::Zstd, Packing::Plain];

/// The object's bytes in the journal, and their flags.
pub(crate) fn pack(object: &[u8], packing: Packing) -> (Vec<u8>, u8) {
    match packing {
        Packing::Zlib => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(object).unwrap();
            (encoder.finish().unwrap(), 3)
        }
        Packing::Lz4 => {
            let block = lz4_flex::block::compress(object);
            let len = u32::try_from(object.len()).unwrap().to_le_bytes();
            ([len.to_vec(), block].concat(), 7)
        }
        Packing::Zstd => (zstd::bulk::compress(object, 3).unwrap(), 15),
        Packing::Plain => (object.to_vec(), 2),
    }
}
