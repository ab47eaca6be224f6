//! sext, an encoding of Erlang terms whose bytes sort like the terms: the part of it that Riak's
//! keys use.
//!
//! ```text
//! tuple         16  u32 arity  term*                                      numbers are big-endian
//! atom          12  bits
//! binary        18  bits
//! integer       10  31 bits of value, one bit 0              0 ..= 2^31-1
//!                9  31 bits of value + 2^31-1, one bit 1     -(2^31-1) ..= 0
//!               11  bits of a magnitude, 0                   larger
//!                8  u32 2^32-1 - words, bits of a magnitude, 255
//!                                                            smaller: the magnitude is the
//!                                                            difference to 2^(64*words)-1
//! bits          8 alone if there are none; else for each byte one bit 1 and its 8 bits, then one to
//!               eight bits 0 up to the next byte, then 8
//! magnitude     255  length in groups of seven bits, of which all but the last have the highest bit
//!               set  bytes;  or the bytes alone, as Riak before 1.3.1 wrote them
//! ```
//!
//! Floats, lists, maps, pids and the like do not occur in Riak's keys; here they are errors.

/// Maximum depth of tuples; a key of Riak's has two.
const DEPTH_MAX: usize = 4;
/// Maximum length of an integer's magnitude, in bytes.
const MAGNITUDE_BYTES_MAX: usize = 15;

const NEGATIVE_LARGE: u8 = 8;
const NEGATIVE_SMALL: u8 = 9;
const SMALL: u8 = 10;
const LARGE: u8 = 11;
const ATOM: u8 = 12;
const TUPLE: u8 = 16;
const BINARY: u8 = 18;
const END_OF_BITS: u8 = 8;
const SIZED: u8 = 255;

/// A term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sext {
    /// An atom's name.
    Atom(Vec<u8>),
    /// A binary.
    Binary(Vec<u8>),
    /// An integer.
    Integer(i128),
    /// A tuple.
    Tuple(Vec<Sext>),
}

/// Failure to decode a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SextError {
    /// The bytes end within the term.
    #[error("key is cut off at byte {offset}")]
    Cut {
        /// Offset of the missing bytes.
        offset: usize,
    },
    /// A tag that no key of Riak's has, or bits that no encoder writes.
    #[error("unexpected byte {found} at byte {offset}")]
    Unexpected {
        /// The byte.
        found: u8,
        /// Offset of the byte.
        offset: usize,
    },
    /// Bytes follow the term.
    #[error("bytes follow the key at byte {offset}")]
    Trailing {
        /// Offset of the first such byte.
        offset: usize,
    },
    /// More nesting or digits than any key has.
    #[error("key is too deep, or a number too large")]
    TooLarge,
}

impl Sext {
    /// Decodes one whole term.
    ///
    /// # Errors
    /// [`SextError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SextError> {
        let mut reader = Reader { bytes, offset: 0 };
        let term = reader.term(0)?;
        match reader.offset == bytes.len() {
            true => Ok(term),
            false => Err(SextError::Trailing {
                offset: reader.offset,
            }),
        }
    }
}

/// Appends a binary.
pub(crate) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(BINARY);
    let (mut held, mut count) = (0u32, 0);
    for byte in bytes {
        held = (held << 9) | 0x100 | u32::from(*byte);
        count += 9;
        while count >= 8 {
            count -= 8;
            out.extend_from_slice(&[(held >> count).to_le_bytes()[0]]);
        }
    }
    if !bytes.is_empty() {
        out.push((held << (8 - count)).to_le_bytes()[0]);
    }
    out.push(END_OF_BITS);
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SextError> {
        let offset = self.offset;
        let found = self.bytes.get(offset..).and_then(|rest| rest.first_chunk());
        let found = *found.ok_or(SextError::Cut { offset })?;
        self.offset += N;
        Ok(found)
    }

    fn u8(&mut self) -> Result<u8, SextError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn u32(&mut self) -> Result<u32, SextError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn term(&mut self, depth: usize) -> Result<Sext, SextError> {
        if depth > DEPTH_MAX {
            return Err(SextError::TooLarge);
        }
        let offset = self.offset;
        match self.u8()? {
            TUPLE => {
                let arity = self.u32()?;
                let mut terms = Vec::new();
                for _ in 0..arity {
                    terms.push(self.term(depth + 1)?);
                }
                Ok(Sext::Tuple(terms))
            }
            ATOM => self.bits().map(Sext::Atom),
            BINARY => self.bits().map(Sext::Binary),
            SMALL => match self.u32()? {
                odd if odd & 1 == 1 => Err(self.unexpected(self.offset - 1)),
                word => Ok(Sext::Integer(i128::from(word >> 1))),
            },
            NEGATIVE_SMALL => match self.u32()? {
                even if even & 1 == 0 => Err(self.unexpected(self.offset - 1)),
                word => Ok(Sext::Integer(i128::from(word >> 1) - 0x7fff_ffff)),
            },
            LARGE => {
                let magnitude = self.magnitude()?;
                self.expect(0)?;
                Ok(Sext::Integer(magnitude))
            }
            NEGATIVE_LARGE => {
                let words = u32::MAX - self.u32()?;
                let missing = self.magnitude()?;
                self.expect(255)?;
                match words {
                    1 => Ok(Sext::Integer(missing - i128::from(u64::MAX))),
                    _ => Err(SextError::TooLarge),
                }
            }
            _ => Err(self.unexpected(offset)),
        }
    }

    fn bits(&mut self) -> Result<Vec<u8>, SextError> {
        let mut bytes = Vec::new();
        if self.bytes.get(self.offset) == Some(&END_OF_BITS) {
            self.offset += 1;
            return Ok(bytes);
        }
        // The low bits of `held` are the unused ones.
        let (mut held, mut count) = (0u32, 0);
        loop {
            if count == 0 {
                held = self.u8()?.into();
                count = 8;
            }
            let is_more = held >> (count - 1) & 1 == 1;
            if !is_more {
                break;
            }
            count -= 1;
            held = held << 8 | u32::from(self.u8()?);
            bytes.push((held >> count).to_le_bytes()[0]);
            held &= (1 << count) - 1;
        }
        let padding = held & ((1 << count) - 1);
        if padding != 0 || bytes.is_empty() {
            return Err(self.unexpected(self.offset - 1));
        }
        self.expect(END_OF_BITS)?;
        Ok(bytes)
    }

    fn magnitude(&mut self) -> Result<i128, SextError> {
        let offset = self.offset;
        let bytes = self.bits()?;
        let digits = match bytes.split_first() {
            Some((&SIZED, rest)) => {
                // The bytes give the length; only the end of the groups has to be found.
                let groups = rest.iter().take_while(|byte| **byte & 0x80 != 0).count();
                rest.get(groups + 1..).ok_or(SextError::Cut { offset })?
            }
            _ => &bytes[..],
        };
        if digits.len() > MAGNITUDE_BYTES_MAX {
            return Err(SextError::TooLarge);
        }
        let value = digits.iter();
        Ok(value.fold(0, |value, digit| value << 8 | i128::from(*digit)))
    }

    fn expect(&mut self, expected: u8) -> Result<(), SextError> {
        let offset = self.offset;
        match self.u8()? == expected {
            true => Ok(()),
            false => Err(self.unexpected(offset)),
        }
    }

    fn unexpected(&self, offset: usize) -> SextError {
        let found = self.bytes.get(offset).copied().unwrap_or(0);
        SextError::Unexpected { found, offset }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.map(|pair| byte(pair).unwrap()).collect()
    }

    fn binary(text: &str) -> Sext {
        Sext::Binary(text.as_bytes().to_vec())
    }

    fn atom(text: &str) -> Sext {
        Sext::Atom(text.as_bytes().to_vec())
    }

    #[test]
    fn keys_that_sext_wrote_are_understood() {
        let cases = [
            (
                "10000000030cb7800812b1000812b58008",
                Sext::Tuple(vec![atom("o"), binary("b"), binary("k")]),
            ),
            (
                "10000000030cb78008100000000212ba000812b1000812b58008",
                Sext::Tuple(vec![
                    atom("o"),
                    Sext::Tuple(vec![binary("t"), binary("b")]),
                    binary("k"),
                ]),
            ),
            (
                "10000000050cb4800812b1000812b357ed36eba0080a0000005412b58008",
                Sext::Tuple(vec![
                    atom("i"),
                    binary("b"),
                    binary("f_int"),
                    Sext::Integer(42),
                    binary("k"),
                ]),
            ),
            (
                "10000000020cb6d900080cb35a6f165b257ed36eb2596f165b9808",
                Sext::Tuple(vec![atom("md"), atom("fixed_indexes")]),
            ),
            ("09fffffffd", Sext::Integer(-1)),
            ("0bffc16032a82fca000800", Sext::Integer(5_000_000_000)),
        ];
        for (hex, term) in cases {
            let decoded = Sext::decode(&bytes(hex));
            assert_eq!(decoded, Ok(term), "{hex}");
        }
    }

    #[test]
    fn binaries_of_every_length_round_trip_and_sort_as_they_do() {
        let mut before = Vec::new();
        for len in 0..40 {
            let original = vec![0xa5; len];
            let mut out = Vec::new();
            put_binary(&mut out, &original);
            assert_eq!(Sext::decode(&out), Ok(Sext::Binary(original)), "{len}");
            assert!(out > before, "{len}");
            before = out;
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let key = bytes("10000000050cb4800812b1000812b357ed36eba0080a0000005412b58008");
        for len in 0..key.len() {
            assert!(Sext::decode(&key[..len]).is_err(), "{len}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _any = Sext::decode(&bytes);
            let mut tuple = vec![TUPLE, 0, 0, 0, 3];
            tuple.extend(bytes);
            let _any = Sext::decode(&tuple);
        }
    }
}
