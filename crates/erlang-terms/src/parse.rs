//! Builds terms from tokens: a recursive descent with one token of look-ahead.

use crate::lex::{Lexer, Token};
use crate::syntax_error::SyntaxError;
use crate::term::{LocatedTerm, Position, Term};

/// The depth limit of nested terms, which protects the stack.
const DEPTH_MAX: u32 = 128;

/// All terms of a file, each of which has to end in a full stop.
///
/// The bytes are UTF-8, or Latin-1 if one of the first two lines has `coding: latin-1`.
pub fn parse_terms(bytes: &[u8]) -> Result<Vec<LocatedTerm>, SyntaxError> {
    let text = decode(bytes)?;
    let mut parser = Parser::new(&text)?;
    let mut terms = Vec::new();
    while parser.token != Token::End {
        let position = parser.position;
        let term = parser.term(0)?;
        if parser.token != Token::Stop {
            return Err(parser.unexpected("`.` at the end of the term"));
        }
        parser.advance()?;
        terms.push(LocatedTerm { term, position });
    }
    Ok(terms)
}

/// One term, for example on a command line: the full stop is optional.
pub fn parse_term(text: &str) -> Result<Term, SyntaxError> {
    let mut parser = Parser::new(text)?;
    let term = parser.term(0)?;
    if parser.token == Token::Stop {
        parser.advance()?;
    }
    if parser.token != Token::End {
        return Err(parser.unexpected("the end of the term"));
    }
    Ok(term)
}

fn decode(bytes: &[u8]) -> Result<String, SyntaxError> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(text.to_owned());
    }
    let latin: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let declares = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.contains("coding: latin-1") || line.contains("coding:latin-1")
    };
    if latin.lines().take(2).any(declares) {
        return Ok(latin);
    }
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let before = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |last| last.chars().count())
        + 1;
    Err(SyntaxError::new(
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        },
        "UTF-8 text, or `%% coding: latin-1` in the first line",
        "a byte that is not UTF-8",
    ))
}

struct Parser<'text> {
    lexer: Lexer<'text>,
    token: Token,
    position: Position,
}

impl<'text> Parser<'text> {
    fn new(text: &'text str) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer::new(text);
        let (token, position) = lexer.next_token()?;
        Ok(Self {
            lexer,
            token,
            position,
        })
    }

    /// Takes the current token and reads the next.
    fn advance(&mut self) -> Result<Token, SyntaxError> {
        let (token, position) = self.lexer.next_token()?;
        self.position = position;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn unexpected(&self, expected: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.position, expected, self.token.describe())
    }

    fn at(&self, mark: &str) -> bool {
        matches!(&self.token, Token::Mark(found) if *found == mark)
    }

    fn accept(&mut self, mark: &str) -> Result<bool, SyntaxError> {
        let found = self.at(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, mark: &str, expected: &str) -> Result<(), SyntaxError> {
        if self.accept(mark)? {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    fn term(&mut self, depth: u32) -> Result<Term, SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(SyntaxError::new(
                self.position,
                format!("at most {DEPTH_MAX} levels of nesting"),
                "one more",
            ));
        }
        match &self.token {
            Token::Atom(_) | Token::Integer(_) | Token::Float(_) | Token::String(_) => self.leaf(),
            Token::Mark("-") => self.signed(-1),
            Token::Mark("+") => self.signed(1),
            Token::Mark("{") => self.sequence("}", "tuple", depth).map(Term::Tuple),
            Token::Mark("[") => self.list(depth),
            Token::Mark("#") => self.map(depth),
            Token::Mark("<<") => self.binary(),
            Token::Mark("(") => {
                self.advance()?;
                let inner = self.term(depth + 1)?;
                self.expect(")", "`)`")?;
                Ok(inner)
            }
            _ => Err(self.unexpected("a term")),
        }
    }

    fn leaf(&mut self) -> Result<Term, SyntaxError> {
        match self.advance()? {
            Token::Atom(name) => {
                if self.at("(") || self.at(":") {
                    return Err(self.unexpected("a literal term, not a function call"));
                }
                Ok(Term::Atom(name))
            }
            Token::Integer(value) => Ok(Term::Integer(value)),
            Token::Float(value) => Ok(Term::Float(value)),
            Token::String(mut text) => {
                while let Token::String(more) = &self.token {
                    text.push_str(more);
                    self.advance()?;
                }
                Ok(Term::String(text))
            }
            other => Err(SyntaxError::new(self.position, "a term", other.describe())),
        }
    }

    fn signed(&mut self, sign: i8) -> Result<Term, SyntaxError> {
        self.advance()?;
        let term = match self.token {
            Token::Integer(value) => Term::Integer(value * i128::from(sign)),
            Token::Float(value) => Term::Float(value * f64::from(sign)),
            _ => return Err(self.unexpected("a number after the sign")),
        };
        self.advance()?;
        Ok(term)
    }

    /// The terms between the opening mark, which is the current token, and `close`.
    fn sequence(&mut self, close: &str, kind: &str, depth: u32) -> Result<Vec<Term>, SyntaxError> {
        self.advance()?;
        let mut elements = Vec::new();
        self.separated(close, kind, |parser| {
            elements.push(parser.term(depth + 1)?);
            Ok(())
        })?;
        Ok(elements)
    }

    /// Parts separated by commas, up to and including the closing mark.
    fn separated(
        &mut self,
        close: &str,
        kind: &str,
        mut part: impl FnMut(&mut Self) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        if self.accept(close)? {
            return Ok(());
        }
        loop {
            part(self)?;
            if self.accept(close)? {
                return Ok(());
            }
            self.expect(",", &format!("`,` or `{close}` in the {kind}"))?;
        }
    }

    fn list(&mut self, depth: u32) -> Result<Term, SyntaxError> {
        self.advance()?;
        let mut elements = Vec::new();
        if self.accept("]")? {
            return Ok(Term::List(elements));
        }
        loop {
            elements.push(self.term(depth + 1)?);
            if self.accept("]")? {
                return Ok(Term::List(elements));
            }
            if self.accept("|")? {
                let position = self.position;
                let tail = self.term(depth + 1)?;
                self.expect("]", "`]` after the tail of the list")?;
                elements.extend(list_tail(tail, position)?);
                return Ok(Term::List(elements));
            }
            self.expect(",", "`,`, `|` or `]` in the list")?;
        }
    }

    fn map(&mut self, depth: u32) -> Result<Term, SyntaxError> {
        self.advance()?;
        if !self.at("{") {
            return Err(self.unexpected("`{` of a map after `#`"));
        }
        self.advance()?;
        let mut pairs = Vec::new();
        self.separated("}", "map", |parser| {
            let key = parser.term(depth + 1)?;
            parser.expect("=>", "`=>` between key and value of the map")?;
            pairs.push((key, parser.term(depth + 1)?));
            Ok(())
        })?;
        Ok(Term::Map(pairs))
    }

    fn binary(&mut self) -> Result<Term, SyntaxError> {
        self.advance()?;
        let mut bytes = Vec::new();
        self.separated(">>", "binary", |parser| parser.segment(&mut bytes))?;
        Ok(Term::Binary(bytes))
    }

    /// One segment: an integer with an optional size in bits, or a text with an optional `/utf8`.
    fn segment(&mut self, bytes: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let position = self.position;
        match self.term(DEPTH_MAX)? {
            Term::Integer(value) => {
                let size = if self.accept(":")? {
                    self.segment_size()?
                } else {
                    1
                };
                let whole = value.to_be_bytes();
                bytes.extend_from_slice(whole.get(whole.len() - size..).unwrap_or_default());
                Ok(())
            }
            Term::String(text) => {
                if self.accept("/")? {
                    if self.token != Token::Atom("utf8".to_owned()) {
                        return Err(self.unexpected("`utf8` after `/`"));
                    }
                    self.advance()?;
                    bytes.extend_from_slice(text.as_bytes());
                } else {
                    // Erlang keeps the low eight bits of each character.
                    bytes.extend(
                        text.chars()
                            .map(|letter| u32::from(letter).to_le_bytes()[0]),
                    );
                }
                Ok(())
            }
            _ => Err(SyntaxError::new(
                position,
                "an integer or a string in the binary",
                "a term",
            )),
        }
    }

    fn segment_size(&mut self) -> Result<usize, SyntaxError> {
        if let Token::Integer(bits @ (8 | 16 | 24 | 32 | 40 | 48 | 56 | 64 | 128)) = self.token {
            self.advance()?;
            return Ok(usize::try_from(bits / 8).unwrap_or(1));
        }
        Err(self.unexpected("a size of 8, 16, 24, 32, 40, 48, 56, 64 or 128 bits"))
    }
}

fn list_tail(tail: Term, position: Position) -> Result<Vec<Term>, SyntaxError> {
    match tail {
        Term::List(elements) => Ok(elements),
        Term::String(text) => Ok(text
            .chars()
            .map(|letter| Term::Integer(i128::from(u32::from(letter))))
            .collect()),
        _ => Err(SyntaxError::new(
            position,
            "a list as the tail of a list",
            "another term",
        )),
    }
}
