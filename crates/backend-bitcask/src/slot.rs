//! A slot: the place of one key's newest record, in 16 bytes.
//!
//! The fingerprint loses two bits of its 64: 6 select the shard, 56 are stored. With 156,000 keys
//! in a store, one lookup in 3 * 10^13 finds the fingerprint of another key, which costs one read
//! of the disk. Lengths are rounded up to classes, so that one read still fetches the whole record:
//! they are exact up to 2 KiB, and at most 0.8 % too long above.

use kvorum_segment::{Location, RECORD_ALIGN_BYTES};

/// Bits of a fingerprint that select the shard.
pub(crate) const SHARD_BITS: u32 = 6;
const FINGERPRINT_BITS: u32 = 56;
/// The lowest bits of a fingerprint, which are not stored.
const LOST_BITS: u64 = (1 << (64 - SHARD_BITS - FINGERPRINT_BITS)) - 1;
const OFFSET_BITS: u32 = 30;
const PLACE_BITS: u32 = 22;
const LEN_BITS: u32 = 12;
const FRONT_BITS: u32 = 8;

const LEN_SHIFT: u32 = FRONT_BITS;
const PLACE_SHIFT: u32 = LEN_SHIFT + LEN_BITS;
const OFFSET_SHIFT: u32 = PLACE_SHIFT + PLACE_BITS;
const FINGERPRINT_SHIFT: u32 = OFFSET_SHIFT + OFFSET_BITS;
const _: () = assert!(FINGERPRINT_SHIFT + FINGERPRINT_BITS == 128);

/// The limit of a record's offset, in bytes.
pub(crate) const OFFSET_BYTES_MAX: u64 = RECORD_ALIGN_BYTES << OFFSET_BITS;
/// The number of different places in slots.
pub(crate) const PLACES_MAX: u32 = 1 << PLACE_BITS;

/// The units of lengths in a slot, in bytes.
const LEN_UNIT_BYTES: u64 = RECORD_ALIGN_BYTES;
const FRONT_UNIT_BYTES: u64 = 16;
/// Bits of a class below its leading one.
const LEN_DIGITS: u32 = 7;
const FRONT_DIGITS: u32 = 4;

/// The place of a key's newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    fingerprint: u64,
    place: u32,
    /// The offset, in units of 8 bytes.
    offset: u32,
    len_class: u16,
    front_class: u8,
}

impl Slot {
    /// `place` is the index of the record's segment in the store's places.
    pub(crate) fn new(fingerprint: u64, place: u32, at: Location) -> Self {
        assert!(
            at.offset < OFFSET_BYTES_MAX && place < PLACES_MAX,
            "{at:?} in place {place} does not fit into a slot"
        );
        let offset = at.offset / RECORD_ALIGN_BYTES;
        let len = class_of(at.len.div_ceil(LEN_UNIT_BYTES), LEN_DIGITS);
        let front = class_of(at.front_end.div_ceil(FRONT_UNIT_BYTES), FRONT_DIGITS);
        Self {
            // The lowest bits are not stored.
            fingerprint: fingerprint & !LOST_BITS,
            place,
            offset: u32::try_from(offset.min((1 << OFFSET_BITS) - 1)).unwrap_or(0),
            len_class: u16::try_from(len.clamp(1, (1 << LEN_BITS) - 1)).unwrap_or(u16::MAX),
            // A longer front costs a second read.
            front_class: u8::try_from(front).unwrap_or(u8::MAX),
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The index of its segment in the store's places.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.offset) * RECORD_ALIGN_BYTES
    }

    /// The record's place, with lengths rounded up.
    pub(crate) fn location(&self) -> Location {
        Location {
            offset: self.offset(),
            front_end: units_of(u64::from(self.front_class), FRONT_DIGITS) * FRONT_UNIT_BYTES,
            len: self.stored_bytes(),
        }
    }

    /// The record's length in its segment, in bytes, with the slot's precision.
    pub(crate) fn stored_bytes(&self) -> u64 {
        units_of(u64::from(self.len_class), LEN_DIGITS) * LEN_UNIT_BYTES
    }

    pub(crate) fn shard(&self) -> usize {
        shard_of(self.fingerprint)
    }

    /// Packs it:
    ///
    /// ```text
    /// bits  field, from the lowest
    ///    8  end of the front: class of units of 16 bytes, 4 digits below the leading one
    ///   12  length: class of units of 8 bytes, 7 digits below the leading one; never 0
    ///   22  place
    ///   30  offset in units of 8 bytes
    ///   56  fingerprint, without the 6 highest bits and the 2 lowest
    /// ```
    pub(crate) fn pack(&self) -> Packed {
        let bits = u128::from(fingerprint_bits(self.fingerprint)) << FINGERPRINT_SHIFT
            | u128::from(self.offset) << OFFSET_SHIFT
            | u128::from(self.place) << PLACE_SHIFT
            | u128::from(self.len_class) << LEN_SHIFT
            | u128::from(self.front_class);
        Packed(bits)
    }

    pub(crate) fn unpack(shard: usize, packed: Packed) -> Self {
        let field = |shift: u32, bits: u32| low_half(packed.0 >> shift) & ((1 << bits) - 1);
        let narrow = |field: u64| u32::try_from(field).unwrap_or(u32::MAX);
        Self {
            fingerprint: (shard as u64) << (64 - SHARD_BITS)
                | packed.fingerprint_bits() << LOST_BITS.count_ones(),
            place: narrow(field(PLACE_SHIFT, PLACE_BITS)),
            offset: narrow(field(OFFSET_SHIFT, OFFSET_BITS)),
            len_class: u16::try_from(field(LEN_SHIFT, LEN_BITS)).unwrap_or(u16::MAX),
            front_class: u8::try_from(field(0, FRONT_BITS)).unwrap_or(u8::MAX),
        }
    }
}

/// A slot in its shard. The order is that of fingerprints; all zeros mean an empty place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(pub(crate) u128);

impl Packed {
    pub(crate) const EMPTY: Self = Self(0);

    /// The least slot of a fingerprint, for lookups.
    pub(crate) fn sought(fingerprint: u64) -> Self {
        Self(u128::from(fingerprint_bits(fingerprint)) << FINGERPRINT_SHIFT)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn fingerprint_bits(self) -> u64 {
        low_half(self.0 >> FINGERPRINT_SHIFT)
    }

    /// The highest bits of the stored fingerprint, in whose order slots are sorted.
    pub(crate) fn order(self) -> u64 {
        low_half(self.0 >> 96)
    }

    pub(crate) fn place(self) -> u32 {
        let place = low_half(self.0 >> PLACE_SHIFT) & u64::from(PLACES_MAX - 1);
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// True when both are slots of one fingerprint and one record.
    pub(crate) fn is_same_record(self, other: Self) -> bool {
        (self.0 ^ other.0) >> PLACE_SHIFT == 0
    }
}

pub(crate) fn shard_of(fingerprint: u64) -> usize {
    usize::try_from(fingerprint >> (64 - SHARD_BITS)).unwrap_or(0)
}

/// The bits of a fingerprint that a slot stores.
pub(crate) fn fingerprint_bits(fingerprint: u64) -> u64 {
    (fingerprint << SHARD_BITS) >> (64 - FINGERPRINT_BITS)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the other half is what is to be left out"
)]
fn low_half(bits: u128) -> u64 {
    bits as u64
}

/// The class of a length, rounded up: the leading bit, `digits` more bits, and the number of
/// omitted bits.
fn class_of(units: u64, digits: u32) -> u64 {
    let bits = u64::BITS - units.leading_zeros();
    let left_out = bits.saturating_sub(digits + 1);
    (u64::from(left_out) << digits) + units.div_ceil(1 << left_out)
}

/// The largest length of a class.
fn units_of(class: u64, digits: u32) -> u64 {
    let leading = 1 << digits;
    let left_out = (class >> digits).saturating_sub(1);
    if left_out == 0 {
        return class;
    }
    (leading | class & (leading - 1)) << left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_round_up_and_never_by_much() {
        for digits in [LEN_DIGITS, FRONT_DIGITS] {
            let mut last = 0;
            let around = |it: u32| ((1u64 << it) - 3)..((1u64 << it) + 3);
            for units in (0..4000).chain((12..60).flat_map(around)) {
                let class = class_of(units, digits);
                let rounded = units_of(class, digits);
                assert!(rounded >= units, "{units} of {digits}");
                assert!(rounded - units <= units >> digits, "{units} of {digits}");
                assert_eq!(class_of(rounded, digits), class);
                assert!(class == last || class == last + 1 || units > 4000);
                last = class;
            }
        }
    }

    #[test]
    fn a_slot_survives_packing() {
        for (fingerprint, place, offset, len, front_end) in [
            (0, 0, 0, 33, 32),
            (
                u64::MAX,
                PLACES_MAX - 1,
                OFFSET_BYTES_MAX - 8,
                1 << 32,
                1 << 20,
            ),
            (0x0123_4567_89ab_cdef, 77, 4096, 1000, 100),
        ] {
            let at = Location {
                offset,
                front_end,
                len,
            };
            let slot = Slot::new(fingerprint, place, at);
            let shard = shard_of(fingerprint);
            assert_eq!(Slot::unpack(shard, slot.pack()), slot);
            assert!(!slot.pack().is_empty());
            assert_eq!(slot.pack().place(), place);
            let found = slot.location();
            assert_eq!(found.offset, offset);
            assert!(found.len >= len && found.len - len < 8 + (len >> LEN_DIGITS));
            assert!(found.front_end >= front_end);
        }
        assert_eq!(size_of::<Packed>(), 16);
    }

    #[test]
    fn packed_slots_are_ordered_by_fingerprint() {
        let at = |offset| Location {
            offset,
            front_end: 64,
            len: 100,
        };
        let (low, high) = (Slot::new(4, 9, at(4096)), Slot::new(8, 1, at(32)));
        assert!(low.pack() < high.pack());
        let moved = Slot::new(4, 9, at(4104));
        assert!(!low.pack().is_same_record(moved.pack()));
        assert_eq!(low.pack().fingerprint_bits(), fingerprint_bits(4));
    }
}
