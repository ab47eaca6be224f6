//! The command lines of a document, each with its mark.
//!
//! ```text
//! <!-- printed: MARK -->              in front of a block: for all of its command lines
//! <!-- printed: MARK; MARK; MARK -->  one for each of them, in order
//!
//! MARK = run                          runs as printed
//!        run with `A` as `B`, ...     runs with B in place of A: a shorter duration, a fixture
//!        serve, serve with ...        starts the server with which the lines after it run
//!        elsewhere                    needs another host
//!        by hand                      measured by hand
//! ```

/// First words of command lines in a block that may also have output.
const PROGRAMS: &[&str] = &[
    "apt",
    "apt-get",
    "awk",
    "bash",
    "cargo",
    "cat",
    "cd",
    "chmod",
    "chown",
    "cp",
    "curl",
    "dd",
    "df",
    "docker",
    "du",
    "echo",
    "env",
    "erl",
    "export",
    "find",
    "for",
    "git",
    "grep",
    "if",
    "kill",
    "kvorum",
    "ln",
    "ls",
    "make",
    "mkdir",
    "mount",
    "mv",
    "node",
    "nohup",
    "npm",
    "openssl",
    "pip",
    "pip3",
    "podman",
    "printf",
    "ps",
    "python",
    "python3",
    "riak",
    "riak-admin",
    "rm",
    "rsync",
    "rustup",
    "scp",
    "sed",
    "set",
    "sh",
    "sleep",
    "source",
    "ss",
    "ssh",
    "sudo",
    "sysctl",
    "systemctl",
    "tail",
    "tar",
    "tee",
    "test",
    "time",
    "umount",
    "unset",
    "until",
    "wget",
    "while",
    "xargs",
    "zstd",
];

/// The directory of programs built here.
const BUILT: &str = "target/";

/// Languages of blocks with only command lines and comments.
const SCRIPTS: [&str; 3] = ["sh", "bash", "shell"];

/// Languages of blocks with command lines and perhaps their output; blocks of other languages have
/// none.
const SESSIONS: [&str; 2] = ["", "console"];

/// Words that begin a command of several lines, each with the word that ends it.
const COMPOUNDS: [(&str, &str); 4] = [
    ("for", "done"),
    ("while", "done"),
    ("until", "done"),
    ("if", "fi"),
];

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Printed {
    /// The line in its document on which it begins.
    pub(crate) number: usize,
    /// The line as printed, with its continuation.
    pub(crate) text: String,
    /// Its use, or the defect of its mark.
    pub(crate) mark: Result<Mark, &'static str>,
}

/// The use of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The line is run, with replacements.
    Run(Vec<(String, String)>),
    /// The line starts a server, with replacements.
    Serve(Vec<(String, String)>),
    /// The line needs another host.
    Elsewhere,
    /// The line was measured by hand.
    ByHand,
}

impl Printed {
    /// The line with its replacements.
    pub(crate) fn replaced(&self, replacements: &[(String, String)]) -> String {
        let mut text = self.text.clone();
        for (printed, run) in replacements {
            text = text.replace(printed, run);
        }
        text
    }
}

/// All command lines of a document.
pub(crate) fn lines(text: &str) -> Vec<Printed> {
    let mut found = Vec::new();
    let mut marks = None;
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if let Some(comment) = comment(line) {
            marks = Some(comment);
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let language = language.trim();
            let is_script = SCRIPTS.contains(&language);
            let block: Vec<(usize, &str)> = lines
                .by_ref()
                .take_while(|(_, line)| !line.trim_start().starts_with("```"))
                .collect();
            if is_script || SESSIONS.contains(&language) {
                found.extend(marked(&commands(&block, is_script), marks));
            }
            marks = None;
        } else if !line.trim().is_empty() {
            marks = None;
        }
    }
    found
}

fn comment(line: &str) -> Option<&str> {
    let comment = line.trim().strip_prefix("<!-- printed:")?;
    comment.strip_suffix("-->").map(str::trim)
}

/// Possible continuations of a line.
enum Next<'a> {
    /// Another command.
    Command,
    /// The rest of this command.
    Rest,
    /// The rest of this command, up to a line that is, or begins with, this word.
    Until(&'a str),
}

fn commands(block: &[(usize, &str)], is_script: bool) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut next = Next::Command;
    for (index, line) in block {
        let prompted = line.trim().strip_prefix("$ ");
        let plain = prompted.unwrap_or(line.trim());
        next = match (next, commands.last_mut()) {
            (Next::Rest, Some((_, command))) => {
                command.push('\n');
                command.push_str(plain);
                follows(plain)
            }
            (Next::Until(word), Some((_, command))) => {
                command.push('\n');
                command.push_str(plain);
                match first_word(plain) == word {
                    true => Next::Command,
                    false => Next::Until(word),
                }
            }
            _ if prompted.is_some() || is_command(plain, is_script) => {
                commands.push((index + 1, plain.to_owned()));
                follows(plain)
            }
            _ => Next::Command,
        };
    }
    commands
}

fn first_word(line: &str) -> &str {
    let end = |character: char| character.is_whitespace() || character == ';';
    line.split(end).next().unwrap_or_default()
}

fn is_command(line: &str, is_script: bool) -> bool {
    let word = first_word(line);
    if word.is_empty() || word.starts_with('#') {
        return false;
    }
    let is_name = |name: &str| {
        let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '_';
        !name.is_empty() && name.chars().all(is_letter)
    };
    let is_assignment = word.split_once('=').is_some_and(|(name, _)| is_name(name));
    is_script || is_assignment || word.starts_with(BUILT) || PROGRAMS.contains(&word)
}

/// The continuation of a command's first line.
fn follows(line: &str) -> Next<'_> {
    if line.ends_with('\\') {
        return Next::Rest;
    }
    if let Some((_, word)) = line.split_once("<<") {
        let word = word.trim_start_matches('-').trim();
        let word = first_word(word).trim_matches(['\'', '"']);
        // `<<<` precedes a word, not lines.
        if !word.is_empty() && !word.starts_with('<') {
            return Next::Until(word);
        }
    }
    let compound = COMPOUNDS
        .iter()
        .find(|(begin, _)| first_word(line) == *begin);
    let is_whole = |end: &str| line.split([' ', ';', '\t']).any(|word| word == end);
    match compound {
        Some((_, end)) if !is_whole(end) => Next::Until(end),
        _ => Next::Command,
    }
}

fn marked(commands: &[(usize, String)], marks: Option<&str>) -> Vec<Printed> {
    let marks: Option<Vec<_>> = marks.map(|marks| separate(marks).into_iter().map(parse).collect());
    let of = |position: usize| match &marks {
        None => Err("a command line has no mark"),
        Some(marks) if marks.len() == 1 => marks[0].clone(),
        Some(marks) if marks.len() == commands.len() => marks[position].clone(),
        Some(_) => Err("there are other numbers of marks and of command lines"),
    };
    let commands = commands.iter().enumerate();
    commands
        .map(|(position, (number, text))| Printed {
            number: *number,
            text: text.clone(),
            mark: of(position),
        })
        .collect()
}

/// The marks of a comment; semicolons between backquotes do not separate marks.
fn separate(marks: &str) -> Vec<&str> {
    let mut is_quoted = false;
    marks
        .split(|character| {
            is_quoted ^= character == '`';
            character == ';' && !is_quoted
        })
        .collect()
}

fn parse(mark: &str) -> Result<Mark, &'static str> {
    let mark = mark.trim();
    let (word, rest) = match mark.split_once(" with ") {
        Some((word, rest)) => (word.trim(), rest),
        None => (mark, ""),
    };
    let replacements = replacements(rest);
    match word {
        "run" => replacements.map(Mark::Run),
        "serve" => replacements.map(Mark::Serve),
        "elsewhere" => Ok(Mark::Elsewhere),
        "by hand" => Ok(Mark::ByHand),
        _ => Err("a mark is none of run, serve, elsewhere and by hand"),
    }
}

/// Pairs of `A` as `B`.
fn replacements(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let pieces: Vec<&str> = text.split('`').collect();
    // The pieces are: text before, A, text between, B, and so on, and the text after the last B.
    let groups = pieces[..pieces.len() - 1].chunks(4);
    let pairs = groups.map(|group| match group {
        [_, printed, between, run] if between.trim() == "as" && !printed.is_empty() => {
            Ok(((*printed).to_owned(), (*run).to_owned()))
        }
        _ => Err("replacements are written `A` as `B`"),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(printed: &str, run: &str) -> (String, String) {
        (printed.to_owned(), run.to_owned())
    }

    #[test]
    fn each_command_line_has_its_mark() {
        let text = "text\n<!-- printed: serve; run with `60` as `2`, `DIR` as `x; y`; by hand -->\n\
                    ```\nkvorum server\nsome output\n$ kvorum bench run --duration 60 \\\n    DIR\n\
                    cargo xtask test\n```\n\n```json\ncurl x\n```\n<!-- printed: run -->\nnot adjacent\n\
                    ```\ncurl y\n```\n";
        let lines = lines(text);
        let marks: Vec<_> = lines.iter().map(|it| it.mark.clone()).collect();
        let run = Mark::Run(vec![pair("60", "2"), pair("DIR", "x; y")]);
        assert_eq!(
            marks,
            [
                Ok(Mark::Serve(Vec::new())),
                Ok(run),
                Ok(Mark::ByHand),
                Err("a command line has no mark"),
            ]
        );
        assert_eq!(lines[1].number, 6);
        let replaced = lines[1].replaced(&[pair("60", "2"), pair("DIR", "x; y")]);
        assert_eq!(replaced, "kvorum bench run --duration 2 \\\nx; y");
    }

    /// Regression: lines that did not begin with one of seven words did not count as command lines,
    /// nor did lines in blocks marked `bash`.
    #[test]
    fn whatever_a_shell_runs_is_a_command_line() {
        let texts = |language: &str, block: &str| {
            let lines = lines(&format!("```{language}\n{block}\n```\n"));
            lines.into_iter().map(|it| it.text).collect::<Vec<_>>()
        };
        for command in [
            "export A=b",
            "A=b kvorum server",
            "A=b",
            "sudo kvorum start",
            "python3 -m venv x",
            "for node in 1 2; do echo $node; done",
            "target/release/kvorum ping",
            "$ whatever it is",
        ] {
            for language in ["", "sh", "bash", "shell", "console"] {
                let plain = command.strip_prefix("$ ").unwrap_or(command);
                assert_eq!(texts(language, command), [plain], "{language}");
            }
            assert!(texts("json", command).is_empty());
        }
        assert_eq!(
            texts("bash", "# a remark\n\nunknown program"),
            ["unknown program"]
        );
        for output in [
            "acknowledged 5, lost 0",
            "durability = none",
            "./tls/ca.key",
            "# a remark",
            "{}",
        ] {
            assert!(texts("", output).is_empty(), "{output}");
        }
        for long in [
            "for node in 1 2; do\nkvorum ping\ncurl x\ndone",
            "cat > file <<EOF\nkvorum ping\nEOF",
            "if kvorum ping\nthen curl x\nfi",
        ] {
            assert_eq!(
                texts("sh", &format!("{long}\nkvorum ping")),
                [long, "kvorum ping"]
            );
        }
        assert_eq!(texts("sh", "cat <<< x\nkvorum ping").len(), 2);
    }

    #[test]
    fn marks_that_say_nothing_are_reported() {
        for (marks, is_right) in [
            ("run", true),
            ("elsewhere", true),
            ("run; run", false),
            ("perhaps", false),
            ("run with `A`", false),
            ("run with `A` for `B`", false),
        ] {
            let text = format!("<!-- printed: {marks} -->\n```\nkvorum ping\n```\n");
            assert_eq!(lines(&text)[0].mark.is_ok(), is_right, "{marks}");
        }
    }
}
