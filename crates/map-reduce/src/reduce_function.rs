//! The built-in functions of reduce phases.
//!
//! A phase applies its function to its inputs and to earlier results, so a function must accept its
//! own results.

use crate::print::flat;
use crate::term::Term;
use crate::term_text::integer_of_text;

/// A built-in function of a reduce phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceFunction {
    /// Bucket and key of each input.
    Identity,
    /// Each input once.
    SetUnion,
    /// The inputs in Erlang's order.
    Sort,
    /// Numbers from texts.
    StringToInteger,
    /// The sum of numbers.
    Sum,
    /// The sums of the values for each name in lists of pairs.
    PlistSum,
    /// The number of inputs; whole numbers are counts.
    CountInputs,
}

/// Erlang's name for the reason why a function has no results.
pub(crate) type Raised = String;

impl ReduceFunction {
    /// The function of this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            "reduce_identity" => Some(Self::Identity),
            "reduce_set_union" => Some(Self::SetUnion),
            "reduce_sort" => Some(Self::Sort),
            "reduce_string_to_integer" => Some(Self::StringToInteger),
            "reduce_sum" => Some(Self::Sum),
            "reduce_plist_sum" => Some(Self::PlistSum),
            "reduce_count_inputs" => Some(Self::CountInputs),
            _ => None,
        }
    }

    /// Applies the function once.
    pub(crate) fn apply(self, inputs: Vec<Term>) -> Result<Vec<Term>, Raised> {
        match self {
            Self::Identity => inputs.iter().map(place).collect(),
            Self::SetUnion => Ok(distinct(inputs)),
            Self::Sort => Ok(sorted(inputs)),
            Self::StringToInteger => inputs
                .iter()
                .filter(|it| is_datum(it))
                .map(integer)
                .collect(),
            Self::Sum => {
                let numbers = inputs.iter().filter(|it| is_datum(it));
                let sum = numbers
                    .cloned()
                    .try_fold(Term::Integer(0), |sum, it| add(&it, &sum));
                sum.map(|it| vec![it])
            }
            Self::PlistSum => sums_by_name(inputs),
            Self::CountInputs => inputs
                .iter()
                .try_fold(0_i128, counted)
                .map(|it| vec![Term::Integer(it)]),
        }
    }
}

fn place(input: &Term) -> Result<Term, Raised> {
    let listed = |parts: &[Term]| Term::List(parts.to_vec());
    match input {
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Tuple(place), _] if place.len() == 2 => Ok(listed(place)),
            [_, _] => Ok(listed(parts)),
            _ => Err(unhandled(input)),
        },
        Term::List(parts) if parts.len() == 2 => Ok(listed(parts)),
        _ => Err(unhandled(input)),
    }
}

fn unhandled(input: &Term) -> Raised {
    format!("{{nocatch,{{unhandled_entry,{}}}}}", flat(input))
}

fn distinct(mut inputs: Vec<Term>) -> Vec<Term> {
    inputs.sort_by(Term::strict_order);
    inputs.dedup();
    inputs
}

fn sorted(mut inputs: Vec<Term>) -> Vec<Term> {
    inputs.sort_by(Term::order);
    inputs
}

/// True unless the term marks a missing object.
fn is_datum(term: &Term) -> bool {
    !matches!(term, Term::Tuple(parts)
        if matches!(parts.len(), 2 | 3) && parts[0].is_atom("not_found"))
}

fn integer(input: &Term) -> Result<Term, Raised> {
    let number = match input {
        Term::Integer(number) => return Ok(Term::Integer(*number)),
        Term::Binary(text) => integer_of_text(text),
        Term::List(_) => input.as_characters().and_then(|it| integer_of_text(&it)),
        _ => return Err(format!("{{function_clause,{}}}", flat(input))),
    };
    let number = number.map(Term::Integer);
    number.ok_or_else(|| format!("{{badarg,[{{erlang,list_to_integer,[{}]}}]}}", flat(input)))
}

fn add(left: &Term, right: &Term) -> Result<Term, Raised> {
    let sum = match (left, right) {
        (Term::Integer(left), Term::Integer(right)) => left.checked_add(*right).map(Term::Integer),
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => Some(left + right)
                .filter(|it| it.is_finite())
                .map(Term::Float),
            _ => None,
        },
    };
    sum.ok_or_else(|| {
        format!(
            "{{badarith,[{{erlang,'+',[{},{}]}}]}}",
            flat(left),
            flat(right)
        )
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum with a fraction is as exact as such a number is"
)]
fn number(term: &Term) -> Option<f64> {
    match term {
        Term::Integer(number) => Some(*number as f64),
        Term::Float(number) => Some(*number),
        _ => None,
    }
}

fn counted(sum: i128, input: &Term) -> Result<i128, Raised> {
    let count = match input {
        Term::Integer(count) => *count,
        _ => 1,
    };
    sum.checked_add(count)
        .ok_or_else(|| "{system_limit,[{erlang,'+'}]}".to_string())
}

fn sums_by_name(inputs: Vec<Term>) -> Result<Vec<Term>, Raised> {
    let pairs = match inputs.first() {
        Some(Term::Tuple(_)) | None => inputs,
        Some(_) => flattened(inputs),
    };
    let mut named = pairs
        .iter()
        .map(named_value)
        .collect::<Result<Vec<_>, _>>()?;
    named.sort_by(|(left, _), (right, _)| left.strict_order(right));
    let mut sums: Vec<(Term, Term)> = Vec::new();
    for (name, value) in named {
        match sums.last_mut().filter(|(last, _)| *last == name) {
            Some((_, sum)) => *sum = add(&value, sum)?,
            None => sums.push((name, value)),
        }
    }
    Ok(sums
        .into_iter()
        .map(|(name, sum)| Term::pair(name, sum))
        .collect())
}

fn named_value(pair: &Term) -> Result<(Term, Term), Raised> {
    match pair {
        Term::Tuple(parts) if parts.len() == 2 => Ok((parts[0].clone(), parts[1].clone())),
        _ => Err(format!(
            "{{function_clause,[{{riak_kv_mapreduce,'-reduce_plist_sum/2-fun-1-',[{}]}}]}}",
            flat(pair)
        )),
    }
}

fn flattened(terms: Vec<Term>) -> Vec<Term> {
    let mut flat = Vec::new();
    for term in terms {
        match term {
            Term::List(elements) => flat.extend(flattened(elements)),
            _ => flat.push(term),
        }
    }
    flat
}
