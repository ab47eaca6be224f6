//! The number of distinct values, estimated in at most 64 KB.
//!
//! A value's SHA-1 gives a register (its first `precision` bits) and a rank (the zeroes at the
//! front of the next `precision` bits, and one). A register keeps its highest rank. These are the
//! registers of Riak's sketches, so that imported sketches continue to count.
//!
//! Small numbers are estimated from the share of zero registers, up to Riak's limits and with
//! Riak's results. Larger ones are estimated from the histogram of all registers, after Otmar Ertl,
//! "New cardinality estimation algorithms for HyperLogLog sketches" (2017). This estimator has no
//! bias and needs no correction tables. It allows for the highest rank, `precision + 1`, which
//! sketches of low precision reach with a few hundred values. A sketch with all registers at the
//! highest rank has the greatest estimate of its precision, which means "at least this many": 721
//! with a precision of 4, 2,600,000,000 with 14.

use sha1::{Digest as _, Sha1};

/// The least precision, 16 registers.
pub const PRECISION_MIN: u8 = 4;
/// The greatest precision, 65,536 registers.
pub const PRECISION_MAX: u8 = 16;
/// The precision of buckets that name none.
pub const PRECISION_DEFAULT: u8 = 14;

/// The greatest estimates that are made from zero registers, by precision from [`PRECISION_MIN`] on.
const FEW_MAX: [f64; 13] = [
    10.0, 20.0, 40.0, 80.0, 220.0, 400.0, 900.0, 1800.0, 3100.0, 6500.0, 11500.0, 20000.0, 50000.0,
];

/// A sketch of a multitude of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog {
    precision: u8,
    registers: Vec<u8>,
}

impl HyperLogLog {
    /// An empty sketch; a precision out of range is clamped.
    pub fn new(precision: u8) -> Self {
        let precision = precision.clamp(PRECISION_MIN, PRECISION_MAX);
        Self {
            precision,
            registers: vec![0; 1 << precision],
        }
    }

    /// A sketch of these registers; `None` unless their number is that of a precision and no rank is
    /// out of range.
    pub fn from_registers(registers: Vec<u8>) -> Option<Self> {
        let precisions = PRECISION_MIN..=PRECISION_MAX;
        let mut fitting = precisions.filter(|precision| registers.len() == 1 << precision);
        let precision = fitting.next()?;
        let is_rank = |rank: &u8| *rank <= rank_max(precision);
        registers.iter().all(is_rank).then_some(Self {
            precision,
            registers,
        })
    }

    /// The number of bits that choose a register.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// The registers' ranks.
    pub fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// Counts a value.
    pub fn add(&mut self, value: &[u8]) {
        let (register, rank) = place(&Sha1::digest(value), self.precision);
        self.raise(register, rank);
    }

    /// Merges another sketch. The result has the lower precision of the two.
    pub fn merge(&mut self, other: &Self) {
        if other.precision < self.precision {
            self.reduce(other.precision);
        }
        for (register, rank) in other.ranks() {
            let (register, rank) = reduced(register, rank, other.precision, self.precision);
            self.raise(register, rank);
        }
    }

    /// Lowers the precision: the sketch becomes that of the same values at this precision. A precision that
    /// is not lower changes nothing.
    pub fn reduce(&mut self, precision: u8) {
        let precision = precision.max(PRECISION_MIN);
        if precision >= self.precision {
            return;
        }
        let mut lower = Self::new(precision);
        for (register, rank) in self.ranks() {
            let (register, rank) = reduced(register, rank, self.precision, precision);
            lower.raise(register, rank);
        }
        *self = lower;
    }

    /// The estimated number of distinct values.
    pub fn estimate(&self) -> u64 {
        let few = self.estimate_of_zeroes();
        let estimate = match few {
            Some(few) if few <= FEW_MAX[usize::from(self.precision - PRECISION_MIN)] => few,
            _ => self.estimate_of_histogram(),
        };
        whole(estimate)
    }

    fn ranks(&self) -> impl Iterator<Item = (usize, u8)> {
        let ranks = self.registers.iter().copied().enumerate();
        ranks.filter(|(_, rank)| *rank > 0)
    }

    fn raise(&mut self, register: usize, rank: u8) {
        let held = &mut self.registers[register];
        *held = rank.max(*held);
    }

    /// Registers by their rank. With all at the highest rank, no finite number is the likeliest. The
    /// histogram then has one register a rank below, which gives the greatest finite estimate.
    fn histogram(&self) -> Vec<f64> {
        let mut counts = vec![0.0; usize::from(rank_max(self.precision)) + 1];
        for rank in &self.registers {
            counts[usize::from(*rank)] += 1.0;
        }
        if let [.., below, last] = &mut counts[..]
            && *last >= float(self.registers.len())
        {
            *below += 1.0;
            *last -= 1.0;
        }
        counts
    }

    /// The estimate by linear counting; `None` when no register is zero.
    fn estimate_of_zeroes(&self) -> Option<f64> {
        let zeroes = self.registers.iter().filter(|rank| **rank == 0).count();
        let (all, zeroes) = (float(self.registers.len()), float(zeroes));
        (zeroes > 0.0).then(|| all * (all / zeroes).ln())
    }

    fn estimate_of_histogram(&self) -> f64 {
        let all = float(self.registers.len());
        let counts = self.histogram();
        let last = counts.len() - 1;
        let mut sum = all * tau(1.0 - counts[last] / all);
        for count in counts[1..last].iter().rev() {
            sum = 0.5 * (sum + count);
        }
        sum += all * sigma(counts[0] / all);
        all * all / (2.0 * std::f64::consts::LN_2 * sum)
    }
}

impl Default for HyperLogLog {
    fn default() -> Self {
        Self::new(PRECISION_DEFAULT)
    }
}

/// The highest rank, of a value whose bits for it are all zero.
fn rank_max(precision: u8) -> u8 {
    precision + 1
}

/// The register of a hash, and its rank.
fn place(hash: &[u8], precision: u8) -> (usize, u8) {
    let front = hash.iter().take(8);
    let bits = front.fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let precision_bits = u32::from(precision);
    let register = bits >> (u64::BITS - precision_bits);
    let rank = (bits << precision_bits).leading_zeros() + 1;
    let rank = u8::try_from(rank).unwrap_or(u8::MAX);
    let register = usize::try_from(register).unwrap_or(0);
    (register, rank.min(rank_max(precision)))
}

/// The register and the rank of a value at a lower precision, from its register and rank at a higher one.
///
/// The bits that no longer select the register become the first bits of the rank.
fn reduced(register: usize, rank: u8, from: u8, to: u8) -> (usize, u8) {
    let freed = from - to;
    let freed_bits = register & ((1 << freed) - 1);
    let bits = usize::BITS - freed_bits.leading_zeros();
    let bits = u8::try_from(bits).unwrap_or(u8::MAX);
    let rank = match freed_bits {
        0 => rank + freed,
        _ => freed - bits + 1,
    };
    (register >> freed, rank.min(rank_max(to)))
}

/// The share of values that the zero registers stand for.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum <= before {
            return sum;
        }
    }
}

/// The share of values that the registers of the highest rank stand for.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root).powi(2) * weight;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most 65,536 registers")]
fn float(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, finite, and not negative"
)]
fn whole(estimate: f64) -> u64 {
    estimate.round() as u64
}
