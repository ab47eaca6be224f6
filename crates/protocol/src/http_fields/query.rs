//! The query string of a URL as named parameters.

use std::borrow::Cow;

use super::percent::decode_percent_and_plus;

/// The parameters of a request in the order given; a name may repeat, and the first one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryParameters<'a> {
    pairs: Vec<Parameter<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter<'a> {
    name: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
}

impl<'a> QueryParameters<'a> {
    /// Splits and decodes a query string without its `?`. A name without `=` has an empty value.
    pub fn parse(query: &'a [u8]) -> QueryParameters<'a> {
        let pairs = query
            .split(|&byte| byte == b'&' || byte == b';')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let equals = pair.iter().position(|&byte| byte == b'=');
                let (name, value) = match equals {
                    Some(at) => (&pair[..at], &pair[at + 1..]),
                    None => (pair, &pair[pair.len()..]),
                };
                Parameter {
                    name: decode_percent_and_plus(name),
                    value: decode_percent_and_plus(value),
                }
            })
            .collect();
        QueryParameters { pairs }
    }

    /// The value of the first parameter called `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self
            .pairs
            .iter()
            .find(|pair| *pair.name == *name.as_bytes());
        found.map(|pair| &*pair.value)
    }

    /// Every parameter, decoded, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|pair| (&*pair.name, &*pair.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_repeated_name_counts_and_values_are_decoded() {
        let parameters = QueryParameters::parse(b"r=1&r=2&tag=a+b%26&flag&&=x");
        assert_eq!(parameters.get("r"), Some(&b"1"[..]));
        assert_eq!(parameters.get("tag"), Some(&b"a b&"[..]));
        assert_eq!(parameters.get("flag"), Some(&b""[..]));
        assert_eq!(parameters.get("w"), None);
        assert_eq!(parameters.iter().count(), 5);
    }
}
