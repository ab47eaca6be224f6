//! Values that identify the attempt that wrote them, with checkable bytes.
//!
//! Such a value needs no record: its bytes follow from the key and the attempt.

use std::fmt::Write;

/// Lengths of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Up to 2 KiB, and one in 64 longer than a usual buffer.
    Varied,
    /// Up to 256 bytes.
    Short,
}

/// The bytes that an attempt writes: a line that names the write, then padding whose length and
/// content follow from that line.
#[must_use]
pub fn value(writer: u32, key: u32, attempt: u64, lengths: Lengths) -> Vec<u8> {
    let mut state = (u64::from(writer) << 40) ^ (u64::from(key) << 20) ^ attempt;
    let length = match (lengths, scramble(&mut state) % 64) {
        (Lengths::Varied, 0) => 64 * 1024,
        (Lengths::Varied, _) => scramble(&mut state) % 2048,
        (Lengths::Short, _) => scramble(&mut state) % 256,
    };
    let mut text = String::new();
    let _ = writeln!(text, "{writer} {key} {attempt}"); // writing to a string never fails
    let mut bytes = text.into_bytes();
    while length > 0 && (bytes.len() as u64) < length {
        bytes.extend_from_slice(&scramble(&mut state).to_le_bytes());
    }
    bytes
}

/// The attempt that wrote a value.
///
/// # Errors
/// If no attempt on this key did, or not these bytes.
pub fn attempt_of(writer: u32, key: u32, bytes: &[u8], lengths: Lengths) -> Result<u64, String> {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let attempt: u64 = line
        .strip_prefix(&format!("{writer} {key} "))
        .and_then(|attempt| attempt.parse().ok())
        .ok_or_else(|| format!("key {key} of writer {writer} holds a foreign value: {line:?}"))?;
    if value(writer, key, attempt, lengths) == bytes {
        Ok(attempt)
    } else {
        Err(format!(
            "key {key} of writer {writer}: write {attempt} is damaged"
        ))
    }
}

/// The next of a sequence of well mixed numbers.
fn scramble(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_attempt() {
        for lengths in [Lengths::Varied, Lengths::Short] {
            for attempt in 1..200 {
                let bytes = value(3, 17, attempt, lengths);
                assert_eq!(attempt_of(3, 17, &bytes, lengths), Ok(attempt));
            }
        }
    }

    #[test]
    fn a_damaged_or_foreign_value_is_reported() {
        let lengths = Lengths::Varied;
        let mut damaged = value(3, 17, 5, lengths);
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert!(attempt_of(3, 17, &damaged, lengths).is_err());
        assert!(attempt_of(3, 18, &value(3, 17, 5, lengths), lengths).is_err());
        assert!(attempt_of(3, 17, b"", lengths).is_err());
    }
}
