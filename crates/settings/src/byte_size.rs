//! Byte sizes as riak.conf writes them: `4096`, `5MB`, `1GB`.
//!
//! Units are powers of 1024, as in Riak. Case does not matter and the `B` may be missing: `1G` is a
//! common mistake and cannot mean anything else.

/// Reads a byte size; `None` when the text is not one or does not fit 64 bits.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Writes a byte size in the largest unit that divides it.
pub(crate) fn render(bytes: u64) -> String {
    for (shift, unit) in [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_may_lack_the_letter_b() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("4KB", 4096),
            ("5MB", 5 << 20),
            ("1G", 1 << 30),
            ("2 gb", 2 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_byte_size() {
        for text in [
            "",
            "MB",
            "-1",
            "1.5GB",
            "1PB",
            "99999999999TB",
            "99999999999999999999",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn rendering_reads_back_as_the_same_size() {
        for bytes in [0, 1, 1023, 1024, 1536, 5 << 20, 3 << 40, u64::MAX] {
            assert_eq!(parse(&render(bytes)), Some(bytes));
        }
    }
}
