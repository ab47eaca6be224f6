//! Numbers for people.

/// A number of bytes, with a unit of 1024s.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = ["bytes", "KB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} bytes"),
        _ => format!("{value:.1} {}", units[unit]),
    }
}

/// A count, with separated thousands.
pub(crate) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes_text(1023), "1023 bytes");
        assert_eq!(bytes_text(1536), "1.5 KB");
        assert_eq!(bytes_text(u64::MAX), "16.0 EB");
        assert_eq!(count_text(7), "7");
        assert_eq!(count_text(1234), "1,234");
        assert_eq!(count_text(44_739_243), "44,739,243");
    }
}
