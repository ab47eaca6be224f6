//! The slots of one shard: a sorted array with gaps, in pages.
//!
//! The *home* of a slot is the place in proportion to its fingerprint. A slot is at its home, or in
//! the first free place behind it that keeps the order. So a lookup reads three to five slots, an
//! insertion moves the slots up to the next gap, and a larger table is filled from a smaller one in
//! one pass without hashing.
//!
//! Growth by a fifteenth keeps the table between 79 and 90 % full; doubling would take it down
//! to 45. All pages have one size, so a page that one table frees fits any other table. Tables of
//! many sizes in one allocator would leave holes that take more memory than the slots.

use crate::slot::Packed;

/// Slots in a page.
const PAGE_SLOTS: usize = 32;
/// Places behind the last home, for slots whose homes are taken.
const MARGIN_SLOTS: usize = 8;
/// A full table grows by its number of pages divided by this.
const GROWTH: usize = 15;

type Page = Box<[Packed; PAGE_SLOTS]>;

/// The slots of one shard.
pub(crate) struct SlotTable {
    pages: Box<[Page]>,
    homes: u32,
    len: u32,
    /// The maximum number of slots per 256 homes. It differs between tables, so that these do not
    /// all grow at once.
    fill: u8,
}

/// The fill limit of a table, out of 256, from a number that differs for each table. The limits
/// span one step of growth, so at any moment some tables are far from growing and some near.
pub(crate) fn fill_of(number: u64) -> u8 {
    214 + number.to_le_bytes()[0] % 17
}

impl SlotTable {
    pub(crate) fn new(fill: u8) -> Self {
        Self {
            pages: Box::default(),
            homes: 0,
            len: 0,
            fill,
        }
    }

    fn of_pages(fill: u8, pages: usize) -> Self {
        Self {
            pages: (0..pages).map(|_| new_page()).collect(),
            homes: u32::try_from(homes_in(pages)).unwrap_or(u32::MAX),
            len: 0,
            fill,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The memory of the pages, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page>() + size_of::<[Packed; PAGE_SLOTS]>())
    }

    /// True when another slot fits without making the table too full.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < room_in(self.homes as usize, self.fill)
    }

    /// True when a smaller table would suffice.
    pub(crate) fn is_sparse(&self) -> bool {
        self.pages.len() > 1 && self.len() * 2 < self.homes as usize
    }

    /// The same slots in a larger table.
    pub(crate) fn grown(&self) -> Self {
        // Pages that were appended for lack of room do not count.
        let pages = (self.homes as usize).div_ceil(PAGE_SLOTS);
        let mut table = Self::of_pages(self.fill, larger(pages));
        table.fill_from(self.slots());
        table
    }

    /// The slots that `keep` admits, in a table of the right size.
    pub(crate) fn filtered(&self, mut keep: impl FnMut(Packed) -> bool) -> Self {
        let kept: Vec<Packed> = self.slots().filter(|slot| keep(*slot)).collect();
        self.replaced_by(&kept)
    }

    /// A replacement for this table with these slots, sorted by fingerprint.
    pub(crate) fn replaced_by(&self, slots: &[Packed]) -> Self {
        let mut table = self.replaced_by_room(slots.len());
        table.fill_from(slots.iter().copied());
        table
    }

    /// An empty replacement for this table, with room for `count` slots.
    pub(crate) fn replaced_by_room(&self, count: usize) -> Self {
        let mut pages = 0;
        while room_in(homes_in(pages), self.fill) < count {
            pages = larger(pages);
        }
        Self::of_pages(self.fill, pages)
    }

    /// Fills an empty table with slots sorted by fingerprint.
    fn fill_from(&mut self, slots: impl Iterator<Item = Packed>) {
        let mut end = 0;
        for slot in slots {
            let at = self.home(slot).max(end);
            *self.place_mut(at) = slot;
            end = at + 1;
            self.len += 1;
        }
    }

    /// All slots in the order of their fingerprints.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Packed> + '_ {
        let places = self.pages.iter().flat_map(|page| page.iter());
        places.copied().filter(|slot| !slot.is_empty())
    }

    /// The slots of a fingerprint.
    pub(crate) fn of_fingerprint(&self, wanted: Packed) -> impl Iterator<Item = Packed> + '_ {
        let bits = wanted.fingerprint_bits();
        self.run_from(self.home(wanted))
            .skip_while(move |slot| slot.fingerprint_bits() < bits)
            .take_while(move |slot| slot.fingerprint_bits() == bits)
    }

    /// Adds a slot, even to a table that is too full.
    pub(crate) fn insert(&mut self, slot: Packed) {
        if self.homes == 0 {
            *self = Self::of_pages(self.fill, 1);
        }
        let bits = slot.fingerprint_bits();
        let home = self.home(slot);
        let before = self
            .run_from(home)
            .take_while(|it| it.fingerprint_bits() <= bits);
        let mut at = home + before.count();
        let mut carried = slot;
        while !carried.is_empty() {
            let place = self.place_mut(at);
            std::mem::swap(place, &mut carried);
            at += 1;
        }
        self.len += 1;
    }

    /// Overwrites the slot of `old`'s record with `new`; false if the record has no slot. Both have
    /// the same fingerprint.
    pub(crate) fn replace(&mut self, old: Packed, new: Packed) -> bool {
        match self.position(old) {
            Some(at) => {
                *self.place_mut(at) = new;
                true
            }
            None => false,
        }
    }

    /// Removes the slot of `old`'s record; false if the record has no slot.
    pub(crate) fn remove(&mut self, old: Packed) -> bool {
        let Some(mut at) = self.position(old) else {
            return false;
        };
        loop {
            let next = self.get(at + 1);
            if next.is_empty() || self.home(next) > at {
                *self.place_mut(at) = Packed::EMPTY;
                self.len -= 1;
                return true;
            }
            *self.place_mut(at) = next;
            at += 1;
        }
    }

    fn position(&self, wanted: Packed) -> Option<usize> {
        let home = self.home(wanted);
        let bits = wanted.fingerprint_bits();
        self.run_from(home)
            .take_while(|slot| slot.fingerprint_bits() <= bits)
            .position(|slot| slot.is_same_record(wanted))
            .map(|ahead| home + ahead)
    }

    fn home(&self, slot: Packed) -> usize {
        let home = (slot.order() * u64::from(self.homes)) >> 32;
        usize::try_from(home).unwrap_or(0)
    }

    /// The slots from a place up to the next gap.
    fn run_from(&self, at: usize) -> Run<'_> {
        Run {
            pages: &self.pages,
            at,
        }
    }

    fn get(&self, at: usize) -> Packed {
        let page = self.pages.get(at / PAGE_SLOTS);
        page.map_or(Packed::EMPTY, |page| page[at % PAGE_SLOTS])
    }

    /// The place at `at`. A place behind the end adds a page.
    fn place_mut(&mut self, at: usize) -> &mut Packed {
        if at / PAGE_SLOTS >= self.pages.len() {
            let mut pages = std::mem::take(&mut self.pages).into_vec();
            pages.reserve_exact(1);
            pages.push(new_page());
            self.pages = pages.into_boxed_slice();
        }
        &mut self.pages[at / PAGE_SLOTS][at % PAGE_SLOTS]
    }
}

struct Run<'t> {
    pages: &'t [Page],
    at: usize,
}

impl Iterator for Run<'_> {
    type Item = Packed;

    fn next(&mut self) -> Option<Packed> {
        let page = self.pages.get(self.at / PAGE_SLOTS)?;
        let slot = page[self.at % PAGE_SLOTS];
        self.at += 1;
        (!slot.is_empty()).then_some(slot)
    }
}

fn new_page() -> Page {
    Box::new([Packed::EMPTY; PAGE_SLOTS])
}

/// The pages of the next larger table.
fn larger(pages: usize) -> usize {
    pages + (pages / GROWTH).max(1)
}

fn homes_in(pages: usize) -> usize {
    let slots = pages * PAGE_SLOTS;
    slots - MARGIN_SLOTS.min(slots / 16)
}

/// The number of slots in a full table.
fn room_in(homes: usize, fill: u8) -> usize {
    homes * usize::from(fill) / 256
}

#[cfg(test)]
mod tests {
    use kvorum_segment::Location;
    use proptest::prelude::*;

    use super::*;
    use crate::slot::Slot;

    fn slot(fingerprint: u64, offset: u64) -> Packed {
        let at = Location {
            offset,
            front_end: 100,
            len: 1000,
        };
        Slot::new(fingerprint, 1, at).pack()
    }

    fn check(table: &SlotTable) {
        let slots: Vec<Packed> = table.slots().collect();
        assert_eq!(slots.len(), table.len());
        let is_ordered = |it: &[Packed]| it[0].fingerprint_bits() <= it[1].fingerprint_bits();
        assert!(slots.windows(2).all(is_ordered));
        for slot in slots {
            let at = table.position(slot).unwrap();
            assert!(at >= table.home(slot));
            assert!(table.of_fingerprint(slot).any(|it| it == slot));
        }
    }

    fn spread(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_table_holds_what_a_list_would_hold(
            steps in proptest::collection::vec((0u64..40, 0u64..3, any::<bool>()), 1..300),
            shift in 0u32..60,
            fill in any::<u64>(),
        ) {
            let mut table = SlotTable::new(fill_of(fill));
            let mut expected: Vec<Packed> = Vec::new();
            for (number, offset, is_insert) in steps {
                // With a large shift many slots have one home; without a shift they are spread.
                let slot = slot(spread(number) >> shift, 32 + offset * 8);
                let known = expected.iter().position(|it| *it == slot);
                match known {
                    Some(at) if !is_insert => {
                        prop_assert!(table.remove(slot));
                        expected.remove(at);
                    }
                    None if is_insert => {
                        if !table.has_room() {
                            table = table.grown();
                        }
                        table.insert(slot);
                        expected.push(slot);
                    }
                    _ => prop_assert_eq!(table.replace(slot, slot), known.is_some()),
                }
                check(&table);
            }
            let mut found: Vec<Packed> = table.slots().collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn slots_of_one_fingerprint_at_the_very_end_have_room() {
        let mut table = SlotTable::new(230);
        for number in 0..200 {
            if !table.has_room() {
                table = table.grown();
            }
            table.insert(slot(u64::MAX, 32 + 8 * number));
        }
        check(&table);
        for number in 0..200 {
            assert!(table.remove(slot(u64::MAX, 32 + 8 * number)));
        }
        assert_eq!(table.slots().count(), 0);
    }

    #[test]
    fn a_table_is_never_far_from_full_once_it_has_some_pages() {
        for fill in [fill_of(0), fill_of(16)] {
            let mut table = SlotTable::new(fill);
            for number in 0..20_000u64 {
                if !table.has_room() {
                    table = table.grown();
                }
                table.insert(slot(spread(number), 32));
                if number > 120 {
                    let each = table.memory_bytes() as u64 * 10 / (number + 1);
                    assert!(each < 245, "{each} tenths of a byte for {number}");
                }
            }
            check(&table);
            let kept = table.filtered(|slot| slot.fingerprint_bits() % 16 == 0);
            assert!(table.len() / kept.len() > 12 && !kept.is_sparse());
            check(&kept);
        }
    }

    /// With one fill limit, equally filled tables would all grow at the same moment, and every put
    /// would wait for one of them.
    #[test]
    fn of_tables_that_are_filled_alike_less_than_half_grow_within_a_percent() {
        const TABLES: u64 = 64;
        const FIRST: u64 = 4_000;
        const LAST: u64 = 12_000;
        let mut growths = std::collections::BTreeMap::<u64, u64>::new();
        for number in 0..TABLES {
            // Mixed like the numbers of a store's shards.
            let mut table = SlotTable::new(fill_of(spread(number) >> 32));
            for count in 0..LAST {
                if !table.has_room() {
                    table = table.grown();
                    *growths.entry(count).or_default() += 1;
                }
                table.insert(slot(spread(count), 32));
            }
        }
        let all: u64 = growths.range(FIRST..).map(|(_, tables)| tables).sum();
        assert!(all > 10 * TABLES, "{all}");
        for from in FIRST..LAST {
            // Each table gets one percent more slots. On average a seventh of the tables grows
            // meanwhile, and more when the last tables of one size grow with the first of the next.
            let within = growths.range(from..from + from / 100);
            let tables: u64 = within.map(|(_, tables)| tables).sum();
            assert!(tables < TABLES / 2, "{tables} grow from {from} on");
        }
    }
}
