//! The anatomy of a file: its bytes as named fields, for display.
//!
//! Each crate that writes a file takes its own bytes apart, next to its encoder and with the same
//! constants. The form of the result is common: a field begins at the end of the previous field, so
//! that every byte is in exactly one.

use std::fmt::Write as _;

/// The most bytes that are shown of a field.
const SHOWN_BYTES_MAX: usize = 48;

/// The validity of the bytes of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// A checksum in another field of the same piece or file covers the bytes.
    Covered,
    /// The bytes are a matching checksum.
    Good,
    /// The bytes are wrong.
    Bad {
        /// The value of the present bytes.
        got: String,
        /// The stored or expected value.
        expected: String,
    },
}

impl Check {
    /// A computed checksum, compared with the stored one.
    pub fn of_checksum(computed: u32, stored: u32) -> Self {
        if computed == stored {
            return Self::Good;
        }
        Self::Bad {
            got: format!("{computed:08x}"),
            expected: format!("{stored:08x}"),
        }
    }
}

/// A run of bytes with one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// Its name.
    pub name: String,
    /// Its value, for display.
    pub value: String,
    /// Its validity.
    pub check: Check,
}

/// Fields that are valid or damaged together: a header, a record, a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name.
    pub title: String,
    /// Its fields, each beginning at the end of the previous one.
    pub fields: Vec<Field>,
}

impl Piece {
    /// A piece of one wrong field.
    pub fn damage(offset: u64, len: u64, found: &str, expected: &str) -> Self {
        let check = Check::Bad {
            got: found.to_owned(),
            expected: expected.to_owned(),
        };
        let field = Field {
            offset,
            len,
            name: "damaged".to_owned(),
            value: String::new(),
            check,
        };
        Self {
            title: "damage".to_owned(),
            fields: vec![field],
        }
    }

    /// Its first byte in the file.
    pub fn offset(&self) -> u64 {
        self.fields.first().map_or(0, |field| field.offset)
    }

    /// The start of the bytes behind it.
    pub fn end(&self) -> u64 {
        self.fields
            .last()
            .map_or(0, |field| field.offset + field.len)
    }

    /// True when any of its bytes are wrong.
    pub fn is_damaged(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| matches!(field.check, Check::Bad { .. }))
    }
}

/// The pieces of a file. An error is the disk's, and the last item.
pub type Pieces = Box<dyn Iterator<Item = crate::Result<Piece>> + Send>;

/// Takes the bytes of one piece apart, from front to back.
pub struct Dissection<'a> {
    bytes: &'a [u8],
    base: u64,
    at: usize,
    fields: Vec<Field>,
}

impl<'a> Dissection<'a> {
    /// Begins with bytes at `base` in their file.
    pub fn new(bytes: &'a [u8], base: u64) -> Self {
        Self {
            bytes,
            base,
            at: 0,
            fields: Vec::new(),
        }
    }

    /// The start of the next field, counted from the first byte of the piece.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The number of bytes without a field.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Adds a field with the caller's value. If fewer than `len` bytes are left, the field is
    /// damaged, and nothing is returned.
    pub fn field(
        &mut self,
        name: &str,
        len: usize,
        value: String,
        check: Check,
    ) -> Option<&'a [u8]> {
        if len > self.remaining() {
            let check = Check::Bad {
                got: format!("{} bytes", self.remaining()),
                expected: format!("{len} bytes"),
            };
            let rest = self.remaining();
            match self.fields.last_mut() {
                Some(last) if rest == 0 => last.check = check,
                // An empty file has one field without bytes.
                _ => self.push(name, rest, String::new(), check),
            }
            return None;
        }
        let bytes = &self.bytes[self.at..self.at + len];
        if len > 0 {
            self.push(name, len, value, check);
        }
        Some(bytes)
    }

    /// Adds bytes that are the same in every file.
    pub fn magic(&mut self, expected: &[u8]) {
        let end = (self.at + expected.len()).min(self.bytes.len());
        let found = &self.bytes[self.at..end];
        let check = if found == expected {
            Check::Covered
        } else {
            Check::Bad {
                got: shown(found),
                expected: shown(expected),
            }
        };
        self.field("magic", expected.len(), shown(found), check);
    }

    /// Adds a little-endian number of `len` bytes, at most 8; 0 if bytes are missing.
    pub fn number(&mut self, name: &str, len: usize) -> u64 {
        let value = self.peek(len);
        self.field(name, len, value.to_string(), Check::Covered);
        value
    }

    /// Adds a number that is shown in hexadecimal: an identity or a secret.
    pub fn identity(&mut self, name: &str, len: usize) -> u64 {
        let value = self.peek(len);
        self.field(
            name,
            len,
            format!("{value:0width$x}", width = len * 2),
            Check::Covered,
        );
        value
    }

    /// Adds a number with a length that depends on its value. `decode` returns both.
    pub fn varying(
        &mut self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Option<(u64, usize)>,
    ) -> Option<u64> {
        let Some((value, len)) = decode(&self.bytes[self.at..]) else {
            self.field(name, self.remaining() + 1, String::new(), Check::Covered);
            return None;
        };
        self.field(name, len, value.to_string(), Check::Covered)?;
        Some(value)
    }

    /// Adds bytes, which are shown as text if they are text.
    pub fn bytes(&mut self, name: &str, len: usize) -> Option<&'a [u8]> {
        let end = self.at.saturating_add(len).min(self.bytes.len());
        let value = shown(&self.bytes[self.at..end]);
        self.field(name, len, value, Check::Covered)
    }

    /// Adds a stored checksum of 4 bytes, which is compared with the computed one.
    pub fn checksum(&mut self, name: &str, computed: u32) {
        let stored = u32::try_from(self.peek(4)).unwrap_or(0);
        let check = Check::of_checksum(computed, stored);
        self.field(name, 4, format!("{stored:08x}"), check);
    }

    /// Adds the rest, which should be empty, as damage.
    pub fn nothing_more(&mut self) {
        let rest = self.remaining();
        if rest > 0 {
            let check = Check::Bad {
                got: format!("{rest} bytes more"),
                expected: "the end".to_owned(),
            };
            self.push("rest", rest, shown(&self.bytes[self.at..]), check);
        }
    }

    /// The fields so far as a piece.
    pub fn finish(self, title: impl Into<String>) -> Piece {
        Piece {
            title: title.into(),
            fields: self.fields,
        }
    }

    fn peek(&self, len: usize) -> u64 {
        let mut wide = [0; 8];
        match self.bytes.get(self.at..self.at + len) {
            Some(bytes) if len <= 8 => wide[..len].copy_from_slice(bytes),
            _ => {}
        }
        u64::from_le_bytes(wide)
    }

    fn push(&mut self, name: &str, len: usize, value: String, check: Check) {
        self.fields.push(Field {
            offset: self.base + self.at as u64,
            len: len as u64,
            name: name.to_owned(),
            value,
            check,
        });
        self.at += len;
    }
}

/// Bytes for display: as text if they are text, or in hexadecimal; long values are cut.
pub fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let is_text = cut.iter().all(|byte| (0x20..0x7f).contains(byte));
    let mut text = if is_text {
        format!("\"{}\"", cut.escape_ascii())
    } else {
        let mut hex = String::with_capacity(2 * cut.len());
        for byte in cut {
            let _infallible = write!(hex, "{byte:02x}");
        }
        hex
    };
    if cut.len() < bytes.len() {
        let _infallible = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_each_other_and_cover_all_bytes() {
        let mut at = Dissection::new(b"KV\x05\x00rest", 100);
        at.magic(b"KV");
        assert_eq!(at.number("count", 2), 5);
        at.bytes("text", 3);
        at.nothing_more();
        let piece = at.finish("a");
        let places: Vec<_> = piece.fields.iter().map(|it| (it.offset, it.len)).collect();
        assert_eq!(places, [(100, 2), (102, 2), (104, 3), (107, 1)]);
        assert!(piece.is_damaged());
    }

    #[test]
    fn a_cut_field_is_damaged() {
        let mut at = Dissection::new(b"abc", 0);
        assert_eq!(at.number("wide", 8), 0);
        assert!(at.finish("a").is_damaged());
    }

    /// Regression: `verify` found no damage in a file that had lost all its bytes.
    #[test]
    fn an_empty_file_is_damaged() {
        let mut at = Dissection::new(b"", 0);
        at.magic(b"KV");
        at.number("count", 2);
        let piece = at.finish("a");
        assert!(piece.is_damaged());
        assert_eq!((piece.offset(), piece.end(), piece.fields.len()), (0, 0, 1));
    }

    #[test]
    fn a_checksum_says_what_was_got_and_expected() {
        assert_eq!(Check::of_checksum(1, 1), Check::Good);
        assert!(matches!(Check::of_checksum(1, 2), Check::Bad { got, .. } if got == "00000001"));
    }
}
