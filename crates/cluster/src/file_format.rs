//! The file that keeps a cluster state: text that an operator can read, with a checksum over all of
//! it.

use kvorum_encoding::{checksum, checksum_append, mask_checksum};

/// The format that this version writes.
const FORMAT: u32 = 1;
pub(crate) const TITLE: &str = "kvorum cluster state, format ";

/// The reason why a file does not hold a cluster state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The file has a format of a later version. Run that version.
    #[error("format {got} is newer than {FORMAT}, the newest that this version reads")]
    NewerFormat {
        /// The file's format.
        got: u32,
    },
    /// The bytes have changed since they were written.
    #[error("damaged: {what}")]
    Damaged {
        /// The evidence.
        what: String,
    },
}

impl DecodeError {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }
}

/// Puts the envelope around a document.
///
/// ```text
/// line 1:  kvorum cluster state, format F, N bytes, crc32c C\n
///            F  format, decimal
///            N  length of the document in bytes, decimal
///            C  masked CRC-32C over line 1 up to "bytes" and the document, 8 hexadecimal digits
/// after:   the document, JSON, N bytes
/// ```
pub(crate) fn encode(document: &[u8]) -> Vec<u8> {
    let mut file = first_line(FORMAT, document).into_bytes();
    file.extend_from_slice(document);
    file
}

/// The document in the envelope. Detects any changed byte.
pub(crate) fn decode(file: &[u8]) -> Result<&[u8], DecodeError> {
    if file.is_empty() {
        return Err(DecodeError::damaged("the file is empty"));
    }
    let end = file.iter().position(|byte| *byte == b'\n');
    let Some((line, document)) = end.and_then(|end| file.split_at_checked(end + 1)) else {
        return Err(DecodeError::damaged("the first line has no end"));
    };
    let format =
        format_of(line).ok_or_else(|| DecodeError::damaged("the first line is not ours"))?;
    // A format and a document determine the line. Comparing the whole line checks every byte, also
    // the spelling of the numbers.
    if line != first_line(format, document).as_bytes() {
        let what = format!(
            "checksum or length does not match the {} bytes found",
            document.len()
        );
        return Err(DecodeError::damaged(what));
    }
    if format > FORMAT {
        return Err(DecodeError::NewerFormat { got: format });
    }
    Ok(document)
}

fn first_line(format: u32, document: &[u8]) -> String {
    let covered = format!("{TITLE}{format}, {} bytes", document.len());
    let checksum = mask_checksum(checksum_append(checksum(covered.as_bytes()), document));
    format!("{covered}, crc32c {checksum:08x}\n")
}

fn format_of(line: &[u8]) -> Option<u32> {
    let rest = std::str::from_utf8(line).ok()?.strip_prefix(TITLE)?;
    rest.split_once(',')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let file = encode(b"{}\n");
        let drawing = [
            ("title and format", 31),
            ("length of the document", 8),
            (
                "masked CRC-32C over line 1 up to \"bytes\" and the document",
                18,
            ),
            ("document", 3),
        ];
        assert_bytes("file_format.hex", &drawing, &file);
        assert_eq!(decode(&file), Ok(&b"{}\n"[..]));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let file = encode(b"{\"version\": 3}\n");
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                assert!(
                    matches!(decode(&flipped), Err(DecodeError::Damaged { .. })),
                    "{at} {bit}"
                );
            }
            assert!(
                matches!(decode(&file[..at]), Err(DecodeError::Damaged { .. })),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn a_later_format_is_not_mistaken_for_damage() {
        let mut file = first_line(2, b"?").into_bytes();
        file.push(b'?');
        assert_eq!(decode(&file), Err(DecodeError::NewerFormat { got: 2 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
