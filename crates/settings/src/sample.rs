//! The sample configuration file, written from the tables of keys.

use std::fmt::Write as _;

use crate::honoured::SECTIONS;
use crate::name;

/// A file with every key, explained and commented out at its default.
pub fn sample_file() -> String {
    let mut text = String::from(
        "## Configuration of a Kvorum node, in the form of riak.conf.\n\
         ##\n\
         ## Every key is here at its default; remove the `# ` to change one.\n\
         ## `kvorum chkconfig` checks the file, `kvorum describe KEY` describes one.\n\
         ## This file is generated: cargo run -p kvorum-settings --example write_reference\n",
    );
    for section in &SECTIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n\n## ---- {} ----", section.title);
        for key in section.keys {
            text.push('\n');
            for line in wrap(key.help, 90) {
                let _ = writeln!(text, "## {line}");
            }
            for line in wrap(&format!("Takes {}.", key.kind.expected()), 90) {
                let _ = writeln!(text, "## {line}");
            }
            let name = name::instance(key.name, key.default_word);
            let _ = match key.default {
                Some(value) => writeln!(text, "# {name} = {value}"),
                None => writeln!(text, "# {name} ="),
            };
        }
    }
    text
}

/// Breaks text at spaces into lines of at most `width` characters, longer words aside.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
