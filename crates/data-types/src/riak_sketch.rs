//! HyperLogLogs as Riak's terms: `{hyper, Precision, {hyper_binary, Registers}}`.

use bytes::Bytes;
use kvorum_erlang_terms::external_term::Term;

use crate::hyper_log_log::{HyperLogLog, PRECISION_MAX, PRECISION_MIN};

/// Bits of a register in the dense form.
const RANK_BITS: usize = 6;
/// A written sketch has a buffer with room for one entry for this many registers.
const BUFFER_SHARE: usize = 20;
const BUFFER_MIN: usize = 16;

/// Reads a sketch: registers as a list of `{Index, Rank}`, as six bits each, or both.
pub(crate) fn sketch_of(term: &Term) -> Option<HyperLogLog> {
    let [name, precision, registers] = elements(term)?;
    let precision = u8::try_from(precision.as_u64()?).ok()?;
    if !name.is_atom("hyper") || !(PRECISION_MIN..=PRECISION_MAX).contains(&precision) {
        return None;
    }
    let [module, registers] = elements(registers)?;
    if !module.is_atom("hyper_binary") {
        return None;
    }
    let mut ranks = vec![0; 1 << precision];
    match registers.as_tuple()? {
        [form, buffer, ..] if form.is_atom("buffer") => raise(&mut ranks, buffer)?,
        [form, dense, buffer, ..] if form.is_atom("dense") => {
            unpack(&mut ranks, dense.as_binary()?)?;
            raise(&mut ranks, buffer)?;
        }
        _ => return None,
    }
    HyperLogLog::from_registers(ranks)
}

/// The term of a sketch, in the dense form.
pub(crate) fn sketch_term(sketch: &HyperLogLog) -> Term {
    let count = sketch.registers().len();
    let buffer_max = (count / BUFFER_SHARE).max(BUFFER_MIN);
    let dense = Term::Tuple(vec![
        atom("dense"),
        Term::Binary(pack(sketch.registers()).into()),
        Term::List(Vec::new(), None),
        Term::Integer(0),
        Term::Integer(i128::try_from(buffer_max).unwrap_or(0)),
    ]);
    Term::Tuple(vec![
        atom("hyper"),
        Term::Integer(sketch.precision().into()),
        Term::Tuple(vec![atom("hyper_binary"), dense]),
    ])
}

fn atom(name: &'static str) -> Term {
    Term::Atom(Bytes::from_static(name.as_bytes()))
}

fn elements<const N: usize>(term: &Term) -> Option<&[Term; N]> {
    term.as_tuple()?.try_into().ok()
}

/// Raises the registers of a list of `{Index, Rank}`.
fn raise(ranks: &mut [u8], buffer: &Term) -> Option<()> {
    let Term::List(entries, None) = buffer else {
        return None;
    };
    for entry in entries {
        let [index, rank] = elements(entry)?;
        let held = ranks.get_mut(usize::try_from(index.as_u64()?).ok()?)?;
        let rank = u8::try_from(rank.as_u64()?).ok()?;
        *held = rank.max(*held);
    }
    Some(())
}

/// Four registers are in three bytes.
fn unpack(ranks: &mut [u8], packed: &[u8]) -> Option<()> {
    if packed.len() * u8::BITS as usize != ranks.len() * RANK_BITS {
        return None;
    }
    for (four, three) in ranks.chunks_exact_mut(4).zip(packed.chunks_exact(3)) {
        let [a, b, c] = three else {
            return None;
        };
        four[0] = a >> 2;
        four[1] = (a & 0b11) << 4 | b >> 4;
        four[2] = (b & 0b1111) << 2 | c >> 6;
        four[3] = c & 0b11_1111;
    }
    Some(())
}

fn pack(ranks: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(ranks.len() / 4 * 3);
    for four in ranks.chunks_exact(4) {
        packed.extend([
            four[0] << 2 | four[1] >> 4,
            four[1] << 4 | four[2] >> 2,
            four[2] << 6 | four[3],
        ]);
    }
    packed
}
