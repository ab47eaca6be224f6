//! Files of the repository that documents show completely: a block after `<!-- printed: file PATH
//! -->` has the lines of that file, which tests run.

use crate::tidy::tree::Tree;

/// The beginning of such a mark.
const MARK: &str = "<!-- printed: file ";

/// Blocks of a document that differ from the files that they name.
pub(super) fn check(document: &str, text: &str, tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let mark = line.trim().strip_prefix(MARK);
        let Some(path) = mark.and_then(|it| it.strip_suffix("-->")).map(str::trim) else {
            continue;
        };
        let behind = lines.by_ref().map(|(_, line)| line);
        // The first line after the mark opens the block.
        let block: Vec<&str> = behind.skip(1).take_while(|line| *line != "```").collect();
        let file = tree.files.iter().find(|file| file.path == path);
        let defect = match file {
            None => "is not there",
            Some(file) if file.text().lines().eq(block.iter().copied()) => continue,
            Some(_) => "has other lines than the block behind",
        };
        violations.push(format!("{document}:{}: {path} {defect}", index + 1));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(text: &str) -> Vec<String> {
        let tree = Tree::planted(&[("tests/a.js", "one();\n\ntwo();\n")]);
        check("docs/a.md", text, &tree)
    }

    #[test]
    fn a_block_that_is_its_file_is_none() {
        let text =
            "text\n\n<!-- printed: file tests/a.js -->\n```js\none();\n\ntwo();\n```\nmore\n";
        assert!(violations_of(text).is_empty());
        assert!(violations_of("```js\nthree();\n```\n").is_empty());
    }

    #[test]
    fn another_block_and_a_missing_file_are_violations() {
        let mark = "<!-- printed: file tests/a.js -->";
        let violations = violations_of(&format!("text\n{mark}\n```js\none();\n```\n"));
        assert_eq!(
            violations,
            ["docs/a.md:2: tests/a.js has other lines than the block behind"]
        );
        let violations = violations_of("<!-- printed: file tests/b.js -->\n```js\n```\n");
        assert_eq!(violations, ["docs/a.md:1: tests/b.js is not there"]);
    }
}
