//! Clocks and dots as bytes.
//!
//! A value names each of its actors once, in its clock, and dots by the actor's place there.

use bytes::BufMut;
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::clock::Clock;
use crate::dot::{Actor, Dot};
use crate::dot_store::{DotStore as _, Dots};

/// Writes a clock.
///
/// ```text
/// clock    = count     varint
///            entry*            by strictly ascending actor
/// entry    = actor     u64     little-endian
///            counter   varint  not 0
/// ```
pub(crate) fn put_clock(out: &mut impl BufMut, clock: &Clock) {
    put_varint(out, clock.len() as u64);
    for dot in clock.entries() {
        out.put_u64_le(dot.actor.0);
        put_varint(out, dot.counter);
    }
}

/// Reads what [`put_clock`] wrote.
pub(crate) fn read_clock(reader: &mut ByteReader<'_>) -> Result<Clock, Truncated> {
    let count = reader.varint_len()?;
    let mut clock = Clock::new();
    let mut last = None;
    for _ in 0..count {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let actor = Actor(reader.u64()?);
        let counter = reader.varint()?;
        if counter == 0 || last >= Some(actor) {
            return Err(malformed);
        }
        last = Some(actor);
        clock.observe(Dot { actor, counter });
    }
    Ok(clock)
}

/// The actors of a value, by which its dots are written.
pub struct ActorTable(Vec<Dot>);

impl ActorTable {
    /// The table of a clock's actors.
    pub(crate) fn of(clock: &Clock) -> Self {
        Self(clock.entries().collect())
    }

    /// Writes a dot.
    ///
    /// ```text
    /// dot      = actor     varint  its place in the clock, from 0
    ///            counter   varint  not 0, and not above the clock's
    /// ```
    ///
    /// # Panics
    /// If the clock does not cover the dot: the clock of a value covers all of its dots.
    pub(crate) fn put_dot(&self, out: &mut impl BufMut, dot: Dot) {
        let place = self.0.binary_search_by_key(&dot.actor, |it| it.actor);
        let place = place
            .ok()
            .filter(|place| dot.counter <= self.0[*place].counter);
        assert!(place.is_some(), "{dot:?} is not in the clock of its value");
        put_varint(out, place.unwrap_or_default() as u64);
        put_varint(out, dot.counter);
    }

    /// Reads what [`ActorTable::put_dot`] wrote.
    pub(crate) fn read_dot(&self, reader: &mut ByteReader<'_>) -> Result<Dot, Truncated> {
        let malformed = Truncated {
            offset: reader.offset(),
        };
        let place = usize::try_from(reader.varint()?).map_err(|_| malformed)?;
        let counter = reader.varint()?;
        let seen = self.0.get(place).ok_or(malformed)?;
        if counter == 0 || counter > seen.counter {
            return Err(malformed);
        }
        Ok(Dot {
            actor: seen.actor,
            counter,
        })
    }

    /// Writes dots.
    ///
    /// ```text
    /// dots     = count     varint
    ///            dot*              strictly ascending
    /// ```
    pub(crate) fn put_dots(&self, out: &mut impl BufMut, dots: &Dots) {
        put_varint(out, dots.as_slice().len() as u64);
        dots.each_dot(&mut |dot| self.put_dot(out, dot));
    }

    /// Reads what [`ActorTable::put_dots`] wrote.
    pub(crate) fn read_dots(&self, reader: &mut ByteReader<'_>) -> Result<Dots, Truncated> {
        let count = reader.varint_len()?;
        let mut dots = Dots::default();
        for _ in 0..count {
            let malformed = Truncated {
                offset: reader.offset(),
            };
            let dot = self.read_dot(reader)?;
            if dots.as_slice().last() >= Some(&dot) {
                return Err(malformed);
            }
            dots.insert(dot);
        }
        Ok(dots)
    }
}

/// Writes a sum of a counter.
///
/// ```text
/// sum      = low       varint  the lower 64 bits
///            high      varint  the upper 64 bits
/// ```
pub(crate) fn put_sum(out: &mut impl BufMut, sum: u128) {
    put_varint(out, low(sum));
    put_varint(out, low(sum >> u64::BITS));
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low(sum: u128) -> u64 {
    sum as u64
}

/// Reads what [`put_sum`] wrote.
pub(crate) fn read_sum(reader: &mut ByteReader<'_>) -> Result<u128, Truncated> {
    let low = u128::from(reader.varint()?);
    let high = u128::from(reader.varint()?);
    Ok(high << u64::BITS | low)
}
