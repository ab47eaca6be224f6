//! Keys for objects that a client stores without naming them.

use kvorum_encoding::Key;

use crate::base62::base62;

/// Base-62 digits of 160 bits.
const GENERATED_KEY_LEN: usize = 27;

/// A key of 27 base-62 digits from 20 random bytes.
pub fn generated_key(random: [u8; 20]) -> Key {
    let mut limbs = [0u32; 5];
    for (limb, bytes) in limbs.iter_mut().zip(random.as_chunks::<4>().0) {
        *limb = u32::from_be_bytes(*bytes);
    }
    Key::new(base62::<5, GENERATED_KEY_LEN>(limbs).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_differ_in_every_byte_of_their_source() {
        let zero = generated_key([0; 20]);
        assert_eq!(zero.as_bytes(), &[b'0'; 27]);
        for index in 0..20 {
            let mut random = [0; 20];
            random[index] = 1;
            assert_ne!(generated_key(random), zero);
        }
    }
}
