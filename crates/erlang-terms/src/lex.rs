//! Splits the text of a term file into tokens with their places.

use crate::syntax_error::SyntaxError;
use crate::term::Position;

/// One token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Atom(String),
    Integer(i128),
    Float(f64),
    String(String),
    /// `{ } [ ] ( ) , | # : / - +` and the two-character marks `<<`, `>>`, `=>`.
    Mark(&'static str),
    /// A full stop followed by white space, a comment or the end of the text.
    Stop,
    End,
}

impl Token {
    /// The token's name in an error message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Atom(name) => format!("atom `{name}`"),
            Self::Integer(value) => format!("integer {value}"),
            Self::Float(value) => format!("float {value:?}"),
            Self::String(_) => "a string".to_owned(),
            Self::Mark(mark) => format!("`{mark}`"),
            Self::Stop => "the full stop that ends a term".to_owned(),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

/// Words that Erlang reserves: they are atoms only in quotes.
const RESERVED: [&str; 28] = [
    "after", "and", "andalso", "band", "begin", "bnot", "bor", "bsl", "bsr", "bxor", "case",
    "catch", "cond", "div", "else", "end", "fun", "if", "let", "maybe", "not", "of", "or",
    "orelse", "receive", "rem", "try", "when",
];

const MARKS: [&str; 17] = [
    "<<", ">>", "=>", "{", "}", "[", "]", "(", ")", ",", "|", "#", ":", "/", "-", "+", "=",
];

/// A reader over the characters of one text.
pub(crate) struct Lexer<'text> {
    rest: std::str::Chars<'text>,
    position: Position,
}

impl<'text> Lexer<'text> {
    pub(crate) fn new(text: &'text str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self {
            rest: text.chars(),
            position: Position { line: 1, column: 1 },
        }
    }

    /// The next token and where it begins.
    pub(crate) fn next_token(&mut self) -> Result<(Token, Position), SyntaxError> {
        self.skip_blanks();
        let start = self.position;
        let Some(first) = self.peek() else {
            return Ok((Token::End, start));
        };
        let token = match first {
            '0'..='9' => self.number(start)?,
            '"' => Token::String(self.quoted('"', start)?),
            '\'' => Token::Atom(self.quoted('\'', start)?),
            '$' => self.character(start)?,
            '.' => self.full_stop(start)?,
            'A'..='Z' | '_' => return Err(self.variable(start)),
            _ if is_atom_start(first) => self.bare_atom(start)?,
            _ => self.mark(start)?,
        };
        Ok((token, start))
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn peek_second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn bump(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.position.line = self.position.line.saturating_add(1);
            self.position.column = 1;
        } else {
            self.position.column = self.position.column.saturating_add(1);
        }
        Some(character)
    }

    fn skip_blanks(&mut self) {
        while let Some(character) = self.peek() {
            if character == '%' {
                while self.peek().is_some_and(|inside| inside != '\n') {
                    self.bump();
                }
            } else if is_blank(character) {
                self.bump();
            } else {
                return;
            }
        }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(character) = self.peek().filter(|character| accept(*character)) {
            taken.push(character);
            self.bump();
        }
        taken
    }

    fn bare_atom(&mut self, start: Position) -> Result<Token, SyntaxError> {
        let name = self.take_while(is_name_part);
        if name == "fun" {
            return Err(SyntaxError::new(
                start,
                "a literal term",
                "a fun, which only Erlang can run",
            ));
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(SyntaxError::new(
                start,
                format!("an atom in quotes, '{name}'"),
                format!("the reserved word `{name}`"),
            ));
        }
        Ok(Token::Atom(name))
    }

    fn variable(&mut self, start: Position) -> SyntaxError {
        let name = self.take_while(is_name_part);
        SyntaxError::new(
            start,
            "a literal term (an atom that begins with a capital letter needs single quotes)",
            format!("the variable `{name}`"),
        )
    }

    fn full_stop(&mut self, start: Position) -> Result<Token, SyntaxError> {
        self.bump();
        match self.peek() {
            None => Ok(Token::Stop),
            Some(next) if is_blank(next) || next == '%' => Ok(Token::Stop),
            Some(next) => Err(SyntaxError::new(
                start,
                "white space or the end of the file after the full stop",
                format!("`{}`", next.escape_default()),
            )),
        }
    }

    fn mark(&mut self, start: Position) -> Result<Token, SyntaxError> {
        let text = self.rest.as_str();
        if let Some(mark) = MARKS.into_iter().find(|mark| text.starts_with(mark)) {
            for _ in mark.chars() {
                self.bump();
            }
            return Ok(Token::Mark(mark));
        }
        let found = self
            .bump()
            .map_or_else(String::new, |found| found.escape_default().to_string());
        Err(SyntaxError::new(
            start,
            "a term",
            format!("the character `{found}`"),
        ))
    }

    fn character(&mut self, start: Position) -> Result<Token, SyntaxError> {
        self.bump();
        let value = match self.bump() {
            Some('\\') => self.escape(start)?,
            Some(character) => Some(character),
            None => None,
        };
        value
            .map(|character| Token::Integer(i128::from(u32::from(character))))
            .ok_or_else(|| SyntaxError::new(start, "a character after `$`", "the end of the text"))
    }

    /// Digits, with `_` between them, then a base, a fraction or nothing.
    fn number(&mut self, start: Position) -> Result<Token, SyntaxError> {
        let whole = self.digits(10);
        match (self.peek(), self.peek_second()) {
            (Some('#'), _) => {
                self.bump();
                self.based_integer(&whole, start)
            }
            (Some('.'), Some('0'..='9')) => {
                self.bump();
                self.fraction(&whole, start)
            }
            _ => integer(&whole, 10, start),
        }
    }

    fn digits(&mut self, base: u32) -> String {
        let mut digits = String::new();
        while let Some(next) = self.peek() {
            let joined =
                next == '_' && self.peek_second().is_some_and(|after| after.is_digit(base));
            if next.is_digit(base) {
                digits.push(next);
            } else if !joined || digits.is_empty() {
                break;
            }
            self.bump();
        }
        digits
    }

    fn based_integer(&mut self, base: &str, start: Position) -> Result<Token, SyntaxError> {
        let base: u32 = base.parse().unwrap_or(0);
        if !(2..=36).contains(&base) {
            return Err(SyntaxError::new(
                start,
                "a base from 2 to 36 before `#`",
                base.to_string(),
            ));
        }
        let digits = self.digits(base);
        if digits.is_empty() {
            return Err(SyntaxError::new(
                start,
                format!("digits of base {base} after `#`"),
                self.describe_next(),
            ));
        }
        integer(&digits, base, start)
    }

    fn fraction(&mut self, whole: &str, start: Position) -> Result<Token, SyntaxError> {
        let mut text = format!("{whole}.{}", self.digits(10));
        if matches!(self.peek(), Some('e' | 'E')) {
            self.bump();
            text.push('e');
            if let Some(sign) = self.peek().filter(|sign| matches!(sign, '+' | '-')) {
                self.bump();
                text.push(sign);
            }
            let exponent = self.digits(10);
            if exponent.is_empty() {
                return Err(SyntaxError::new(
                    start,
                    "digits of an exponent",
                    self.describe_next(),
                ));
            }
            text.push_str(&exponent);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Token::Float(value)),
            _ => Err(SyntaxError::new(start, "a float below 1.8e308", text)),
        }
    }

    fn describe_next(&self) -> String {
        self.peek().map_or_else(
            || "the end of the text".to_owned(),
            |next| format!("`{}`", next.escape_default()),
        )
    }

    fn quoted(&mut self, quote: char, start: Position) -> Result<String, SyntaxError> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                Some(character) if character == quote => return Ok(text),
                Some('\\') => text.extend(self.escape(start)?),
                Some(character) => text.push(character),
                None => {
                    let kind = if quote == '"' {
                        "string"
                    } else {
                        "quoted atom"
                    };
                    return Err(SyntaxError::new(
                        start,
                        format!("a closing `{quote}` for the {kind} that begins here"),
                        "the end of the text",
                    ));
                }
            }
        }
    }

    /// The character after a backslash; nothing for an escaped end of text.
    fn escape(&mut self, start: Position) -> Result<Option<char>, SyntaxError> {
        let here = self.position;
        let Some(first) = self.bump() else {
            return Ok(None);
        };
        let character = match first {
            'b' => '\u{8}',
            'd' => '\u{7f}',
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            's' => ' ',
            't' => '\t',
            'v' => '\u{b}',
            '0'..='7' => self.octal(first),
            'x' => return self.hexadecimal(here).map(Some),
            '^' => return self.control(start).map(Some),
            other => other,
        };
        Ok(Some(character))
    }

    fn octal(&mut self, first: char) -> char {
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|next| next.to_digit(8)) else {
                break;
            };
            value = value * 8 + digit;
            self.bump();
        }
        char::from_u32(value).unwrap_or('\u{fffd}')
    }

    fn hexadecimal(&mut self, here: Position) -> Result<char, SyntaxError> {
        let digits = if self.peek() == Some('{') {
            self.bump();
            let digits = self.take_while(|inside| inside.is_ascii_hexdigit());
            if self.bump() != Some('}') {
                return Err(SyntaxError::new(
                    here,
                    "`}` after \\x{ and digits",
                    "something else",
                ));
            }
            digits
        } else {
            let mut digits = String::new();
            while let Some(digit) = self.peek().filter(char::is_ascii_hexdigit) {
                if digits.len() == 2 {
                    break;
                }
                digits.push(digit);
                self.bump();
            }
            digits
        };
        u32::from_str_radix(&digits, 16)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| {
                SyntaxError::new(
                    here,
                    "a Unicode code point in hexadecimal",
                    format!("\\x{digits}"),
                )
            })
    }

    fn control(&mut self, start: Position) -> Result<char, SyntaxError> {
        match self.bump() {
            Some(letter @ '@'..='_') | Some(letter @ 'a'..='z') => {
                Ok(char::from_u32(u32::from(letter) & 31).unwrap_or('\u{fffd}'))
            }
            _ => Err(SyntaxError::new(
                start,
                "a letter after \\^",
                "something else",
            )),
        }
    }
}

fn integer(digits: &str, base: u32, start: Position) -> Result<Token, SyntaxError> {
    i128::from_str_radix(digits, base)
        .map(Token::Integer)
        .map_err(|_| SyntaxError::new(start, "an integer of at most 127 bits", digits.to_owned()))
}

fn is_blank(character: char) -> bool {
    character <= ' ' || ('\u{80}'..='\u{a0}').contains(&character)
}

/// An unquoted atom begins with a small letter of Latin-1.
pub(crate) fn is_atom_start(character: char) -> bool {
    character.is_ascii_lowercase() || matches!(character, '\u{df}'..='\u{f6}' | '\u{f8}'..='\u{ff}')
}

/// Characters that may follow in an unquoted atom.
pub(crate) fn is_name_part(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '_' | '@' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{ff}')
}

/// True if the atom has to be printed in quotes.
pub(crate) fn needs_quotes(name: &str) -> bool {
    let mut characters = name.chars();
    let starts = characters.next().is_some_and(is_atom_start);
    !starts || !characters.all(is_name_part) || RESERVED.contains(&name)
}
