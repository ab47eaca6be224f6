//! Base-62 text of fixed length, as Riak writes entity tags and generated keys.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Digits cut off by one long division; 62 to this power still fits 32 bits.
const DIGITS_PER_DIVISION: usize = 5;
const DIVISOR: u64 = 62u64.pow(5);

/// The number whose 32-bit limbs are `limbs` (most significant first), in exactly `DIGITS` digits.
///
/// A number too large for `DIGITS` digits loses its high digits, a smaller one gets zeros in front.
pub(crate) fn base62<const LIMBS: usize, const DIGITS: usize>(
    mut limbs: [u32; LIMBS],
) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for group in digits.rchunks_mut(DIGITS_PER_DIVISION) {
        let mut rest = divide(&mut limbs);
        for digit in group.iter_mut().rev() {
            *digit = ALPHABET[(rest % 62) as usize];
            rest /= 62;
        }
    }
    digits
}

/// The first `DIGITS` digits of `numerator` / 2^64. Eleven digits differ for any two numerators.
/// They cost multiplications, whereas a number's own digits cost long divisions.
pub(crate) fn fraction_digits<const DIGITS: usize>(numerator: u64) -> [u8; DIGITS] {
    let mut rest = numerator;
    let mut digits = [b'0'; DIGITS];
    for digit in &mut digits {
        let whole = (u128::from(rest) * 62) >> 64;
        *digit = ALPHABET[usize::from(whole.to_le_bytes()[0]) % ALPHABET.len()];
        rest = rest.wrapping_mul(62);
    }
    digits
}

/// Divides in place by [`DIVISOR`]; returns the remainder.
fn divide(limbs: &mut [u32]) -> u32 {
    let mut rest = 0u64;
    for limb in limbs {
        let dividend = (rest << 32) | u64::from(*limb);
        *limb = low_half(dividend / DIVISOR);
        rest = dividend % DIVISOR;
    }
    low_half(rest)
}

/// Quotients and remainders of a long division by a 32-bit number fit 32 bits.
fn low_half(value: u64) -> u32 {
    (value & u64::from(u32::MAX)).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        assert_eq!(&base62::<1, 6>([61]), b"00000z");
        assert_eq!(&base62::<1, 6>([62 * 62 + 10]), b"00010A");
        assert_eq!(&base62::<2, 12>([1, 0]), b"0000004gfFC4");
    }

    #[test]
    fn a_fraction_has_the_digits_that_long_multiplication_gives() {
        assert_eq!(&fraction_digits::<11>(0), b"00000000000");
        assert_eq!(&fraction_digits::<3>(1 << 63), b"V00");
        // 62^11 / 2^64 is 2.8: neighbours differ in the last of eleven digits.
        assert_eq!(&fraction_digits::<11>(1), b"00000000002");
        assert_eq!(&fraction_digits::<11>(u64::MAX), b"zzzzzzzzzzx");
    }

    #[test]
    fn the_largest_numbers_fit_their_lengths() {
        assert_eq!(&base62::<4, 23>([u32::MAX; 4]), b"07n42DGM5Tflk9n8mt7Fhc7");
        let digits = base62::<5, 28>([u32::MAX; 5]);
        assert_eq!(digits[0], b'0');
        assert_ne!(digits[1], b'0');
    }
}
