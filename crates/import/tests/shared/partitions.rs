//! Names of partitions' directories.

/// The index of the partition of this number in a ring of 64: `number * 2^154`.
pub(crate) fn partition(number: u32) -> String {
    const STEP: &str = "22835963083295358096932575511191922182123945984";
    let mut digits = Vec::new();
    let mut carry = 0;
    for digit in STEP.bytes().rev() {
        let value = u32::from(digit - b'0') * number + carry;
        digits.push(value % 10);
        carry = value / 10;
    }
    while carry > 0 {
        digits.push(carry % 10);
        carry /= 10;
    }
    let text: String = digits.iter().rev().map(ToString::to_string).collect();
    match text.trim_start_matches('0') {
        "" => "0".to_owned(),
        text => text.to_owned(),
    }
}
