//! Numbers with their nouns, for texts that operators read.

/// `1 partition`, `2 partitions`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1_usize, "file"), "1 file");
        assert_eq!(counted(0_u64, "file"), "0 files");
        assert_eq!(counted(12_usize, "file"), "12 files");
    }
}
