//! Erlang's `phash2/1` of integers and atoms, from which the nhs driver derives keys.

use kvorum_erlang_terms::Term;

/// Base of the constants that separate kinds of terms.
const GOLDEN: u32 = 0x9e37_79b9;

/// Integers of at most this many bits, without the sign, are hashed the short way.
const SMALL_BITS: u32 = 27;

/// `phash2` has 27 bits.
const RANGE_MASK: u32 = (1 << 27) - 1;

/// `phash2` of an integer.
pub fn phash2_integer(value: i64) -> u32 {
    hash_integer(value) & RANGE_MASK
}

/// `phash2` of an atom.
pub fn phash2_atom(name: &str) -> u32 {
    let mut hash: u32 = 0;
    for character in name.chars() {
        // Latin-1 atoms are hashed with one byte per character, other atoms as UTF-8.
        let mut buffer = [0_u8; 4];
        match u8::try_from(u32::from(character)) {
            Ok(byte) => hash = hash_byte(hash, byte),
            Err(_) => {
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    hash = hash_byte(hash, byte);
                }
            }
        }
    }
    hash & RANGE_MASK
}

/// `phash2` of a term, for the kinds of terms that are supported.
pub fn phash2(term: &Term) -> Option<u32> {
    match term {
        Term::Atom(name) => Some(phash2_atom(name)),
        Term::Integer(value) => i64::try_from(*value).ok().map(phash2_integer),
        _ => None,
    }
}

fn hash_byte(hash: u32, byte: u8) -> u32 {
    let mixed = (hash << 4).wrapping_add(u32::from(byte));
    let high = mixed & 0xf000_0000;
    (mixed ^ (high >> 24)) ^ high
}

fn hash_integer(value: i64) -> u32 {
    let small = 1_i64 << SMALL_BITS;
    if (-small..small).contains(&value) {
        let mut hash = 0;
        // The magnitude of a negative number is mixed in first, then its two's complement.
        if value < 0 {
            hash = mix(low_word(value.unsigned_abs()), 0, GOLDEN, hash);
        }
        return mix(low_word(value.cast_unsigned()), 0, GOLDEN, hash);
    }
    let magnitude = value.unsigned_abs();
    let kind = GOLDEN.wrapping_mul(if value < 0 { 10 } else { 11 });
    mix(low_word(magnitude), low_word(magnitude >> 32), kind, 0)
}

fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// One round of Bob Jenkins' 1996 mix over two words, a constant and the hash so far.
fn mix(first: u32, second: u32, constant: u32, hash: u32) -> u32 {
    let mut a = constant.wrapping_add(first);
    let mut b = constant.wrapping_add(second);
    let mut c = hash;
    for (right, left, last) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> right);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << left);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> last);
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_hash_as_the_published_vectors() {
        for (value, expected) in [
            (0, 3_175_731_469),
            (1, 539_485_162),
            (1 << 20, 1_477_815_345),
        ] {
            assert_eq!(hash_integer(value), expected, "{value}");
        }
        let expected = [2_614_250, 27_494_836, 112_783_779, 37_630_059, 5_878_562];
        for (value, expected) in (1..).zip(expected) {
            assert_eq!(phash2_integer(value), expected, "{value}");
        }
    }

    #[test]
    fn atoms_hash_as_the_published_vectors() {
        assert_eq!(phash2_atom("testnode1"), 45_424_705);
        assert_eq!(phash2_atom("nonode@nohost"), 70_306_884);
        assert_eq!(phash2(&Term::atom("abc")), Some(26_499));
        assert_eq!(phash2(&Term::String("abc".to_owned())), None);
    }
}
