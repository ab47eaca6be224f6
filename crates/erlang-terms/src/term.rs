//! A term, and its position.

/// One literal Erlang term.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// An atom, without its quotes.
    Atom(String),
    /// An integer of at most 128 bits.
    Integer(i128),
    /// A finite float.
    Float(f64),
    /// A text in double quotes, in Erlang a list of code points. The written form is kept because
    /// only it distinguishes a host name from a list of numbers.
    String(String),
    /// A binary.
    Binary(Vec<u8>),
    /// A proper list.
    List(Vec<Term>),
    /// A tuple.
    Tuple(Vec<Term>),
    /// A map, as pairs in the order written.
    Map(Vec<(Term, Term)>),
}

/// A term with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedTerm {
    /// The term.
    pub term: Term,
    /// The position of its first character.
    pub position: Position,
}

/// A place in a file; both numbers start at 1, the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number.
    pub line: u32,
    /// Column number.
    pub column: u32,
}

impl std::fmt::Display for Position {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

impl Term {
    /// Shorthand for an atom.
    pub fn atom(name: &str) -> Self {
        Self::Atom(name.to_owned())
    }

    /// The atom's name.
    pub fn as_atom(&self) -> Option<&str> {
        match self {
            Self::Atom(name) => Some(name),
            _ => None,
        }
    }

    /// The integer's value.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The value of an integer or a float.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a configured number beyond 2^53 needs no more than a float's precision"
            )]
            Self::Integer(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The elements of a tuple.
    pub fn as_tuple(&self) -> Option<&[Term]> {
        match self {
            Self::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// The elements of a list; an empty string is the empty list.
    pub fn as_list(&self) -> Option<&[Term]> {
        match self {
            Self::List(elements) => Some(elements),
            Self::String(text) if text.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The text of a string, also if it is written as a list of code points.
    pub fn as_text(&self) -> Option<String> {
        match self {
            Self::String(text) => Some(text.clone()),
            Self::List(elements) => elements.iter().map(code_point).collect(),
            _ => None,
        }
    }

    /// The bytes of a binary, or of a string: one byte for each character if all are below 256,
    /// otherwise UTF-8.
    pub fn as_bytes(&self) -> Option<Vec<u8>> {
        if let Self::Binary(bytes) = self {
            return Some(bytes.clone());
        }
        let text = self.as_text()?;
        let narrow: Option<Vec<u8>> = text
            .chars()
            .map(|character| u8::try_from(u32::from(character)).ok())
            .collect();
        Some(narrow.unwrap_or_else(|| text.into_bytes()))
    }

    /// True if this is a tuple that begins with the given atom.
    pub fn is_tagged(&self, tag: &str) -> bool {
        self.as_tuple()
            .and_then(<[Term]>::first)
            .and_then(Term::as_atom)
            == Some(tag)
    }
}

fn code_point(term: &Term) -> Option<char> {
    term.as_integer()
        .and_then(|value| u32::try_from(value).ok())
        .and_then(char::from_u32)
}
