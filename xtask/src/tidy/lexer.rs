//! A lexer for Rust source: enough to distinguish code from comments and texts.
//!
//! This is no parser. A search in plain text finds words in comments and misses `use std::{fs,
//! io}`; a real parser is a large dependency for a few rules.

/// A piece of Rust source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier, keyword or number.
    Word(String),
    /// A single punctuation character.
    Mark(char),
    /// A comment of any kind, with its marks.
    Comment(String),
    /// A string, character or lifetime, with its marks.
    Literal(String),
}

/// A token, and the lines of its start and end, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) line: usize,
    pub(crate) last_line: usize,
}

impl Placed {
    /// The identifier, keyword or number.
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The punctuation character.
    pub(crate) fn mark(&self) -> Option<char> {
        match self.token {
            Token::Mark(mark) => Some(mark),
            _ => None,
        }
    }
}

/// Splits `source` into tokens. Broken source gives some tokens, never an error.
pub(crate) fn tokens(source: &str) -> Vec<Placed> {
    let mut cursor = Cursor {
        characters: source.chars().collect(),
        position: 0,
        line: 1,
    };
    let mut tokens = Vec::new();
    while let Some(character) = cursor.peek(0) {
        let line = cursor.line;
        if let Some(token) = cursor.next_token(character) {
            tokens.push(Placed {
                token,
                line,
                last_line: cursor.line,
            });
        }
    }
    tokens
}

/// The tokens without comments.
pub(crate) fn code(source: &str) -> Vec<Placed> {
    let mut tokens = tokens(source);
    tokens.retain(|placed| !matches!(placed.token, Token::Comment(_)));
    tokens
}

struct Cursor {
    characters: Vec<char>,
    position: usize,
    line: usize,
}

impl Cursor {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn advance(&mut self) -> Option<char> {
        let character = self.peek(0)?;
        self.position += 1;
        self.line += usize::from(character == '\n');
        Some(character)
    }

    /// The token at the cursor, with `first` as its first character; `None` after white space.
    fn next_token(&mut self, first: char) -> Option<Token> {
        let second = self.peek(1);
        match first {
            '/' if second == Some('/') => Some(self.line_comment()),
            '/' if second == Some('*') => Some(self.block_comment()),
            '"' => Some(self.literal(Cursor::text)),
            '\'' => Some(self.literal(Cursor::character_or_lifetime)),
            _ if self.raw_text_hashes().is_some() => Some(self.literal(Cursor::raw_text)),
            'b' | 'c' if second == Some('"') => Some(self.literal(|cursor| {
                cursor.advance();
                cursor.text();
            })),
            'b' if second == Some('\'') => Some(self.literal(|cursor| {
                cursor.advance();
                cursor.character_or_lifetime();
            })),
            _ if is_word(first) => Some(self.word()),
            _ => {
                self.advance();
                (!first.is_whitespace()).then_some(Token::Mark(first))
            }
        }
    }

    fn line_comment(&mut self) -> Token {
        let mut text = String::new();
        while let Some(character) = self.peek(0).filter(|&character| character != '\n') {
            text.push(character);
            self.advance();
        }
        Token::Comment(text)
    }

    fn block_comment(&mut self) -> Token {
        let mut text = String::new();
        let mut depth = 0_usize;
        while let Some(character) = self.advance() {
            text.push(character);
            match (character, self.peek(0)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => continue,
            }
            text.extend(self.advance());
            if depth == 0 {
                break;
            }
        }
        Token::Comment(text)
    }

    /// The literal over which `pass` moves the cursor.
    fn literal(&mut self, pass: impl FnOnce(&mut Cursor)) -> Token {
        let start = self.position;
        pass(self);
        Token::Literal(self.characters[start..self.position].iter().collect())
    }

    fn text(&mut self) {
        self.advance();
        while let Some(character) = self.advance() {
            match character {
                '\\' => drop(self.advance()),
                '"' => break,
                _ => {}
            }
        }
    }

    /// `'a'`, `'\n'` or `'lifetime`.
    fn character_or_lifetime(&mut self) {
        self.advance();
        if self.peek(0) == Some('\\') {
            self.advance();
            self.advance();
            while self.advance().is_some_and(|character| character != '\'') {}
        } else if self.peek(1) == Some('\'') {
            self.advance();
            self.advance();
        } else {
            while self.peek(0).is_some_and(is_word) {
                self.advance();
            }
        }
    }

    /// The lengths of prefix and hashes if the cursor is at `r"`, `r#"`, `br"` and the like.
    fn raw_text_hashes(&self) -> Option<(usize, usize)> {
        let prefix = match (self.peek(0)?, self.peek(1)) {
            ('r', _) => 1,
            ('b' | 'c', Some('r')) => 2,
            _ => return None,
        };
        let mut hashes = 0;
        while self.peek(prefix + hashes) == Some('#') {
            hashes += 1;
        }
        (self.peek(prefix + hashes) == Some('"')).then_some((prefix, hashes))
    }

    fn raw_text(&mut self) {
        let (prefix, hashes) = self.raw_text_hashes().unwrap_or((0, 0));
        for _ in 0..=prefix + hashes {
            self.advance();
        }
        while let Some(character) = self.advance() {
            if character == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                for _ in 0..hashes {
                    self.advance();
                }
                break;
            }
        }
    }

    fn word(&mut self) -> Token {
        let mut text = String::new();
        while let Some(character) = self.peek(0).filter(|&character| is_word(character)) {
            text.push(character);
            self.advance();
        }
        Token::Word(text)
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        code(source)
            .into_iter()
            .filter_map(|placed| match placed.token {
                Token::Word(word) => Some(word),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn comments_and_texts_are_no_code() {
        let source = "one // two\n/* three /* four */ five */ \"six \\\" seven\" eight";
        assert_eq!(words(source), ["one", "eight"]);
    }

    #[test]
    fn raw_texts_end_where_their_hashes_do() {
        assert_eq!(
            words("r#\"a \" b\"# c br\"d\" e r#type"),
            ["c", "e", "r", "type"]
        );
    }

    #[test]
    fn a_quote_starts_a_character_or_a_lifetime() {
        assert_eq!(
            words("'a' b '\\'' c 'd e <'f> g b'h' i"),
            ["b", "c", "e", "g", "i"]
        );
    }

    #[test]
    fn tokens_know_their_line() {
        let lines: Vec<usize> = tokens("a\n\"x\ny\"\nb").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 2, 4]);
    }

    #[test]
    fn broken_source_ends() {
        for source in ["\"open", "/* open", "'", "r#\"open", "b'"] {
            tokens(source);
        }
    }
}
